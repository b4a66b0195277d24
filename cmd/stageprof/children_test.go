package main

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"stageprof/sim/simtest"
)

// launcher starts sh -c → launcher → workers, as torchrun does: each worker has
// its rank in its environment, and nobody else maps the driver. The workers have
// opened it, and wait.
func launcher(t *testing.T, workers int, args ...string) (p *simtest.Process, pids []int) {
	t.Helper()
	worker := simtest.Tester(t, "calls", append([]string{"--markers", simtest.Markers(t), "--calls", "2000", "--stages", "2"}, args...)...)
	script := fmt.Sprintf(`for rank in $(seq 0 %d); do RANK=$rank WORLD_SIZE=%d "$@" & echo worker $!; done; wait`, workers-1, workers)
	p = simtest.Start(t, simtest.Command{Path: "/bin/sh", Args: append(
		[]string{"-c", `sh -c "$@"; exit $?`, "sh", script, "launcher", worker.Path}, worker.Args...)})
	for _, line := range p.WaitLines("worker ", workers) {
		pid, err := strconv.Atoi(strings.TrimPrefix(line, "worker "))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	p.WaitLines("up", workers)
	return p, pids
}

func TestCaseC16LauncherSaysWhoUsesCUDA(t *testing.T) {
	p, pids := launcher(t, 2)
	wantTrouble(t, command(t, "record", "--pid", strconv.Itoa(p.PID)), "CUDA driver", "--pid",
		fmt.Sprintf("%d (rank 0, ", pids[0]), fmt.Sprintf("%d (rank 1, ", pids[1]), "testers/calls")

	r := stageprof(t, "doctor", "--pid", strconv.Itoa(p.PID))
	if r.code != exitError || !strings.Contains(r.stderr, "the pid of one") {
		t.Errorf("exit code %d, stderr %q; want %d and how to record the workers", r.code, r.stderr, exitError)
	}
	for rank, pid := range pids {
		if want := fmt.Sprintf("%d (rank %d, ", pid, rank); !strings.Contains(r.stdout, want) {
			t.Errorf("stdout %q, want %q in it", r.stdout, want)
		}
	}
}
