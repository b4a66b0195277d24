package agent_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stageprof/agent"
	"stageprof/agent/probe"
	"stageprof/sim/simtest"
)

func startPuppetWithProbes(t *testing.T) *puppet {
	t.Helper()
	p := startPuppet(t)
	p.order("main usdt "+simtest.Build(t, "sim/testers/libusdt.so"), "main start w")
	return p
}

// pair is a source: a pair of the tester's static probes.
func pair(kind string) string {
	return fmt.Sprintf("usdt:libusdt.so:tester:%s_begin,%s_end", kind, kind)
}

// Pairs of static probes are stages, named by their first argument if it is
// text, with markers inside and around them.
func TestProbePairs(t *testing.T) {
	for _, mechanism := range []probe.Mechanism{probe.UprobeMulti, probe.PerfEvent} {
		for kind, stage := range map[string]string{"register": "load", "memory": "load", "semaphore": "load", "plain": "plain_begin"} {
			t.Run(fmt.Sprintf("%s by %s", kind, mechanism), func(t *testing.T) {
				p := startPuppetWithProbes(t)
				config := agent.Config{PID: p.PID, StagesFrom: []string{agent.SourceMarkers, pair(kind)}, Mechanism: mechanism, Probes: "launch"}
				r := record(t, config)
				for range 3 {
					p.order("w begin step", "w pass "+kind+"_begin load", "w launch 1", "w mark inner", "w launch 2", "w unmark",
						"w launch 4", "w pass "+kind+"_end load", "w launch 8", "w end", "w launch 16")
				}
				got := r.interrupt()
				p.order("main semaphores")
				p.WaitLine("semaphores 0")
				p.end()
				expectNoLosses(t, got)
				want := map[string]uint64{"own step": 24, "own step/" + stage: 15, "own step/" + stage + "/inner": 6, "none ": 48}
				if diff := cmp.Diff(want, attributions(got)); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
				expectSpans(t, got, map[stageKey]spanCount{
					{"w", "step"}: {3, 0}, {"w", "step/" + stage}: {3, 0}, {"w", "step/" + stage + "/inner"}: {3, 0},
				})
				if len(got.Warnings) > 0 {
					t.Errorf("warnings: %q", got.Warnings)
				}
			})
		}
	}
}

// Each end belongs to its own pair's begin, also when another's is missing.
func TestProbePairsAreApart(t *testing.T) {
	p := startPuppetWithProbes(t)
	r := record(t, agent.Config{PID: p.PID, StagesFrom: []string{pair("register"), pair("plain")}})
	p.order("w pass register_begin outer", "w pass plain_end", "w launch 1", "w pass plain_begin", "w launch 2",
		"w pass register_end", "w launch 4", "w pass plain_end", "w pass register_begin next", "w launch 8", "w pass register_end")
	got := r.interrupt()
	p.end()
	expectNoLosses(t, got)
	want := map[string]uint64{"own outer": 1, "own outer/plain_begin": 2, "none ": 4, "own next": 8}
	if diff := cmp.Diff(want, attributions(got)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// Names choose among their stages as among others'.
func TestProbePairsMatch(t *testing.T) {
	p := startPuppetWithProbes(t)
	r := record(t, agent.Config{PID: p.PID, StagesFrom: []string{pair("register"), pair("plain")}, StageMatch: "^load"})
	p.order("w pass plain_begin", "w pass register_begin load", "w pass register_begin other", "w launch 1", "w pass register_end",
		"w launch 2", "w pass register_end", "w launch 4", "w pass plain_end")
	got := r.interrupt()
	p.end()
	expectNoLosses(t, got)
	if diff := cmp.Diff(map[string]uint64{"own load": 3, "none ": 4}, attributions(got)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	expectSpans(t, got, map[stageKey]spanCount{{"w", "load"}: {1, 0}})
}

// The marker library's own notes are such a pair, and a library that is loaded
// while recording is probed like others.
func TestProbePairsOfMarkersLoadedLate(t *testing.T) {
	p := startPuppetWithoutMarkers(t)
	p.order("main start w")
	r := record(t, agent.Config{PID: p.PID, StagesFrom: []string{"usdt:libstageprof.so:stageprof:begin,end"}})
	p.order("main markers " + simtest.Markers(t))
	awaitProbe(t, p.PID, simtest.Markers(t), "stageprof_mark_begin")
	awaitProbe(t, p.PID, simtest.Markers(t), "stageprof_mark_end")
	p.order("w begin step", "w begin forward", "w launch 1", "w end", "w launch 2", "w end")
	got := r.interrupt()
	p.end()
	expectNoLosses(t, got)
	expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {1, 0}, {"w", "step/forward"}: {1, 0}})
}

// What can't be probed is refused with the reason, and the recording goes on.
func TestProbePairsRefused(t *testing.T) {
	for source, reason := range map[string]string{
		pair("long"):                          "not on a one-byte nop",
		"usdt:libusdt.so:tester:go,end":       "it has no such probes (it has tester:register_begin",
		"usdt:libstageprof.so:tester:a,b":     "it has no such probes (it has stageprof:begin",
		"usdt:libnothing.so:tester:begin,end": "mapped no \"libnothing.so\" yet",
	} {
		t.Run(source, func(t *testing.T) {
			p := startPuppetWithProbes(t)
			r := record(t, agent.Config{PID: p.PID, StagesFrom: []string{agent.SourceMarkers, source}})
			p.order("w begin step", "w pass long_begin load", "w launch 1", "w pass long_end", "w end", "w fork 1")
			got := r.interrupt()
			p.end()
			expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {1, 0}})
			if !slices.ContainsFunc(got.Warnings, func(w string) bool { return strings.Contains(w, reason) }) {
				t.Errorf("warnings %q, want one about %q", got.Warnings, reason)
			}
		})
	}
}

// An inspection lists the pairs that can be asked for, as they are asked for.
func TestInspectListsProbePairs(t *testing.T) {
	p := startPuppetWithProbes(t)
	plan, err := agent.Inspect(context.Background(), p.PID, "")
	if err != nil {
		t.Fatal(err)
	}
	p.end()
	var ours []string
	for _, source := range plan.Sources[agent.SourceUSDT] {
		if strings.Contains(source, "libusdt") || strings.Contains(source, "libstageprof") {
			ours = append(ours, source)
		}
	}
	slices.Sort(ours)
	want := []string{
		"usdt:libstageprof.so:stageprof:begin,end", "usdt:libstageprof.so:stageprof:process_begin,process_end",
		pair("memory"), pair("plain"), pair("register"), pair("semaphore"),
	}
	if diff := cmp.Diff(want, ours); diff != "" {
		t.Errorf("pairs (-want +got):\n%s", diff)
	}
}
