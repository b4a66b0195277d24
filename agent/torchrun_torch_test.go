//go:build torch

package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"stageprof/agent"
	"stageprof/sim/simtest"
)

// The ranks of a stock torchrun, given its own pid: each worker's calls equal its
// driver's truth, under its rank. PyTorch's libraries are in the launcher too, the
// simulated driver with them, but it calls none of its functions.
func TestCaseC16RanksOfTorchrun(t *testing.T) {
	const workers = 2
	folder := t.TempDir()
	root := simtest.Root(t)
	p := pipeline{ready: filepath.Join(folder, "ready")}
	truth := filepath.Join(folder, "truth")
	worker := filepath.Join(folder, "worker.py")
	program := fmt.Sprintf("import os, runpy, sys\nsys.argv += ['--truth-json', %q + os.environ['RANK']]\nrunpy.run_path(%q, run_name='__main__')\n",
		truth, filepath.Join(root, "sim/torch_pipeline.py"))
	if err := os.WriteFile(worker, []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	p.Process = simtest.Start(t, simtest.Command{
		Path: filepath.Join(root, "sim/torch/run.sh"),
		Args: []string{
			torchVersion(), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", strconv.Itoa(workers),
			worker, "--copy", "sync", "--iterations", "20", "--ready-file", p.ready,
		},
	})
	pids := numbers(t, p.WaitLines("pid ", workers), "pid ")
	p.WaitLines("ready", workers)
	f := recordFamily(t, agent.Config{PID: p.PID})
	p.begin(t)
	got := f.finish()
	p.Wait()
	ranks := map[int]bool{}
	for _, pid := range pids {
		r := got[pid]
		if r == nil {
			t.Errorf("process %d was not recorded; missed: %q", pid, f.got.Missed)
			continue
		}
		if ranks[r.Target.Rank] || r.Target.WorldSize != workers {
			t.Errorf("process %d is rank %d of %d", pid, r.Target.Rank, r.Target.WorldSize)
		}
		ranks[r.Target.Rank] = true
		expectEqual(t, r, adoptAutograd(simtest.ReadTruth(t, truth+strconv.Itoa(r.Target.Rank))))
	}
	if launcher := got[p.PID]; launcher != nil && launcher.Seen.Calls != 0 {
		t.Errorf("the launcher made %d calls", launcher.Seen.Calls)
	}
}
