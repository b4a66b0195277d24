package agent_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stageprof/agent"
	"stageprof/agent/elfsym"
	"stageprof/sim/simtest"
)

// functionLibrary is a library of functions that are entered and left in every
// way (sim/testers/libfunctions).
func functionLibrary(t *testing.T) string {
	t.Helper()
	return simtest.Build(t, "sim/testers/libfunctions.so")
}

// startFunctions starts a puppet with a thread w and the library.
func startFunctions(t *testing.T) *puppet {
	t.Helper()
	p := startPuppet(t)
	p.order("main library "+functionLibrary(t), "main start w")
	return p
}

// stagesFrom follows functions of the library beside the markers.
func stagesFrom(functions ...string) []string {
	sources := []string{agent.SourceMarkers}
	for _, f := range functions {
		sources = append(sources, "function:libfunctions.so:"+f)
	}
	return sources
}

// repeated is the same order many times.
func repeated(n int, order string) []string {
	orders := make([]string, n)
	for i := range orders {
		orders[i] = order
	}
	return orders
}

// Functions as stages, whatever way they return: each is entered and left as
// often as it was called, and has the driver calls that were made inside.
func TestFunctionStages(t *testing.T) {
	tests := []struct {
		name      string
		functions []string
		calls     []string          // FUNCTION N
		spans     map[string]uint64 // complete ones
		inside    map[string]uint64 // calls by attribution and path
	}{
		{"plain", []string{"plain"}, repeated(7, "plain 0"),
			map[string]uint64{"step/plain": 7}, map[string]uint64{"own step/plain": 7}},
		{"early returns", []string{"early"}, []string{"early 0", "early 1", "early 2", "early 3", "early 0"},
			map[string]uint64{"step/early": 5}, map[string]uint64{"own step/early": 5}},
		{"tail call", []string{"tail"}, repeated(3, "tail 1"),
			map[string]uint64{"step/tail": 3}, map[string]uint64{"own step/tail": 3, "own step": 3}},
		{"tail call into another", []string{"tail", "plain"}, repeated(3, "tail 1"),
			map[string]uint64{"step/tail": 3, "step/plain": 3}, map[string]uint64{"own step/tail": 3, "own step/plain": 3}},
		{"tail call before the frame", []string{"tail_if"}, []string{"tail_if 0", "tail_if 1", "tail_if 1"},
			map[string]uint64{"step/tail_if": 3}, map[string]uint64{"own step/tail_if": 1, "own step": 2}},
		{"conditional tail call", []string{"jump_if"}, []string{"jump_if 0", "jump_if 1", "jump_if -1", "jump_if 2"},
			map[string]uint64{"step/jump_if": 4}, map[string]uint64{"own step/jump_if": 4, "own step": 2}},
		{"tail call by pointer", []string{"tail_by_pointer"}, []string{"tail_by_pointer 0", "tail_by_pointer 1", "tail_by_pointer 2"},
			map[string]uint64{"step/tail_by_pointer": 3}, map[string]uint64{"own step/tail_by_pointer": 3, "own step": 3}},
		{"switch", []string{"cases"}, []string{"cases 0", "cases 1", "cases 2", "cases 3", "cases 4", "cases 5", "cases 6"},
			map[string]uint64{"step/cases": 7}, map[string]uint64{"own step/cases": 5}},
		{"recursion", []string{"recurse"}, []string{"recurse 2", "recurse 0"},
			map[string]uint64{"step/recurse": 2, "step/recurse/recurse": 1, "step/recurse/recurse/recurse": 1},
			map[string]uint64{"own step/recurse": 2, "own step/recurse/recurse": 1, "own step/recurse/recurse/recurse": 1}},
		{"recursion through another", []string{"ping"}, []string{"ping 4"},
			map[string]uint64{"step/ping": 1, "step/ping/ping": 1, "step/ping/ping/ping": 1},
			map[string]uint64{"own step/ping": 2, "own step/ping/ping": 2, "own step/ping/ping/ping": 1}},
		{"split-off part", []string{"split"}, []string{"split 1", "split -1", "split -2", "split 2"},
			map[string]uint64{"step/split": 4}, map[string]uint64{"own step/split": 4, "own step": 2}},
		{"caught above", []string{"catcher"}, repeated(3, "catcher 1"),
			map[string]uint64{"step/catcher": 3}, map[string]uint64{"own step/catcher": 9}},
		{"nested, by a pattern", []string{"in*er", "outer"}, []string{"outer 3"},
			map[string]uint64{"step/outer": 1, "step/outer/inner": 2}, map[string]uint64{"own step/outer": 1, "own step/outer/inner": 6}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := startFunctions(t)
			r := record(t, agent.Config{PID: p.PID, StagesFrom: stagesFrom(test.functions...)})
			p.order("w begin step")
			for _, call := range test.calls {
				p.order("w call " + call)
			}
			p.order("w end")
			got := r.interrupt()
			p.end()
			if diff := cmp.Diff(test.inside, attributions(got)); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			spans := map[stageKey]spanCount{{"w", "step"}: {1, 0}}
			for path, n := range test.spans {
				spans[stageKey{"w", path}] = spanCount{n, 0}
			}
			expectSpans(t, got, spans)
			expectWholeSums(t, got, "w")
			expectNoLosses(t, got)
		})
	}
}

// An exception through a function that is followed is harmless: the program
// goes on, and the stage ends at the thread's next event.
func TestExceptionThroughFunctions(t *testing.T) {
	p := startFunctions(t)
	r := record(t, agent.Config{PID: p.PID, StagesFrom: stagesFrom("thrower", "through")})
	p.order("w begin step", "w call catcher 0", "w call catcher 1", "w call often 3", "w end", "w launch 5")
	got := r.interrupt()
	p.end()
	want := map[string]uint64{
		"own step/through": 5, "own step/through/thrower": 5, // plain, thrower
		"own step": 4, // the handlers, above both
		"none ":    5,
	}
	if diff := cmp.Diff(want, attributions(got)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	expectSpans(t, got, map[stageKey]spanCount{
		{"w", "step"}: {1, 0}, {"w", "step/through"}: {1, 4}, {"w", "step/through/thrower"}: {1, 4},
	})
	if diff := cmp.Diff(map[string]uint64{"function_left_otherwise": 8}, losses(got)); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
	expectAccounted(t, got)
}

// A function that an exception has left is over when that is caught, also if
// the next event is deeper than it was and its frame is still to be read.
func TestExceptionFromDeepFunction(t *testing.T) {
	p := startFunctions(t)
	r := record(t, agent.Config{PID: p.PID, StagesFrom: stagesFrom("thrower")})
	p.order("w begin step", "w call recover 0", "w call recover 1", "w call recover 1", "w end")
	got := r.interrupt()
	p.end()
	if diff := cmp.Diff(map[string]uint64{"own step/thrower": 3, "own step": 3}, attributions(got)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {1, 0}, {"w", "step/thrower"}: {1, 2}})
	if diff := cmp.Diff(map[string]uint64{"function_left_otherwise": 2}, losses(got)); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
	expectAccounted(t, got)
}

// The same of a C++ runtime that is loaded during the recording.
func TestExceptionOfLateRuntime(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	r := record(t, agent.Config{PID: p.PID, StagesFrom: stagesFrom("thrower")})
	p.order("main library " + functionLibrary(t))
	awaitProbe(t, p.PID, functionLibrary(t), "thrower")
	p.order("w begin step", "w call recover 1", "w end")
	got := r.interrupt()
	p.end()
	if diff := cmp.Diff(map[string]uint64{"own step/thrower": 1, "own step": 1}, attributions(got)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestLongjmpOutOfFunctions(t *testing.T) {
	p := startFunctions(t)
	r := record(t, agent.Config{PID: p.PID, StagesFrom: stagesFrom("leaper", "lander")})
	p.order("w call lander 0", "w call lander 1", "w call lander 1")
	got := r.interrupt()
	p.end()
	if diff := cmp.Diff(map[string]uint64{"own lander": 3, "own lander/leaper": 3}, attributions(got)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	expectSpans(t, got, map[stageKey]spanCount{{"w", "lander"}: {3, 0}, {"w", "lander/leaper"}: {1, 2}})
	if diff := cmp.Diff(map[string]uint64{"function_left_otherwise": 2}, losses(got)); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
}

// Deeper recursion than is kept: what is too deep is counted, and the functions
// around it are whole.
func TestFunctionsTooDeep(t *testing.T) {
	p := startFunctions(t)
	r := record(t, agent.Config{PID: p.PID, StagesFrom: stagesFrom("recurse")})
	p.order("w call recurse 39", "w call recurse 0", "w launch 1")
	got := r.interrupt()
	p.end()
	spans, calls := map[stageKey]spanCount{}, map[string]uint64{"none ": 1}
	path := ""
	for i := range 16 {
		path = strings.TrimPrefix(path+"/recurse", "/")
		spans[stageKey{"w", path}] = spanCount{1, 0}
		calls["own "+path] = 1
		if i == 15 {
			calls["own "+path] = 1 + 24
		}
	}
	spans[stageKey{"w", "recurse"}], calls["own recurse"] = spanCount{2, 0}, 2
	if diff := cmp.Diff(calls, attributions(got)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	expectSpans(t, got, spans)
	if diff := cmp.Diff(map[string]uint64{"functions_too_deep": 24}, losses(got)); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
}

// A function that is running at an edge of the window.
func TestFunctionAtTheEdges(t *testing.T) {
	p := startFunctions(t)
	p.order("w begin step")
	r := record(t, agent.Config{PID: p.PID, StagesFrom: stagesFrom("plain")})
	p.order("w call plain 0")
	got := r.interrupt()
	p.order("w end")
	p.end()
	expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {0, 1}, {"w", "step/plain"}: {1, 0}})
	expectNoLosses(t, got)
}

// --stage-match leaves functions out by their names.
func TestFunctionsMatched(t *testing.T) {
	p := startFunctions(t)
	r := record(t, agent.Config{PID: p.PID, StagesFrom: stagesFrom("outer", "inner"), StageMatch: "^(inner|step)$"})
	p.order("w begin step", "w call outer 1", "w end")
	got := r.interrupt()
	p.end()
	expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {1, 0}, {"w", "step/inner"}: {2, 0}})
	expectNoLosses(t, got)
}

// Markers and functions share one stack.
func TestFunctionsAndMarkers(t *testing.T) {
	p := startFunctions(t)
	r := record(t, agent.Config{PID: p.PID, StagesFrom: stagesFrom("outer", "inner")})
	p.order("w call outer 2", "w begin a", "w begin b", "w call outer 1", "w end", "w call inner 4", "w end", "w launch 3")
	got := r.interrupt()
	p.end()
	want := map[string]uint64{
		"own outer": 1, "own outer/inner": 4, "own a/b/outer": 1, "own a/b/outer/inner": 2, "own a/inner": 4, "none ": 3,
	}
	if diff := cmp.Diff(want, attributions(got)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	expectSpans(t, got, map[stageKey]spanCount{
		{"w", "outer"}: {1, 0}, {"w", "outer/inner"}: {2, 0}, {"w", "a"}: {1, 0}, {"w", "a/b"}: {1, 0},
		{"w", "a/b/outer"}: {1, 0}, {"w", "a/b/outer/inner"}: {2, 0}, {"w", "a/inner"}: {1, 0},
	})
	expectNoLosses(t, got)
}

// A library that is loaded during the recording.
func TestFunctionOfLateLibrary(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	r := record(t, agent.Config{PID: p.PID, StagesFrom: stagesFrom("plain")})
	p.order("main library " + functionLibrary(t))
	awaitProbe(t, p.PID, functionLibrary(t), "plain")
	p.order("w call plain 0", "w call plain 0")
	got := r.interrupt()
	p.end()
	expectSpans(t, got, map[stageKey]spanCount{{"w", "plain"}: {2, 0}})
	expectNoLosses(t, got)
	if !strings.Contains(strings.Join(got.Warnings, "\n"), "libfunctions.so:plain") {
		t.Errorf("no warning that the library was not there: %q", got.Warnings)
	}
}

// What can't be followed is refused, with the reason, before anything is
// recorded.
func TestFunctionsRefused(t *testing.T) {
	p := startFunctions(t)
	tests := []struct {
		function string
		want     error
		text     string
	}{
		{"plane", elfsym.ErrNoSymbol, "nothing of a like name"},
		{"PLAI", elfsym.ErrNoSymbol, "plain"},
		{"sink", elfsym.ErrNoSymbol, "no function"}, // data
		{"at_once", elfsym.ErrNoBody, "first instruction"},
		{"unclear", elfsym.ErrNoBody, "not understood"},
		{"sizeless", elfsym.ErrNoBody, "how long"},
		{"looping", elfsym.ErrNoBody, "back to its first instruction"},
	}
	for _, test := range tests {
		t.Run(test.function, func(t *testing.T) {
			_, err := agent.Record(t.Context(), agent.Config{PID: p.PID, StagesFrom: stagesFrom(test.function)})
			if !errors.Is(err, test.want) || !strings.Contains(fmt.Sprint(err), test.text) {
				t.Errorf("error %v, want %v with %q", err, test.want, test.text)
			}
		})
	}
	for _, source := range []string{"function:", "function:lib", "function:lib:", "function::plain", "function:lib:*", "functions:a:b"} {
		config := agent.Config{PID: p.PID, StagesFrom: []string{source}}
		if err := config.Validate(); !errors.Is(err, agent.ErrUsage) {
			t.Errorf("%q: %v", source, err)
		}
	}
	p.end()
}

// Of a pattern's functions, those that can be followed are.
func TestFunctionPatternSkips(t *testing.T) {
	p := startFunctions(t)
	r := record(t, agent.Config{PID: p.PID, StagesFrom: stagesFrom("*n*")})
	p.order("w call plain 0", "w call inner 1")
	got := r.interrupt()
	p.end()
	expectSpans(t, got, map[stageKey]spanCount{{"w", "plain"}: {1, 0}, {"w", "inner"}: {1, 0}})
	if !strings.Contains(strings.Join(got.Warnings, "\n"), "unclear") {
		t.Errorf("no warning of the one that can't be followed: %q", got.Warnings)
	}
}
