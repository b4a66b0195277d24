package agent_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"stageprof/agent"
	"stageprof/agent/calibrate"
	"stageprof/agent/target"
	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// worker is a puppet below a launcher, which passes on what it prints.
type worker struct {
	puppet
	pid int
}

// launchPuppets starts sh → workers, each with its rank, its orders from a pipe of its
// own, and markers. Workers from the rank late on are started by a line on the launcher's
// standard input.
func launchPuppets(t *testing.T, n, late int) (launcher *simtest.Process, workers []*worker) {
	t.Helper()
	folder := t.TempDir()
	tester := simtest.Tester(t, "puppet")
	script := `for rank in $(seq 0 $(($N - 1))); do
    if [ $rank -ge $LATE ]; then read go; fi
    RANK=$rank WORLD_SIZE=$N sh -c 'echo pid $$; exec "$@"' sh "$@" < "$ORDERS/$rank" | sed -u "s/^/$rank /" &
done
wait`
	for rank := range n {
		path := filepath.Join(folder, fmt.Sprint(rank))
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		orders, err := os.OpenFile(path, os.O_RDWR, 0) // so it waits for no reader
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { orders.Close() })
		workers = append(workers, &worker{puppet: puppet{t: t, orders: orders, name: fmt.Sprint(rank, " ")}})
	}
	launcher = simtest.Start(t, simtest.Command{Path: "/bin/sh", Args: append([]string{"-c", script, "launcher", tester.Path}, tester.Args...)}.
		With(fmt.Sprint("N=", n), fmt.Sprint("LATE=", late), "ORDERS="+folder))
	launcher.Ready()
	for _, w := range workers {
		w.Process = launcher
	}
	for _, w := range workers[:late] {
		w.start()
	}
	return launcher, workers
}

// start waits until the worker obeys.
func (w *worker) start() {
	w.t.Helper()
	w.pid = numbers(w.t, []string{w.WaitLine(w.name + "pid ")}, w.name+"pid ")[0]
	w.WaitLine(w.name + "up")
	w.order("main markers " + simtest.Markers(w.t))
}

// quit lets the worker exit.
func (w *worker) quit() {
	w.t.Helper()
	if err := w.orders.Close(); err != nil {
		w.t.Fatal(err)
	}
}

// step lets the worker do something in a stage of its own.
func (w *worker) step(n int) step {
	w.t.Helper()
	s := step{stage: fmt.Sprint("step", n), begin: agent.Monotonic()}
	w.order("main begin "+s.stage, fmt.Sprint("main launch ", stepCalls), "main end")
	s.end = agent.Monotonic()
	return s
}

// waitPaused waits until a process is between two windows.
func (f *familyRun) waitPaused(pid int) {
	f.t.Helper()
	f.eventually(fmt.Sprintf("process %d is between two windows", pid), func() bool { return f.pauses.of(pid) > 0 })
}

// eventually waits for a condition, as long as the recording goes on.
func (f *familyRun) eventually(what string, condition func() bool) {
	f.t.Helper()
	simtest.Eventually(f.t, what, func() bool {
		f.expectRunning()
		return condition()
	})
}

// expectRunning fails if the recording has ended.
func (f *familyRun) expectRunning() {
	f.t.Helper()
	select {
	case err := <-f.done:
		f.t.Fatalf("the recording has ended: %v", err)
	default:
	}
}

// Each process has windows of its own, in which all is counted to the last call and
// nothing of what is between, and is charged for these only. One that started later than
// the others has, too.
func TestFamilyBudgetWindowsAreExact(t *testing.T) {
	launcher, workers := launchPuppets(t, 3, 2)
	busy, quiet, late := workers[0], workers[1], workers[2]
	for _, w := range workers[:2] {
		w.order("main begin outer")
	}
	f := recordFamily(t, agent.Config{PID: launcher.PID, Budget: 0.04}.Advance(4*time.Second))
	f.waitLive(2)
	tellLauncher(t, launcher)
	late.start()
	f.waitLive(1)
	late.order("main begin outer")

	const pauses = 3
	steps := map[*worker][]step{}
	f.eventually("the busy ones have had some windows", func() bool {
		for _, w := range workers {
			steps[w] = append(steps[w], w.step(len(steps[w])))
		}
		for _, w := range []*worker{busy, late} { // at the same time
			w.tell("main launch 40000")
		}
		busy.obeyed()
		late.obeyed()
		return f.pauses.of(busy.pid) >= pauses && f.pauses.of(late.pid) >= pauses
	})
	f.stop()
	got := f.finish()
	for _, w := range workers {
		w.order("main end")
		w.quit()
	}
	launcher.Wait()

	if len(got) != len(workers) || len(f.got.Missed) > 0 {
		t.Fatalf("%d processes were recorded; missed %q", len(got), f.got.Missed)
	}
	for _, w := range workers {
		r := got[w.pid]
		expectEnd(t, r, recording.EndInterrupt)
		expectCoverage(t, r)
		expectPartition(t, r)
		if lost := expectAccount(t, r); lost > uint64(len(r.Budget.Windows)) {
			t.Errorf("%d calls lost, at each window's end one can be in flight: %v", lost, r.Losses)
		}
		t.Logf("rank %d: %v of %v in %d windows, %+v", r.Target.Rank, r.Window.Duration, r.Budget.Elapsed, len(r.Budget.Windows), r.Budget.Cost)
	}
	for _, w := range []*worker{busy, late} {
		r := got[w.pid]
		if len(r.Budget.Windows) < pauses {
			t.Errorf("rank %d has %d windows after %d pauses", r.Target.Rank, len(r.Budget.Windows), pauses)
		}
		expectSteps(t, r, steps[w])
	}
	expectWholeWindows(t, got[busy.pid])
	expectPaidByItself(t, got[quiet.pid], steps[quiet])
	warning(t, got[late.pid].Warnings, "the process was found to have the CUDA driver")
}

// expectPaidByItself fails unless a process that has done nothing but steps was recorded
// all the time, whatever others did, and each of them is there.
func expectPaidByItself(t *testing.T, r *recording.Recording, steps []step) {
	t.Helper()
	if correlate.HasGaps(r) || len(r.Budget.Windows) != 1 {
		t.Errorf("a process that did little is charged for others: %+v", r.Budget)
	}
	expectWholeWindows(t, r)
	calls := map[string]uint64{}
	for key, c := range counts(r) {
		calls[key.Tag] += c.Calls
	}
	for _, s := range steps {
		if got := calls["outer/"+s.stage]; got != stepCalls {
			t.Errorf("%d calls in %s, want %d", got, s.stage, stepCalls)
		}
	}
}

// What ends while no process has a probe ends as ever.
func TestFamilyBudgetEndsInPause(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(f *familyRun, first, second *worker)
		want [2]recording.WindowEnd
	}{
		{"interrupt", func(f *familyRun, _, _ *worker) { f.stop() }, [2]recording.WindowEnd{recording.EndInterrupt, recording.EndInterrupt}},
		{"exit", func(f *familyRun, first, _ *worker) {
			first.quit()
			f.eventually("the first one's recording is over", func() bool { return f.over.of(first.pid) > 0 })
			f.stop()
		}, [2]recording.WindowEnd{recording.EndExit, recording.EndInterrupt}},
		{"all exit", func(_ *familyRun, first, second *worker) { first.quit(); second.quit() }, [2]recording.WindowEnd{recording.EndExit, recording.EndExit}},
	} {
		t.Run(test.name, func(t *testing.T) {
			launcher, workers := launchPuppets(t, 2, 2)
			f := recordFamily(t, agent.Config{PID: launcher.PID, Budget: 0.0001}.Advance(time.Millisecond))
			for _, w := range workers {
				w.order("main launch 100")
				f.waitPaused(w.pid)
			}
			test.end(f, workers[0], workers[1])
			got := f.finish()
			for i, w := range workers {
				r := got[w.pid]
				if r == nil {
					t.Fatalf("rank %d was not recorded: %q", i, f.got.Missed)
				}
				expectEnd(t, r, test.want[i])
				expectCoverage(t, r)
				if len(r.Budget.Windows) != 1 || r.Budget.Elapsed <= r.Window.Duration {
					t.Errorf("the recording of rank %d ended in no pause: %+v", i, r.Budget)
				}
				warning(t, r.Warnings, "the budget of 0.01% is exceeded")
			}
		})
	}
}

// A program that is executed between two windows is another target.
func TestFamilyBudgetExecInPause(t *testing.T) {
	launcher, workers := launchPuppets(t, 2, 2)
	f := recordFamily(t, agent.Config{PID: launcher.PID, Budget: 0.0001}.Advance(time.Millisecond))
	f.waitLive(2)
	for _, w := range workers {
		f.waitPaused(w.pid)
	}
	workers[0].tell("main again")
	workers[0].WaitLines(workers[0].name+"up", 2)
	f.waitLive(1)
	f.stop()
	if err := <-f.done; err != nil {
		t.Fatal(err)
	}
	var ends []recording.WindowEnd
	for _, r := range f.got.Recordings {
		expectCoverage(t, r)
		if r.Target.PID == workers[0].pid {
			ends = append(ends, r.Window.End)
		}
	}
	if fmt.Sprint(ends) != fmt.Sprint([]recording.WindowEnd{recording.EndExec, recording.EndInterrupt}) {
		t.Errorf("the recordings of the process that became another one ended by %q", ends)
	}
}

// The duration is over for all at once, for those between two windows, too.
func TestFamilyBudgetDuration(t *testing.T) {
	launcher, workers := launchPuppets(t, 2, 2)
	busy, quiet := workers[0], workers[1]
	busy.order("main start q")
	busy.tell("q poll 1000000000 0")
	f := recordFamily(t, agent.Config{PID: launcher.PID, Budget: 0.05, Duration: 4 * time.Second})
	got := f.finish()
	for _, w := range workers {
		r := got[w.pid]
		if r == nil {
			t.Fatalf("missed %q", f.got.Missed)
		}
		expectEnd(t, r, recording.EndDuration)
		expectCoverage(t, r)
		t.Logf("rank %d: %v of %v in %d windows, %+v", r.Target.Rank, r.Window.Duration, r.Budget.Elapsed, len(r.Budget.Windows), r.Budget.Cost)
	}
	expectAccount(t, got[busy.pid])
	if r := got[busy.pid]; !correlate.HasGaps(r) {
		t.Errorf("the budget was never used up: %+v", r.Budget)
	}
	if r := got[quiet.pid]; correlate.HasGaps(r) {
		t.Errorf("a process that does nothing pays for another one: %+v", r.Budget)
	}
}

// A process of which it can't be told what it pays is named, and the others are recorded.
func TestFamilyBudgetNotKnownForSome(t *testing.T) {
	launcher, workers := launchPuppets(t, 2, 2)
	f := recordFamily(t, agent.Config{PID: launcher.PID, Budget: 0.01}.CalibratesLater(agent.CalibrationTries))
	f.stop()
	got := f.finish()
	recorded, missed := workers[0], workers[1]
	if got[recorded.pid] == nil {
		recorded, missed = missed, recorded
	}
	if len(got) != 1 || got[recorded.pid] == nil {
		t.Errorf("%d processes were recorded", len(got))
	}
	if len(f.got.Missed) != 1 || !strings.HasPrefix(f.got.Missed[0], fmt.Sprint(missed.pid)) || !strings.Contains(f.got.Missed[0], agent.ErrBudget.Error()) {
		t.Errorf("missed %q", f.got.Missed)
	}
}

// What a calibration fails of once costs no process its recording.
func TestFamilyBudgetCalibratesAgain(t *testing.T) {
	launcher, workers := launchPuppets(t, 2, 2)
	f := recordFamily(t, agent.Config{PID: launcher.PID, Budget: 0.01}.CalibratesLater(agent.CalibrationTries-1))
	f.stop()
	if got := f.finish(); len(got) != len(workers) || len(f.got.Missed) != 0 {
		t.Errorf("%d processes were recorded, missed %q", len(got), f.got.Missed)
	}
}

// If it is so of all, that is the error.
func TestFamilyBudgetTooSmall(t *testing.T) {
	launcher, workers := launchPuppets(t, 2, 2)
	err := agent.RecordFamily(t.Context(), agent.Config{PID: launcher.PID, Budget: 1e-6, Duration: time.Second}, nil)
	for _, w := range workers {
		if !errors.Is(err, agent.ErrBudget) || !strings.Contains(err.Error(), fmt.Sprint("process ", w.pid)) {
			t.Errorf("a microsecond of CPU in a second is not refused: %v", err)
		}
	}
}

// Where all processes hit the probes of each one's windows, nobody can say who pays.
func TestFamilyBudgetNeedsTheProcessFilter(t *testing.T) {
	launcher, _ := launchPuppets(t, 1, 1)
	err := agent.RecordFamily(t.Context(), agent.Config{PID: launcher.PID, Budget: 0.01}.FilterOfThreads(), nil)
	if !errors.Is(err, agent.ErrBudget) || !errors.Is(err, calibrate.ErrProcessFilter) {
		t.Errorf("got %v, want %v: %v", err, agent.ErrBudget, calibrate.ErrProcessFilter)
	}
}

// A child that is forked in a window hits what it has inherited for no longer than that
// window, and later windows put nothing into it.
func TestForkedChildLosesTheProbes(t *testing.T) {
	driver := simtest.Driver(t)
	p := startPuppet(t)
	p.order("main start w")
	plain := simtest.CodeOf(t, p.PID, driver)
	first := record(t, agent.Config{PID: p.PID})
	file := filepath.Join(t.TempDir(), "go")
	p.tell("w linger " + file)
	p.WaitLine("forked")
	children, err := target.Descendants(p.PID)
	if err != nil || len(children) != 1 {
		t.Fatalf("children %v, %v", children, err)
	}
	child := children[0].PID
	if bytes.Equal(simtest.CodeOf(t, child, driver), plain) {
		t.Error("it has inherited nothing: the test shows nothing")
	}
	first.interrupt()
	next := record(t, agent.Config{PID: p.PID})
	if bytes.Equal(simtest.CodeOf(t, p.PID, driver), plain) {
		t.Error("its parent has no probes")
	}
	if !bytes.Equal(simtest.CodeOf(t, child, driver), plain) {
		t.Error("the child has probes of its parent's")
	}
	next.interrupt()
	touch(t, file)
	p.end()
}
