package agent_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"stageprof/agent"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// launches is how many kernel launches a Recording holds.
func launchCount(r *recording.Recording) uint64 {
	return counts(r).By(simtest.BySymbol)[simtest.Key{Symbol: "cuLaunchKernel"}].Calls
}

// Calls inside calls are not calls of their own; calls left by longjmp are
// lost, and spoil nothing after them. The kernel keeps 64 pending returns of a
// thread: nesting deeper loses inner executions only.
func TestCaseC24NestedAndAbandonedCalls(t *testing.T) {
	for _, depth := range []int{50, 63, 64, 65, 200} {
		t.Run(fmt.Sprintf("%d deep", depth), func(t *testing.T) {
			got, p := runTester(t, agent.Config{}, simtest.Tester(t, "nested", "--calls", "200", "--depth", fmt.Sprint(depth),
				"--markers", simtest.Markers(t)))
			truth := p.Truth()
			expectAccounted(t, got)
			// The host function runs on the driver's own thread, which has no stage.
			want := truth.Counts().By(func(k simtest.Key) simtest.Key {
				if k.TID != p.PID {
					k.Tag = ""
				}
				return k
			})
			if diff := simtest.Diff(want, counts(got)); diff != "" {
				t.Errorf("the recording differs from the driver's truth:\n%s", diff)
			}
			if diff := cmp.Diff(map[string]uint64{"lost_return": truth.Unfinished()}, losses(got)); diff != "" {
				t.Errorf("losses (-want +got):\n%s", diff)
			}
		})
	}
}

// What calls return has no influence on how they are paired.
func TestNestedCallsAfterErrors(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w", "main start v")
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	p.order("w fail 3", "w nest 10", "v nest 10", "w fail 1", "w launch 5", "w nest 10")
	got := r.interrupt()
	expectEqual(t, got, since(baseline, p.end().Counts()))
}

// A return is lost, and the thread calls again much later: from the same frame,
// from further up, from further down. Each later call is one of its own, with
// its own duration.
func TestCaseC24LostReturn(t *testing.T) {
	for _, later := range []string{"launch", "below"} {
		t.Run(later, func(t *testing.T) {
			p := startPuppet(t)
			p.order("main start w")
			r := record(t, agent.Config{PID: p.PID})
			p.order("w begin step", "w launch 3", "w abandon", "main start idle", "main launch 50",
				"w "+later+" 4", "w launch 5", "w end")
			got := r.interrupt()
			p.end()
			expectAccounted(t, got)
			if n := launchCount(got); n != 3+50+4+5 {
				t.Errorf("%d launches", n)
			}
			if diff := cmp.Diff(map[string]uint64{"lost_return": 1}, losses(got)); diff != "" {
				t.Errorf("losses (-want +got):\n%s", diff)
			}
			for _, c := range got.Calls {
				if got.Symbols[c.Symbol].Name == "cuStreamQuery" {
					t.Errorf("the abandoned call has a row: %+v", c)
				}
			}
		})
	}
}

// Abandoned calls in a row, more than the kernel keeps returns of.
func TestCaseC24ManyLostReturns(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	r := record(t, agent.Config{PID: p.PID})
	for range 100 {
		p.order("w abandon", "w launch 1")
	}
	for range 100 {
		p.order("w abandon")
	}
	p.order("w launch 10")
	got := r.interrupt()
	p.end()
	expectAccounted(t, got)
	if n := launchCount(got); n != 110 {
		t.Errorf("%d launches", n)
	}
	if diff := cmp.Diff(map[string]uint64{"lost_return": 200}, losses(got)); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
}

// The call that a thread leaves by ending.
func TestThreadEndsAfterAbandonedCall(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	r := record(t, agent.Config{PID: p.PID})
	p.order("w launch 10", "w abandon", "w exit", "main launch 1")
	got := r.interrupt()
	p.end()
	expectAccounted(t, got)
	if lostCalls(got) != 1 || launchCount(got) != 11 {
		t.Errorf("%d launches, losses %v", launchCount(got), losses(got))
	}
}

// More threads are in calls at the end than one piece of the list of threads
// holds.
func TestManyCallsInFlight(t *testing.T) {
	const threads = 60
	p := startPuppet(t)
	for i := range threads {
		p.order(fmt.Sprintf("main start w%d", i))
	}
	r := record(t, agent.Config{PID: p.PID})
	for i := range threads {
		p.order(fmt.Sprintf("w%d launch 2", i))
		p.tell(fmt.Sprintf("w%d hang", i))
		p.WaitLine("inside")
	}
	got := r.interrupt()
	expectAccounted(t, got)
	if launchCount(got) != 2*threads || losses(got)["in_flight_at_end"] != threads {
		t.Errorf("%d launches, losses %v", launchCount(got), losses(got))
	}
}

// Rows add up within themselves, whatever happened.
func TestRowsAddUp(t *testing.T) {
	got, _ := runTester(t, agent.Config{}, simtest.Tester(t, "calls", "--threads", "4", "--calls", "5000", "--stages", "3",
		"--markers", simtest.Markers(t)))
	window := uint64(got.Window.Duration)
	for _, c := range got.Calls {
		var hist uint64
		for _, n := range c.Hist {
			hist += n
		}
		if hist != c.Count || c.MinNS > c.MaxNS || c.MinNS*c.Count > c.WallNS || c.MaxNS > c.WallNS ||
			c.CPUNS > c.WallNS || c.WallNS > window || c.Errors > c.Count {
			t.Errorf("%s: %+v", got.Symbols[c.Symbol].Name, c)
		}
	}
	for _, s := range got.Stages {
		if s.ChildNS > s.WallNS || s.CPUNS > s.WallNS || s.WallNS > window || s.MaxNS > s.WallNS || s.MinNS > s.MaxNS {
			t.Errorf("%v: %+v", got.Paths[s.Path].Names, s)
		}
	}
}

// Threads whose begin or end the kernel side was not shown are counted, and what can
// be known of them is known.
func TestThreadsThatNobodySaw(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w", "main start quiet")
	l := openSession(t, agent.Config{PID: p.PID, Probes: "all"})
	p.order("w begin step", "w launch 1")
	l.unseen(l.BlindToThreads, func() { p.order("main start v", "v begin step", "main start idle", "w exit") })
	p.order("v launch 2", "v end", "quiet exit")
	p.end()
	got := l.finish(nil)
	if diff := cmp.Diff(map[string]uint64{"thread_begin_unseen": 2, "thread_end_unseen": 1}, losses(got)); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
	if n := launchCount(got); n != 3 {
		t.Errorf("%d launches", n)
	}
	if v := stageRows(t, got)[stageKey{"v", "step"}]; v.Count != 1 {
		t.Errorf("the stage of the thread that came unseen: %+v", v)
	}
}

// A thread that had ended when the recording began, and was still there, has no end
// that could be unseen.
func TestThreadThatEndsAsItIsFound(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	tid := threadID(t, p.PID, "w")
	runtime.LockOSThread() // whose tracee it will be
	defer runtime.UnlockOSThread()
	if err := unix.PtraceSeize(tid); err != nil { // it stays until it is waited for
		t.Fatal(err)
	}
	p.order("w exit")
	simtest.Eventually(t, "the thread is a zombie", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", p.PID, tid))
		return err == nil && strings.Contains(string(stat), ") Z ")
	})
	l := openSession(t, agent.Config{PID: p.PID, Probes: "all"})
	if _, err := unix.Wait4(tid, nil, unix.WALL, nil); err != nil {
		t.Fatal(err)
	}
	p.order("main launch 3")
	p.end()
	got := l.finish(nil)
	if diff := cmp.Diff(map[string]uint64{}, losses(got)); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
	if n := launchCount(got); n != 3 {
		t.Errorf("%d launches", n)
	}
}
