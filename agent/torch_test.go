//go:build torch

package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stageprof/agent"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// pipeline is the training pipeline in stock PyTorch of version TORCH on the
// simulated driver. Its loops begin when ready is created; truth is what the
// driver has counted from then on.
type pipeline struct {
	*simtest.Process
	ready, truth string
}

func startPipeline(t *testing.T, args ...string) pipeline {
	t.Helper()
	version := os.Getenv("TORCH")
	if version == "" {
		version = "2.6.0"
	}
	dir, root := t.TempDir(), simtest.Root(t)
	p := pipeline{ready: filepath.Join(dir, "ready"), truth: filepath.Join(dir, "truth.json")}
	p.Process = simtest.Start(t, simtest.Command{
		Path: filepath.Join(root, "sim/torch/run.sh"),
		Args: append([]string{version, filepath.Join(root, "sim/torch_pipeline.py"), "--truth-json", p.truth, "--ready-file", p.ready}, args...),
	})
	p.WaitLine("ready")
	return p
}

func (p pipeline) begin(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(p.ready, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestTorchEqualsTruth(t *testing.T) {
	for _, copies := range []string{"sync", "async"} {
		t.Run(copies, func(t *testing.T) {
			p := startPipeline(t, "--copy", copies, "--iterations", "50")
			r := record(t, agent.Config{PID: p.PID})
			p.begin(t)
			got := r.finish()
			p.Wait()
			want := adoptAutograd(simtest.ReadTruth(t, p.truth))
			expectEqual(t, got, want)
			expectAttributions(t, got)
			expectGILFreeLaunches(t, got)
		})
	}
}

// backward is the stage of the pipeline that calls backward().
const backward = "drafter_backward"

// adoptAutograd gives the calls of autograd's threads, which are in no stage of
// their own, the stage that called backward.
func adoptAutograd(truth simtest.Truth) simtest.Counts {
	for i := range truth.Rows {
		if isAutograd(truth.Rows[i].Name) {
			truth.Rows[i].Tag = backward
		}
	}
	return truth.Counts()
}

func isAutograd(thread string) bool { return strings.HasPrefix(thread, "pt_autograd_") }

func expectAttributions(t *testing.T, r *recording.Recording) {
	t.Helper()
	var adopted uint64
	for _, c := range r.Calls {
		want := recording.AttributionOwn
		switch {
		case isAutograd(r.Threads[c.Thread].Name):
			want = recording.AttributionAutograd
			adopted += c.Count
		case len(r.Paths[c.Path].Names) == 0:
			want = recording.AttributionNone
		}
		if c.Attribution != want {
			t.Errorf("%d calls of %s by %s have attribution %q, want %q", c.Count, r.Symbols[c.Symbol].Name,
				r.Threads[c.Thread].Name, c.Attribution, want)
		}
	}
	if adopted == 0 {
		t.Error("autograd's threads made no calls: the test shows nothing")
	}
}

// PyTorch gives the lock up around every eager launch.
func expectGILFreeLaunches(t *testing.T, r *recording.Recording) {
	t.Helper()
	seen := map[recording.GIL]uint64{}
	for _, c := range r.Calls {
		if r.Symbols[c.Symbol].API == "cuLaunchKernel" {
			seen[c.GIL] += c.Count
		}
	}
	if len(seen) != 1 || seen[recording.GILFree] == 0 {
		t.Errorf("launches by the lock's state: %v; want only free ones", seen)
	}
}
