//go:build perfetto

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"stageprof/sim/simtest"
)

// perfettoSays has Perfetto's own definitions read a recording's traces and
// compare them with it, and returns the numbers of what was compared:
// scripts/timeline/check.py.
func perfettoSays(t *testing.T, r *running) map[string]int {
	t.Helper()
	for _, output := range []string{"trace.perfetto-trace", "trace.json.gz"} {
		cmd := command(t, "timeline", "saved", "-o", output)
		cmd.Dir = r.cmd.Dir
		if got := finish(t, cmd); got.code != exitOK || got.stdout+got.stderr != "" {
			t.Fatalf("timeline: exit code %d, stdout %q, stderr %q", got.code, got.stdout, got.stderr)
		}
	}
	python := os.Getenv("STAGEPROF_PERFETTO_PYTHON")
	if python == "" {
		t.Fatal("STAGEPROF_PERFETTO_PYTHON names no Python with the package perfetto: use scripts/test-timeline.sh")
	}
	check := exec.Command(python, filepath.Join(simtest.Root(t), "scripts/timeline/check.py"),
		r.path("saved"), r.path("trace.perfetto-trace"), r.path("trace.json.gz"))
	out, err := check.CombinedOutput()
	if err != nil {
		t.Fatalf("check: %v: %s", err, out)
	}
	t.Logf("%s", out)
	numbers := map[string]int{}
	for _, m := range regexp.MustCompile(`(\d+) (slices|stages|calls|with the GIL held|off the CPU|flows|threads)`).FindAllStringSubmatch(string(out), -1) {
		if numbers[m[2]], err = strconv.Atoi(m[1]); err != nil {
			t.Fatal(err)
		}
	}
	return numbers
}

// The last second of a training pipeline, with everything that a trace can hold.
func TestPerfettoReadsPipeline(t *testing.T) {
	pipeline := simtest.Start(t, simtest.Command{Path: "python3", Args: []string{filepath.Join(simtest.Root(t), "sim", "pipeline.py"), "--duration", "120"}})
	pipeline.WaitLine("ready")
	r := startRecord(t, pipeline.PID, "--duration", "3s", "--timeline=1s", "--save", "saved", "--quiet")
	r.wait(t, exitOK)
	got := perfettoSays(t, r)
	for _, what := range []string{"stages", "calls", "with the GIL held", "off the CPU", "flows"} {
		if got[what] == 0 {
			t.Errorf("0 %s", what)
		}
	}
	if got["threads"] < 5 {
		t.Errorf("%d threads", got["threads"])
	}
}

// All calls of eight threads at full speed.
func TestPerfettoReadsEveryCall(t *testing.T) {
	p, ready := caller(t, "--threads", "8")
	r := startRecord(t, p.PID, "--probes", "all", "--timeline=1h", "--save", "saved")
	release(t, ready)
	p.Wait()
	r.wait(t, exitOK)
	if got, want := perfettoSays(t, r), sum(p.Truth()); uint64(got["calls"]) != want {
		t.Errorf("the trace has %d calls, the driver counted %d", got["calls"], want)
	}
}
