package agent_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"stageprof/agent"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// stackCounts counts calls by function of the driver and Python stack.
type stackCounts map[string]uint64

// stackKey is one stack as text, innermost frame first.
func stackKey(symbol string, frames []string, cut bool) string {
	if cut {
		frames = append(frames, "…")
	}
	return symbol + " < " + strings.Join(frames, " < ")
}

func frameKey(function, file string, line int) string {
	return fmt.Sprintf("%s %s:%d", function, file, line)
}

// readStacks reads what testdata/python_sites.py has noted.
func readStacks(t *testing.T, path string) stackCounts {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var rows [][4]json.RawMessage
	if err := json.Unmarshal(b, &rows); err != nil {
		t.Fatal(err)
	}
	decode := func(raw json.RawMessage, to any) {
		t.Helper()
		if err := json.Unmarshal(raw, to); err != nil {
			t.Fatal(err)
		}
	}
	truth := stackCounts{}
	for _, row := range rows {
		var (
			symbol string
			calls  uint64
			cut    bool
			frames [][3]json.RawMessage
			keys   []string
		)
		decode(row[0], &symbol)
		decode(row[1], &calls)
		decode(row[2], &cut)
		decode(row[3], &frames)
		for _, f := range frames {
			var function, file string
			var line int
			decode(f[0], &function)
			decode(f[1], &file)
			decode(f[2], &line)
			keys = append(keys, frameKey(function, file, line))
		}
		truth[stackKey(symbol, keys, cut)] += calls
	}
	return truth
}

// stacksOf counts a Recording's samples; estimated counts the calls that they
// stand for instead.
func stacksOf(r *recording.Recording, estimated bool) stackCounts {
	got := stackCounts{}
	for _, c := range r.Calls {
		for _, s := range c.Samples {
			stack := r.PythonStacks[s.Stack]
			var keys []string
			for _, f := range stack.Frames {
				function := r.PythonFunctions[f.Function]
				keys = append(keys, frameKey(function.Name, function.File, f.Line))
			}
			n := s.Count
			if estimated {
				n = s.ForCount
			}
			got[stackKey(r.Symbols[c.Symbol].Name, keys, stack.Cut)] += n
		}
	}
	return got
}

// diffStacks says what two counts differ in, "" if in nothing.
func diffStacks(want, got stackCounts) string {
	var lines []string
	for key, n := range want {
		if got[key] != n {
			lines = append(lines, fmt.Sprintf("want %d, got %d: %s", n, got[key], key))
		}
	}
	for key, n := range got {
		if _, ok := want[key]; !ok {
			lines = append(lines, fmt.Sprintf("want 0, got %d: %s", n, key))
		}
	}
	sort.Strings(lines)
	if len(lines) > 12 {
		lines = append(lines[:12], fmt.Sprintf("… and %d more", len(lines)-12))
	}
	return strings.Join(lines, "\n")
}

func sitesCommand(t *testing.T, python string, rounds int, truth string, args ...string) simtest.Command {
	t.Helper()
	script, err := filepath.Abs("testdata/python_sites.py")
	if err != nil {
		t.Fatal(err)
	}
	return simtest.Command{Path: python, Args: append([]string{script, simtest.Driver(t), fmt.Sprint(rounds), truth}, args...)}
}

// recordSites records a whole run of testdata/python_sites.py.
func recordSites(t *testing.T, python string, stacks agent.PythonStacks, rounds int, what string) (*recording.Recording, stackCounts) {
	t.Helper()
	truth := filepath.Join(t.TempDir(), "sites.json")
	p := simtest.Start(t, sitesCommand(t, python, rounds, truth, what))
	p.WaitLine("up")
	r := record(t, agent.Config{PID: p.PID, Probes: pythonCalls, PythonStacks: stacks})
	p.Ready()
	p.WaitLine("done")
	got := r.interrupt()
	p.Release()
	p.Wait()
	if diff := simtest.Diff(p.Truth().Counts(), counts(got)); diff != "" {
		t.Errorf("the recording differs from the driver's truth:\n%s", diff)
	}
	return got, readStacks(t, truth)
}

// Every call's Python stack is what Python itself says, function by function and
// line by line.
func TestPythonStacksEqualTruth(t *testing.T) {
	for _, test := range []struct {
		what   string // of testdata/python_sites.py
		rounds int
	}{
		{"sites", 6},
		{"hot", 5000},   // runs for long, so that Python may compile it
		{"natives", 20}, // threads that run no Python have no frames, and never another thread's; among many that come and go
		{"forks", 10},   // a child calls from the same lines and is another process
	} {
		for _, python := range interpreters(t) {
			t.Run(test.what+" "+python, func(t *testing.T) {
				got, want := recordSites(t, python, agent.PythonStacksAll, test.rounds, test.what)
				if diff := diffStacks(want, stacksOf(got, false)); diff != "" {
					t.Errorf("stacks differ from Python's own:\n%s", diff)
				}
				expectNoLosses(t, got)
			})
		}
	}
}

// Functions that are made and thrown away leave their memory to the next one.
// What is shown of them was really there, line by line; the rest is a loss.
func TestPythonStacksOfRemadeCode(t *testing.T) {
	for _, python := range interpreters(t) {
		t.Run(python, func(t *testing.T) {
			got, truth := recordSites(t, python, agent.PythonStacksAll, 150, "remade")
			shown, sampled, called := stacksOf(got, false), uint64(0), uint64(0)
			for key, n := range shown {
				if n > truth[key] {
					t.Errorf("%d samples of %d calls: %s", n, truth[key], key)
				}
				sampled += n
			}
			for key, n := range truth {
				called += n
				if strings.Contains(key, " < plain ") && shown[key] != n {
					t.Errorf("%d samples of %d calls: %s", shown[key], n, key)
				}
			}
			if gone := losses(got)["python_code_gone"]; sampled+gone != called {
				t.Errorf("%d calls, %d samples and %d losses: %v", called, sampled, gone, losses(got))
			}
		})
	}
}

// A sample of the calls: every site that is shown is a true one, and the row's
// totals are what the driver counted (recordSites compares them).
func TestPythonStacksSampled(t *testing.T) {
	for _, python := range interpreters(t) {
		t.Run(python, func(t *testing.T) {
			got, truth := recordSites(t, python, agent.PythonStacksSampled, 60, "sites")
			samples := stacksOf(got, false)
			var called, sampled uint64
			for _, n := range truth {
				called += n
			}
			for key, n := range samples {
				if n > truth[key] {
					t.Errorf("%d samples of %d calls: %s", n, truth[key], key)
				}
				sampled += n
			}
			if sampled == 0 || sampled > called/2 {
				t.Errorf("%d samples of %d calls", sampled, called)
			}
			if n := got.Overhead.Samples; n != sampled || got.Overhead.SamplesNS == 0 {
				t.Errorf("%d samples in the rows, %d by the kernel's account, which took %d ns", sampled, n, got.Overhead.SamplesNS)
			}
			expectNoLosses(t, got)
		})
	}
}

// With another program in its place, the memory that names come from is gone:
// what is shown is true all the same, and the totals are complete.
func TestPythonStacksUntilExec(t *testing.T) {
	for _, python := range interpreters(t) {
		t.Run(python, func(t *testing.T) {
			truth := filepath.Join(t.TempDir(), "sites.json")
			p := simtest.Start(t, sitesCommand(t, python, 3, truth, "sites", "/bin/true"))
			p.WaitLine("up")
			r := record(t, agent.Config{PID: p.PID, PythonStacks: agent.PythonStacksAll})
			p.Ready()
			p.WaitLine("done")
			p.Release()
			got := r.finish()
			p.Wait()
			want, called, sampled := readStacks(t, truth), uint64(0), uint64(0)
			for key, n := range stacksOf(got, false) {
				if n > want[key] {
					t.Errorf("%d samples of %d calls: %s", n, want[key], key)
				}
				sampled += n
			}
			for _, n := range want {
				called += n
			}
			if got.Window.End != recording.EndExec || counts(got).Total().Calls != called {
				t.Errorf("%d of %d calls until %q", counts(got).Total().Calls, called, got.Window.End)
			}
			if gone := losses(got)["python_code_gone"]; sampled+gone != called {
				t.Errorf("%d calls, %d samples, losses %v", called, sampled, losses(got))
			}
		})
	}
}

// What has no Python, or was not asked for, is not sampled.
func TestPythonStacksOff(t *testing.T) {
	got, _ := recordSites(t, interpreters(t)[0], agent.PythonStacksOff, 1, "sites")
	if got.Overhead.Samples != 0 || len(got.PythonStacks) != 0 || got.Target.Python.Stacks != "off" {
		t.Errorf("%d samples, %d stacks, %+v", got.Overhead.Samples, len(got.PythonStacks), got.Target.Python)
	}
	native, _ := runTester(t, agent.Config{PythonStacks: agent.PythonStacksAll}, simtest.Tester(t, "calls", "--calls", "100"))
	if native.Overhead.Samples != 0 || len(native.PythonStacks) != 0 || len(native.Warnings) > 1 {
		t.Errorf("%d samples, %d stacks, warnings %q", native.Overhead.Samples, len(native.PythonStacks), native.Warnings)
	}
}

func TestPythonStacksUsage(t *testing.T) {
	config := agent.Config{PID: 1, PythonStacks: "some"}
	if err := config.Validate(); !errors.Is(err, agent.ErrUsage) || !strings.Contains(err.Error(), `"some"`) {
		t.Errorf("got %v", err)
	}
}
