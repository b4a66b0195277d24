package agent_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stageprof/agent"
	"stageprof/agent/probe"
	"stageprof/bpf"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

func flood(t *testing.T, args ...string) (*recording.Recording, *simtest.Process) {
	t.Helper()
	return runTester(t, agent.Config{Probes: "launch"}, simtest.Tester(t, "flood", append(args, "--markers", simtest.Markers(t))...))
}

// spans is how many spans a Recording holds, and how many are missing.
func spans(r *recording.Recording) (held, lost uint64) {
	for _, s := range r.Stages {
		held += s.Count + s.PartialCount
	}
	for _, l := range r.Losses {
		if l.Kind == "spans" {
			lost += l.Count
		}
	}
	return held, lost
}

// More stage paths than there is room for: no call is lost, those of the
// further stages are shown together, and that is said.
func TestStagePathsFull(t *testing.T) {
	got, p := flood(t, "--outer", "100", "--inner", "100")
	expectAccounted(t, got)
	launches := p.Truth().Counts().Only(launches)
	if n := counts(got).Total().Calls; n != 10000 || n != launches.Total().Calls || lostCalls(got) != 0 {
		t.Errorf("%d calls, losses %v", n, losses(got))
	}
	if losses(got)["stage_paths_full"] == 0 {
		t.Errorf("losses %v", losses(got))
	}
	other := uint64(0)
	for k, n := range counts(got) {
		if strings.HasSuffix(k.Tag, "(other stages)") {
			other += n.Calls
		} else if launches[k] != n {
			t.Errorf("%v: %+v, the driver counted %+v", k, n, launches[k])
		}
	}
	if other == 0 {
		t.Error("no calls in other stages")
	}
	if held, lost := spans(got); held+lost != 10100 {
		t.Errorf("%d spans and %d lost of 10100", held, lost)
	}
}

// More rows of stages than there is room for: spans are lost and counted, calls
// are not.
func TestStageRowsFull(t *testing.T) {
	got, p := flood(t, "--threads", "3", "--outer", "80", "--inner", "80")
	expectAccounted(t, got)
	if diff := simtest.Diff(p.Truth().Counts().Only(launches), counts(got)); diff != "" {
		t.Errorf("the recording differs from the driver's truth:\n%s", diff)
	}
	if losses(got)["stage_rows_full"] == 0 {
		t.Errorf("losses %v", losses(got))
	}
	if held, lost := spans(got); held+lost != 3*80*81 {
		t.Errorf("%d spans and %d lost of %d", held, lost, 3*80*81)
	}
}

// More rows of calls than there is room for: what is lost is counted.
func TestCallRowsFull(t *testing.T) {
	got, p := flood(t, "--threads", "12", "--outer", "80", "--inner", "80")
	expectAccounted(t, got)
	truth := p.Truth().Counts().Only(launches)
	expectAtMost(t, got, truth)
	if got.Seen.Calls != truth.Total().Calls {
		t.Errorf("%d calls seen, the driver counted %d", got.Seen.Calls, truth.Total().Calls)
	}
	if n := losses(got)["rows_full"]; n == 0 || n != lostCalls(got) {
		t.Errorf("losses %v", losses(got))
	}
}

// More spans than are kept one by one: all are in the totals.
func TestSpansNotKept(t *testing.T) {
	const threads, calls, kept = 4, 30000, 50000
	got, p := runTester(t, agent.Config{Probes: "cuGraphLaunch"}, simtest.Tester(t, "calls", "--threads", fmt.Sprint(threads),
		"--calls", fmt.Sprint(calls), "--stages", "1", "--per-stage", "1", "--markers", simtest.Markers(t)))
	expectAccounted(t, got)
	held, _ := spans(got)
	missed := losses(got)["spans_not_kept"] + losses(got)["span_records_full"]
	if held != threads*calls || len(got.Spans) > kept || uint64(len(got.Spans))+missed != held || missed == 0 {
		t.Errorf("%d spans, %d of them one by one, losses %v", held, len(got.Spans), losses(got))
	}
	for key, n := range p.ExpectedSpans() {
		total := uint64(0)
		for _, s := range got.Stages {
			if s.Thread >= 0 && got.Threads[s.Thread].TID == key.TID && strings.Join(got.Paths[s.Path].Names, "/") == key.Tag {
				total += s.Count + s.PartialCount
			}
		}
		if total != n {
			t.Errorf("%+v: %d spans, want %d", key, total, n)
		}
	}
}

// More names than the marker library has room for, 100,000 and more: it says so, and so
// does the Recording.
func TestMarkerNamesFull(t *testing.T) {
	const threads, inner = 64, 1600
	p := simtest.Start(t, simtest.Tester(t, "flood", "--threads", fmt.Sprint(threads), "--outer", "1", "--inner", fmt.Sprint(inner), "--own", "1",
		"--hold", "-", "--markers", simtest.Markers(t)))
	p.WaitLine("up")
	r := record(t, agent.Config{PID: p.PID, Probes: "launch"})
	p.Ready()
	p.WaitLine("done")
	got := r.interrupt()
	p.Release()
	p.Wait()
	expectAccounted(t, got)
	if n := counts(got).Total(); n != p.Truth().Counts().Only(launches).Total() || n.Calls != threads*inner {
		t.Errorf("%+v", n)
	}
	const names = threads * (1 + inner) // each has an outer one
	lost := losses(got)
	t.Log(lost)
	if lost["marker_names_full"] != names-4096 {
		t.Errorf("losses %v, want %d names", lost, names-4096)
	}
}

// Stages nested deeper than are kept: they are counted as lost, the ones around
// them are whole, and the thread's stack is right afterwards.
func TestStagesTooDeep(t *testing.T) {
	kept := len(bpf.ProbeThreadState{}.Open)
	depth := kept + 40 // also more than the library remembers
	p := startPuppet(t)
	p.order("main start w")
	r := record(t, agent.Config{PID: p.PID})
	for range 2 {
		p.order("w begin outer")
		for i := range depth - 1 {
			// The puppet's own stack is no deeper than the library's.
			p.order(fmt.Sprintf("w mark d%d", i))
		}
		p.order("w launch 10")
		for range depth - 1 {
			p.order("w unmark")
		}
		p.order("w launch 1", "w end")
	}
	got := r.interrupt()
	p.end()
	expectAccounted(t, got)
	if n := losses(got)["stages_too_deep"]; n != uint64(2*(depth-kept)) {
		t.Errorf("losses %v", losses(got))
	}
	if s := stageRows(t, got)[stageKey{"w", "outer"}]; s.Count != 2 || s.PartialCount != 0 {
		t.Errorf("the outermost stage: %+v", s)
	}
	if n := attributions(got)["own outer"]; n != 2 {
		t.Errorf("calls: %v", attributions(got))
	}
}

// Two copies of the marker library in one process, as wheels of different
// projects bring them: their stages nest in each other.
func TestTwoMarkerLibraries(t *testing.T) {
	text, err := os.ReadFile(simtest.Markers(t))
	if err != nil {
		t.Fatal(err)
	}
	second := filepath.Join(t.TempDir(), "libother.so")
	if err := os.WriteFile(second, text, 0o755); err != nil {
		t.Fatal(err)
	}
	p := startPuppet(t)
	p.order("main start w", "main markers "+second, "main markers "+simtest.Markers(t))
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	for range 3 {
		p.order("w begin step", "w launch 1",
			"main markers "+second, "w begin inner", "w launch 10", "w begin deep", "w launch 100", "w end", "w end", "w launch 2",
			"w begin inner",
			"main markers "+simtest.Markers(t), "w begin third", "w launch 1000", "w end",
			"main markers "+second, "w end",
			"main markers "+simtest.Markers(t), "w launch 4", "w end")
	}
	got := r.interrupt()
	expectEqual(t, got, since(baseline, p.end().Counts()))
	expectSpans(t, got, map[stageKey]spanCount{
		{"w", "step"}: {3, 0}, {"w", "step/inner"}: {6, 0}, {"w", "step/inner/deep"}: {3, 0}, {"w", "step/inner/third"}: {3, 0},
	})
}

// Whatever a recording opened is closed again, also when it fails.
func TestRecordLeavesNothing(t *testing.T) {
	p := startPuppet(t)
	plain := simtest.Start(t, simtest.Command{Path: "/bin/cat"})
	once := func(config agent.Config) {
		t.Helper()
		if config.PID == p.PID {
			r := record(t, config)
			p.order("main launch 1")
			r.interrupt()
		} else if _, err := agent.Record(t.Context(), config); !errors.Is(err, agent.ErrNoDriver) {
			t.Fatal(err)
		}
	}
	configs := []agent.Config{
		{PID: p.PID},
		{PID: p.PID, Mechanism: probe.PerfEvent, Probes: "cuLaunchKernel"},
		{PID: plain.PID},
	}
	for _, config := range configs { // what stays open for good is open from now on
		once(config)
	}
	before := descriptors(t)
	for range 2 {
		for _, config := range configs {
			once(config)
		}
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
	for _, symbol := range []string{"cuLaunchKernel", "cuMemAlloc_v2", "cuDriverGetVersion"} {
		if probed(t, p.PID, simtest.Driver(t), symbol) {
			t.Errorf("%s still has a probe", symbol)
		}
	}
	if gate(t, p.PID) != 0 || markersProbed(t, p.PID) {
		t.Error("the markers are still followed")
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestDuration(t *testing.T) {
	p := startPuppet(t)
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID, Duration: 1})
	got := r.finish()
	expectEnd(t, got, recording.EndDuration)
	p.order("main launch 10")
	if len(got.Calls) != 0 || got.Window.Duration < 1 {
		t.Errorf("%d rows in a window of %v", len(got.Calls), got.Window.Duration)
	}
	if n := since(baseline, p.end().Counts()).Total().Calls; n != 10 {
		t.Errorf("the target made %d calls", n)
	}
}

// Idle threads make no calls, and their time is all outside any stage.
func TestCaseC11IdleThreads(t *testing.T) {
	got, p := runTester(t, agent.Config{}, simtest.Tester(t, "idle", "--threads", "160", "--calls", "5000", "--markers", simtest.Markers(t)))
	expectEqual(t, got, p.Truth().Counts())
	outside := 0
	for _, s := range got.Stages {
		if len(got.Paths[s.Path].Names) == 0 {
			outside++
			if s.WallNS > uint64(got.Window.Duration) {
				t.Errorf("thread %d was outside stages for %d of %d ns", s.Thread, s.WallNS, got.Window.Duration)
			}
		}
	}
	if outside != 161 {
		t.Errorf("%d of 161 threads were outside stages", outside)
	}
}
