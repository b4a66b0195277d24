package agent_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stageprof/agent"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// The markers of an idle target are announced where the kernel shows that, and take
// no probe then; the target's gate is closed again in the end.
func TestMarkersAreAnnounced(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	if announced := agent.HaveAnnouncements() == nil; (gate(t, p.PID) == 1) != announced || markersProbed(t, p.PID) == announced {
		t.Errorf("announcements in this kernel: %v; the gate is %d, the markers are probed: %v",
			announced, gate(t, p.PID), markersProbed(t, p.PID))
	}
	p.order("w begin step", "w launch 10", "w end")
	got := r.interrupt()
	if g := gate(t, p.PID); g != 0 {
		t.Errorf("the gate is left at %d", g)
	}
	expectEqual(t, got, since(baseline, p.end().Counts()))
	expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {1, 0}})
}

// The gate is closed with the probes, before the Recording is made.
func TestGateIsClosedWithTheWindow(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w", "w begin step")
	session, err := agent.Open(t.Context(), agent.Config{PID: p.PID, Duration: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if _, err := session.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if g := gate(t, p.PID); g != 0 {
		t.Errorf("the gate is left at %d", g)
	}
	p.order("w end")
	p.end()
}

// Two agents open the gate once, and each hears every marker; it stays open until
// the second one is done.
func TestTwoAgentsHoldTheGate(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	first := record(t, agent.Config{PID: p.PID})
	second := record(t, agent.Config{PID: p.PID})
	p.order("w begin step", "w launch 10", "w end")
	for i, r := range []*run{first, second} {
		p.order("w begin step", "w end")
		expectSpans(t, r.interrupt(), map[stageKey]spanCount{{"w", "step"}: {uint64(2 + i), 0}})
	}
	if g := gate(t, p.PID); g != 0 {
		t.Errorf("the gate is left at %d", g)
	}
	p.end()
}

// A target that has a filter which kills it for an announcement is probed, and one
// that sets it up later is from then on: TestCaseC18Seccomp is the former.
func TestFilterClosesTheGate(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	p.order("w begin step", "w launch 10", "w end", "w begin step", "main seccomp")
	simtest.Eventually(t, "the markers are probed", func() bool { return markersProbed(t, p.PID) && gate(t, p.PID) == 0 })
	p.order("w launch 10", "w end", "w begin step", "w launch 10", "w end")
	got := r.interrupt()
	expectEqual(t, got, since(baseline, p.end().Counts()))
	expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {3, 0}})
	const warning = "has set up a seccomp filter"
	if agent.HaveAnnouncements() == nil && !strings.Contains(strings.Join(got.Warnings, "\n"), warning) {
		t.Errorf("no warning says %q: %q", warning, got.Warnings)
	}
}

// Whoever is forked while the gate is open, also by a child, has it open in its copy of
// the memory. If it sets up a filter, the gate is closed in all of them.
func TestFilterInAChildClosesTheGate(t *testing.T) {
	for _, order := range []string{"sandbox", "sandbox-orphan"} {
		t.Run(order, func(t *testing.T) {
			p := startPuppet(t)
			p.order("main start w")
			baseline := p.truthSoFar().Counts()
			r := record(t, agent.Config{PID: p.PID})
			p.order("w begin step", "w launch 10", "w end", "w begin step")
			file := filepath.Join(t.TempDir(), "go")
			p.tell("w " + order + " " + file)
			p.WaitLine("sandboxed")
			simtest.Eventually(t, "the markers are probed", func() bool { return markersProbed(t, p.PID) && gate(t, p.PID) == 0 })
			touch(t, file)
			p.order("w launch 10", "w end")
			got := r.interrupt()
			expectEqual(t, got, since(baseline, p.end().Counts()))
			expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {2, 0}})
		})
	}
}

// A child that runs another program has a gate of its own, if any, and may have a
// filter.
func TestFilterInAnotherProgram(t *testing.T) {
	p := startPuppet(t)
	session, err := agent.Open(t.Context(), agent.Config{PID: p.PID, Probes: "all"})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	p.order("main spawn-filtered")
	if sandboxed, err := session.Sandboxed(); err != nil || sandboxed {
		t.Errorf("the other program's filter counts: %v", err)
	}
	file := filepath.Join(t.TempDir(), "go")
	p.order("main start w")
	p.tell("w sandbox " + file)
	p.WaitLine("sandboxed")
	if agent.HaveAnnouncements() == nil {
		simtest.Eventually(t, "the filter of a forked child counts", func() bool {
			sandboxed, err := session.Sandboxed()
			return err == nil && sandboxed
		})
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
	touch(t, file)
	p.end()
}

// Where the markers can't be probed at once when the gate is closed, they are later.
func TestFilterClosesTheGateAndProbesFail(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w", "w begin early")
	session, err := agent.Open(t.Context(), agent.Config{PID: p.PID, Probes: "all"})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if gate(t, p.PID) == 0 { // announcements are not in this kernel
		p.end()
		return
	}
	mend := session.BreakMarkerHit()
	ctx, interrupt := context.WithCancel(t.Context())
	result := make(chan *recording.Recording, 1)
	go func() {
		r, err := session.Wait(ctx)
		if err != nil {
			t.Error(err)
		}
		result <- r
	}()
	p.order("main seccomp")
	simtest.Eventually(t, "the gate is closed", func() bool { return gate(t, p.PID) == 0 })
	if markersProbed(t, p.PID) {
		t.Error("the markers are probed by a program that can't be")
	}
	mend()
	simtest.Eventually(t, "the markers are probed", func() bool { return markersProbed(t, p.PID) })
	p.order("w end", "w begin step", "w launch 10", "w end")
	interrupt()
	got := <-result
	p.end()
	expectSpans(t, got, map[stageKey]spanCount{{"w", "early"}: {0, 1}, {"w", "step"}: {1, 0}})
	if text := strings.Join(got.Warnings, "\n"); !strings.Contains(text, "are not seen for a while") {
		t.Errorf("no warning says that markers were not seen: %q", got.Warnings)
	}
}

// A program with older markers, or for another architecture, has no gate.
func TestMarkersWithoutGate(t *testing.T) {
	p := startPuppetWithoutMarkers(t)
	p.order("main markers "+markersWithoutGate(t), "main start w")
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	p.order("w begin step", "w launch 10", "w end")
	got := r.interrupt()
	expectEqual(t, got, since(baseline, p.end().Counts()))
	expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {1, 0}})
}

// markersWithoutGate is a copy of the marker library in which the gate's point has
// another name, which its hash does not fit.
func markersWithoutGate(t *testing.T) string {
	t.Helper()
	library, err := os.ReadFile(simtest.Markers(t))
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Replace(library, []byte("stageprof_gate_point"), []byte("stageprof_has_no_gat"), 1)
	if bytes.Equal(changed, library) {
		t.Fatal("the library has no gate")
	}
	path := filepath.Join(t.TempDir(), "libstageprof.so")
	if err := os.WriteFile(path, changed, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
