package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"stageprof/sim/simtest"
)

// soakTime is how long a soak takes: as long as STAGEPROF_SOAK says, e.g. 30m,
// or some seconds, in which memory is not judged.
func soakTime(t *testing.T) (total time.Duration, judged bool) {
	t.Helper()
	text := os.Getenv("STAGEPROF_SOAK")
	if text == "" {
		return 15 * time.Second, false
	}
	total, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	if total < 5*time.Minute {
		t.Fatalf("STAGEPROF_SOAK=%v is too short to tell growth from a beginning: 5m or more", total)
	}
	return total, true
}

// gauge is a number that must not grow.
type gauge struct {
	metric  string
	what    string
	unit    float64
	ofTime  func(values []float64) float64 // what stands for a time
	percent float64                        // by which it may grow, and
	more    float64                        // units on top
}

// Of what rises and falls the least is what is kept.
var gauges = []gauge{
	{"process_resident_memory_bytes", "MiB resident", 1 << 20, median, 10, 8},
	{"go_memstats_heap_alloc_bytes", "MiB of Go heap", 1 << 20, slices.Min[[]float64], 25, 4},
	{"stageprof_kernel_memory_bytes", "MiB of kernel tables", 1 << 20, median, 5, 1},
	{"go_goroutines", "goroutines", 1, slices.Min[[]float64], 0, 4},
	{"process_open_fds", "descriptors", 1, slices.Min[[]float64], 0, 4},
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// readings are the values of the gauges over time.
type readings struct {
	mu sync.Mutex
	of map[string][]float64 // by metric
}

// add takes up a scrape. A gauge can be absent: there is no target now.
func (r *readings) add(scrape string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range strings.Lines(scrape) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil && slices.ContainsFunc(gauges, func(g gauge) bool { return g.metric == name }) {
			r.of[name] = append(r.of[name], v)
		}
	}
}

// quarters is how many parts of the time are compared.
const quarters = 4

// enough tells whether every quarter has a reading of every gauge.
func (r *readings) enough() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc(gauges, func(g gauge) bool { return len(r.of[g.metric]) < quarters })
}

// judge compares the last quarter with the second: the first is a beginning.
func (r *readings) judge(t *testing.T, judged bool) {
	t.Helper()
	for _, g := range gauges {
		values := r.of[g.metric]
		if len(values) < quarters {
			t.Errorf("%d readings of %s", len(values), g.metric)
			continue
		}
		var of [quarters]float64
		for i := range of {
			of[i] = g.ofTime(values[i*len(values)/quarters:(i+1)*len(values)/quarters]) / g.unit
		}
		t.Logf("%.1f, %.1f, %.1f, %.1f %s by quarters, at most %.1f", of[0], of[1], of[2], of[3], g.what, slices.Max(values)/g.unit)
		if most := of[1]*(1+g.percent/100) + g.more; judged && of[3] > most {
			t.Errorf("%.1f %s in the last quarter, %.1f in the second: more than %.1f", of[3], g.what, of[1], most)
		}
	}
}

// fetch gets a path; answers that say that there is no target now are none.
func (s *server) fetch(ctx context.Context, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK && response.StatusCode != http.StatusServiceUnavailable {
		err = fmt.Errorf("%s: %s: %s", path, response.Status, body)
	}
	return string(body), err
}

// use does with a server what people and Prometheus do, until the context is done.
func (s *server) use(ctx context.Context, scraped func(body string)) error {
	tasks, ctx := errgroup.WithContext(ctx)
	every := func(pause time.Duration, paths ...string) {
		tasks.Go(func() error {
			for i := 0; ; i++ {
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(pause):
				}
				path := paths[i%len(paths)]
				body, err := s.fetch(ctx, path)
				if err != nil && !errors.Is(err, context.Canceled) {
					return err
				}
				if err == nil && path == "/metrics" {
					scraped(body)
				}
			}
		})
	}
	every(time.Second, "/metrics")
	every(time.Second, "/api/live")
	every(time.Second, "/debug/pprof/cuda?seconds=2", "/debug/pprof/stages?seconds=2")
	return tasks.Wait()
}

// training starts the pipeline; its loops begin when the ready file is there.
func training(t *testing.T, ready string, duration time.Duration) *simtest.Process {
	t.Helper()
	p := simtest.Start(t, simtest.Command{Path: "python3", Args: []string{
		filepath.Join(simtest.Root(t), "sim", "pipeline.py"), "--ready-file", ready, "--duration", fmt.Sprint(duration.Seconds()),
	}})
	p.WaitLine("ready")
	return p
}

// minus is what was counted since.
func minus(now, before simtest.Counts) simtest.Counts {
	since := simtest.Counts{}
	for k, n := range now {
		b := before[k]
		if n != b {
			since[k] = simtest.Count{Calls: n.Calls - b.Calls, Errors: n.Errors - b.Errors, Bytes: n.Bytes - b.Bytes}
		}
	}
	return since
}

// killedEvery is how often a training is killed: every third time.
const killedEvery = 3

// Serve follows a training that is started again and again, every third time
// because it was killed, while it is scraped, watched and profiled, and sends its
// profiles on. All counts are those of the driver, everywhere, and nothing grows.
func TestServeSoakTraining(t *testing.T) {
	total, judged := soakTime(t)
	round := min(max(total/24, 2*time.Second), simtest.Patience/2) // well before a target is given up
	arrived := &received{t: t, counts: simtest.Counts{}}
	receiver := httpReceiver(t, "/push.v1.PusherService/Push", func(b []byte) { arrived.addPprof(nested(t, b, 1, 2, 1)) })
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServe(t, "--match", regexp.QuoteMeta(dir), "--follow", "--probes", "all", "--python-stacks", "sampled",
		"--pyroscope", receiver, "--export-every", "2s", "--export-token-file", token)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	used, values := make(chan error, 1), &readings{of: map[string][]float64{}}
	go func() { used <- s.use(ctx, values.add) }()
	begin := time.Now()
	// Where everything takes long, it takes more time until there is something to compare.
	more := func(n int) bool {
		return n <= killedEvery || !values.enough() && time.Since(begin) < total+simtest.Patience
	}
	for n := 1; time.Since(begin) < total || more(n); n++ {
		ready := filepath.Join(dir, fmt.Sprint("go", n))
		p := training(t, ready, round)
		s.await("stageprof_targets_total", float64(n))
		s.await(up, 1)
		before := s.counts()
		release(t, ready)
		if n%killedEvery == 0 {
			time.Sleep(round / 2) // somewhere in its work
			p.Kill()
			s.await(up, 0)
			continue
		}
		p.Wait()
		s.await(up, 0)
		truth := p.Truth().Counts().By(simtest.ByTagAndSymbol)
		if diff := simtest.Diff(truth, minus(s.counts(), before)); diff != "" || truth.Total().Calls == 0 {
			t.Errorf("target %d: the counters differ from the driver's truth:\n%s", n, diff)
		}
	}
	stop()
	if err := <-used; err != nil {
		t.Errorf("%v; it said\n%s", err, s.said())
	}
	s.await("stageprof_export_profiles_waiting", 0)
	counted, m := s.counts(), s.metrics()
	s.interrupt()

	var seen, lost float64
	for series, v := range m {
		if strings.HasPrefix(series, `stageprof_lost_total{kind="calls"`) {
			lost += v
		}
	}
	if seen = m["stageprof_driver_calls_seen_total"]; seen != float64(counted.Total().Calls)+lost {
		t.Errorf("%v calls were seen, %d counted and %v lost", seen, counted.Total().Calls, lost)
	}
	sent := arrived.counts.Only(func(k simtest.Key) bool { return !strings.HasPrefix(k.Symbol, "stageprof lost") })
	for k, n := range counted {
		n.Errors = 0 // a profile has no column for them
		counted[k] = n
	}
	if diff := simtest.Diff(counted, sent); diff != "" {
		t.Errorf("what was sent differs from the counters:\n%s", diff)
	}
	t.Logf("%v: %.0f targets, %.0f calls seen, %.0f lost, %d profiles sent", time.Since(begin).Round(time.Second), m["stageprof_targets_total"], seen, lost, arrived.profiles)
	values.judge(t, judged)
}
