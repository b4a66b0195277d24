//go:build torch

package agent_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	truth := filepath.Join(t.TempDir(), "truth.json")
	p := startScript(t, "sim/torch_pipeline.py", append([]string{"--truth-json", truth}, args...)...)
	p.truth = truth
	return p
}

// startScript starts a script, from the repository's root, that prints "ready"
// and then waits for --ready-file.
func startScript(t *testing.T, script string, args ...string) pipeline {
	t.Helper()
	p := runScript(t, script, args...)
	p.WaitLine("ready")
	return p
}

func runScript(t *testing.T, script string, args ...string) pipeline {
	t.Helper()
	root := simtest.Root(t)
	p := pipeline{ready: filepath.Join(t.TempDir(), "ready")}
	p.Process = simtest.Start(t, simtest.Command{
		Path: filepath.Join(root, "sim/torch/run.sh"),
		Args: append([]string{torchVersion(), filepath.Join(root, script), "--ready-file", p.ready}, args...),
	})
	return p
}

// torchVersion is the version of PyTorch that is tested.
func torchVersion() string {
	if version := os.Getenv("TORCH"); version != "" {
		return version
	}
	return "2.6.0"
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

// Whoever waits for the copy of the hidden states waits for the stages that made
// them, through an event that the copy's stream follows.
func TestTorchSyncDebt(t *testing.T) {
	waits := map[string]string{"sync": "copy_to_cpu", "async": "post_process"}
	for copies, waiting := range waits {
		t.Run(copies, func(t *testing.T) {
			p := startPipeline(t, "--copy", copies, "--iterations", "30")
			r := record(t, agent.Config{PID: p.PID, Probes: "default"})
			p.begin(t)
			got := r.finish()
			p.Wait()
			expectDebtsCoverWaits(t, got)
			owed := operationsOwed(got, waiting)
			given := operationsGiven(simtest.ReadTruth(t, p.truth))
			for _, owner := range []string{"target_forward", "pack_hidden", "copy_to_cpu"} {
				// Not all: the allocator's own waits and questions find some to be over.
				if owed[owner] < given[owner]/2 || owed[owner] > given[owner] {
					t.Errorf("%s owes %d of its %d operations to %s", owner, owed[owner], given[owner], waiting)
				}
			}
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

// Stock PyTorch's own ranges make stages without a marker in the code: what the
// optimizer names, what the script names by record_function and by NVTX. Ranges of
// start and end are counted only: without a tool all have the number 0.
func TestTorchStagesWithoutMarkers(t *testing.T) {
	p := startScript(t, "sim/torch/ranges.py", "5")
	if line := p.WaitLine("ready"); line != "ready 0 0" {
		t.Errorf("ranges of start and end have numbers: %q", line)
	}
	r := record(t, agent.Config{PID: p.PID, StagesFrom: []string{agent.SourceNVTX, agent.SourceRecordFunction}})
	p.begin(t)
	got := r.finish()
	p.Wait()
	spans := map[string]uint64{}
	for _, s := range got.Stages {
		spans[strings.Join(got.Paths[s.Path].Names, "/")] += s.Count
	}
	delete(spans, "")
	want := map[string]uint64{
		"step":                                   5,
		"step/forward":                           5,
		"step/forward/block":                     5,
		"step/Optimizer.step#SGD.step":           5,
		"step/Optimizer.zero_grad#SGD.zero_grad": 5,
	}
	if diff := cmp.Diff(want, spans); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	expectPartition(t, got)
	for _, c := range got.Calls {
		path := strings.Join(got.Paths[c.Path].Names, "/")
		if got.Symbols[c.Symbol].API == "cuLaunchKernel" && !strings.HasPrefix(path, "step") {
			t.Errorf("%d launches in stage %q", c.Count, path)
		}
	}
	expectOnlyStarts(t, got, 10)
}

// expectOnlyStarts expects no losses but so many NVTX ranges of start and end.
func expectOnlyStarts(t *testing.T, r *recording.Recording, starts uint64) {
	t.Helper()
	if n := losses(r)["nvtx_start_end"]; n != starts {
		t.Errorf("%d ranges of start and end, want %d", n, starts)
	}
	r.Losses = slices.DeleteFunc(r.Losses, func(l recording.Loss) bool { return l.Reason == "nvtx_start_end" })
	expectNoLosses(t, r)
}

// Of PyTorch's ranges only those asked for are stages; the others are still paired.
func TestTorchStageMatch(t *testing.T) {
	p := startScript(t, "sim/torch/ranges.py", "5")
	r := record(t, agent.Config{
		PID: p.PID, StagesFrom: []string{agent.SourceNVTX, agent.SourceRecordFunction}, StageMatch: `^step$|^block$|^Optimizer\.step`,
	})
	p.begin(t)
	got := r.finish()
	p.Wait()
	spans := map[string]uint64{}
	for _, s := range got.Stages {
		spans[strings.Join(got.Paths[s.Path].Names, "/")] += s.Count
	}
	delete(spans, "")
	want := map[string]uint64{"step": 5, "step/block": 5, "step/Optimizer.step#SGD.step": 5}
	if diff := cmp.Diff(want, spans); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	expectPartition(t, got)
	expectOnlyStarts(t, got, 10)
}

// A range of record_function ends what its object was made for, in whatever
// order: never another one, least of all one of another thread.
func TestTorchOverlappingRanges(t *testing.T) {
	p := startScript(t, "sim/torch/overlaps.py", "5")
	r := record(t, agent.Config{PID: p.PID, StagesFrom: []string{agent.SourceRecordFunction}})
	p.begin(t)
	got := r.finish()
	p.Wait()
	type spans struct{ Whole, Partial, Launches uint64 }
	stages := map[string]spans{}
	for _, s := range got.Stages {
		name := strings.Join(got.Paths[s.Path].Names, "/")
		stages[name] = spans{stages[name].Whole + s.Count, stages[name].Partial + s.PartialCount, 0}
	}
	delete(stages, "")
	for _, c := range got.Calls {
		if got.Symbols[c.Symbol].API == "cuLaunchKernel" {
			name := strings.Join(got.Paths[c.Path].Names, "/")
			s := stages[name]
			s.Launches += c.Count
			stages[name] = s
		}
	}
	want := map[string]spans{
		"step":              {5, 0, 10},
		"step/first":        {5, 0, 0},
		"step/first/second": {0, 5, 5}, // it was still open when first ended
		"step/third":        {0, 5, 5}, // another thread can't end it here
		"elsewhere":         {5, 0, 5},
	}
	if diff := cmp.Diff(want, stages); diff != "" {
		t.Errorf("stages (-want +got):\n%s", diff)
	}
	expectPartition(t, got)
	expectNoLosses(t, got)
}
