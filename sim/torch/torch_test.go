//go:build torch

// Package torch tests that stock PyTorch trains on the simulated driver, and
// that it calls the driver as often, from the threads and in the stages, as the
// pipeline's shape says. The version is taken from TORCH (default 2.6.0);
// `make all` must have built build/.
package torch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	n         = 20 // iterations
	trimEvery = 4

	// Of sim/torch_pipeline.py: three layers' hidden states of 256 bfloat16 each
	// for every token; token ids are int64, the loss is a float32.
	packedBytesPerToken = 3 * 256 * 2
	idBytesPerToken     = 8
	lossBytes           = 4
	logEvery            = 10
)

// The runs that the tests look at, each made once.
var (
	syncRun  = sync.OnceValues(func() (*result, error) { return run("--copy", "sync") })
	longRun  = sync.OnceValues(func() (*result, error) { return run("--copy", "sync", "--iterations", strconv.Itoa(2*n)) })
	asyncRun = sync.OnceValues(func() (*result, error) { return run("--copy", "async") })
	wideRun  = sync.OnceValues(func() (*result, error) { return run("--copy", "async", "--targets", "2", "--drafters", "2") })
)

// result is what one run left behind.
type result struct {
	Rows   []row   `json:"rows"`   // the driver's truth of the loops
	Stages []stage `json:"stages"` // the pipeline's own account
}

// row is one row of the driver's truth: what one thread called under one tag
// (the pipeline tags each call with its stage path).
type row struct {
	Thread string `json:"name"`
	Tag    string `json:"tag"`
	Symbol string `json:"symbol"`
	Calls  uint64 `json:"calls"`
	Errors uint64 `json:"errors"`
	Bytes  uint64 `json:"bytes"`
}

// stage is one thread's own totals of one stage path.
type stage struct {
	Path  string `json:"stage_path"`
	Spans uint64 `json:"spans"`
}

// run runs the pipeline to its end.
func run(args ...string) (*result, error) {
	dir, err := os.MkdirTemp("", "torch-test")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	truthFile, statsFile := filepath.Join(dir, "truth.json"), filepath.Join(dir, "stats.json")

	version := os.Getenv("TORCH")
	if version == "" {
		version = "2.6.0"
	}
	cmd := exec.Command("./run.sh", append([]string{version, "../torch_pipeline.py",
		"--iterations", strconv.Itoa(n), "--trim-every", strconv.Itoa(trimEvery),
		"--truth-json", truthFile, "--stats-json", statsFile}, args...)...)
	cmd.Env = append(os.Environ(), "SIMCUDA_DEVICES=2")
	// Both files are written before the interpreter exits, which 2.15 does not
	// always do in peace; so they, not the exit status, say whether it ran.
	out, runErr := cmd.CombinedOutput()

	var r result
	for _, file := range []string{truthFile, statsFile} {
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		if err != nil {
			return nil, fmt.Errorf("running the pipeline with %q: %w (exit: %v)\n%s", args, err, runErr, bytes.TrimSpace(out))
		}
	}
	return &r, nil
}

// need returns what a run left behind; a test can't go on without it.
func need(t *testing.T, run func() (*result, error)) *result {
	t.Helper()
	r, err := run()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// sum adds up the rows of a thread, a tag and a symbol. "" stands for all, and
// a trailing * for any ending.
func (r *result) sum(thread, tag, symbol string) (total row) {
	for _, row := range r.Rows {
		if matches(thread, row.Thread) && matches(tag, row.Tag) && matches(symbol, row.Symbol) {
			total.Calls += row.Calls
			total.Errors += row.Errors
			total.Bytes += row.Bytes
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

// work counts what is the same in every iteration, whatever the number of
// tokens: launches and copies. (Fills are not: a reduction over many rows clears
// its counters first. Nor is how often an event is not ready yet.)
func (r *result) work() map[row]uint64 {
	calls := make(map[row]uint64)
	for _, row := range r.Rows {
		if matches("cuLaunch*", row.Symbol) || matches("cuMemcpy*", row.Symbol) {
			key := row
			key.Calls, key.Errors, key.Bytes = 0, 0, 0
			calls[key] += row.Calls
		}
	}
	return calls
}

func TestEveryIterationIsTheSame(t *testing.T) {
	once, twice := need(t, syncRun).work(), need(t, longRun).work()
	if len(once) == 0 {
		t.Fatal("the pipeline did no work")
	}
	for key, calls := range once {
		times := uint64(n)
		if key.Tag == "optimizer_step" && matches("cuMemcpyDtoH*", key.Symbol) {
			times = n / logEvery
		}
		if calls%times != 0 || twice[key] != 2*calls {
			t.Errorf("%s %q %s: %d calls in %d iterations, %d in %d", key.Thread, key.Tag, key.Symbol, calls, n, twice[key], 2*n)
		}
	}
	if len(twice) != len(once) {
		t.Errorf("%d kinds of work in the longer run, %d in the shorter", len(twice), len(once))
	}
}

func TestBackwardRunsOnPyTorchsOwnThread(t *testing.T) {
	r := need(t, syncRun)
	// The drafter is on the second device.
	if r.sum("pt_autograd_1", "", "cuLaunchKernel").Calls == 0 {
		t.Error("no launch from pt_autograd_1")
	}
	if here, all := r.sum("pt_autograd_1", "", ""), r.sum("pt_autograd_*", "", ""); here != all {
		t.Errorf("autograd threads made %+v, pt_autograd_1 alone %+v", all, here)
	}
	for _, path := range []string{"target_forward", "pack_hidden", "drafter_forward", "optimizer_step"} {
		if r.sum("", path, "cuLaunchKernel").Calls == 0 {
			t.Errorf("no launch in %s", path)
		}
	}
}

func TestCopies(t *testing.T) {
	r := need(t, syncRun)
	ids := r.sum("target-0", "target_forward", "cuMemcpyHtoDAsync_v2")
	tokens := ids.Bytes / idBytesPerToken
	got := []row{
		ids,
		r.sum("target-0", "copy_to_cpu", "cuMemcpyDtoHAsync_v2"),
		r.sum("drafter-0", "drafter_forward", "cuMemcpyHtoDAsync_v2"),
		r.sum("drafter-0", "optimizer_step", "cuMemcpyDtoHAsync_v2"),
	}
	want := []row{
		{Calls: n, Bytes: tokens * idBytesPerToken},
		{Calls: n, Bytes: tokens * packedBytesPerToken},
		{Calls: n, Bytes: tokens * packedBytesPerToken},
		{Calls: n / logEvery, Bytes: n / logEvery * lossBytes},
	}
	if !slices.Equal(got, want) {
		t.Errorf("copies of ids, states out, states in, losses:\n got %+v\nwant %+v", got, want)
	}
}

func TestWhoWaitsForTheCopy(t *testing.T) {
	if got := need(t, syncRun).sum("target-0", "copy_to_cpu", "cuStreamSynchronize").Calls; got != n {
		t.Errorf("--copy sync: %d stream synchronisations in the target loop, not %d", got, n)
	}
	async := need(t, asyncRun)
	for _, symbol := range []string{"cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize"} {
		if got := async.sum("target-0", "copy_to_cpu", symbol).Calls; got != 0 {
			t.Errorf("--copy async: %d calls of %s in the target loop", got, symbol)
		}
	}
	if got := async.sum("postproc", "post_process", "cuEventSynchronize").Calls; got != n {
		t.Errorf("--copy async: %d event synchronisations in the post-process thread, not %d", got, n)
	}
}

func TestSpans(t *testing.T) {
	want := map[string]uint64{
		"target_wait": n, "target_forward": n, "pack_hidden": n, "pack_hidden/trim_cache": n / trimEvery,
		"copy_to_cpu": n, "queue_put": n,
		// One more wait than packets: for the end.
		"drafter_wait": n + 1, "drafter_forward": n, "drafter_backward": n, "optimizer_step": n,
	}
	if got := need(t, syncRun).spans(); !maps.Equal(got, want) {
		t.Errorf("--copy sync:\n got %v\nwant %v", got, want)
	}
	want["post_process"] = n
	if got := need(t, asyncRun).spans(); !maps.Equal(got, want) {
		t.Errorf("--copy async:\n got %v\nwant %v", got, want)
	}
}

func (r *result) spans() map[string]uint64 {
	spans := make(map[string]uint64)
	for _, s := range r.Stages {
		spans[s.Path] += s.Spans
	}
	return spans
}

func TestExpandableSegments(t *testing.T) {
	r := need(t, syncRun)
	if got := r.sum("", "", "cuMemAlloc*").Calls; got != 0 {
		t.Errorf("%d calls of cuMemAlloc beside the mapped segments", got)
	}
	unmapped := r.sum("target-0", "pack_hidden/trim_cache", "cuMemUnmap")
	released := r.sum("target-0", "pack_hidden/trim_cache", "cuMemRelease")
	if unmapped.Calls == 0 || unmapped.Bytes == 0 {
		t.Error("emptying the cache unmapped nothing")
	}
	if unmapped.Calls != released.Calls {
		t.Errorf("%d pieces unmapped, %d released", unmapped.Calls, released.Calls)
	}
	// Each piece is created, then mapped, whole; pieces that lie side by side are
	// made accessible together.
	created, mapped, opened := r.sum("", "", "cuMemCreate"), r.sum("", "", "cuMemMap"), r.sum("", "", "cuMemSetAccess")
	if created.Calls == 0 || created != mapped || mapped.Bytes != opened.Bytes {
		t.Errorf("created %+v, mapped %+v, made accessible %+v", created, mapped, opened)
	}
}

func TestManyLoops(t *testing.T) {
	r := need(t, wideRun)
	if got := r.sum("drafter-*", "drafter_forward", "cuMemcpyHtoDAsync_v2").Calls; got != 2*n {
		t.Errorf("two drafters took %d packets of two targets' %d", got, 2*n)
	}
	for _, target := range []string{"target-0", "target-1"} {
		if got := r.sum(target, "copy_to_cpu", "cuMemcpyDtoHAsync_v2").Calls; got != n {
			t.Errorf("%s sent %d packets, not %d", target, got, n)
		}
	}
}

func TestNoErrors(t *testing.T) {
	for _, run := range []func() (*result, error){syncRun, longRun, asyncRun, wideRun} {
		for _, row := range need(t, run).Rows {
			// "Not ready" is an answer.
			if row.Errors > 0 && row.Symbol != "cuEventQuery" && row.Symbol != "cuStreamQuery" {
				t.Errorf("%+v", row)
			}
		}
	}
}
