package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/pprof/profile"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

const patience = 30 * time.Second

// fakeSession is a target that has made so many steps: a span of 4 ms each, with
// one call of 1 ms.
type fakeSession struct {
	pid   int
	ended chan struct{}

	mu     sync.Mutex
	steps  uint64
	missed uint64 // ends of spans, beside two
	looks  int    // snapshots taken
	final  *recording.Recording
	broken error
	closed bool
}

func newFake(pid int) *fakeSession { return &fakeSession{pid: pid, ended: make(chan struct{})} }

func (f *fakeSession) step(n uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.steps += n
}

func (f *fakeSession) looked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.looks
}

func (f *fakeSession) at(end recording.WindowEnd) *recording.Recording {
	b := recordingtest.New()
	r := b.Recording()
	r.Target.PID = f.pid
	r.Window.Duration, r.Window.End = time.Duration(f.steps)*time.Second, end
	thread := b.Thread(f.pid, "loop")
	call := b.Call(thread, "step", b.Symbol("cuLaunchKernel"), f.steps, time.Millisecond, time.Millisecond/2)
	call.Errors, call.Bytes = f.steps, 3*f.steps
	stage := b.Spans(thread, "step", f.steps, 4*time.Millisecond, 0)
	stage.Parts = recording.Parts{CUDACPUNS: f.steps * 500_000, CUDABlockedNS: f.steps * 500_000, RunningNS: f.steps * 3_000_000}
	open := recording.Span{Thread: thread, Path: stage.Path, BeginNS: r.Window.StartNS + f.steps, WallNS: 7, Partial: true, Parts: recording.Parts{RunningNS: 7}}
	if end == recording.EndOpen {
		r.Open = []recording.Span{open}
		b.Loss("calls", recording.LossInFlight, 1, "running")
		stage.PartialCount, stage.PartialWallNS, stage.PartialParts = 1, 7, open.Parts
	}
	for i := range f.steps {
		r.Spans = append(r.Spans, recording.Span{Thread: thread, Path: stage.Path, BeginNS: r.Window.StartNS + i, WallNS: 4_000_000,
			Parts: recording.Parts{RunningNS: 4_000_000}})
	}
	b.Loss("spans", "missed_stage_end", 2+f.missed, "missed")
	r.Seen = &recording.Seen{Calls: f.steps}
	if end == recording.EndOpen {
		r.Seen.Calls++
	}
	return r
}

func (f *fakeSession) Snapshot() (*recording.Recording, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	if f.final != nil || f.broken != nil {
		return f.final, f.broken
	}
	return f.at(recording.EndOpen), nil
}

func (f *fakeSession) Wait(ctx context.Context) (*recording.Recording, error) {
	end := recording.EndExit
	select {
	case <-ctx.Done():
		end = recording.EndInterrupt
	case <-f.ended:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.final = f.at(end)
	return f.final, nil
}

func (f *fakeSession) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

// running is a server that runs.
type running struct {
	*Server
	t    *testing.T
	url  string
	stop context.CancelFunc
	done chan error
}

func start(t *testing.T, c Config) *running {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(t.Context())
	r := &running{New(c), t, "http://" + listener.Addr().String(), stop, make(chan error, 1)}
	r.follower.readingAge = 0 // tests look again at once
	go func() { r.done <- r.Run(ctx, listener) }()
	t.Cleanup(stop)
	return r
}

// serving is a server of one session, which it records already.
func serving(t *testing.T, c Config) (*running, *fakeSession) {
	t.Helper()
	session := newFake(4242)
	c.Open = func(context.Context) (Session, error) { return session, nil }
	r := start(t, c)
	r.await(session, true)
	return r, session
}

// await waits until a session is the present one.
func (r *running) await(session Session, up bool) {
	r.t.Helper()
	r.eventually("the session", func() bool {
		now, isUp := r.follower.current()
		return now == session && isUp == up
	})
}

func (r *running) eventually(what string, condition func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("not after %v: %s", patience, what)
		}
	}
}

// end waits for Run to return.
func (r *running) end() error {
	r.t.Helper()
	r.stop()
	select {
	case err := <-r.done:
		return err
	case <-time.After(patience):
		r.t.Fatal("the server does not end")
		return nil
	}
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (r *running) get(path string, change ...func(*http.Request)) answer {
	r.t.Helper()
	a, err := r.ask(path, change...)
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

func (r *running) ask(path string, change ...func(*http.Request)) (answer, error) {
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.url+path, nil)
	if err != nil {
		return answer{}, err
	}
	for _, f := range change {
		f(request)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(body)}, err
}

// metrics are the values of a scrape by series.
func (r *running) metrics() map[string]float64 {
	r.t.Helper()
	a := r.get("/metrics")
	if a.status != http.StatusOK {
		r.t.Fatalf("metrics: %d %s", a.status, a.body)
	}
	values := map[string]float64{}
	for line := range strings.Lines(a.body) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(name, "stageprof_") {
			v, err := strconv.ParseFloat(value[strings.LastIndex(" "+value, " "):], 64)
			if err != nil {
				r.t.Fatalf("line %q: %v", line, err)
			}
			values[strings.TrimSuffix(name+" "+value[:strings.LastIndex(" "+value, " ")], " ")] = v
		}
	}
	return values
}

// What held calls made others wait is a counter of these calls only.
func TestMetricsOfGILWaitCaused(t *testing.T) {
	b := recordingtest.New()
	thread := b.Thread(1, "loop")
	for gil, caused := range map[recording.GIL]time.Duration{recording.GILHeld: 250 * time.Millisecond, recording.GILFree: 0} {
		c := b.Call(thread, "step", b.Symbol("cuLaunchKernel"), 3, time.Millisecond, 0)
		c.GIL, c.GILWaitCausedNS = gil, uint64(caused)
	}
	got := totals(correlate.Build(b.Recording()))[gilWaitCaused]
	if diff := cmp.Diff(map[labels]float64{{"step", "cuLaunchKernel", "own"}: 0.25}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMetrics(t *testing.T) {
	r, session := serving(t, Config{Version: "1.2.3", GPU: fakeGPU{}})
	session.step(5)
	a := r.get("/metrics")
	problems, err := promlint.New(strings.NewReader(a.body)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v, %v", problems, err)
	}
	const labels = `{attribution="own",gil="free",stage="step",symbol="cuLaunchKernel"}`
	got := r.metrics()
	delete(got, "stageprof_probe_seconds_total")
	want := map[string]float64{
		"stageprof_driver_calls_total" + labels:                                5,
		"stageprof_driver_seconds_total" + labels:                              0.005,
		"stageprof_driver_cpu_seconds_total" + labels:                          0.0025,
		"stageprof_driver_errors_total" + labels:                               5,
		"stageprof_driver_requested_bytes_total" + labels:                      15,
		`stageprof_stage_part_seconds_total{part="running",stage="step"}`:      0.015000007,
		`stageprof_stage_part_seconds_total{part="cuda_cpu",stage="step"}`:     0.0025,
		`stageprof_stage_part_seconds_total{part="cuda_blocked",stage="step"}`: 0.0025,
		`stageprof_stage_seconds_total{stage="step"}`:                          0.020000007,
		`stageprof_stage_spans_total{stage="step"}`:                            5,
		"stageprof_driver_calls_seen_total":                                    6,
		"stageprof_driver_calls_in_flight":                                     1,
		`stageprof_lost_total{kind="spans",reason="missed_stage_end"}`:         2,
		"stageprof_recorded_seconds_total":                                     5,
		"stageprof_target_up":                                                  1,
		"stageprof_targets_total":                                              1,
		`stageprof_target_info{comm="python3",pid="4242",rank="0"}`:            1,
		"stageprof_kernel_memory_bytes":                                        0,
		`stageprof_build_info{version="1.2.3"}`:                                1,
	}
	maps.Copy(want, fakeGPUValues)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

type fakeGPU struct{}

func (fakeGPU) Latest(pid int) *recording.GPU {
	var process *recording.DeviceProcess
	if pid == 4242 {
		used, busy := uint64(7), 25.0
		process = &recording.DeviceProcess{MemoryUsed: &used, UtilizationPct: &busy}
	}
	return &recording.GPU{Devices: []recording.Device{
		{Index: 0, Name: "A", UUID: "u", UtilizationPct: 50, MemoryUsed: 10, MemoryTotal: 20, PowerW: 300, EnergyJ: 1.5, Samples: 3,
			GraphicsClockMHz: 1500, SMClockMHz: 1400, MemoryClockMHz: 2619, Process: process,
			ClockLimits: []recording.ClockLimit{{Reason: "gpu_idle"}, {Reason: "sw_power_cap", Samples: 1}}},
		{Index: 1, Name: "B", UUID: "v", MemoryTotal: 20}, // not sampled yet
	}}
}

var fakeGPUValues = map[string]float64{
	`stageprof_gpu_utilization_ratio{gpu="0",name="A",uuid="u"}`:   0.5,
	`stageprof_gpu_memory_used_bytes{gpu="0",name="A",uuid="u"}`:   10,
	`stageprof_gpu_memory_bytes{gpu="0",name="A",uuid="u"}`:        20,
	`stageprof_gpu_memory_bytes{gpu="1",name="B",uuid="v"}`:        20,
	`stageprof_gpu_power_watts{gpu="0",name="A",uuid="u"}`:         300,
	`stageprof_gpu_energy_joules_total{gpu="0",name="A",uuid="u"}`: 1.5,

	`stageprof_gpu_clock_hertz{clock="graphics",gpu="0",name="A",uuid="u"}`:        1.5e9,
	`stageprof_gpu_clock_hertz{clock="sm",gpu="0",name="A",uuid="u"}`:              1.4e9,
	`stageprof_gpu_clock_hertz{clock="memory",gpu="0",name="A",uuid="u"}`:          2.619e9,
	`stageprof_gpu_clock_limited{gpu="0",name="A",reason="gpu_idle",uuid="u"}`:     0,
	`stageprof_gpu_clock_limited{gpu="0",name="A",reason="sw_power_cap",uuid="u"}`: 1,
	`stageprof_gpu_target_memory_used_bytes{gpu="0",name="A",uuid="u"}`:            7,
	`stageprof_gpu_target_utilization_ratio{gpu="0",name="A",uuid="u"}`:            0.25,
}

// Counters go on over restarts of the target, and never back.
func TestCountersAreMonotonic(t *testing.T) {
	sessions := make(chan *fakeSession)
	r := start(t, Config{Follow: true, Open: func(ctx context.Context) (Session, error) {
		select {
		case s := <-sessions:
			return s, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}})
	const calls = `stageprof_driver_calls_total{attribution="own",gil="free",stage="step",symbol="cuLaunchKernel"}`
	if got := r.metrics()["stageprof_targets_total"]; got != 0 {
		t.Errorf("%v targets before the first", got)
	}
	before, total := map[string]float64{}, 0.0
	expect := func(want float64) {
		t.Helper()
		got := r.metrics()
		if got[calls] != want {
			t.Errorf("%v calls, want %v", got[calls], want)
		}
		for series, v := range got {
			if strings.Contains(series, "_total") && v < before[series] {
				t.Errorf("%s went from %v back to %v", series, before[series], v)
			}
		}
		before = got
	}
	for pid := range 3 {
		s := newFake(pid + 1)
		sessions <- s
		r.await(s, true)
		for range 3 {
			s.step(2)
			total += 2
			expect(total)
		}
		s.step(1)
		total++
		close(s.ended)
		r.await(s, false)
		expect(total)
		if got := r.metrics()["stageprof_target_up"]; got != 0 {
			t.Errorf("target_up is %v after the end", got)
		}
	}
	if got := r.metrics()["stageprof_targets_total"]; got != 3 {
		t.Errorf("%v targets", got)
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

// Scrapes that follow closely share a reading, but not with another target.
func TestScrapesShareAReading(t *testing.T) {
	r, session := serving(t, Config{})
	r.follower.scraping.Lock()
	r.follower.readingAge = time.Hour
	r.follower.scraping.Unlock()
	session.step(1)
	first, looks := r.metrics(), session.looked()
	session.step(1)
	again := r.metrics()
	for _, series := range []string{"stageprof_driver_calls_seen_total", "stageprof_recorded_seconds_total"} {
		if first[series] == 0 || again[series] != first[series] {
			t.Errorf("%s: %v, then %v", series, first[series], again[series])
		}
	}
	if n := session.looked(); n != looks {
		t.Errorf("%d more snapshots", n-looks)
	}
	close(session.ended)
	r.await(session, false)
	if got := r.metrics()["stageprof_driver_calls_seen_total"]; got != 2 {
		t.Errorf("%v calls were seen when the target has ended, want 2", got)
	}
}

// brokenEnd is a session whose end can't be read.
type brokenEnd struct{ *fakeSession }

func (b brokenEnd) Wait(context.Context) (*recording.Recording, error) {
	<-b.ended
	return nil, errors.New("the kernel went away")
}

// What was seen of a target counts on where its last Recording could not be read.
func TestCountersAfterABrokenEnd(t *testing.T) {
	broken, whole := brokenEnd{newFake(1)}, newFake(2)
	sessions := make(chan Session, 2)
	sessions <- broken
	sessions <- whole
	r := start(t, Config{Follow: true, Open: func(context.Context) (Session, error) { return <-sessions, nil }})
	r.await(broken, true)
	broken.step(3)
	r.metrics()
	close(broken.ended)
	r.await(whole, true)
	whole.step(2)
	const calls = `stageprof_driver_calls_total{attribution="own",gil="free",stage="step",symbol="cuLaunchKernel"}`
	if got := r.metrics()[calls]; got != 5 {
		t.Errorf("%v calls, want 3 of the first target and 2 of the second", got)
	}
}

// Attaching that fails for good is tried more and more seldom; looking goes on.
func TestPauses(t *testing.T) {
	absent, broken := fmt.Errorf("%w: nobody matches", ErrNoTarget), errors.New("no permission")
	var got []time.Duration
	pause := time.Duration(0)
	for _, err := range []error{absent, absent, broken, broken, broken, broken, broken, broken, broken, broken, absent, broken} {
		pause = pauseAfter(err, pause)
		got = append(got, pause/time.Second)
	}
	if want := []time.Duration{1, 1, 2, 4, 8, 16, 32, 60, 60, 60, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("pauses %d s, want %d s", got, want)
	}
}

// Any number of stages makes a bounded number of series, and nothing is lost.
func TestSeriesAreBounded(t *testing.T) {
	b := recordingtest.New()
	thread, launch := b.Thread(1, "t"), b.Symbol("cuLaunchKernel")
	const stages = maxSeries + 500
	r := b.Recording()
	for i := range stages { // the builder looks for each path among all
		r.Paths = append(r.Paths, recording.StagePath{ID: i, Names: []string{fmt.Sprint("stage ", i)}})
		r.Calls = append(r.Calls, recording.Call{Thread: thread, Path: i, Symbol: launch, Caller: -1, GIL: recording.GILFree, Count: 1, WallNS: 1, MaxNS: 1})
	}
	var s sums
	l := correlate.Build(r)
	for range 2 {
		s.add(l)
		slices.Reverse(l.Calls) // the order may change from scrape to scrape
		s.add(l)
		s.settle()
	}
	series, calls := 0, 0.0
	s.each(func(f family, key labels, v float64) {
		if f == driverCalls {
			series++
			calls += v
		}
	})
	if series > maxSeries+1 || calls != 2*stages {
		t.Errorf("%d series of %v calls", series, calls)
	}
}

func TestProfile(t *testing.T) {
	// The first of the seven spans had begun before: it is no complete one.
	for name, want := range map[string]int64{"cuda": 7, "stages": 6} {
		t.Run(name, func(t *testing.T) {
			r, session := serving(t, Config{})
			session.step(3)
			looks := session.looked()
			got := make(chan answer, 1)
			go func() {
				a, _ := r.ask("/debug/pprof/" + name + "?seconds=0.5")
				got <- a
			}()
			r.eventually("the profile's beginning", func() bool { return session.looked() > looks })
			session.step(7)
			a := <-got
			p, err := profile.Parse(strings.NewReader(a.body))
			if a.status != http.StatusOK || err != nil {
				t.Fatalf("status %d, %v: %.200s", a.status, err, a.body)
			}
			sum := int64(0)
			for _, s := range p.Sample {
				if !slices.ContainsFunc(s.Location, func(l *profile.Location) bool { return strings.HasPrefix(l.Line[0].Function.Name, "stageprof lost") }) {
					sum += s.Value[0]
				}
			}
			if sum != want {
				t.Errorf("the profile counts %d, want %d", sum, want)
			}
		})
	}
}

func TestProfileRefuses(t *testing.T) {
	r, _ := serving(t, Config{})
	for _, seconds := range []string{"0", "-1", "x", "3601", "1e99", "NaN", "Inf"} {
		if a := r.get("/debug/pprof/cuda?seconds=" + seconds); a.status != http.StatusBadRequest || !strings.Contains(a.body, "seconds") {
			t.Errorf("seconds=%s: %d %s", seconds, a.status, a.body)
		}
	}
	if a := r.get("/debug/pprof/heap"); a.status != http.StatusNotFound {
		t.Errorf("another profile: %d", a.status)
	}
}

// So many profiles and no more are made at one time; when the server ends, they
// end early and are whole.
func TestProfilesAreLimited(t *testing.T) {
	r, session := serving(t, Config{})
	answers := make(chan answer, maxProfiles)
	for range maxProfiles {
		go func() {
			a, err := r.ask("/debug/pprof/cuda?seconds=3000")
			if err != nil {
				a.body = err.Error()
			}
			answers <- a
		}()
	}
	r.eventually("all profiles in the making", func() bool { return len(r.profiles) == maxProfiles })
	a := r.get("/debug/pprof/cuda?seconds=1")
	if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
		t.Errorf("one more: %d %s", a.status, a.body)
	}
	session.step(1)
	if err := r.end(); err != nil {
		t.Errorf("ending: %v", err)
	}
	for range maxProfiles {
		a := <-answers
		if _, err := profile.Parse(strings.NewReader(a.body)); err != nil || a.status != http.StatusOK {
			t.Errorf("a profile that was in the making: %d, %v: %.100s", a.status, err, a.body)
		}
	}
	if !session.closed {
		t.Error("the session was not closed")
	}
}

// A target's end ends the profiles of it; then there are none.
func TestProfileOfATargetThatEnds(t *testing.T) {
	r, session := serving(t, Config{})
	got := make(chan answer, 1)
	go func() {
		a, _ := r.ask("/debug/pprof/cuda?seconds=3000")
		got <- a
	}()
	r.eventually("a profile in the making", func() bool { return len(r.profiles) == 1 })
	close(session.ended)
	if a := <-got; a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, path := range []string{"/debug/pprof/cuda?seconds=1", "/healthz"} {
		if a := r.get(path); a.status != http.StatusServiceUnavailable {
			t.Errorf("%s after the end: %d %s", path, a.status, a.body)
		}
	}
	if got := r.metrics()["stageprof_driver_calls_total"]; got != 0 {
		t.Errorf("calls: %v", got)
	}
}

func TestClientThatGoesAway(t *testing.T) {
	r, _ := serving(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := r.ask("/debug/pprof/cuda?seconds=3000", func(q *http.Request) { *q = *q.WithContext(ctx) })
		gone <- err
	}()
	r.eventually("a profile in the making", func() bool { return len(r.profiles) == 1 })
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("the client: %v", err)
	}
	r.eventually("its place to be free", func() bool { return len(r.profiles) == 0 })
}

func TestHostsAndSites(t *testing.T) {
	r, _ := serving(t, Config{Hosts: []string{"node7.example"}})
	tests := map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"its address":       {func(*http.Request) {}, 200},
		"localhost":         {func(q *http.Request) { q.Host = "localhost:8765" }, 200},
		"localhost, plain":  {func(q *http.Request) { q.Host = "LOCALHOST." }, 200},
		"IPv6":              {func(q *http.Request) { q.Host = "[::1]:8765" }, 200},
		"IPv6, plain":       {func(q *http.Request) { q.Host = "[::1]" }, 200},
		"a known name":      {func(q *http.Request) { q.Host = "Node7.example:80" }, 200},
		"another name":      {func(q *http.Request) { q.Host = "evil.example" }, 421},
		"a name with it":    {func(q *http.Request) { q.Host = "localhost.evil.example:8765" }, 421},
		"an address in one": {func(q *http.Request) { q.Host = "127.0.0.1.evil.example" }, 421},
		"another site":      {func(q *http.Request) { q.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		"itself":            {func(q *http.Request) { q.Header.Set("Sec-Fetch-Site", "same-origin") }, 200},
		"a post":            {func(q *http.Request) { q.Method = http.MethodPost }, 405},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/", "/healthz", "/metrics", "/api/live", "/debug/pprof/"} {
				if a := r.get(path, test.change); a.status != test.want {
					t.Errorf("%s: %d, want %d: %.100s", path, a.status, test.want, a.body)
				}
			}
		})
	}
}

// Pages of other sites can lead a person to the page, and start nothing.
func TestNavigationFromOtherSites(t *testing.T) {
	r, _ := serving(t, Config{})
	ask := func(path, site, destination string) answer {
		t.Helper()
		return r.get(path, func(q *http.Request) {
			q.Header.Set("Sec-Fetch-Site", site)
			q.Header.Set("Sec-Fetch-Mode", "navigate")
			q.Header.Set("Sec-Fetch-Dest", destination)
			q.Header.Set("Sec-Fetch-User", "?1")
		})
	}
	for _, site := range []string{"cross-site", "same-site"} {
		if a := ask("/", site, "document"); a.status != http.StatusOK || a.header.Get("X-Frame-Options") != "DENY" {
			t.Errorf("a link from %s: %d, %v", site, a.status, a.header)
		}
		for _, path := range []string{"/metrics", "/debug/pprof/cuda?seconds=0.01", "/debug/pprof/stages?seconds=0.01", "/api/live"} {
			if a := ask(path, site, "document"); a.status != http.StatusForbidden {
				t.Errorf("a link from %s to %s: %d", site, path, a.status)
			}
		}
		for _, path := range []string{"/", "/debug/pprof/cuda?seconds=0.01"} {
			for _, frame := range []string{"iframe", "frame", "object", "embed", ""} {
				if a := ask(path, site, frame); a.status != http.StatusForbidden {
					t.Errorf("%q of %s to %s: %d", frame, site, path, a.status)
				}
			}
		}
	}
	// Typed in, or from the index.
	for _, site := range []string{"none", "same-origin"} {
		if a := ask("/debug/pprof/cuda?seconds=0.01", site, "document"); a.status != http.StatusOK {
			t.Errorf("a profile for %s: %d %s", site, a.status, a.body)
		}
	}
}

func TestToken(t *testing.T) {
	r, _ := serving(t, Config{Token: "s3cret"})
	bearer := func(token string) func(*http.Request) {
		return func(q *http.Request) { q.Header.Set("Authorization", token) }
	}
	tests := map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"none":               {func(*http.Request) {}, 401},
		"bearer":             {bearer("Bearer s3cret"), 200},
		"bearer, small":      {bearer("bearer s3cret"), 200},
		"wrong":              {bearer("Bearer s3cre"), 401},
		"longer":             {bearer("Bearer s3crets"), 401},
		"empty":              {bearer("Bearer "), 401},
		"no scheme":          {bearer("s3cret"), 401},
		"password":           {func(q *http.Request) { q.SetBasicAuth("anyone", "s3cret") }, 200},
		"password as a name": {func(q *http.Request) { q.SetBasicAuth("s3cret", "") }, 401},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/", "/page.js", "/metrics", "/api/live", "/debug/pprof/"} {
				if a := r.get(path, test.change); a.status != test.want {
					t.Errorf("%s: %d, want %d", path, a.status, test.want)
				}
			}
			if a := r.get("/healthz", test.change); a.status != 200 {
				t.Errorf("/healthz: %d", a.status)
			}
		})
	}
}

// The page is complete, and takes nothing from elsewhere.
func TestPageIsSelfContained(t *testing.T) {
	r, _ := serving(t, Config{})
	for path, kind := range map[string]string{
		"/": "text/html", "/page.css": "text/css", "/page.js": "text/javascript", "/debug/pprof/": "text/html",
	} {
		a := r.get(path)
		if a.status != 200 || !strings.HasPrefix(a.header.Get("Content-Type"), kind) {
			t.Errorf("%s: %d, %s", path, a.status, a.header.Get("Content-Type"))
		}
		if !strings.Contains(a.header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s has the policy %q", path, a.header.Get("Content-Security-Policy"))
		}
		for _, elsewhere := range []string{"https://", "src=\"http", "href=\"http", "@import", "style=\""} {
			if strings.Contains(a.body, elsewhere) {
				t.Errorf("%s contains %q", path, elsewhere)
			}
		}
	}
	if a := r.get("/page/index.html"); a.status != 404 {
		t.Errorf("the folder is served: %d", a.status)
	}
}

func TestLive(t *testing.T) {
	r, session := serving(t, Config{Version: "1.2.3"})
	session.step(2)
	a := r.get("/api/live")
	const want = `{"version":"1.2.3","up":true,"target":{"pid":4242,"comm":"python3","rank":0},` +
		`"epoch":"2025-03-04T09:30:00Z","seconds":2,"calls":2,"lost":0,"stages":[` +
		`{"stage":"step","spans":2,"wall_seconds":0.008000007,"parts":{"cuda_blocked":0.001,"cuda_cpu":0.001,"running":0.006000007}}],"spans":[` +
		`{"stage":"step","thread":"loop","ended":0.004000001,"wall_seconds":0.004,"child_seconds":0,"partial":false,"parts":{"running":0.004}},` +
		`{"stage":"step","thread":"loop","ended":0.004,"wall_seconds":0.004,"child_seconds":0,"partial":false,"parts":{"running":0.004}}]}`
	if diff := cmp.Diff(want, a.body); diff != "" {
		t.Errorf("live (-want +got):\n%s", diff)
	}
}

// A first target that can't be recorded ends the server; one that is not there
// yet is waited for, if that was asked for.
func TestFirstTarget(t *testing.T) {
	broken := errors.New("no permission")
	absent := fmt.Errorf("%w: nobody matches", ErrNoTarget)
	for name, c := range map[string]struct {
		err    error
		follow bool
	}{
		"broken":           {broken, false},
		"broken, followed": {broken, true},
		"absent":           {absent, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, Config{Follow: c.follow, Open: func(context.Context) (Session, error) { return nil, c.err }})
			select {
			case err := <-r.done:
				if !errors.Is(err, c.err) {
					t.Errorf("Run = %v, want %v", err, c.err)
				}
			case <-time.After(patience):
				t.Error("the server goes on")
			}
		})
	}
	asked := make(chan struct{}, 10)
	r := start(t, Config{Follow: true, Open: func(context.Context) (Session, error) {
		asked <- struct{}{}
		return nil, absent
	}})
	<-asked
	<-asked
	if a := r.get("/api/live"); a.status != 200 || !strings.Contains(a.body, `"target":null`) {
		t.Errorf("live without a target: %d %s", a.status, a.body)
	}
	if err := r.end(); err != nil {
		t.Errorf("ending while waiting: %v", err)
	}
}

func TestBrokenSession(t *testing.T) {
	r, session := serving(t, Config{})
	session.mu.Lock()
	session.broken = errors.New("the kernel went away")
	session.mu.Unlock()
	for _, path := range []string{"/metrics", "/api/live", "/debug/pprof/cuda?seconds=1"} {
		if a := r.get(path); a.status != 500 || !strings.Contains(a.body, "went away") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// Embedded files are those of the page, and nothing is served beside them.
func TestAssets(t *testing.T) {
	var names []string
	err := fs.WalkDir(assets, ".", func(path string, d fs.DirEntry, err error) error {
		if !d.IsDir() {
			names = append(names, path)
		}
		return err
	})
	if diff := cmp.Diff([]string{"page/index.html", "page/page.css", "page/page.js"}, names); err != nil || diff != "" {
		t.Errorf("assets: %v\n%s", err, diff)
	}
	recorder := httptest.NewRecorder()
	New(Config{Log: slog.New(slog.DiscardHandler)}).Handler().ServeHTTP(recorder, httptest.NewRequest("GET", "http://localhost/page.txt", nil))
	if recorder.Code != 404 || bytes.Contains(recorder.Body.Bytes(), []byte("<html")) {
		t.Errorf("another file: %d", recorder.Code)
	}
}
