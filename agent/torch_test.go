//go:build torch

package agent_test

import (
	"os"
	"path/filepath"
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
			expectEqual(t, got, simtest.ReadTruth(t, p.truth).Counts())
			expectGILFreeLaunches(t, got)
		})
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
