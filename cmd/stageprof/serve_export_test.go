package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/pprof/profile"
	collector "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"stageprof/sim/simtest"
)

// received is what a receiver was sent: calls and bytes by stage and function.
type received struct {
	t *testing.T

	mu       sync.Mutex
	counts   simtest.Counts
	profiles int
}

// add adds calls or bytes of a stage path and a function.
func (r *received) add(path, symbol, column string, value int64) {
	n := simtest.Count{}
	switch column {
	case "calls":
		n.Calls = uint64(value)
	case "bytes":
		n.Bytes = uint64(value)
	}
	r.counts.Add(simtest.Key{Tag: strings.TrimPrefix(path, "none"), Symbol: symbol}, n)
}

// addPprof adds the profile of a pprof file.
func (r *received) addPprof(raw []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, err := profile.ParseData(raw)
	if err != nil {
		r.t.Error(err)
		return
	}
	r.profiles++
	for _, s := range p.Sample {
		for i, column := range p.SampleType {
			r.add(s.Label["stage_path"][0], s.Location[0].Line[0].Function.Name, column.Type, s.Value[i])
		}
	}
}

// addOTLP adds the profiles of an OTLP message.
func (r *received) addOTLP(message []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var m collector.ExportProfilesServiceRequest
	if err := proto.Unmarshal(message, &m); err != nil {
		r.t.Error(err)
		return
	}
	r.profiles++
	d := m.Dictionary
	for _, p := range m.ResourceProfiles[0].ScopeProfiles[0].Profiles {
		for _, s := range p.Samples {
			path := ""
			for _, a := range s.AttributeIndices {
				if d.StringTable[d.AttributeTable[a].KeyStrindex] == "stage_path" {
					path = d.AttributeTable[a].Value.GetStringValue()
				}
			}
			leaf := d.LocationTable[d.StackTable[s.StackIndex].LocationIndices[0]]
			r.add(path, d.StringTable[d.FunctionTable[leaf.Lines[0].FunctionIndex].NameStrindex], d.StringTable[p.SampleType.TypeStrindex], s.Values[0])
		}
	}
}

// nested takes the value of a field of bytes out of a message, and one of a field
// in it, and so on.
func nested(t *testing.T, message []byte, fields ...protowire.Number) []byte {
	t.Helper()
	for _, want := range fields {
		var inside []byte
		for rest := message; len(rest) > 0; {
			field, _, n := protowire.ConsumeTag(rest)
			value, m := protowire.ConsumeBytes(rest[max(n, 0):])
			if n < 0 || m < 0 {
				t.Errorf("no message: %v", rest)
				return nil
			}
			if field == want {
				inside = value
			}
			rest = rest[n+m:]
		}
		message = inside
	}
	return message
}

// httpReceiver answers POSTs to a path; the first one it is too busy for.
func httpReceiver(t *testing.T, path string, add func(body []byte)) string {
	t.Helper()
	var busy sync.Once
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil || q.Method != http.MethodPost || q.URL.Path != path || q.Header.Get("Authorization") != "Bearer s3cret" {
			t.Errorf("%s %s %v: %v", q.Method, q.URL, q.Header, err)
		}
		first := false
		busy.Do(func() { first = true })
		if first {
			http.Error(w, "restarting", http.StatusServiceUnavailable)
			return
		}
		add(body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// rawCodec leaves gRPC's messages as they are.
type rawCodec struct{}

func (rawCodec) Name() string                { return "proto" }
func (rawCodec) Marshal(any) ([]byte, error) { return nil, nil } // every answer is empty
func (rawCodec) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), b...)
	return nil
}

// parcaReceiver serves the method that Parca has.
func parcaReceiver(t *testing.T, add func(request []byte)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}))
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "parca.profilestore.v1alpha1.ProfileStoreService", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "WriteRaw",
			Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				var request []byte
				if err := decode(&request); err != nil {
					return nil, err
				}
				add(request)
				return nil, nil
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

// What a receiver is sent while serve follows two processes sums to the drivers'
// own truth, whatever the protocol, up to ^C.
func TestServeExportsTheTruth(t *testing.T) {
	for name, receiver := range map[string]func(t *testing.T, r *received) string{
		"otlp": func(t *testing.T, r *received) string {
			return httpReceiver(t, "/v1development/profiles", r.addOTLP)
		},
		"pyroscope": func(t *testing.T, r *received) string {
			return httpReceiver(t, "/push.v1.PusherService/Push", func(b []byte) { r.addPprof(nested(t, b, 1, 2, 1)) })
		},
		"parca": func(t *testing.T, r *received) string {
			return parcaReceiver(t, func(b []byte) { r.addPprof(nested(t, b, 2, 2, 1)) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := &received{t: t, counts: simtest.Counts{}}
			token := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(token, []byte("s3cret\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			serveSendsTheTruth(t, got, func() {}, "--"+name, receiver(t, got), "--export-token-file", token)
		})
	}
}

// serveSendsTheTruth compares what serve sends with the drivers' own truth, after it
// has been collected.
func serveSendsTheTruth(t *testing.T, got *received, collect func(), args ...string) {
	t.Helper()
	dir := t.TempDir()
	s := startServe(t, append([]string{
		"--match", regexp.QuoteMeta(dir), "--follow", "--probes", "all", "--export-every", "1s",
	}, args...)...)
	want := simtest.Counts{}
	ended := func(p *simtest.Process) {
		p.Wait()
		for k, n := range p.Truth().Counts().By(simtest.ByTagAndSymbol) {
			n.Errors = 0 // a profile has no column for them
			want.Add(k, n)
		}
	}
	begin := func(n int, args ...string) *simtest.Process {
		ready := filepath.Join(dir, fmt.Sprint("go", n))
		p := simtest.Start(t, simtest.Tester(t, "calls", append(args, "--ready", ready, "--markers", simtest.Markers(t),
			"--calls", "2000", "--rate", "1500", "--stages", "2")...))
		p.WaitLine("up")
		s.await("stageprof_targets_total", float64(n))
		s.await(up, 1)
		release(t, ready)
		return p
	}
	first := begin(1)
	s.await(up, 0)
	ended(first)
	second := begin(2, "--hold", "-")
	second.WaitLine("done")
	s.interrupt()
	second.Release()
	ended(second)
	collect()
	if diff := simtest.Diff(want, got.counts); diff != "" || want.Total().Calls == 0 {
		t.Errorf("what arrived differs from the drivers' truth:\n%s", diff)
	}
	if got.profiles < 2 {
		t.Errorf("%d profiles, want one of each process at least", got.profiles)
	}
	if !strings.Contains(s.said(), "sent="+strconv.Itoa(got.profiles)+" refused=0 dropped=0") {
		t.Errorf("%d profiles have arrived; it said\n%s", got.profiles, s.said())
	}
}
