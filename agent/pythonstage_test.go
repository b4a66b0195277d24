package agent_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"stageprof/agent"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

func startPythonStages(t *testing.T, python, what string, rounds int) *simtest.Process {
	t.Helper()
	script, err := filepath.Abs("testdata/python_stages.py")
	if err != nil {
		t.Fatal(err)
	}
	p := simtest.Start(t, simtest.Command{Path: python, Args: []string{script, simtest.Driver(t), fmt.Sprint(rounds), simtest.Markers(t), what}})
	p.WaitLine("up")
	return p
}

// recordPythonStages records a whole run of testdata/python_stages.py, and ends
// the program.
func recordPythonStages(t *testing.T, python, what string, rounds int, config agent.Config) (*recording.Recording, simtest.Counts) {
	t.Helper()
	p := startPythonStages(t, python, what, rounds)
	config.PID, config.Probes = p.PID, "cuStreamQuery,cuDriverGetVersion"
	r := record(t, config)
	p.Ready()
	p.WaitLine("done")
	got := r.interrupt()
	p.Release()
	p.Wait()
	return got, p.Truth().Counts()
}

// Each call belongs to the function that Python itself says, thread by thread:
// with recursion, generators, coroutines and names of all kinds; mixed with
// marked stages.
func TestPythonFunctionsAreStages(t *testing.T) {
	for _, python := range interpreters(t) {
		t.Run(python, func(t *testing.T) {
			got, want := recordPythonStages(t, python, "functions", 4, agent.Config{StagesFrom: []string{"markers", "python:stage"}})
			if diff := simtest.Diff(want, counts(got)); diff != "" {
				t.Errorf("the recording differs from the driver's truth:\n%s", diff)
			}
			expectAccounted(t, got)
			for _, l := range got.Losses {
				if l.Kind != "samples" { // of functions that come and go
					t.Errorf("lost: %+v", l)
				}
			}
			expectFunctionsWithoutSpans(t, got)
			if o := got.Overhead; o.Looks < got.Seen.Calls || o.LooksNS == 0 {
				t.Errorf("%d looks took %d ns", o.Looks, o.LooksNS)
			}
		})
	}
}

// expectFunctionsWithoutSpans fails unless the paths that end in "()" are
// functions and have calls and no time.
func expectFunctionsWithoutSpans(t *testing.T, r *recording.Recording) {
	t.Helper()
	functions := 0
	for _, p := range r.Paths {
		named := len(p.Names) > 0 && strings.HasSuffix(p.Names[len(p.Names)-1], "()")
		if p.PythonFunction != named {
			t.Errorf("%+v", p)
		}
		if named {
			functions++
		}
	}
	if functions == 0 {
		t.Error("no function is a stage")
	}
	for _, s := range r.Stages {
		if r.Paths[s.Path].PythonFunction {
			t.Errorf("spans of %v: %+v", r.Paths[s.Path].Names, s)
		}
	}
	for _, s := range r.Spans {
		if r.Paths[s.Path].PythonFunction {
			t.Errorf("a span of %v: %+v", r.Paths[s.Path].Names, s)
		}
	}
}

// A function so far out that it is not found is a loss of its own, and the call
// is counted all the same.
func TestPythonFunctionsTooFarOut(t *testing.T) {
	python := interpreters(t)[0]
	got, want := recordPythonStages(t, python, "deep", 3, agent.Config{StagesFrom: []string{"python:stage"}})
	if diff := simtest.Diff(want, counts(got)); diff != "" {
		t.Errorf("the recording differs from the driver's truth:\n%s", diff)
	}
	if n := losses(got)["python_stage_too_deep"]; n == 0 || n != want.By(simtest.ByTag)[simtest.Key{}].Calls {
		t.Errorf("%d losses, truth %v", n, want.By(simtest.ByTag))
	}
}

// The expressions are alternatives; --stage-match is about functions as well.
func TestPythonFunctionsThatMatch(t *testing.T) {
	python := interpreters(t)[0]
	got, _ := recordPythonStages(t, python, "functions", 1, agent.Config{
		StagesFrom: []string{"python:^stage_pl{1,2}ain$", "python:^plain$", "python:^stage_nested$"}, StageMatch: "plain",
	})
	names := map[string]bool{}
	for _, p := range got.Paths {
		names[strings.Join(p.Names, "/")] = true
	}
	if len(names) != 3 || !names[""] || !names["plain()"] || !names["stage_plain()"] {
		t.Errorf("stages %v", names)
	}
}

func TestPythonFunctionsWithoutPython(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "calls", "--calls", "10"))
	p.WaitLine("up")
	_, err := agent.Open(t.Context(), agent.Config{PID: p.PID, StagesFrom: []string{"python:f"}})
	if !errors.Is(err, agent.ErrNoFrames) || !strings.Contains(err.Error(), "there is no Python") {
		t.Errorf("got %v", err)
	}
	p.Ready()
	p.Wait()
}

func TestPythonFunctionsUsage(t *testing.T) {
	for source, want := range map[string]string{"python:": "names no", "python:(": `"("`, `python:\bf`: "not supported", "python": "stage source"} {
		config := agent.Config{PID: 1, StagesFrom: []string{source}}
		if err := config.Validate(); !errors.Is(err, agent.ErrUsage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v", source, err)
		}
	}
}
