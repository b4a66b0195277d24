package agent_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"stageprof/agent"
	"stageprof/agent/gil"
	"stageprof/agent/target"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// startPythonPuppet starts a puppet with an interpreter in it, and returns how to
// order a thread to sleep as one that waits for the GIL.
func startPythonPuppet(t *testing.T, python libpython) (p *puppet, wait string) {
	t.Helper()
	p = startPuppet(t)
	p.order(fmt.Sprintf("main python %s %s", python.Library, python.Home))
	process, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer process.Close()
	plan, err := gil.Detect(process)
	if err != nil {
		t.Fatal(err)
	}
	if plan.LockStart == 0 {
		t.Fatalf("nobody knows where the lock is: %+v", plan)
	}
	return p, fmt.Sprintf("sleep-at %#x 30", (plan.LockStart+3)&^3)
}

// gilWaits is how long threads waited for the GIL, by stage.
func gilWaits(r *recording.Recording) map[string]uint64 {
	waits := map[string]uint64{}
	for _, s := range r.Stages {
		waits[strings.Join(r.Paths[s.Path].Names, "/")] += s.Parts.Plus(s.PartialParts).GILWaitNS
	}
	return waits
}

// gilWaitCaused is how long calls made others wait, by the stage that they were
// made in.
func gilWaitCaused(r *recording.Recording) map[string]uint64 {
	caused := map[string]uint64{}
	for _, c := range r.Calls {
		if c.GILWaitCausedNS > 0 {
			caused[strings.Join(r.Paths[c.Path].Names, "/")] += c.GILWaitCausedNS
		}
	}
	return caused
}

// expectCaused fails unless the calls of a stage caused exactly the waits in
// others, which must be some.
func expectCaused(t *testing.T, r *recording.Recording, stage string, waits ...string) {
	t.Helper()
	var want uint64
	for _, wait := range waits {
		ns := gilWaits(r)[wait]
		if ns == 0 {
			t.Errorf("nobody waited in %q", wait)
		}
		want += ns
	}
	if got := gilWaitCaused(r)[stage]; got != want {
		t.Errorf("calls in %q have caused %d ns of waiting, others have waited %d", stage, got, want)
	}
}

// A call that holds the GIL causes what others wait for it meanwhile, to the
// nanosecond: each of several threads, as often as it waits. Nothing else does:
// no call without the GIL, and not what is waited before or after.
func TestGILWaitCausedIsWhatOthersWait(t *testing.T) {
	for _, python := range libpythons(t) {
		t.Run(filepath.Base(python.Library), func(t *testing.T) {
			p, wait := startPythonPuppet(t, python)
			threads := []string{"w0", "w1", "w2"}
			all := func(orders ...string) {
				for _, order := range orders { // of each thread before that of the next
					for _, thread := range threads {
						p.order(thread + " " + order)
					}
				}
			}
			p.order("main start holder")
			for _, thread := range threads {
				p.order("main start " + thread)
			}
			r := record(t, agent.Config{PID: p.PID})
			file := func(name string) string { return filepath.Join(t.TempDir(), name) }

			all("begin before", wait, "end")
			free, held, again := file("free"), file("held"), file("again")
			p.order("holder begin free")
			p.tell("holder pause " + free)
			p.WaitLine("inside")
			all("begin nobody", wait, "end")
			touch(t, free)
			p.order("holder end", "holder hold", "holder begin holds")
			p.tell("holder pause " + held)
			p.WaitLines("inside", 2)
			all("begin first", wait, wait, "end")
			touch(t, held)
			p.order("holder launch 3")
			all("begin between", wait, "end")
			p.tell("holder pause " + again)
			p.WaitLines("inside", 3)
			all("begin second", wait, "end")
			touch(t, again)
			p.order("holder end", "holder release")
			all("begin after", wait, "end")
			got := r.interrupt()
			p.end()

			expectNoLosses(t, got)
			expectParts(t, got)
			expectCaused(t, got, "holds", "first", "second")
			if caused := gilWaitCaused(got); len(caused) != 1 {
				t.Errorf("waiting was caused in %v", caused)
			}
			for _, stage := range []string{"before", "nobody", "between", "after"} {
				if gilWaits(got)[stage] == 0 {
					t.Errorf("nobody waited in %q: the test shows nothing", stage)
				}
			}
			expectSampledCause(t, got)
		})
	}
}

// expectSampledCause fails unless the samples, which hold every call that lasted
// long, know all of what was caused.
func expectSampledCause(t *testing.T, r *recording.Recording) {
	t.Helper()
	for _, c := range r.Calls {
		var seen uint64
		for _, s := range c.Samples {
			seen += s.GILWaitCausedNS
		}
		if seen != c.GILWaitCausedNS {
			t.Errorf("%s has caused %d ns of waiting, its samples %d", r.Symbols[c.Symbol].Name, c.GILWaitCausedNS, seen)
		}
	}
}

// Where a call gives the GIL up inside, and another thread's call holds it, none
// of the waiting is given to both.
func TestGILWaitIsCausedOnce(t *testing.T) {
	p, wait := startPythonPuppet(t, libpythons(t)[0])
	p.order("main start lender", "main start holder", "main start w")
	r := record(t, agent.Config{PID: p.PID})
	lent, held := filepath.Join(t.TempDir(), "lent"), filepath.Join(t.TempDir(), "held")

	p.order("lender hold", "lender begin lends")
	p.tell("lender lend " + lent)
	p.WaitLine("inside")
	p.order("holder hold", "holder begin holds")
	p.tell("holder pause " + held)
	p.WaitLines("inside", 2)
	p.order("w begin both", "w "+wait, "w end")
	touch(t, held)
	p.order("holder end", "holder release", "w begin one", "w "+wait, "w end")
	touch(t, lent)
	p.order("lender end", "lender release")
	got := r.interrupt()
	p.end()

	expectNoLosses(t, got)
	expectCaused(t, got, "holds", "both")
	expectCaused(t, got, "lends", "one")
}

// A thread that has come back from its wait, which nobody saw, waits no more.
func TestGILWaitThatNobodySawEnd(t *testing.T) {
	p, wait := startPythonPuppet(t, libpythons(t)[0])
	p.order("main start holder", "main start w")
	l := openLiveWith(t, agent.Config{PID: p.PID})
	p.order("w begin waits")
	p.tell("w " + strings.TrimSuffix(wait, "30") + "2000")
	simtest.Eventually(t, "the thread is known to wait", func() bool { return gilWaits(l.snapshot())["waits"] > 0 })
	l.unseen(l.BlindToSwitches, func() { p.order("w end") })
	file := filepath.Join(t.TempDir(), "go")
	p.order("holder hold", "holder begin holds")
	p.tell("holder pause " + file)
	p.WaitLine("inside")
	touch(t, file)
	p.order("holder end", "holder release")
	p.end()
	got := l.finish(func(*recording.Recording) {})
	expectParts(t, got)
	if caused := gilWaitCaused(got); len(caused) > 0 {
		t.Errorf("waiting was caused while nobody waited: %v", caused)
	}
}
