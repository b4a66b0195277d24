package agent_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stageprof/agent"
)

// Ranges are stages by whichever function they are pushed, with the texts that
// they were given.
func TestNVTXPushes(t *testing.T) {
	texts := []string{"a", "seven c", "eight ch", "größer 日本 🙂 mixed", strings.Repeat("x", 127), strings.Repeat("é", 63) + "!"}
	for _, kind := range []string{"push", "push-attributes", "push-wide", "push-wide-attributes", "push-domain"} {
		t.Run(kind, func(t *testing.T) {
			p := startPuppetWithRanges(t)
			r := record(t, matching(p, ""))
			pop := "w pop"
			if kind == "push-domain" {
				pop = "w pop-domain"
			}
			spans, calls := map[stageKey]spanCount{}, map[string]uint64{}
			for _, text := range texts {
				// Twice, so that a text that has been seen is found again.
				p.order("w "+kind+" "+text, "w launch 1", pop, "w "+kind+" "+text, "w launch 2", pop)
				spans[stageKey{"w", text}] = spanCount{2, 0}
				calls["own "+text] = 3
			}
			got := r.interrupt()
			p.end()
			expectNoLosses(t, got)
			expectSpans(t, got, spans)
			if diff := cmp.Diff(calls, attributions(got)); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}

// Wide texts that are too long are cut between two characters.
func TestNVTXLongWideText(t *testing.T) {
	p := startPuppetWithRanges(t)
	r := record(t, matching(p, ""))
	p.order("w push-wide "+strings.Repeat("日", 300), "w launch 1", "w pop")
	got := r.interrupt()
	p.end()
	expectNoLosses(t, got)
	expectSpans(t, got, map[stageKey]spanCount{{"w", strings.Repeat("日", 42)}: {1, 0}})
}

// Names that can't be known are said to be so, each for its reason; the ranges
// are stages all the same, and inner ones are charged rightly.
func TestNVTXUnreadableNames(t *testing.T) {
	for order, reason := range map[string]string{
		"push-registered forward": "stage_name_registered",
		"push-nameless":           "stage_name_unreadable",
	} {
		t.Run(order, func(t *testing.T) {
			p := startPuppetWithRanges(t)
			r := record(t, matching(p, ""))
			p.order("w begin step", "w "+order, "w launch 1", "w pop", "w launch 2", "w end")
			got := r.interrupt()
			p.end()
			if diff := cmp.Diff(map[string]uint64{"own (other stages)": 1, "own step": 2}, attributions(got)); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]uint64{reason: 1}, losses(got)); diff != "" {
				t.Errorf("losses (-want +got):\n%s", diff)
			}
			expectPartition(t, got)
		})
	}
}

// Stages without a name are open in snapshots for as long as they are, also one
// in another.
func TestSnapshotOfUnnamedStages(t *testing.T) {
	p := startPuppetWithRanges(t)
	session, err := agent.Open(t.Context(), agent.Config{PID: p.PID, Probes: "launch", StagesFrom: []string{agent.SourceNVTX}})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	expect := func(order string, ended, open int) {
		t.Helper()
		p.order(order)
		r, err := session.Snapshot()
		if err != nil {
			t.Fatalf("taking a snapshot: %v", err)
		}
		other := spanCount{uint64(ended), uint64(open)}
		expectSpanCounts(t, r, map[stageKey]spanCount{{"w", "(other stages)"}: other})
		if len(r.Open) != open || len(r.Spans) != ended {
			t.Errorf("after %q: %d open and %d closed spans", order, len(r.Open), len(r.Spans))
		}
	}
	const push = "w push-registered forward"
	expect(push, 0, 1)
	expect(push, 0, 2)
	expect("w pop", 1, 1)
	expect(push, 1, 2)
	expect(push, 1, 3)
	expect("w pop", 2, 2)
	expect("w pop", 3, 1)
	expect("w pop", 4, 0)
	p.end()
}

// Ranges of start and end are no stages: they are counted, and disturb nothing.
func TestNVTXStartEnd(t *testing.T) {
	p := startPuppetWithRanges(t)
	r := record(t, matching(p, ""))
	p.order("w push step", "w range loading", "w launch 1", "w range loading", "w pop")
	got := r.interrupt()
	p.end()
	expectAccounted(t, got)
	expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {1, 0}})
	if diff := cmp.Diff(map[string]uint64{"nvtx_start_end": 2}, losses(got)); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
}
