package agent_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"stageprof/agent"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// familyRun is a recording of a family in progress.
type familyRun struct {
	t     *testing.T
	stop  context.CancelFunc
	ready chan struct{}
	live  chan struct{} // one for each process whose window has opened
	done  chan error
	got   *agent.Family

	pauses, over byPID
}

// mostWindows is more than any test opens: nobody has to wait for all of them.
const mostWindows = 1 << 16

// familyLog passes on that the window of a process is open, and counts by process the
// pauses after windows, and the ends of recordings.
type familyLog struct {
	slog.Handler
	live         chan struct{}
	pauses, over *byPID
}

func (l familyLog) Enabled(context.Context, slog.Level) bool { return true }

func (l familyLog) Handle(_ context.Context, r slog.Record) error {
	switch r.Message {
	case "recording a process":
		l.live <- struct{}{}
	case "between two windows":
		l.pauses.count(r)
	case "the recording of a process ended":
		l.over.count(r)
	}
	return nil
}

// byPID counts messages about processes.
type byPID struct {
	mu    sync.Mutex
	times map[int]int
}

func (b *byPID) count(r slog.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "pid" {
			if b.times == nil {
				b.times = map[int]int{}
			}
			b.times[int(a.Value.Int64())]++
		}
		return true
	})
}

func (b *byPID) of(pid int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.times[pid]
}

// recordFamily returns once the first windows are open.
func recordFamily(t *testing.T, config agent.Config) *familyRun {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	f := &familyRun{t: t, stop: stop, ready: make(chan struct{}), live: make(chan struct{}, mostWindows), done: make(chan error, 1)}
	config.Ready = func() error { close(f.ready); return nil }
	config.Log = slog.New(familyLog{slog.DiscardHandler, f.live, &f.pauses, &f.over})
	config.Probes = "all"
	go func() {
		f.done <- agent.RecordFamily(ctx, config, func(got *agent.Family) error { f.got = got; return nil })
	}()
	t.Cleanup(stop)
	select {
	case <-f.ready:
	case err := <-f.done:
		t.Fatalf("recording: %v", err)
	case <-time.After(simtest.Patience):
		t.Fatal("the probes are not live after a long time")
	}
	return f
}

func (f *familyRun) waitLive(n int) {
	f.t.Helper()
	for range n {
		select {
		case <-f.live:
		case <-time.After(simtest.Patience):
			f.t.Fatal("a window does not open")
		}
	}
}

// finish waits for the end, and returns the Recordings of the processes that
// called the driver, by pid.
func (f *familyRun) finish() map[int]*recording.Recording {
	f.t.Helper()
	select {
	case err := <-f.done:
		if err != nil {
			f.t.Fatalf("recording: %v", err)
		}
	case <-time.After(simtest.Patience):
		f.t.Fatal("the recording does not end")
	}
	byPID := map[int]*recording.Recording{}
	for _, r := range f.got.Recordings {
		if byPID[r.Target.PID] != nil {
			f.t.Errorf("two recordings of process %d", r.Target.PID)
		}
		byPID[r.Target.PID] = r
	}
	return byPID
}

func expectProcesses(t *testing.T, got map[int]*recording.Recording, p *simtest.Process, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if got[pid] == nil {
			t.Errorf("process %d was not recorded", pid)
			continue
		}
		expectEqual(t, got[pid], p.TruthOf(pid).Counts())
	}
	if len(got) != len(pids) {
		t.Errorf("%d processes were recorded, want %d", len(got), len(pids))
	}
}

// numbers reads the numbers in lines behind a prefix.
func numbers(t *testing.T, lines []string, prefix string) (numbers []int) {
	t.Helper()
	for _, line := range lines {
		text := strings.TrimRight(strings.Fields(strings.TrimPrefix(line, prefix))[0], "}")
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

func TestCaseC15ForkedWorkersAreRecorded(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "forker", "--workers", "4", "--calls", "300", "--early", "1", "--markers", simtest.Markers(t)))
	p.WaitLines("up", 5)
	workers := numbers(t, p.WaitLines(`{"child":`, 4), `{"child":`)
	f := recordFamily(t, agent.Config{PID: p.PID})
	p.Ready()
	got := f.finish()
	p.Wait()
	expectProcesses(t, got, p, append(workers, p.PID)...)
	for pid, r := range got {
		expectEnd(t, r, recording.EndExit)
		for _, w := range r.Warnings {
			if strings.HasPrefix(w, "not recorded") {
				t.Errorf("process %d: %q", pid, w)
			}
		}
	}
}

// Children that a recorded process forks while the probes are on have its code
// with them in it. Nothing of that disturbs their calls, or its counts.
func TestCaseC15WorkersForkedWhileRecording(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "forker", "--workers", "4", "--calls", "300", "--stay", "1", "--markers", simtest.Markers(t)))
	p.WaitLine("up")
	f := recordFamily(t, agent.Config{PID: p.PID})
	f.waitLive(1)
	p.Ready()
	p.WaitLines("worked", 5)
	f.waitLive(4)
	p.Release()
	got := f.finish()
	p.Wait()
	expectEqual(t, got[p.PID], p.Truth().Counts())
	counted := 0
	for _, pid := range numbers(t, p.WaitLines(`{"child":`, 4), `{"child":`) {
		if got[pid] == nil { // it had worked before its window was open
			counted++
			continue
		}
		warning(t, got[pid].Warnings, "the process was found to have the CUDA driver")
		expectAccounted(t, got[pid])
		expectAtMost(t, got[pid], p.TruthOf(pid).Counts())
		if calls := p.TruthOf(pid).Counts()[simtest.Key{TID: pid, Tag: "pin", Symbol: "cuMemHostAlloc"}].Calls; calls != 300 {
			t.Errorf("process %d made %d of 300 allocations", pid, calls)
		}
	}
	if text := idleWorkers(counted); counted > 0 && !slices.Equal(f.got.Missed, []string{text}) {
		t.Errorf("missed %q, want %q", f.got.Missed, text)
	}
}

func idleWorkers(n int) string {
	return fmt.Sprint("forked processes that were found late, and then made no driver call and were in no stage until they ended: ", n)
}

// launch starts sh -c → launcher → workers, each with its rank. Two of them
// have mapped the driver when it returns; a third one is started by a line on
// the launcher's standard input, and waits for the file late.
func launch(t *testing.T) (p *simtest.Process, workers []int, late string) {
	t.Helper()
	worker := simtest.Tester(t, "calls", "--markers", simtest.Markers(t), "--calls", "2000", "--stages", "2")
	late = filepath.Join(t.TempDir(), "late")
	script := `export WORLD_SIZE=3
RANK=0 "$@" & echo worker $!
RANK=1 "$@" & echo worker $!
read go && { RANK=2 "$@" --ready "$LATE" & echo worker $!; }
wait`
	p = simtest.Start(t, simtest.Command{Path: "/bin/sh", Args: append(
		[]string{"-c", `sh -c "$@"; exit $?`, "sh", script, "launcher", worker.Path}, worker.Args...)}.With("LATE="+late))
	p.WaitLines("up", 2)
	return p, numbers(t, p.WaitLines("worker ", 2), "worker "), late
}

// tellLauncher writes a line to the process's standard input.
func tellLauncher(t *testing.T, p *simtest.Process) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/fd/0", p.PID), []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
}

func TestCaseC16RanksOfALauncher(t *testing.T) {
	p, workers, _ := launch(t)
	f := recordFamily(t, agent.Config{PID: p.PID})
	p.Ready()
	p.Release() // there is no third one
	got := f.finish()
	p.Wait()
	expectProcesses(t, got, p, workers...)
	for rank, pid := range workers {
		if r := got[pid]; r != nil && (r.Target.Rank != rank || r.Target.WorldSize != 3) {
			t.Errorf("process %d has rank %d of %d, want %d of 3", pid, r.Target.Rank, r.Target.WorldSize, rank)
		}
	}
}

// A worker that is started while the others are recorded, and one that is killed.
func TestCaseC16WorkersComeAndGo(t *testing.T) {
	p, workers, late := launch(t)
	f := recordFamily(t, agent.Config{PID: p.PID})
	f.waitLive(2)
	if err := syscall.Kill(workers[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	tellLauncher(t, p)
	last := numbers(t, p.WaitLines("worker ", 3), "worker ")[2]
	f.waitLive(1)
	p.Ready()
	if err := os.WriteFile(late, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got := f.finish()
	p.Wait()
	if killed := got[workers[0]]; killed == nil || counts(killed).Total().Calls != 0 || killed.Window.End != recording.EndExit {
		t.Errorf("the recording of the killed process: %+v", killed)
	}
	delete(got, workers[0])
	expectProcesses(t, got, p, workers[1], last)
	if r := got[last]; r != nil {
		warning(t, r.Warnings, "the process was found to have the CUDA driver")
	}
}

// Workers of Python's multiprocessing: copies of the launcher, and programs of
// their own.
func TestCaseC16WorkersOfPython(t *testing.T) {
	for _, method := range []string{"fork", "spawn"} {
		t.Run(method, func(t *testing.T) {
			p := simtest.Start(t, simtest.Command{Path: "python3", Args: []string{"testdata/workers.py", method, simtest.Driver(t), "3"}})
			var pids []int
			for _, line := range p.WaitLines("up ", 3) {
				pids = append(pids, numbers(t, []string{line}, "up ")...)
			}
			f := recordFamily(t, agent.Config{PID: p.PID})
			p.Ready()
			got := f.finish()
			p.Wait()
			expectProcesses(t, got, p, pids...)
			if _, ok := got[p.PID]; ok {
				t.Error("the launcher was recorded, which has no driver")
			}
		})
	}
}

// What a child was before it executed another program is complete; what it is
// then is another target.
func TestCaseC16WorkerExecutesAnotherProgram(t *testing.T) {
	truth := filepath.Join(t.TempDir(), "truth.json")
	worker := simtest.Tester(t, "execer", "--calls", "3000", "--markers", simtest.Markers(t))
	p := simtest.Start(t, simtest.Command{Path: "/bin/sh", Args: append([]string{"-c", `"$@"; exit $?`, "sh", worker.Path}, worker.Args...)}.With("SIMCUDA_TRUTH="+truth))
	p.WaitLine("up")
	f := recordFamily(t, agent.Config{PID: p.PID})
	p.Ready()
	if err := <-f.done; err != nil {
		t.Fatal(err)
	}
	p.Wait()
	before := f.got.Recordings[0]
	expectEnd(t, before, recording.EndExec)
	expectEqual(t, before, simtest.ReadTruth(t, truth+".before").Counts())
}

func TestFamilyWithoutDriver(t *testing.T) {
	p := simtest.Start(t, simtest.Command{Path: "/bin/sh", Args: []string{"-c", "echo up; read x"}})
	p.WaitLine("up")
	err := agent.RecordFamily(t.Context(), agent.Config{PID: p.PID}, func(*agent.Family) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "nor has a descendant") {
		t.Errorf("error %v", err)
	}
}

// A process that forks thousands of children, most of which are gone before anybody has
// seen them: its own calls are exact, and nothing is kept of what says nothing.
func TestFamilyOfManyBriefChildren(t *testing.T) {
	const children = 3000
	p := startPuppet(t)
	p.order("main start w", "w launch 1")
	baseline := p.truthSoFar().Counts()
	f := recordFamily(t, agent.Config{PID: p.PID})
	p.order("w begin step", "w launch 10")
	for i := range children {
		calls := 0
		if i%500 == 0 {
			calls = 100_000 // these are there for a while
		}
		p.order(fmt.Sprint("main fork ", calls))
	}
	p.order("w launch 10", "w end")
	truth := since(baseline, p.truthSoFar().Counts())
	f.stop()
	got := f.finish()
	expectEqual(t, got[p.PID], truth)
	for pid, r := range got {
		if pid != p.PID && r.Seen.Calls == 0 && len(r.Stages) == 0 && r.Window.End == recording.EndExit {
			t.Errorf("process %d has come, done nothing, and gone, and has a recording", pid)
		}
	}
	t.Logf("%d recordings; missed %q", len(f.got.Recordings), f.got.Missed)
	if len(f.got.Missed) > 10 {
		t.Errorf("%d texts about processes that nobody can say anything of", len(f.got.Missed))
	}
}

// Many workers, in a long test more than are recorded at once: those that are recorded
// are exact, the others are named.
func TestFamilyOfManyWorkers(t *testing.T) {
	workers := sized(6, agent.MaxMembers)
	p := simtest.Start(t, simtest.Tester(t, "forker", "--workers", fmt.Sprint(workers), "--calls", "300", "--early", "1", "--markers", simtest.Markers(t)))
	p.WaitLines("up", workers+1)
	pids := append(numbers(t, p.WaitLines(`{"child":`, workers), `{"child":`), p.PID)
	f := recordFamily(t, agent.Config{PID: p.PID})
	p.Ready()
	got := f.finish()
	p.Wait()
	for pid, r := range got {
		expectEqual(t, r, p.TruthOf(pid).Counts())
	}
	named := 0
	for _, pid := range pids {
		if got[pid] == nil && strings.Contains(strings.Join(f.got.Missed, "\n"), fmt.Sprintf("%d (", pid)) {
			named++
		}
	}
	if want := min(len(pids), agent.MaxMembers); len(got) != want || named != len(pids)-want {
		t.Errorf("%d of %d processes were recorded, want %d; missed %q", len(got), len(pids), want, f.got.Missed)
	}
}

// A forked worker that is recorded, does nothing, and goes, is one of a number.
func TestFamilyCountsIdleWorkers(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	f := recordFamily(t, agent.Config{PID: p.PID})
	f.waitLive(1)
	file := filepath.Join(t.TempDir(), "go")
	p.tell("w linger " + file)
	p.WaitLine("forked")
	f.waitLive(1)
	touch(t, file)
	p.order("w launch 10") // after the worker's end
	p.end()
	got := f.finish()
	if len(got) != 1 || got[p.PID] == nil {
		t.Errorf("%d processes have recordings", len(got))
	}
	if want := []string{idleWorkers(1)}; !slices.Equal(f.got.Missed, want) {
		t.Errorf("missed %q, want %q", f.got.Missed, want)
	}
}
