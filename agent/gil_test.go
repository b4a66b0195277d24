package agent_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"stageprof/agent"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// interpreters returns every CPython 3.8 or newer on this machine, and those
// whose paths STAGEPROF_TEST_PYTHONS lists.
func interpreters(t *testing.T) []string {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	found := filepath.SplitList(os.Getenv("STAGEPROF_TEST_PYTHONS"))
	for _, pattern := range []string{filepath.Join(home, ".pyenv/versions/*/bin/python3"), "/usr/bin/python3.[0-9]*", "/usr/local/bin/python3.[0-9]*"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "-config") {
				continue
			}
			out, err := exec.Command(path, "-c",
				"import platform, sys; print(platform.python_implementation() == 'CPython' and sys.version_info >= (3, 8))").Output()
			if err != nil {
				t.Fatalf("%q: %v", path, err)
			}
			if strings.TrimSpace(string(out)) == "True" {
				found = append(found, path)
			}
		}
	}
	if len(found) == 0 {
		t.Fatal("there is no CPython 3.8 or newer here")
	}
	return found
}

// gilTable says per function in which GIL states it was called.
func gilTable(r *recording.Recording) map[string]map[recording.GIL]uint64 {
	table := map[string]map[recording.GIL]uint64{}
	for _, c := range r.Calls {
		name := r.Symbols[c.Symbol].Name
		if table[name] == nil {
			table[name] = map[recording.GIL]uint64{}
		}
		table[name][c.GIL] += c.Count
	}
	return table
}

// The GIL's state is right for every call, on every interpreter.
func TestCaseC21GIL(t *testing.T) {
	const calls = 700 // of each function, by each of three threads
	script, err := filepath.Abs("testdata/gil_calls.py")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]recording.GIL{
		"cuDriverGetVersion": recording.GILFree, "cuCtxSynchronize": recording.GILFree,
		"cuDeviceGetCount": recording.GILHeld, "cuStreamQuery": recording.GILHeld,
	}
	for _, python := range interpreters(t) {
		t.Run(python, func(t *testing.T) {
			got, p := runTester(t, agent.Config{}, simtest.Command{Path: python, Args: []string{script, simtest.Driver(t), fmt.Sprint(calls)}})
			expectEqual(t, got, p.Truth().Counts())
			table := gilTable(got)
			for name, state := range want {
				if n := table[name]; n[state] != 3*calls || len(n) != 1 {
					t.Errorf("%s: %v, want %d calls with the GIL %s", name, n, 3*calls, state)
				}
			}
			if got.Target.Python == nil || !strings.HasPrefix(got.Target.Python.Version, "3.") {
				t.Errorf("Python: %+v", got.Target.Python)
			}
		})
	}
}

func TestCaseC21NoPython(t *testing.T) {
	got, p := runTester(t, agent.Config{}, simtest.Tester(t, "calls", "--calls", "1000"))
	expectEqual(t, got, p.Truth().Counts())
	for name, states := range gilTable(got) {
		if len(states) != 1 || states[recording.GILNone] == 0 {
			t.Errorf("%s: %v", name, states)
		}
	}
	if got.Target.Python != nil {
		t.Errorf("Python: %+v", got.Target.Python)
	}
}
