package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/pprof/profile"

	"stageprof/correlate"
	"stageprof/recording"
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
	wantTrouble(t, command(t, "record", "--pid", strconv.Itoa(p.PID)), "CUDA driver", "--children",
		fmt.Sprintf("%d (rank 0, ", pids[0]), fmt.Sprintf("%d (rank 1, ", pids[1]), "testers/calls")

	r := stageprof(t, "doctor", "--pid", strconv.Itoa(p.PID))
	if r.code != exitError || !strings.Contains(r.stderr, "--children") {
		t.Errorf("exit code %d, stderr %q; want %d and how to record the workers", r.code, r.stderr, exitError)
	}
	for rank, pid := range pids {
		if want := fmt.Sprintf("%d (rank %d, ", pid, rank); !strings.Contains(r.stdout, want) {
			t.Errorf("stdout %q, want %q in it", r.stdout, want)
		}
	}
}

// ranks sums the calls of a profile by rank.
func ranks(t *testing.T, path string) map[int64]uint64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := profile.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	sums := map[int64]uint64{}
	for _, s := range p.Sample {
		sums[s.NumLabel["rank"][0]] += uint64(s.Value[0])
	}
	return sums
}

func TestCaseC16OneProfileOfAllRanks(t *testing.T) {
	p, pids := launcher(t, 2)
	r := startRecord(t, p.PID, "--children", "--probes", "all", "--save", "run.{rank}.rec", "--spans", "spans.{rank}.jsonl")
	p.Ready()
	p.Wait()
	r.wait(t, exitOK)
	r.wantFiles(t, "ready", "run.0.rec", "run.1.rec", "spans.0.jsonl", "spans.1.jsonl", "stageprof.pb.gz")
	want := map[int64]uint64{}
	for rank, pid := range pids {
		want[int64(rank)] = sum(p.TruthOf(pid))
	}
	if diff := cmp.Diff(want, ranks(t, r.path("stageprof.pb.gz"))); diff != "" {
		t.Errorf("calls by rank (-want +got):\n%s", diff)
	}
	for _, text := range []string{"2 processes", "STAGE BY PROCESS", fmt.Sprintf("rank 1, pid %d", pids[1])} {
		if !strings.Contains(r.stdout.String(), text) {
			t.Errorf("stdout %q, want %q in it", r.stdout.String(), text)
		}
	}

	again := command(t, "report", r.path("run.0.rec"), r.path("run.1.rec"), "-o", "all.pb.gz")
	got := finish(t, again)
	if got.code != exitOK || got.stdout != r.stdout.String() {
		t.Errorf("report ends with %d and prints %q, record printed %q", got.code, got.stdout, r.stdout.String())
	}
	if diff := cmp.Diff(want, ranks(t, filepath.Join(again.Dir, "all.pb.gz"))); diff != "" {
		t.Errorf("calls by rank of the saved recordings (-want +got):\n%s", diff)
	}
}

func TestCaseC16OneProfileOfEachRank(t *testing.T) {
	p, pids := launcher(t, 2)
	r := startRecord(t, p.PID, "--children", "--probes", "all", "--format", "json", "-o", "run.{rank}.pb.gz")
	p.Ready()
	p.Wait()
	r.wait(t, exitOK)
	r.wantFiles(t, "ready", "run.0.pb.gz", "run.1.pb.gz")
	var got struct {
		Processes []struct {
			Target recording.Target `json:"target"`
			All    struct {
				Count uint64 `json:"count"`
			} `json:"all"`
		} `json:"processes"`
		NotRecorded []string `json:"not_recorded"`
	}
	if err := json.Unmarshal(r.stdout.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Processes) != 2 || len(got.NotRecorded) != 0 {
		t.Fatalf("%+v", got)
	}
	for rank, pid := range pids {
		want := sum(p.TruthOf(pid))
		if one := got.Processes[rank]; one.Target.PID != pid || one.All.Count != want {
			t.Errorf("rank %d: process %d with %d calls, want %d with %d", rank, one.Target.PID, one.All.Count, pid, want)
		}
		if n := profileSum(t, r.path(fmt.Sprintf("run.%d.pb.gz", rank)), "calls"); n != want {
			t.Errorf("the profile of rank %d has %d calls, want %d", rank, n, want)
		}
	}
}

// ^C ends the recording of all.
func TestChildrenUntilInterrupted(t *testing.T) {
	p, _ := launcher(t, 2)
	r := startRecord(t, p.PID, "--children")
	r.signal(t, syscall.SIGINT)
	r.wait(t, exitOK)
	if n := strings.Count(r.stdout.String(), string(recording.EndInterrupt)); n != 2 {
		t.Errorf("%d processes ended by the interrupt: %q", n, r.stdout.String())
	}
}

func TestNamesOfProcesses(t *testing.T) {
	ledger := func(rank, pid, of int) *correlate.Ledger {
		return &correlate.Ledger{Source: &recording.Recording{Target: recording.Target{Rank: rank, PID: pid, WorldSize: of}}}
	}
	ledgers := []*correlate.Ledger{ledger(0, 7, 2), ledger(1, 8, 2), ledger(1, 9, 2), ledger(1, 9, 2)}
	for name, want := range map[string][]string{
		"a.{rank}.rec":    {"a.0.rec", "a.1-8.rec", "a.1-9.rec", "a.1-9-2.rec"},
		"{pid}":           {"7", "8", "9-9", "9-9-2"},
		"a.{rank}.{pid}x": {"a.0.7x", "a.1.8x", "a.1-9.9x", "a.1-9-2.9x"},
	} {
		if diff := cmp.Diff(want, namesFor(name, ledgers)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", name, diff)
		}
	}
	for want, ledgers := range map[string][]*correlate.Ledger{
		"0":               {ledger(0, 7, 1)},
		"0-7 0-8":         {ledger(0, 7, 1), ledger(0, 8, 1)},
		"none 0 1":        {ledger(0, 7, 1), ledger(0, 8, 2), ledger(1, 9, 2)}, // a launcher
		"none-6 none-7 1": {ledger(0, 6, 1), ledger(0, 7, 1), ledger(1, 9, 2)},
	} {
		if got := strings.Join(namesFor("{rank}", ledgers), " "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestSavingChildrenNeedsNames(t *testing.T) {
	r := stageprof(t, "record", "--pid", "1", "--children", "--save", "run.rec")
	if r.code != exitUsage || !strings.Contains(r.stderr, "{rank}") {
		t.Errorf("exit code %d, stderr %q; want %d and what to put into the name", r.code, r.stderr, exitUsage)
	}
}
