package agent_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"stageprof/agent"
	"stageprof/agent/calibrate"
	"stageprof/agent/keeper"
	"stageprof/agent/probe"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

func TestMain(m *testing.M) {
	if calibrate.Target() || keeper.Run() || runAgent() {
		return
	}
	os.Exit(m.Run())
}

// run is a recording in progress.
type run struct {
	t      *testing.T
	stop   context.CancelFunc
	ready  chan struct{}
	result chan result
}

type result struct {
	recording *recording.Recording
	err       error
}

// record starts recording a process and returns once the probes are live.
func record(t *testing.T, config agent.Config) *run {
	t.Helper()
	r := start(t, config)
	select {
	case <-r.ready:
	case got := <-r.result:
		t.Fatalf("recording: %v", got.err)
	case <-time.After(simtest.Patience):
		t.Fatal("the probes are not live after a long time")
	}
	return r
}

// start starts recording a process.
func start(t *testing.T, config agent.Config) *run {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &run{t: t, stop: stop, ready: make(chan struct{}), result: make(chan result, 1)}
	config.Ready = func() error { close(r.ready); return nil }
	if config.Probes == "" {
		config.Probes = "all"
	}
	go func() {
		recording, err := agent.Record(ctx, config)
		r.result <- result{recording, err}
	}()
	t.Cleanup(stop)
	return r
}

// finish waits for the recording to end by itself.
func (r *run) finish() *recording.Recording {
	r.t.Helper()
	select {
	case got := <-r.result:
		if got.err != nil {
			r.t.Fatalf("recording: %v", got.err)
		}
		return got.recording
	case <-time.After(simtest.Patience):
		r.t.Fatal("the recording does not end")
		return nil
	}
}

// interrupt ends the recording as ^C does.
func (r *run) interrupt() *recording.Recording {
	r.t.Helper()
	r.stop()
	return r.finish()
}

// counts sums a Recording's calls by thread, stage path and symbol.
func counts(r *recording.Recording) simtest.Counts {
	c := simtest.Counts{}
	for _, call := range r.Calls {
		c.Add(simtest.Key{
			TID:    r.Threads[call.Thread].TID,
			Tag:    strings.Join(r.Paths[call.Path].Names, "/"),
			Symbol: r.Symbols[call.Symbol].Name,
		}, simtest.Count{Calls: call.Count, Errors: call.Errors, Bytes: call.Bytes})
	}
	return c
}

// expectEqual fails unless the Recording holds exactly the driver's truth and
// lost nothing of it.
func expectEqual(t *testing.T, r *recording.Recording, want simtest.Counts) {
	t.Helper()
	got := counts(r)
	if diff := simtest.Diff(want, got); diff != "" {
		t.Errorf("the recording differs from the driver's truth:\n%s", diff)
	}
	expectNoLosses(t, r)
	if r.Debts != nil {
		expectDebtsCoverWaits(t, r)
	}
	if r.Seen.Calls != got.Total().Calls {
		t.Errorf("%d calls seen, %d in the rows", r.Seen.Calls, got.Total().Calls)
	}
	if want.Total().Calls == 0 {
		t.Error("the target made no calls: the test shows nothing")
	}
}

// runTester records the whole run of a tester that exits by itself.
func runTester(t *testing.T, config agent.Config, command simtest.Command) (*recording.Recording, *simtest.Process) {
	t.Helper()
	p := simtest.Start(t, command)
	p.WaitLine("up")
	config.PID = p.PID
	r := record(t, config)
	p.Ready()
	got := r.finish()
	p.Wait()
	return got, p
}

func TestRecordEqualsTruth(t *testing.T) {
	tests := []struct {
		name string
		args []string
	}{
		{"one thread", []string{"--threads", "1", "--calls", "20000"}},
		{"one thread, no stages", []string{"--threads", "1", "--calls", "20000", "--stages", "0"}},
		{"64 threads, stages 16 deep", []string{"--threads", "64", "--calls", "2000", "--stages", "16"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			args := append(test.args, "--markers", simtest.Markers(t))
			got, p := runTester(t, agent.Config{Mechanism: probe.UprobeMulti}, simtest.Tester(t, "calls", args...))
			expectEqual(t, got, p.Truth().Counts())
			if got.Window.End != recording.EndExit {
				t.Errorf("the window ended by %q", got.Window.End)
			}
		})
	}
}

// Perf events take a fifth of a second each to remove: few functions here.
func TestRecordEqualsTruthByPerfEvents(t *testing.T) {
	args := []string{"--threads", "8", "--calls", "5000", "--stages", "16", "--launches-only", "1", "--markers", simtest.Markers(t)}
	config := agent.Config{Mechanism: probe.PerfEvent, Probes: "cuLaunchKernel"}
	got, p := runTester(t, config, simtest.Tester(t, "calls", args...))
	expectEqual(t, got, p.Truth().Counts().Only(launches))
}

func launches(k simtest.Key) bool { return probe.API(k.Symbol) == "cuLaunchKernel" }

func TestRecordErrors(t *testing.T) {
	plain := simtest.Start(t, simtest.Command{Path: "/bin/sleep", Args: []string{"60"}})
	tests := []struct {
		name   string
		config agent.Config
		want   error
		text   string
	}{
		{"no driver", agent.Config{PID: plain.PID}, agent.ErrNoDriver, "--wait"},
		{"duration", agent.Config{PID: plain.PID, Duration: -1}, agent.ErrUsage, "negative"},
		{"long duration", agent.Config{PID: plain.PID, Duration: 10000 * time.Hour}, agent.ErrUsage, "longer"},
		{"selection", agent.Config{PID: plain.PID, Probes: "cuLaunchKernl"}, probe.ErrSelector, "cuLaunchKernel"},
		{"mechanism", agent.Config{PID: plain.PID, Mechanism: "ptrace"}, agent.ErrUsage, "ptrace"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := agent.Record(t.Context(), test.config)
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want %v with %q", err, test.want, test.text)
			}
		})
	}
}
