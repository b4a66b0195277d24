//go:build torch

// Package torch tests that stock PyTorch trains on the simulated driver, and
// that it calls the driver as often, from the threads and in the stages, as the
// pipeline's shape says. The version is taken from TORCH (default 2.6.0);
// `make all` must have built build/.
package torch

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	n = 20 // iterations, unless said otherwise

	// Of sim/torch_pipeline.py: three layers' hidden states of 256 bfloat16 each
	// for every token; token ids are int64.
	packedBytesPerToken = 3 * 256 * 2
	idBytesPerToken     = 8
	logEvery            = 10
)

// row is one row of the driver's truth: what one thread called under one tag
// (the pipeline tags each call with its stage path).
type row struct {
	TID    int    `json:"tid"`
	Thread string `json:"name"`
	Tag    string `json:"tag"`
	Symbol string `json:"symbol"`
	Calls  uint64 `json:"calls"`
	Errors uint64 `json:"errors"`
	Bytes  uint64 `json:"bytes"`
}

type truth []row

// stage is one thread's own totals of one stage path.
type stage struct {
	Thread  string `json:"thread"`
	Path    string `json:"stage_path"`
	Spans   uint64 `json:"spans"`
	TotalNS uint64 `json:"total_ns"`
}

// run runs the pipeline to its end and returns the truth of its loops and the
// pipeline's own account of its stages.
func run(t *testing.T, args ...string) (truth, []stage) {
	t.Helper()
	version := os.Getenv("TORCH")
	if version == "" {
		version = "2.6.0"
	}
	dir := t.TempDir()
	truthFile, statsFile := filepath.Join(dir, "truth.json"), filepath.Join(dir, "stats.json")
	cmd := exec.CommandContext(t.Context(), "./run.sh", append([]string{version, "../torch_pipeline.py",
		"--truth-json", truthFile, "--stats-json", statsFile}, args...)...)
	cmd.Env = append(os.Environ(), "SIMCUDA_DEVICES=2")
	// Verdicts are taken from what was written before the interpreter exits:
	// 2.15 sometimes aborts after that.
	out, runErr := cmd.CombinedOutput()

	var driver struct{ Rows truth }
	var own struct{ Stages []stage }
	for file, into := range map[string]any{truthFile: &driver, statsFile: &own} {
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatalf("pipeline %q: %v (%v)\n%s", args, runErr, err, out)
		}
	}
	return driver.Rows, own.Stages
}

// sum adds up the rows of a thread, a tag and a symbol; "" stands for all, and
// a trailing * for any ending.
func (rows truth) sum(thread, tag, symbol string) (total row) {
	for _, r := range rows {
		if matches(thread, r.Thread) && matches(tag, r.Tag) && matches(symbol, r.Symbol) {
			total.Calls += r.Calls
			total.Errors += r.Errors
			total.Bytes += r.Bytes
		}
	}
	return total
}

func matches(pattern, text string) bool {
	if prefix, open := strings.CutSuffix(pattern, "*"); open {
		return strings.HasPrefix(text, prefix)
	}
	return pattern == "" || pattern == text
}

// work is what the shape of the computation alone decides: launches, copies,
// fills. (How often a thread finds an event not ready yet, it does not.)
func (rows truth) work() map[row]uint64 {
	calls := make(map[row]uint64)
	for _, r := range rows {
		if matches("cuLaunch*", r.Symbol) || matches("cuMemcpy*", r.Symbol) || matches("cuMemset*", r.Symbol) {
			calls[row{Thread: r.Thread, Tag: r.Tag, Symbol: r.Symbol}] += r.Calls
		}
	}
	return calls
}

func TestEveryStepIsTheSame(t *testing.T) {
	once, _ := run(t, "--iterations", strconv.Itoa(n), "--trim-every", "0")
	twice, _ := run(t, "--iterations", strconv.Itoa(2*n), "--trim-every", "0")
	got, want := twice.work(), once.work()
	if len(want) == 0 {
		t.Fatal("the pipeline did no work")
	}
	for r, calls := range want {
		perRun := uint64(n)
		if r.Tag == "optimizer_step" && matches("cuMemcpyDtoH*", r.Symbol) {
			perRun = n / logEvery
		}
		if calls%perRun != 0 || got[r] != 2*calls {
			t.Errorf("%s %q %s: %d calls in %d iterations, %d in %d", r.Thread, r.Tag, r.Symbol, calls, n, got[r], 2*n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d kinds of work in the longer run, %d in the shorter", len(got), len(want))
	}
}

func TestAutogradRunsOnItsOwnThread(t *testing.T) {
	rows, _ := run(t, "--iterations", strconv.Itoa(n))
	// Backward of the drafter, which is on the second device.
	if rows.sum("pt_autograd_1", "", "cuLaunchKernel").Calls == 0 {
		t.Error("no launch from pt_autograd_1")
	}
	if got := rows.sum("pt_autograd_1", "", ""); got != rows.sum("pt_autograd_*", "", "") {
		t.Errorf("another autograd thread called the driver: %+v", rows)
	}
	for _, stage := range []string{"target_forward", "pack_hidden", "drafter_forward", "optimizer_step"} {
		if rows.sum("", stage, "cuLaunchKernel").Calls == 0 {
			t.Errorf("no launch in %s", stage)
		}
	}
}

func TestCopies(t *testing.T) {
	rows, _ := run(t, "--iterations", strconv.Itoa(n))
	ids := rows.sum("target-0", "target_forward", "cuMemcpyHtoDAsync_v2")
	out := rows.sum("target-0", "copy_to_cpu", "cuMemcpyDtoHAsync_v2")
	in := rows.sum("drafter-0", "drafter_forward", "cuMemcpyHtoDAsync_v2")
	loss := rows.sum("drafter-0", "optimizer_step", "cuMemcpyDtoHAsync_v2")
	tokens := ids.Bytes / idBytesPerToken
	want := []row{
		{Calls: n, Bytes: tokens * idBytesPerToken},
		{Calls: n, Bytes: tokens * packedBytesPerToken},
		{Calls: n, Bytes: tokens * packedBytesPerToken},
		{Calls: n / logEvery, Bytes: n / logEvery * 4},
	}
	if got := []row{ids, out, in, loss}; !slices.Equal(got, want) {
		t.Errorf("copies of ids, states out, states in, losses:\n got %+v\nwant %+v", got, want)
	}
}

func TestWhoWaitsForTheCopy(t *testing.T) {
	sync, syncStages := run(t, "--iterations", strconv.Itoa(n), "--copy", "sync")
	if got := sync.sum("target-0", "copy_to_cpu", "cuStreamSynchronize").Calls; got != n {
		t.Errorf("--copy sync: %d stream synchronisations in the target loop, not %d", got, n)
	}
	async, asyncStages := run(t, "--iterations", strconv.Itoa(n), "--copy", "async")
	for _, symbol := range []string{"cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize"} {
		if got := async.sum("target-0", "copy_to_cpu", symbol).Calls; got != 0 {
			t.Errorf("--copy async: %d calls of %s in the target loop", got, symbol)
		}
	}
	if got := async.sum("postproc", "post_process", "cuEventSynchronize").Calls; got != n {
		t.Errorf("--copy async: %d event synchronisations in the post-process thread, not %d", got, n)
	}

	// One more wait than packets: for the end.
	spans := map[string]uint64{
		"target_wait": n, "target_forward": n, "pack_hidden": n, "pack_hidden/trim_cache": 1,
		"copy_to_cpu": n, "queue_put": n,
		"drafter_wait": n + 1, "drafter_forward": n, "drafter_backward": n, "optimizer_step": n,
	}
	checkSpans(t, syncStages, spans)
	spans["post_process"] = n
	checkSpans(t, asyncStages, spans)
}

func checkSpans(t *testing.T, stages []stage, want map[string]uint64) {
	t.Helper()
	got := make(map[string]uint64)
	for _, s := range stages {
		got[s.Path] += s.Spans
	}
	if !maps.Equal(got, want) {
		t.Errorf("spans:\n got %v\nwant %v", got, want)
	}
}

func TestExpandableSegments(t *testing.T) {
	rows, _ := run(t, "--iterations", strconv.Itoa(n), "--trim-every", "4")
	if got := rows.sum("", "", "cuMemAlloc*").Calls; got != 0 {
		t.Errorf("%d calls of cuMemAlloc beside the mapped segments", got)
	}
	unmapped := rows.sum("target-0", "pack_hidden/trim_cache", "cuMemUnmap")
	released := rows.sum("target-0", "pack_hidden/trim_cache", "cuMemRelease")
	if unmapped.Calls == 0 || unmapped.Bytes == 0 {
		t.Error("emptying the cache unmapped nothing")
	}
	if unmapped.Calls != released.Calls {
		t.Errorf("%d pieces unmapped, %d released", unmapped.Calls, released.Calls)
	}
	created, mapped := rows.sum("", "", "cuMemCreate"), rows.sum("", "", "cuMemMap")
	if created.Calls == 0 || created != mapped {
		t.Errorf("created %+v, mapped %+v", created, mapped)
	}
	if mapped.Bytes < rows.sum("", "", "cuMemSetAccess").Bytes {
		t.Error("more made accessible than mapped")
	}
}

func TestNoErrors(t *testing.T) {
	for _, copy := range []string{"sync", "async"} {
		rows, _ := run(t, "--iterations", strconv.Itoa(n), "--copy", copy, "--targets", "2", "--drafters", "2")
		for _, r := range rows {
			// "Not ready" is an answer.
			if r.Errors > 0 && r.Symbol != "cuEventQuery" && r.Symbol != "cuStreamQuery" {
				t.Errorf("--copy %s: %+v", copy, r)
			}
		}
		if got := rows.sum("drafter-*", "drafter_forward", "cuMemcpyHtoDAsync_v2").Calls; got != 2*n {
			t.Errorf("--copy %s: two drafters took %d packets of two targets' %d", copy, got, 2*n)
		}
	}
}
