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
	candidates := filepath.SplitList(os.Getenv("STAGEPROF_TEST_PYTHONS"))
	for _, pattern := range []string{filepath.Join(home, ".pyenv/versions/*/bin/python3"), "/usr/bin/python3.[0-9]*", "/usr/local/bin/python3.[0-9]*"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		candidates = append(candidates, paths...)
	}
	var found []string
	for _, path := range candidates {
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

// pythonCalls are the functions that the scripts of these tests call: an emulator takes long to put probes
// on all (scripts/kernels).
const pythonCalls = "cuDriverGetVersion,cuCtxSynchronize,cuDeviceGetCount,cuStreamQuery"

// lockOn has the lock of a free-threaded interpreter on, lockOff off; others know no such choice and have it on.
const (
	lockOn  = "PYTHON_GIL=1"
	lockOff = "PYTHON_GIL=0"
)

// isFreeThreaded tells whether an interpreter can do without its lock.
func isFreeThreaded(t *testing.T, python string) bool {
	t.Helper()
	out, err := exec.Command(python, "-c", "import sysconfig; print(bool(sysconfig.get_config_var('Py_GIL_DISABLED')))").Output()
	if err != nil {
		t.Fatalf("%q: %v", python, err)
	}
	return strings.TrimSpace(string(out)) == "True"
}

// The GIL's state is right for every call, on every interpreter.
func TestCaseC21GIL(t *testing.T) {
	for _, python := range interpreters(t) {
		t.Run(python, func(t *testing.T) {
			expectGIL(t, python, lockOn, recording.GILFree, recording.GILHeld)
			if isFreeThreaded(t, python) {
				expectGIL(t, python, lockOff, recording.GILDisabled, recording.GILDisabled)
			}
		})
	}
}

// expectGIL fails unless the states of calls are these that drop the lock, or keep it.
func expectGIL(t *testing.T, python, lock string, free, held recording.GIL) {
	t.Helper()
	const calls = 700 // of each function, by each of three threads
	script, err := filepath.Abs("testdata/gil_calls.py")
	if err != nil {
		t.Fatal(err)
	}
	command := simtest.Command{Path: python, Args: []string{script, simtest.Driver(t), fmt.Sprint(calls)}}
	got, p := runTester(t, agent.Config{Probes: pythonCalls}, command.With(lock))
	expectEqual(t, got, p.Truth().Counts())
	expectGILCalls(t, got, 3*calls, free, held)
	if got.Target.Python == nil || !strings.HasPrefix(got.Target.Python.Version, "3.") {
		t.Errorf("Python: %+v", got.Target.Python)
	}
}

// expectGILCalls checks the functions of testdata/gil_calls.py.
func expectGILCalls(t *testing.T, got *recording.Recording, calls uint64, free, held recording.GIL) {
	t.Helper()
	expectStates(t, got, map[string]states{
		"cuDriverGetVersion": {free: calls}, "cuCtxSynchronize": {free: calls},
		"cuDeviceGetCount": {held: calls}, "cuStreamQuery": {held: calls},
	})
}

// The same in a child that a thread forks, which is the child's main thread then, and in Python's handlers of signals.
func TestGILOfForkedPython(t *testing.T) {
	const calls = 300
	script, err := filepath.Abs("testdata/gil_fork.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, python := range interpreters(t) {
		t.Run(python, func(t *testing.T) {
			command := simtest.Command{Path: python, Args: []string{script, simtest.Driver(t), fmt.Sprint(calls)}}
			p := simtest.Start(t, command.With(lockOn))
			pids := numbers(t, p.WaitLines("up ", 2), "up ")
			f := recordFamily(t, agent.Config{PID: p.PID})
			f.waitLive(2)
			p.Ready()
			got := f.finish()
			p.Wait()
			expectProcesses(t, got, p, pids...)
			for _, r := range got {
				expectGILCalls(t, r, 3*calls, recording.GILFree, recording.GILHeld)
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
