package export

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	collector "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// testPush is a profile with all that ours have: two columns, labels of text and
// with a unit, mappings with build ids, a location without a mapping, a loss.
func testPush() Push {
	m := &profile.Mapping{ID: 1, Start: 0x1000, Limit: 0x2000, File: "/lib/libcuda.so.1", BuildID: "abc"}
	f := &profile.Function{ID: 1, Name: "cuLaunchKernel", SystemName: "cuLaunchKernel"}
	g := &profile.Function{ID: 2, Name: "train", Filename: "train.py", StartLine: 3}
	leaf := &profile.Location{ID: 1, Mapping: m, Address: 0x1010, Line: []profile.Line{{Function: f}}}
	caller := &profile.Location{ID: 2, Line: []profile.Line{{Function: g, Line: 7}}}
	sample := func(stage string, rank int64, calls, wall int64, stack ...*profile.Location) *profile.Sample {
		return &profile.Sample{
			Location: stack, Value: []int64{calls, wall}, Label: map[string][]string{"stage": {stage}, "gil": {"free"}},
			NumLabel: map[string][]int64{"rank": {rank}}, NumUnit: map[string][]string{"rank": {"count"}},
		}
	}
	return Push{
		Service: "trainer", Labels: []Label{{"rank", "3"}}, Version: "test",
		Profile: &profile.Profile{
			SampleType: []*profile.ValueType{{Type: "calls", Unit: "count"}, {Type: "wall", Unit: "nanoseconds"}},
			PeriodType: &profile.ValueType{Type: "calls", Unit: "count"}, Period: 1,
			TimeNanos: 1_700_000_000_000_000_000, DurationNanos: 5e9, Comments: []string{"what was lost", "nothing"},
			Mapping: []*profile.Mapping{m}, Function: []*profile.Function{f, g}, Location: []*profile.Location{leaf, caller},
			Sample: []*profile.Sample{
				sample("forward", 0, 10, 1000, leaf, caller), sample("forward", 0, 5, 70, leaf), sample("backward", 0, 2, 0, leaf, caller),
			},
		},
	}
}

// totals sums a profile's columns.
func totals(p *profile.Profile) map[string]int64 {
	out := map[string]int64{}
	for _, s := range p.Sample {
		for i, v := range s.Value {
			out[p.SampleType[i].Type] += v
		}
	}
	return out
}

// server answers with statuses one after the other, the last again and again, and
// keeps the requests.
type server struct {
	*httptest.Server
	requests []*http.Request
	bodies   [][]byte
}

func newServer(t *testing.T, answer string, statuses ...int) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		status := statuses[min(len(s.requests), len(statuses)-1)]
		s.requests, s.bodies = append(s.requests, r), append(s.bodies, body)
		w.WriteHeader(status)
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(s.Close)
	return s
}

var quick = Backoff{First: time.Microsecond, Max: time.Millisecond}

func deliver(t *testing.T, r Receiver) (int, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return Deliver(ctx, r, testPush(), quick)
}

func TestOTLP(t *testing.T) {
	s := newServer(t, "", http.StatusOK)
	auth := Auth{Token: "secret", Headers: []Label{{"X-Scope-OrgID", "team"}}}
	if tries, err := deliver(t, OTLP{URL: s.URL, Auth: auth}); err != nil || tries != 1 {
		t.Fatalf("%d tries: %v", tries, err)
	}
	r := s.requests[0]
	if r.URL.Path != "/v1development/profiles" || r.Header.Get("Content-Type") != "application/x-protobuf" ||
		r.Header.Get("Authorization") != "Bearer secret" || r.Header.Get("X-Scope-OrgID") != "team" {
		t.Errorf("request %s %v", r.URL, r.Header)
	}
	var got collector.ExportProfilesServiceRequest
	if err := proto.Unmarshal(s.bodies[0], &got); err != nil {
		t.Fatal(err)
	}
	d := got.Dictionary
	if d.StringTable[0] != "" || proto.Size(d.MappingTable[0])+proto.Size(d.LocationTable[0])+proto.Size(d.FunctionTable[0])+
		proto.Size(d.AttributeTable[0])+proto.Size(d.StackTable[0]) != 0 {
		t.Error("the first entries of the tables are not empty")
	}
	sums, lines := map[string]int64{}, []string{}
	for _, p := range got.ResourceProfiles[0].ScopeProfiles[0].Profiles {
		column := d.StringTable[p.SampleType.TypeStrindex]
		for _, s := range p.Samples {
			sums[column] += s.Values[0]
			var stack, labels []string
			for _, l := range d.StackTable[s.StackIndex].LocationIndices {
				stack = append(stack, d.StringTable[d.FunctionTable[d.LocationTable[l].Lines[0].FunctionIndex].NameStrindex])
			}
			for _, a := range s.AttributeIndices {
				kv := d.AttributeTable[a]
				labels = append(labels, fmt.Sprintf("%s=%s%d", d.StringTable[kv.KeyStrindex], kv.Value.GetStringValue(), kv.Value.GetIntValue()))
			}
			lines = append(lines, fmt.Sprint(column, s.Values[0], stack, labels))
		}
		if p.TimeUnixNano != 1_700_000_000_000_000_000 || p.DurationNano != 5e9 || len(p.ProfileId) != 16 {
			t.Errorf("%s: %v", column, p)
		}
	}
	if want := totals(testPush().Profile); fmt.Sprint(sums) != fmt.Sprint(want) {
		t.Errorf("totals %v, want %v", sums, want)
	}
	want := []string{
		"calls10[cuLaunchKernel train][gil=free0 stage=forward0 rank=0]",
		"calls5[cuLaunchKernel][gil=free0 stage=forward0 rank=0]",
		"calls2[cuLaunchKernel train][gil=free0 stage=backward0 rank=0]",
		"wall1000[cuLaunchKernel train][gil=free0 stage=forward0 rank=0]",
		"wall70[cuLaunchKernel][gil=free0 stage=forward0 rank=0]",
	}
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], " [", "[")
		lines[i] = strings.ReplaceAll(lines[i], "] ", "]")
	}
	if !slices.Equal(lines, want) {
		t.Errorf("samples\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}

func TestOTLPIsDeterministic(t *testing.T) {
	one, err := EncodeOTLP(testPush())
	if err != nil {
		t.Fatal(err)
	}
	if two, err := EncodeOTLP(testPush()); err != nil || string(one) != string(two) {
		t.Errorf("the same push has other bytes (%v)", err)
	}
}

func TestOTLPRejection(t *testing.T) {
	answer, err := proto.Marshal(&collector.ExportProfilesServiceResponse{
		PartialSuccess: &collector.ExportProfilesPartialSuccess{RejectedProfiles: 2, ErrorMessage: "too old"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ answer, want string }{
		"partial": {string(answer), "rejected 2 profiles: too old"}, "no OTLP": {"<html>", "not OTLP's"},
	} {
		s := newServer(t, c.answer, http.StatusOK)
		if _, err := deliver(t, OTLP{URL: s.URL}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// fields reads a message's fields of bytes.
func fields(t *testing.T, b []byte) map[protowire.Number][][]byte {
	t.Helper()
	out := map[protowire.Number][][]byte{}
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 || kind != protowire.BytesType {
			t.Fatalf("field %d of kind %d: %v", number, kind, protowire.ParseError(n))
		}
		value, m := protowire.ConsumeBytes(b[n:])
		if m < 0 {
			t.Fatal(protowire.ParseError(m))
		}
		out[number] = append(out[number], value)
		b = b[n+m:]
	}
	return out
}

// checkSeries checks one series: its labels, and the profile in its only sample.
func checkSeries(t *testing.T, labels, samples [][]byte, want []Label) {
	t.Helper()
	var got []Label
	for _, l := range labels {
		f := fields(t, l)
		got = append(got, Label{string(f[1][0]), string(f[2][0])})
	}
	if !slices.Equal(got, want) {
		t.Errorf("labels %v, want %v", got, want)
	}
	if len(samples) != 1 {
		t.Fatalf("%d samples, want 1", len(samples))
	}
	p, err := profile.ParseData(fields(t, samples[0])[1][0])
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(totals(p)) != fmt.Sprint(totals(testPush().Profile)) {
		t.Errorf("totals %v, want %v", totals(p), totals(testPush().Profile))
	}
}

func TestPyroscope(t *testing.T) {
	s := newServer(t, "", http.StatusOK)
	if _, err := deliver(t, Pyroscope{URL: s.URL + "/", Auth: Auth{Token: "secret"}}); err != nil {
		t.Fatal(err)
	}
	r := s.requests[0]
	if r.Method != http.MethodPost || r.URL.Path != "/push.v1.PusherService/Push" || r.Header.Get("Content-Type") != "application/proto" {
		t.Errorf("request %s %s %v", r.Method, r.URL, r.Header)
	}
	series := fields(t, s.bodies[0])[1]
	if len(series) != 1 {
		t.Fatalf("%d series, want 1", len(series))
	}
	f := fields(t, series[0])
	checkSeries(t, f[1], f[2], []Label{{"__name__", "cuda"}, {"service_name", "trainer"}, {"rank", "3"}})
}

// parca serves the method that Parca has, and no other.
func parca(t *testing.T, write func(ctx context.Context, request []byte) error) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.ForceServerCodec(bytesCodec{}))
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "parca.profilestore.v1alpha1.ProfileStoreService", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "WriteRaw",
			Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				var request []byte
				if err := decode(&request); err != nil {
					return nil, err
				}
				return []byte{}, write(ctx, request)
			},
		}},
	}, struct{}{})
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return "http://" + listener.Addr().String()
}

func TestParca(t *testing.T) {
	var request []byte
	var token []string
	url := parca(t, func(ctx context.Context, r []byte) error {
		md, _ := metadata.FromIncomingContext(ctx)
		request, token = r, md["authorization"]
		return nil
	})
	if _, err := deliver(t, Parca{URL: url, Auth: Auth{Token: "secret"}}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(token, []string{"Bearer secret"}) {
		t.Errorf("authorization %q", token)
	}
	series := fields(t, request)[2]
	if len(series) != 1 {
		t.Fatalf("%d series, want 1", len(series))
	}
	f := fields(t, series[0])
	checkSeries(t, fields(t, f[1][0])[1], f[2], []Label{{"__name__", "cuda"}, {"job", "trainer"}, {"rank", "3"}})
}

func TestParcaRetriesAndRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		code  codes.Code
		tries int
		want  string
	}{
		"restarting":   {codes.Unavailable, 3, ""},
		"overloaded":   {codes.ResourceExhausted, 3, ""},
		"no token":     {codes.Unauthenticated, 1, ErrDenied.Error()},
		"a bad sample": {codes.InvalidArgument, 1, "bad sample"},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			url := parca(t, func(context.Context, []byte) error {
				if calls.Add(1) < 3 {
					return status.Error(c.code, "bad sample")
				}
				return nil
			})
			checkTries(t, Parca{URL: url}, c.tries, c.want)
		})
	}
}

func checkTries(t *testing.T, r Receiver, tries int, want string) {
	t.Helper()
	got, err := deliver(t, r)
	if got != tries {
		t.Errorf("%d tries, want %d", got, tries)
	}
	if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

func TestHTTPRetriesAndRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		statuses []int
		tries    int
		want     string
	}{
		"restarting":  {[]int{502, 503, 504, 429, 200}, 5, ""},
		"bad request": {[]int{400, 200}, 1, `400 Bad Request: "the reason"`},
		"wrong path":  {[]int{404, 200}, 1, "404"},
		"no token":    {[]int{401, 200}, 1, ErrDenied.Error()},
		"moved":       {[]int{301, 200}, 1, "301"},
		"broken":      {[]int{500, 200}, 1, "500"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, "the reason\nand more", c.statuses...)
			checkTries(t, Pyroscope{URL: s.URL}, c.tries, c.want)
		})
	}
}

// untilTry is a receiver whose sender gives up after a number of tries.
type untilTry struct {
	Receiver
	left   int
	giveUp func()
}

func (r *untilTry) Push(ctx context.Context, p Push) error {
	err := r.Receiver.Push(ctx, p)
	if r.left--; r.left == 0 {
		r.giveUp()
	}
	return err
}

// Nobody listens: it is tried until the time is over, which the error says.
func TestNobodyThere(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + listener.Addr().String()
	listener.Close()
	for name, r := range map[string]Receiver{"HTTP": OTLP{URL: address}, "gRPC": Parca{URL: address}} {
		over := errors.New("the time is over")
		ctx, cancel := context.WithCancelCause(t.Context())
		tries, err := Deliver(ctx, &untilTry{r, 4, func() { cancel(over) }}, testPush(), quick)
		if !errors.Is(err, over) || tries != 4 {
			t.Errorf("%s: %d tries, %v", name, tries, err)
		}
	}
}

// The pprof file that is sent is a gzip file, as servers expect.
func TestRawIsCompressed(t *testing.T) {
	raw, err := testPush().raw()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gzip.NewReader(strings.NewReader(string(raw))); err != nil {
		t.Error(err)
	}
}
