package agent_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stageprof/agent"
	"stageprof/bpf"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// matching records only stages whose name matches.
func matching(p *puppet, expression string) agent.Config {
	return agent.Config{PID: p.PID, StagesFrom: []string{agent.SourceMarkers, agent.SourceNVTX}, StageMatch: expression}
}

func startPuppetWithRanges(t *testing.T) *puppet {
	t.Helper()
	p := startPuppet(t)
	p.order("main nvtx "+simtest.Build(t, "sim/testers/libnvtx.so"), "main start w")
	return p
}

// Five stages among more names of a library than there is room for: they are as
// if the library had no ranges.
func TestStageMatchAmongThousandsOfRanges(t *testing.T) {
	const inEach = 2000
	p := startPuppetWithRanges(t)
	r := record(t, matching(p, "^stage[0-9]$"))
	baseline := p.truthSoFar().Counts()
	spans := map[stageKey]spanCount{}
	p.order("w push library step")
	for i := range 5 {
		stage := fmt.Sprintf("stage%d", i)
		p.order("w begin "+stage, fmt.Sprintf("w ranges %d", inEach), "w mark library part", "w launch 10", "w unmark", "w end", "w launch 1")
		spans[stageKey{"w", stage}] = spanCount{1, 0}
	}
	p.order("w pop")
	got := r.interrupt()
	want := since(baseline, p.end().Counts())
	expectEqual(t, got, want)
	expectSpans(t, got, spans)
	expectWholeSums(t, got, "w")
	if n := want.Total().Calls; n != 5*(inEach+11) {
		t.Errorf("the puppet made %d calls", n)
	}
}

// Without the option the same ranges are stages.
func TestNVTXRangesAreStages(t *testing.T) {
	p := startPuppetWithRanges(t)
	r := record(t, matching(p, ""))
	p.order("w begin step", "w push forward", "w launch 3", "w push attention", "w launch 4", "w pop", "w pop", "w launch 5", "w end")
	got := r.interrupt()
	p.end()
	expectNoLosses(t, got)
	expectSpans(t, got, map[stageKey]spanCount{
		{"w", "step"}: {1, 0}, {"w", "step/forward"}: {1, 0}, {"w", "step/forward/attention"}: {1, 0},
	})
	want := map[string]uint64{"own step": 5, "own step/forward": 3, "own step/forward/attention": 4}
	if diff := cmp.Diff(want, attributions(got)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// Hidden ranges (x…) and stages (s…) of both sources, inside and around each other.
func TestStageMatchNested(t *testing.T) {
	tests := []struct {
		name   string
		orders []string
		calls  map[string]uint64
		spans  map[string]spanCount
	}{
		{"a hidden one around", []string{"mark x", "launch 1", "mark s", "launch 2", "unmark", "launch 3", "unmark", "launch 4"},
			map[string]uint64{"none ": 8, "own s": 2}, map[string]spanCount{"s": {1, 0}}},
		{"a hidden one between", []string{"mark s", "mark x", "mark s2", "launch 1", "unmark", "launch 2", "unmark", "launch 3", "unmark"},
			map[string]uint64{"own s/s2": 1, "own s": 5}, map[string]spanCount{"s": {1, 0}, "s/s2": {1, 0}}},
		{"hidden ones of one name", []string{"mark x", "mark x", "mark s", "mark x", "unmark", "launch 1", "unmark", "launch 2", "unmark", "unmark"},
			map[string]uint64{"own s": 1, "none ": 2}, map[string]spanCount{"s": {1, 0}}},
		{"hidden ranges between markers", []string{"push x", "mark s", "push x", "mark s2", "push x", "launch 1", "pop", "launch 2", "unmark", "pop", "launch 3", "unmark", "pop"},
			map[string]uint64{"own s/s2": 3, "own s": 3}, map[string]spanCount{"s": {1, 0}, "s/s2": {1, 0}}},
		{"ranges between hidden markers", []string{"mark x", "push s", "mark x", "push s2", "mark x", "launch 1", "unmark", "launch 2", "pop", "unmark", "launch 3", "pop", "unmark"},
			map[string]uint64{"own s/s2": 3, "own s": 3}, map[string]spanCount{"s": {1, 0}, "s/s2": {1, 0}}},
		{"a hidden range that reaches over a marker's begin", []string{"push x", "mark s", "launch 1", "pop", "launch 2", "unmark", "launch 3"},
			map[string]uint64{"own s": 3, "none ": 3}, map[string]spanCount{"s": {1, 0}}},
		{"a hidden marker that reaches over a range's begin", []string{"mark x", "push s", "launch 1", "unmark", "launch 2", "pop", "launch 3"},
			map[string]uint64{"own s": 3, "none ": 3}, map[string]spanCount{"s": {1, 0}}},
		{"a hidden range that reaches over a marker's end", []string{"mark s", "push x", "launch 1", "unmark", "launch 2", "pop", "push s2", "launch 3", "pop"},
			map[string]uint64{"own s": 1, "none ": 2, "own s2": 3}, map[string]spanCount{"s": {1, 0}, "s2": {1, 0}}},
		{"a range in a stage left with hidden ones in it", []string{"push s", "mark x", "push x", "launch 1", "pop", "unmark", "launch 2", "pop", "mark s2", "launch 3", "unmark"},
			map[string]uint64{"own s": 3, "own s2": 3}, map[string]spanCount{"s": {1, 0}, "s2": {1, 0}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := startPuppetWithRanges(t)
			r := record(t, matching(p, "^s"))
			for range 3 { // nothing is left over from one turn to the next
				for _, order := range test.orders {
					p.order("w " + order)
				}
			}
			got := r.interrupt()
			p.end()
			expectNoLosses(t, got)
			spans := map[stageKey]spanCount{}
			for path, n := range test.spans {
				spans[stageKey{"w", path}] = spanCount{3 * n.Whole, 3 * n.Partial}
			}
			expectSpans(t, got, spans)
			for stage := range test.calls {
				test.calls[stage] *= 3
			}
			if diff := cmp.Diff(test.calls, attributions(got)); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}

// The window opens in mid-stage, with hidden ones in between; the first event is
// a call, a begin, or an end.
func TestStageMatchAttachInMidStage(t *testing.T) {
	for _, first := range []string{"launch 1", "mark x", "mark s3", "unmark"} {
		t.Run(first, func(t *testing.T) {
			p := startPuppet(t)
			p.order("main start w", "w mark x", "w mark s1", "w mark x", "w mark s2", "w mark x")
			r := record(t, matching(p, "^s"))
			p.order("w "+first, "w launch 10")
			if strings.HasPrefix(first, "mark") {
				p.order("w unmark")
			}
			if first != "unmark" {
				p.order("w unmark")
			}
			p.order("w launch 20", "w unmark", "w launch 30", "w unmark", "w launch 40", "w unmark", "w launch 50",
				"w mark s4", "w launch 60", "w unmark", "w unmark", "w launch 70")
			got := r.interrupt()
			p.end()
			expectNoLosses(t, got)
			calls := map[string]uint64{"own s1/s2": 30, "own s1": 70, "none ": 50 + 70, "own s4": 60}
			spans := map[stageKey]spanCount{{"w", "s1"}: {0, 1}, {"w", "s1/s2"}: {0, 1}, {"w", "s4"}: {1, 0}}
			switch first {
			case "launch 1":
				calls["own s1/s2"]++
			case "mark s3":
				calls["own s1/s2"] -= 10
				calls["own s1/s2/s3"] = 10
				spans[stageKey{"w", "s1/s2/s3"}] = spanCount{1, 0}
			}
			if diff := cmp.Diff(calls, attributions(got)); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			expectSpans(t, got, spans)
			expectWholeSums(t, got, "w")
		})
	}
}

// More hidden stages than can be counted don't end the stage around them.
func TestStageMatchManyHidden(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w", "w mark s1", "w deep 65700")
	r := record(t, matching(p, "^s"))
	p.order("w end-to 65000", "w launch 10")
	got := r.interrupt()
	p.end()
	if diff := cmp.Diff(map[string]uint64{"own s1": 10}, attributions(got)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	expectSpans(t, got, map[stageKey]spanCount{{"w", "s1"}: {0, 1}})
	if n := losses(got)["stages_too_deep"]; n != 1 {
		t.Errorf("losses: %v", losses(got))
	}
}

// Threads that do nothing in the window are in their stages all along; hidden
// ones are none of them.
func TestStageMatchUntouched(t *testing.T) {
	p := startPuppet(t)
	p.order("main start a", "a mark x", "a mark s1", "a mark x", "a mark s2", "a mark x", "main start b", "b mark x", "main start c",
		"main process-begin x", "main process-begin s", "main process-begin x")
	r := record(t, matching(p, "^s"))
	p.order("c mark s", "c launch 1", "c unmark")
	got := r.interrupt()
	p.end()
	expectNoLosses(t, got)
	expectSpans(t, got, map[stageKey]spanCount{
		{"a", "s1"}: {0, 1}, {"a", "s1/s2"}: {0, 1}, {"c", "s"}: {1, 0}, {"", "s"}: {0, 1},
	})
	window := uint64(got.Window.Duration)
	rows := stageRows(t, got)
	if inner := rows[stageKey{"a", "s1/s2"}]; inner.PartialWallNS != window {
		t.Errorf("in a window of %d ns: %+v", window, inner)
	}
	if n := outsideOf(t, got, "b"); n != window {
		t.Errorf("b was outside any stage for %d of %d ns", n, window)
	}
}

// outsideOf is how long a thread was outside any stage.
func outsideOf(t *testing.T, r *recording.Recording, thread string) uint64 {
	t.Helper()
	for _, s := range r.Stages {
		if s.Thread >= 0 && r.Threads[s.Thread].Name == thread && len(r.Paths[s.Path].Names) == 0 {
			return s.WallNS
		}
	}
	t.Fatalf("there is no row of %q outside any stage", thread)
	return 0
}

func TestStageMatchProcessStages(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w", "main process-begin x", "main process-begin s1")
	r := record(t, matching(p, "^s"))
	p.order("w launch 1", "main process-begin x", "w launch 2", "main process-begin s2", "w launch 4", "main process-end",
		"main process-end", "w launch 8", "main process-end", "w launch 16", "main process-end", "w launch 32", "w mark s", "w unmark")
	got := r.interrupt()
	p.end()
	expectNoLosses(t, got)
	if diff := cmp.Diff(map[string]uint64{"process s1": 1 + 2 + 8, "process s1/s2": 4, "none ": 16 + 32}, attributions(got)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	expectSpans(t, got, map[stageKey]spanCount{{"", "s1"}: {0, 1}, {"", "s1/s2"}: {1, 0}, {"w", "s"}: {1, 0}})
}

// Hidden ranges take no room in the stack of stages, and stages inside more of
// them than are kept are found.
func TestStageMatchDeep(t *testing.T) {
	kept := len(bpf.ProbeThreadState{}.Open)
	for _, when := range []string{"before", "during"} {
		t.Run("opened "+when+" the window", func(t *testing.T) {
			p := startPuppet(t)
			p.order("main start w")
			var r *run
			if when == "during" {
				r = record(t, matching(p, "^s"))
			}
			p.order("w mark s1")
			for range kept + 8 {
				p.order("w mark x")
			}
			p.order("w mark s2")
			if when == "before" {
				r = record(t, matching(p, "^s"))
			}
			p.order("w launch 1", "w unmark", "w launch 2")
			for range kept + 8 {
				p.order("w unmark")
			}
			p.order("w launch 4", "w unmark", "w launch 8")
			got := r.interrupt()
			p.end()
			expectNoLosses(t, got)
			if diff := cmp.Diff(map[string]uint64{"own s1/s2": 1, "own s1": 2 + 4, "none ": 8}, attributions(got)); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			want := spanCount{1, 0}
			if when == "before" {
				want = spanCount{0, 1}
			}
			expectSpans(t, got, map[stageKey]spanCount{{"w", "s1"}: want, {"w", "s1/s2"}: want})
		})
	}
}

// The end of a hidden marker that is missed is no loss of a stage; that of a
// stage around it still is.
func TestStageMatchLostEnd(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	r := record(t, matching(p, "^s"))
	p.order("w begin s1", "w begin x", "w forget", "w launch 1", "w begin s2", "w launch 2", "w end", "w end",
		"w begin s3", "w begin x", "w forget", "w forget", "w begin s4", "w launch 4", "w end")
	got := r.interrupt()
	p.end()
	if diff := cmp.Diff(map[string]uint64{"own s1": 1, "own s1/s2": 2, "own s4": 4}, attributions(got)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	expectSpans(t, got, map[stageKey]spanCount{{"w", "s1"}: {1, 0}, {"w", "s1/s2"}: {1, 0}, {"w", "s3"}: {0, 1}, {"w", "s4"}: {1, 0}})
	if diff := cmp.Diff(map[string]uint64{"missed_stage_end": 1}, losses(got)); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
}

// Whoever chooses nothing learns that, and not that there are no stages.
func TestStageMatchOfNothing(t *testing.T) {
	p := startPuppet(t)
	r := record(t, agent.Config{PID: p.PID, StageMatch: "^backward$"})
	p.order("main begin forward", "main launch 3", "main end")
	got := r.interrupt()
	p.end()
	if want := `no stage was seen whose name matches "^backward$"`; !slices.Contains(got.Warnings, want) {
		t.Errorf("warnings %q, want %q", got.Warnings, want)
	}
}

// A marker library that is left out is not said to be missing.
func TestMarkersLeftOut(t *testing.T) {
	p := startPuppet(t)
	r := record(t, agent.Config{PID: p.PID, StagesFrom: []string{agent.SourceNVTX}})
	p.order("main begin forward", "main launch 3", "main end")
	got := r.interrupt()
	p.end()
	if !slices.ContainsFunc(got.Warnings, func(w string) bool { return strings.Contains(w, "it has markers: add them") }) {
		t.Errorf("warnings %q, want one about the markers", got.Warnings)
	}
}
