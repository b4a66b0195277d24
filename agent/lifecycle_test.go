package agent_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stageprof/agent"
	"stageprof/agent/probe"
	"stageprof/agent/target"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// expectEnd fails unless the window ended as said.
func expectEnd(t *testing.T, r *recording.Recording, want recording.WindowEnd) {
	t.Helper()
	if r.Window.End != want {
		t.Errorf("the window ended by %q, want %q", r.Window.End, want)
	}
}

// expectAtMost fails if a Recording holds a call that the driver did not count.
func expectAtMost(t *testing.T, r *recording.Recording, truth simtest.Counts) {
	t.Helper()
	for k, n := range counts(r) {
		if n.Calls > truth[k].Calls {
			t.Errorf("%v: %d calls, the driver counted %d", k, n.Calls, truth[k].Calls)
		}
	}
}

// Forked children are other processes: they are not counted, and forking does
// not disturb the parent's counts.
func TestFork(t *testing.T) {
	for _, initialised := range []string{"0", "1"} {
		for _, mechanism := range []probe.Mechanism{probe.UprobeMulti, probe.PerfEvent} {
			t.Run(fmt.Sprintf("initialised %s, %s", initialised, mechanism), func(t *testing.T) {
				config := agent.Config{Mechanism: mechanism}
				keep := func(simtest.Key) bool { return true }
				if mechanism == probe.PerfEvent {
					config.Probes = "cuMemHostAlloc,cuMemFreeHost"
					keep = func(k simtest.Key) bool { return k.Symbol == "cuMemHostAlloc" || k.Symbol == "cuMemFreeHost" }
				}
				got, p := runTester(t, config, simtest.Tester(t, "forker", "--workers", "4", "--calls", "200",
					"--initialised", initialised, "--markers", simtest.Markers(t)))
				expectEqual(t, got, p.Truth().Counts().Only(keep))
				expectEnd(t, got, recording.EndExit)
			})
		}
	}
}

// A child inherits the thread's stages and the code with the probes in it, not
// the recording. It must run as if there were none: Linux 6.18 turns probes on
// 5-byte nops into calls to a page that children do not inherit.
func TestForkInStage(t *testing.T) {
	for name, driver := range variants(t) {
		t.Run(name, func(t *testing.T) {
			p := startPuppet(t, "--driver", driver)
			p.order("main start w")
			baseline := p.truthSoFar().Counts()
			r := record(t, agent.Config{PID: p.PID})
			p.order("w begin step", "w launch 10", "w fork 100", "w begin forward", "w launch 20", "w fork 100", "w end",
				"w launch 30", "w end", "main launch 1", "main fork 100", "main launch 1")
			got := r.interrupt()
			expectEqual(t, got, since(baseline, p.end().Counts()))
			expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {1, 0}, {"w", "step/forward"}: {1, 0}})
		})
	}
}

// Threads that have many rows each come and go: there is room for those of all, if not
// for each thread's by itself.
func TestThreadChurnOfManyRows(t *testing.T) {
	const threads, stages = 4000, 10
	got, p := runTester(t, agent.Config{}, simtest.Tester(t, "churn", "--threads", fmt.Sprint(threads), "--at-once", "4",
		"--stages", fmt.Sprint(stages), "--calls", "1", "--markers", simtest.Markers(t)))
	if diff := simtest.Diff(p.Truth().Counts().By(simtest.ByTagAndSymbol), counts(got).By(simtest.ByTagAndSymbol)); diff != "" {
		t.Errorf("the recording differs from the driver's truth:\n%s", diff)
	}
	expectAccounted(t, got)
	lost := losses(got)
	delete(lost, "spans_not_kept")
	delete(lost, "span_records_full")
	if len(lost) > 0 {
		t.Errorf("losses %v", lost)
	}
	whole := uint64(0)
	for _, s := range got.Stages {
		if len(got.Paths[s.Path].Names) > 0 {
			whole += s.Count
		}
	}
	if whole != threads*stages {
		t.Errorf("%d whole spans of %d", whole, threads*stages)
	}
}

// Threads come and go; thread IDs are used again, and each thread has rows of
// its own.
func TestThreadChurn(t *testing.T) {
	got, p := runTester(t, agent.Config{}, simtest.Tester(t, "churn", "--threads", "3000", "--at-once", "16",
		"--markers", simtest.Markers(t)))
	expectEqual(t, got, p.Truth().Counts())
	incarnations := map[int]bool{}
	for _, row := range p.Truth().Rows {
		incarnations[row.Thread] = true
	}
	callers := map[int]bool{}
	for _, c := range got.Calls {
		callers[c.Thread] = true
	}
	if len(callers) != len(incarnations) {
		t.Errorf("%d threads made calls, the driver saw %d", len(callers), len(incarnations))
	}
	stages := 0
	for _, s := range got.Stages {
		if len(got.Paths[s.Path].Names) == 0 {
			continue
		}
		stages++
		if s.Count != 1 || s.PartialCount != 0 {
			t.Errorf("thread %d: %d whole and %d partial spans", s.Thread, s.Count, s.PartialCount)
		}
	}
	if stages != 3000 {
		t.Errorf("%d rows of stages for 3000 threads", stages)
	}
	expectSpansInTotals(t, got)
}

func TestCaseC29ThreadsBeforeAndAfterAttach(t *testing.T) {
	p := startPuppet(t)
	p.order("main start early", "early begin step", "early launch 3")
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	p.order("early launch 10", "main start late", "late begin step", "late launch 20", "late end", "late exit",
		"main start later", "later launch 30", "early end", "main launch 5")
	got := r.interrupt()
	expectEqual(t, got, since(baseline, p.end().Counts()))
	calls := map[string]uint64{}
	for _, c := range got.Calls {
		if got.Symbols[c.Symbol].Name == "cuLaunchKernel" {
			calls[got.Threads[c.Thread].Name] += c.Count
		}
	}
	if diff := cmp.Diff(map[string]uint64{"early": 10, "late": 20, "later": 30, "puppet": 5}, calls); diff != "" {
		t.Errorf("launches by thread name (-want +got):\n%s", diff)
	}
}

// The process exits while its threads are in calls at full speed. The calls
// that it cut off are losses; every other one is counted.
func TestExitInMidRecord(t *testing.T) {
	const threads = 8
	for how, name := range map[string]string{"0": "exit", "1": "return from main"} {
		t.Run(name, func(t *testing.T) {
			got, p := runTester(t, agent.Config{}, simtest.Tester(t, "exiter", "--how", how, "--threads", fmt.Sprint(threads), "--after-ms", "300",
				"--markers", simtest.Markers(t)))
			truth := p.Truth()
			expectEnd(t, got, recording.EndExit)
			expectAccounted(t, got)
			if diff := simtest.Diff(truth.Counts(), counts(got)); diff != "" {
				t.Errorf("the recording differs from the driver's truth:\n%s", diff)
			}
			// Each thread may have died between the probe and the driver's own count.
			if lost, least := lostCalls(got), truth.Unfinished(); lost < least || lost > least+threads {
				t.Errorf("%d calls lost (%v), the driver counted %d unfinished", lost, got.Losses, least)
			}
		})
	}
}

// _exit and a fatal signal leave no time for a truth; what was written before
// is the least that must be there.
func TestImmediateExitInMidRecord(t *testing.T) {
	got, p := runTester(t, agent.Config{}, simtest.Tester(t, "exiter", "--how", "2", "--threads", "8", "--after-ms", "300",
		"--markers", simtest.Markers(t)))
	expectEnd(t, got, recording.EndExit)
	expectAccounted(t, got)
	// A thread may have died between the driver's count and the return: then the
	// call that the driver has counted is one of those that are lost.
	have, cut := counts(got), uint64(0)
	for k, n := range p.Truth().Counts() {
		if missing := int64(n.Calls) - int64(have[k].Calls); missing > 0 {
			cut += uint64(missing)
		}
	}
	if cut > lostCalls(got) {
		t.Errorf("%d calls that the driver had counted before are missing, %d are lost", cut, lostCalls(got))
	}
	if lost := losses(got); lost["thread_exit_in_call"] != lostCalls(got) {
		t.Errorf("losses: %v", lost)
	}
}

func TestKilledInMidRecord(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "exiter", "--threads", "8", "--after-ms", "600000", "--markers", simtest.Markers(t)))
	p.WaitLine("up")
	calls := make(chan struct{}, 1)
	r := record(t, agent.Config{PID: p.PID, Progress: func(now agent.Progress) {
		if now.Calls > 1000 {
			select {
			case calls <- struct{}{}:
			default:
			}
		}
	}})
	p.Ready()
	<-calls
	p.Kill()
	got := r.finish()
	expectEnd(t, got, recording.EndExit)
	expectAccounted(t, got)
	if lost := losses(got); lost["thread_exit_in_call"] != lostCalls(got) || lostCalls(got) > 8 {
		t.Errorf("losses: %v", lost)
	}
	expectPartition(t, got)
	expectSpansInTotals(t, got)
	if counts(got).Total().Calls < 1000 {
		t.Errorf("%d calls", counts(got).Total().Calls)
	}
}

// Killed with a thread in a call and another one in a stage: exactly that is
// cut off.
func TestKilledInCall(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w", "main start v")
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	p.order("v begin step", "v launch 10", "w begin step", "w launch 100")
	want := since(baseline, p.truthSoFar().Counts())
	p.order("w hang")
	p.WaitLine("inside")
	p.Kill()
	got := r.finish()
	expectEnd(t, got, recording.EndExit)
	expectAccounted(t, got)
	if diff := simtest.Diff(want, counts(got)); diff != "" {
		t.Errorf("the recording differs from the driver's truth:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]uint64{"thread_exit_in_call": 1}, losses(got)); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
	expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {0, 1}, {"v", "step"}: {0, 1}})
}

// The window ends where the program does; the next program is another target.
func TestExecInMidRecord(t *testing.T) {
	truth := filepath.Join(t.TempDir(), "truth.json")
	p := simtest.Start(t, simtest.Tester(t, "execer", "--calls", "5000", "--markers", simtest.Markers(t)).With("SIMCUDA_TRUTH="+truth))
	p.WaitLine("up")
	r := record(t, agent.Config{PID: p.PID})
	p.Ready()
	got := r.finish()
	expectEnd(t, got, recording.EndExec)
	p.Wait()
	expectEqual(t, got, simtest.ReadTruth(t, truth+".before").Counts())
	after := simtest.ReadTruth(t, truth).Counts().Only(func(k simtest.Key) bool { return k.Tag == "after" })
	if after.Total().Calls != 5000 {
		t.Errorf("the next program made %d of 5000 calls", after.Total().Calls)
	}
}

// The same by another thread than the first, with the rest in a call and in a
// stage.
func TestExecByAnotherThread(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w", "main start v", "main start u")
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	p.order("w begin step", "w launch 100", "v begin wait", "u begin other", "u launch 10", "u end")
	want := since(baseline, p.truthSoFar().Counts())
	p.order("v hang")
	p.WaitLine("inside")
	p.tell("w exec")
	got := r.finish()
	p.Wait()
	expectEnd(t, got, recording.EndExec)
	expectAccounted(t, got)
	if diff := simtest.Diff(want, counts(got)); diff != "" {
		t.Errorf("the recording differs from the driver's truth:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]uint64{"thread_exit_in_call": 1}, losses(got)); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
	expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {0, 1}, {"v", "wait"}: {0, 1}, {"u", "other"}: {1, 0}})
	if frame := onlyCaller(t, got, "step"); filepath.Base(got.Modules[frame.Module].Path) != "puppet" {
		t.Errorf("calls come from %+v", got.Modules[frame.Module])
	}
}

// The rows are the old program's, and so are the threads' names.
func TestExecKeepsNames(t *testing.T) {
	p := startPuppet(t)
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	p.order("main begin step", "main launch 100")
	want := since(baseline, p.truthSoFar().Counts())
	p.tell("main exec")
	got := r.finish()
	p.Wait()
	expectEnd(t, got, recording.EndExec)
	expectEqual(t, got, want)
	expectSpans(t, got, map[stageKey]spanCount{{"puppet", "step"}: {0, 1}})
	if got.Target.Comm != "puppet" || filepath.Base(got.Target.Exe) != "puppet" {
		t.Errorf("the target is %+v", got.Target)
	}
}

// A child that shares the target's memory until it executes another program
// ends nothing.
func TestSpawn(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	p.order("w begin step", "w launch 10", "w spawn", "w launch 20", "main spawn", "w end")
	got := r.interrupt()
	expectEnd(t, got, recording.EndInterrupt)
	expectEqual(t, got, since(baseline, p.end().Counts()))
	expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {1, 0}})
}

// A thread is known by its last name.
func TestThreadRenamed(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	p.order("w launch 10", "w rename target-0", "w launch 20", "w rename drafter-0")
	got := r.interrupt()
	expectEqual(t, got, since(baseline, p.end().Counts()))
	names := map[string]uint64{}
	for _, c := range got.Calls {
		names[got.Threads[c.Thread].Name] += c.Count
	}
	if diff := cmp.Diff(map[string]uint64{"drafter-0": 30}, names); diff != "" {
		t.Errorf("calls by thread name (-want +got):\n%s", diff)
	}
}

// ^C while the target rests: what was counted until then is equal, and nothing
// after it is in it.
func TestInterruptBetweenCalls(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w", "main start v")
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	p.order("w begin step", "w launch 1000", "v begin other", "v launch 500", "v end")
	want := since(baseline, p.truthSoFar().Counts())
	got := r.interrupt()
	p.order("w launch 1000", "w end", "v launch 10")
	p.end()
	expectEnd(t, got, recording.EndInterrupt)
	expectEqual(t, got, want)
}

// ^C while a thread is in a call: that call alone is still running.
func TestInterruptInCall(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w", "main start v")
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	p.order("w launch 100", "w hang")
	p.WaitLine("inside")
	p.order("v launch 50")
	want := since(baseline, p.truthSoFar().Counts())
	got := r.interrupt()
	expectAccounted(t, got)
	if diff := simtest.Diff(want, counts(got)); diff != "" {
		t.Errorf("the recording differs from the driver's truth:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]uint64{"in_flight_at_end": 1}, losses(got)); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
}

// A call that had begun before the window is none of it, although it ends in
// it; one that ends after it was still running. Both at once for a call that
// outlasts the window.
func TestCallsAcrossTheWindow(t *testing.T) {
	before, after := filepath.Join(t.TempDir(), "before"), filepath.Join(t.TempDir(), "after")
	p := startPuppet(t)
	p.order("main start early", "main start late", "main start always", "early pause "+before)
	p.WaitLine("inside")
	p.order("always hang")
	r := record(t, agent.Config{PID: p.PID})
	touch(t, before)
	p.order("early launch 10", "late pause "+after, "main launch 1")
	simtest.Eventually(t, "the third call", func() bool { return strings.Count(strings.Join(p.Lines(), "\n"), "inside") == 3 })
	got := r.interrupt()
	touch(t, after)
	p.order("late launch 5", "early launch 5")
	expectAccounted(t, got)
	names := map[string]uint64{}
	for _, c := range got.Calls {
		names[got.Threads[c.Thread].Name+" "+got.Symbols[c.Symbol].Name] += c.Count
	}
	if diff := cmp.Diff(map[string]uint64{"early cuLaunchKernel": 10, "puppet cuLaunchKernel": 1}, names); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]uint64{"in_flight_at_end": 1}, losses(got)); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
}

// ^C at full speed: every call that was seen is accounted, and none is there
// that the driver did not count.
func TestInterruptAtFullSpeed(t *testing.T) {
	const threads = 8
	// It is held, so that the interrupt ends the window also where it is late.
	p := simtest.Start(t, simtest.Tester(t, "calls", "--threads", fmt.Sprint(threads), "--calls", "100000", "--stages", "4",
		"--markers", simtest.Markers(t), "--hold", "-"))
	p.WaitLine("up")
	calls := make(chan struct{}, 1)
	r := record(t, agent.Config{PID: p.PID, Progress: func(now agent.Progress) {
		if now.Calls > 1000 {
			select {
			case calls <- struct{}{}:
			default:
			}
		}
	}})
	p.Ready()
	<-calls
	got := r.interrupt()
	expectEnd(t, got, recording.EndInterrupt)
	expectAccounted(t, got)
	if lost := losses(got); lost["in_flight_at_end"] != lostCalls(got) || lostCalls(got) > threads {
		t.Errorf("losses: %v", lost)
	}
	p.Release()
	p.Wait()
	expectAtMost(t, got, p.Truth().Counts())
	expectPartition(t, got)
	expectSpansInTotals(t, got)
	if diff := simtest.Diff(p.Expected(), p.Truth().Counts()); diff != "" {
		t.Errorf("the target was disturbed:\n%s", diff)
	}
}

// The agent is stopped while the target calls at full speed. Counting is the
// kernel's, so nothing is missing.
func TestCaseC14AgentStopped(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "calls", "--threads", "8", "--calls", "40000", "--stages", "4",
		"--markers", simtest.Markers(t)))
	p.WaitLine("up")
	a := startAgent(t, p.PID)
	p.Ready()
	a.Signal(syscall.SIGSTOP)
	p.Wait() // the target lives and dies without the agent looking
	a.Signal(syscall.SIGCONT)
	got := a.finish()
	expectEnd(t, got, recording.EndExit)
	expectEqual(t, got, p.Truth().Counts())
	expectPartition(t, got)
}

// Meanwhile more spans end than the ring buffer holds: they are in the totals.
func TestCaseC14SpansWhileAgentStopped(t *testing.T) {
	const threads, outer, inner = 2, 60, 100
	p := simtest.Start(t, simtest.Tester(t, "flood", "--threads", fmt.Sprint(threads), "--outer", fmt.Sprint(outer),
		"--inner", fmt.Sprint(inner), "--markers", simtest.Markers(t)))
	p.WaitLine("up")
	a := startAgent(t, p.PID)
	a.Signal(syscall.SIGSTOP)
	p.Ready()
	p.Wait()
	a.Signal(syscall.SIGCONT)
	got := a.finish()
	expectAccounted(t, got)
	if diff := simtest.Diff(p.Truth().Counts(), counts(got)); diff != "" {
		t.Errorf("the recording differs from the driver's truth:\n%s", diff)
	}
	held, _ := spans(got)
	lost := losses(got)["span_records_full"]
	if held != threads*outer*(inner+1) || uint64(len(got.Spans))+lost != held || lost == 0 || len(got.Losses) != 1 {
		t.Errorf("%d spans, %d of them one by one, losses %v", held, len(got.Spans), losses(got))
	}
}

// The agent is killed: its probes go with it, the target notices nothing, and
// another agent can record.
func TestAgentKilled(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	a := startAgent(t, p.PID)
	p.order("w begin step", "w launch 1000")
	if !probed(t, p.PID, simtest.Driver(t), "cuLaunchKernel") {
		t.Error("the driver has no probes while the agent lives")
	}
	a.Kill()
	simtest.Eventually(t, "no probes", func() bool { return !probed(t, p.PID, simtest.Driver(t), "cuLaunchKernel") })
	p.order("w launch 1000", "w end")

	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	p.order("w begin step", "w launch 500", "w end")
	got := r.interrupt()
	truth := p.end().Counts()
	expectEqual(t, got, since(baseline, truth))
	if n := truth.By(simtest.BySymbol)[simtest.Key{Symbol: "cuLaunchKernel"}].Calls; n != 2500 {
		t.Errorf("the target made %d of 2500 calls", n)
	}
}

// A target that is stopped can be attached to and left, and goes on as if
// nothing had been.
func TestStoppedTarget(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "calls", "--threads", "4", "--calls", "5000", "--markers", simtest.Markers(t)))
	p.WaitLine("up")
	p.Ready()
	p.Signal(syscall.SIGSTOP)
	got := record(t, agent.Config{PID: p.PID}).interrupt()
	expectEnd(t, got, recording.EndInterrupt)
	expectAccounted(t, got)
	p.Signal(syscall.SIGCONT)
	p.Wait()
	if diff := simtest.Diff(p.Expected(), p.Truth().Counts()); diff != "" {
		t.Errorf("the target was disturbed:\n%s", diff)
	}
}

// A target that dies at any moment of the attachment is an error that says so,
// or a short recording.
func TestTargetDiesDuringAttach(t *testing.T) {
	for i := range 12 {
		p := simtest.Start(t, simtest.Tester(t, "idle", "--threads", "20", "--hold", "-", "--markers", simtest.Markers(t)))
		p.WaitLine("up")
		killer := time.AfterFunc(time.Duration(i)*20*time.Millisecond, func() { _ = syscall.Kill(p.PID, syscall.SIGKILL) })
		r, err := agent.Record(t.Context(), agent.Config{PID: p.PID, Probes: "all"})
		killer.Stop()
		switch {
		case err == nil:
			expectEnd(t, r, recording.EndExit)
		case !errors.Is(err, target.ErrTargetExited) && !errors.Is(err, target.ErrNoProcess) && !errors.Is(err, target.ErrZombie):
			t.Errorf("killed after %d ms: %v", i*20, err)
		}
		p.Kill()
	}
}

// Two agents record one target, for different times: both are right.
func TestCaseC25TwoAgents(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w", "w launch 5")
	first := p.truthSoFar().Counts()
	a := startAgent(t, p.PID)
	p.order("w begin step", "w launch 100")
	second := p.truthSoFar().Counts()
	b := record(t, agent.Config{PID: p.PID})
	p.order("w launch 1000", "w end", "w begin step", "w launch 10")
	third := p.truthSoFar().Counts()
	fromA := a.interrupt()
	p.order("w launch 7", "w end")
	fromB := b.interrupt()
	expectEqual(t, fromA, since(first, third))
	expectEqual(t, fromB, since(second, p.end().Counts()))
}

// A target whose system calls are filtered is not killed for those that probes
// make on its behalf.
func TestCaseC18Seccomp(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w", "main seccomp")
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	p.order("w begin step", "w launch 100", "w nest 10", "w end", "w begin step", "w launch 10", "w end", "main launch 1")
	got := r.interrupt()
	expectEqual(t, got, since(baseline, p.end().Counts()))
	expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {2, 0}})
}

// The target sees none of it: no file of ours in its memory, the same output,
// the same exit.
func TestCaseC25TargetUndisturbed(t *testing.T) {
	run := func(recorded bool) []string {
		p := simtest.Start(t, simtest.Tester(t, "args", "--calls", "50", "--markers", simtest.Markers(t), "--hold", "-"))
		p.WaitLine("up")
		before := mappedFiles(t, p.PID)
		finish := func() {}
		if recorded {
			r := record(t, agent.Config{PID: p.PID})
			finish = func() { expectEqual(t, r.finish(), p.Truth().Counts()) }
		}
		p.Ready()
		p.WaitLine("done")
		if diff := cmp.Diff(before, mappedFiles(t, p.PID)); diff != "" {
			t.Errorf("mapped files (-before +after):\n%s", diff)
		}
		p.Release()
		p.Wait()
		finish()
		if p.Stderr() != "" {
			t.Errorf("stderr: %s", p.Stderr())
		}
		lines := p.Lines()
		for i, line := range lines {
			lines[i] = strings.ReplaceAll(line, fmt.Sprintf(`"tid":%d`, p.PID), `"tid":N`)
		}
		return lines
	}
	if diff := cmp.Diff(run(false), run(true)); diff != "" {
		t.Errorf("output (-alone +recorded):\n%s", diff)
	}
}

// mappedFiles lists the files that a process has mapped, but the one in which the
// marker library publishes at its first marker, recorded or not.
func mappedFiles(t *testing.T, pid int) map[string]bool {
	t.Helper()
	files := map[string]bool{}
	for _, m := range mappings(t, pid) {
		if strings.HasPrefix(m.Path, "/") && !strings.HasPrefix(m.Path, "/memfd:OTEL_CTX") {
			files[m.Path] = true
		}
	}
	return files
}
