//go:build pyspy

package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"stageprof/agent"
	"stageprof/bpf"
	"stageprof/sim/simtest"
)

// pySpyRefuses are the interpreters of scripts/pythons.sh that py-spy can't read:
// linked statically and started by the C library's loader, and free-threaded.
var pySpyRefuses = regexp.MustCompile(`/debian-python[0-9.]+d?$|/free-threaded-`)

// pySpyStack is the stack of a process's first thread, innermost frame first,
// as py-spy reads it.
func pySpyStack(t *testing.T, pid int) (frames []string) {
	t.Helper()
	out, err := exec.Command(os.Getenv("STAGEPROF_PYSPY"), "dump", "--json", "--full-filenames", "--pid", fmt.Sprint(pid)).Output()
	if err != nil {
		t.Fatalf("py-spy: %v", err)
	}
	var threads []struct {
		TID    int `json:"os_thread_id"`
		Frames []struct {
			Name, Filename string
			Line           int
		}
	}
	if err := json.Unmarshal(out, &threads); err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		for _, f := range thread.Frames {
			if thread.TID == pid {
				frames = append(frames, frameKey(f.Name, f.Filename, f.Line))
			}
		}
	}
	return frames
}

// dumpStops has py-spy look at a process of testdata/python_sites.py wherever it
// stops, which is in its function note, inside a driver call.
func dumpStops(t *testing.T, p *simtest.Process) stackCounts {
	t.Helper()
	orders, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/0", p.PID), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer orders.Close()
	kept := len(bpf.ProbePythonSample{}.Frames)
	seen := stackCounts{}
	for n := 1; ; n++ {
		_, symbol, _ := strings.Cut(p.WaitLines("stop ", n)[n-1], " ")
		if symbol == "-" {
			return seen
		}
		frames := pySpyStack(t, p.PID)[1:]
		seen[stackKey(symbol, frames[:min(len(frames), kept)], len(frames) > kept)] = 1
		fmt.Fprintln(orders)
	}
}

// py-spy, which stops the target to read it, sees the stacks that the recording
// has, frame by frame, with the same names, files and lines.
func TestPySpySeesTheSameStacks(t *testing.T) {
	for _, python := range interpreters(t) {
		if pySpyRefuses.MatchString(python) {
			continue
		}
		t.Run(python, func(t *testing.T) {
			p := simtest.Start(t, sitesCommand(t, python, 1, filepath.Join(t.TempDir(), "sites.json"), "stops"))
			p.WaitLine("up")
			r := record(t, agent.Config{PID: p.PID, PythonStacks: agent.PythonStacksAll})
			p.Ready()
			want := dumpStops(t, p)
			p.WaitLine("done")
			got := r.interrupt()
			p.Release()
			p.Wait()
			shown := stackCounts{}
			for key := range stacksOf(got, false) {
				shown[key] = 1
			}
			if diff := diffStacks(want, shown); diff != "" {
				t.Errorf("stacks differ from py-spy's:\n%s", diff)
			}
		})
	}
}
