//go:build torch

// The tests of stock PyTorch on the simulated driver: it trains, and it calls
// the driver as often, from the threads and in the stages, as the pipeline's
// shape says. The version is taken from TORCH (default 2.6.0).

package torch

import (
	"debug/elf"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"stageprof/sim/simtest"
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

func version() string {
	if v := os.Getenv("TORCH"); v != "" {
		return v
	}
	return "2.6.0"
}

// result is what one run left behind: the driver's truth of the loops, each
// call tagged with its stage path, and how many spans each stage path had.
type result struct {
	truth simtest.Truth
	spans map[string]uint64
}

// run runs the pipeline to its end.
func run(t *testing.T, args ...string) result {
	t.Helper()
	dir := t.TempDir()
	stats, truth := filepath.Join(dir, "stats.json"), filepath.Join(dir, "truth.json")
	p := simtest.Start(t, simtest.Command{
		Path: "./run.sh",
		Args: append([]string{version(), "../torch_pipeline.py", "--stats-json", stats, "--truth-json", truth,
			"--targets", "1", "--drafters", "1",
			"--iterations", strconv.Itoa(n), "--trim-every", strconv.Itoa(trimEvery)}, args...),
	})
	p.WaitLine("ready") // PyTorch is slow to import
	p.Wait()
	return result{truth: simtest.ReadTruth(t, truth), spans: readSpans(t, stats)}
}

func readSpans(t *testing.T, path string) map[string]uint64 {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var stats struct {
		Stages []struct {
			Path  string `json:"stage_path"`
			Spans uint64 `json:"spans"`
		} `json:"stages"`
	}
	if err := json.Unmarshal(text, &stats); err != nil {
		t.Fatal(err)
	}
	spans := make(map[string]uint64)
	for _, s := range stats.Stages {
		spans[s.Path] += s.Spans
	}
	return spans
}

// sum adds up the calls of a thread, a stage path and a symbol. "" stands for
// all, and a trailing * for any ending.
func (r result) sum(thread, path, symbol string) (total simtest.Count) {
	for _, row := range r.truth.Rows {
		if matches(thread, row.Name) && matches(path, row.Tag) && matches(symbol, row.Symbol) {
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

func TestPipeline(t *testing.T) {
	sync := run(t, "--copy", "sync")
	long := run(t, "--copy", "sync", "--iterations", strconv.Itoa(2*n))
	async := run(t, "--copy", "async")
	wide := run(t, "--copy", "async", "--targets", "2", "--drafters", "2")

	t.Run("every iteration is the same", func(t *testing.T) { everyIterationIsTheSame(t, sync, long) })
	t.Run("backward runs on PyTorch's own thread", func(t *testing.T) { backwardRunsOnItsOwnThread(t, sync) })
	t.Run("copies", func(t *testing.T) { copies(t, sync) })
	t.Run("who waits for the copy", func(t *testing.T) { whoWaitsForTheCopy(t, sync, async) })
	t.Run("spans", func(t *testing.T) { spans(t, sync, async) })
	t.Run("expandable segments", func(t *testing.T) { expandableSegments(t, sync) })
	t.Run("many loops", func(t *testing.T) { manyLoops(t, wide) })
	t.Run("no errors", func(t *testing.T) { noErrors(t, sync, long, async, wide) })
}

// work is one kind of what the threads ask the driver to do.
type work struct{ thread, path, symbol string }

// perIteration counts the work that is the same in every iteration, whatever
// the number of tokens: launches and copies. (Fills are not: a reduction over
// many rows clears its counters first. Nor is how often an event is not ready.)
func (r result) perIteration() map[work]uint64 {
	calls := make(map[work]uint64)
	for _, row := range r.truth.Rows {
		if matches("cuLaunch*", row.Symbol) || matches("cuMemcpy*", row.Symbol) {
			calls[work{row.Name, row.Tag, row.Symbol}] += row.Calls
		}
	}
	return calls
}

func everyIterationIsTheSame(t *testing.T, short, long result) {
	once, twice := short.perIteration(), long.perIteration()
	if len(once) == 0 {
		t.Fatal("the pipeline did no work")
	}
	for w, calls := range once {
		times := uint64(n)
		if w.path == "optimizer_step" && matches("cuMemcpyDtoH*", w.symbol) {
			times = n / logEvery
		}
		if calls%times != 0 || twice[w] != 2*calls {
			t.Errorf("%+v: %d calls in %d iterations, %d in %d", w, calls, n, twice[w], 2*n)
		}
	}
	if len(twice) != len(once) {
		t.Errorf("%d kinds of work in the longer run, %d in the shorter", len(twice), len(once))
	}
}

func backwardRunsOnItsOwnThread(t *testing.T, r result) {
	// The drafter is on the second device.
	if r.sum("pt_autograd_1", "", "cuLaunchKernel").Calls == 0 {
		t.Error("no launch from pt_autograd_1")
	}
	if one, all := r.sum("pt_autograd_1", "", ""), r.sum("pt_autograd_*", "", ""); one != all {
		t.Errorf("autograd threads made %+v, pt_autograd_1 alone %+v", all, one)
	}
	for _, path := range []string{"target_forward", "pack_hidden", "drafter_forward", "optimizer_step"} {
		if r.sum("", path, "cuLaunchKernel").Calls == 0 {
			t.Errorf("no launch in %s", path)
		}
	}
}

func copies(t *testing.T, r result) {
	ids := r.sum("target-0", "target_forward", "cuMemcpyHtoDAsync_v2")
	tokens := ids.Bytes / idBytesPerToken
	got := []simtest.Count{
		ids,
		r.sum("target-0", "copy_to_cpu", "cuMemcpyDtoHAsync_v2"),
		r.sum("drafter-0", "drafter_forward", "cuMemcpyHtoDAsync_v2"),
		r.sum("drafter-0", "optimizer_step", "cuMemcpyDtoHAsync_v2"),
	}
	want := []simtest.Count{
		{Calls: n, Bytes: tokens * idBytesPerToken},
		{Calls: n, Bytes: tokens * packedBytesPerToken},
		{Calls: n, Bytes: tokens * packedBytesPerToken},
		{Calls: n / logEvery, Bytes: n / logEvery * lossBytes},
	}
	if !slices.Equal(got, want) {
		t.Errorf("copies of ids, states out, states in, losses:\n got %+v\nwant %+v", got, want)
	}
}

func whoWaitsForTheCopy(t *testing.T, sync, async result) {
	if got := sync.sum("target-0", "copy_to_cpu", "cuStreamSynchronize").Calls; got != n {
		t.Errorf("--copy sync: %d stream synchronisations in the target loop, not %d", got, n)
	}
	for _, symbol := range []string{"cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize"} {
		if got := async.sum("target-0", "copy_to_cpu", symbol).Calls; got != 0 {
			t.Errorf("--copy async: %d calls of %s in the target loop", got, symbol)
		}
	}
	if got := async.sum("postproc", "post_process", "cuEventSynchronize").Calls; got != n {
		t.Errorf("--copy async: %d event synchronisations in the post-process thread, not %d", got, n)
	}
}

func spans(t *testing.T, sync, async result) {
	want := map[string]uint64{
		"target_wait": n, "target_forward": n, "pack_hidden": n, "pack_hidden/trim_cache": n / trimEvery,
		"copy_to_cpu": n, "queue_put": n,
		// One more wait than packets: for the end.
		"drafter_wait": n + 1, "drafter_forward": n, "drafter_backward": n, "optimizer_step": n,
	}
	if !maps.Equal(sync.spans, want) {
		t.Errorf("--copy sync:\n got %v\nwant %v", sync.spans, want)
	}
	want["post_process"] = n
	if !maps.Equal(async.spans, want) {
		t.Errorf("--copy async:\n got %v\nwant %v", async.spans, want)
	}
}

func expandableSegments(t *testing.T, r result) {
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

func manyLoops(t *testing.T, r result) {
	if got := r.sum("drafter-*", "drafter_forward", "cuMemcpyHtoDAsync_v2").Calls; got != 2*n {
		t.Errorf("two drafters took %d packets of two targets' %d", got, 2*n)
	}
	for _, target := range []string{"target-0", "target-1"} {
		if got := r.sum(target, "copy_to_cpu", "cuMemcpyDtoHAsync_v2").Calls; got != n {
			t.Errorf("%s sent %d packets, not %d", target, got, n)
		}
	}
}

func noErrors(t *testing.T, results ...result) {
	for _, r := range results {
		for _, row := range r.truth.Rows {
			// "Not ready" is an answer.
			if row.Errors > 0 && row.Symbol != "cuEventQuery" && row.Symbol != "cuStreamQuery" {
				t.Errorf("%+v", row)
			}
		}
	}
}

// Every function that the wheel's libraries import from CUDA's runtime and BLAS
// is one of ours: nothing falls through to NVIDIA's.
func TestNothingIsMissing(t *testing.T) {
	home := installed(t)
	ours := make(map[string]bool)
	for _, name := range []string{"libcudart.so.12", "libcudart.so.13", "libsimblas.so"} {
		exported, err := open(t, simtest.Build(t, "sim/"+name)).DynamicSymbols()
		if err != nil {
			t.Fatal(err)
		}
		for _, symbol := range exported {
			// The two runtimes differ, so theirs are told apart by the library.
			if library := strings.TrimSuffix(name, "libsimblas.so"); symbol.Section != elf.SHN_UNDEF {
				ours[library+" "+symbol.Name] = true
			}
		}
	}
	var imports int
	for _, library := range glob(t, home, "torch/lib/*.so") {
		wanted, err := open(t, library).ImportedSymbols()
		if err != nil {
			t.Fatal(err)
		}
		for _, symbol := range wanted {
			from := symbol.Library
			if matches("libcublas*", from) {
				from = ""
			} else if !matches("libcudart.so*", from) {
				continue
			}
			imports++
			if !ours[from+" "+symbol.Name] {
				t.Errorf("%s wants %s from %s", filepath.Base(library), symbol.Name, symbol.Library)
			}
		}
	}
	if imports < 100 {
		t.Errorf("only %d imports found", imports)
	}
}

// The wheels bring NVIDIA's public headers: our own declarations must lay
// everything out as they do.
func TestLayouts(t *testing.T) {
	home := installed(t)
	header := glob(t, home, "nvidia/*/include/cuda_runtime_api.h")[0]
	major := "12"
	if strings.HasSuffix(filepath.Dir(header), "cu13/include") {
		major = "13"
	}
	// Triton's copy has the headers below crt/, which NVIDIA packs elsewhere.
	headers := filepath.Dir(header) + " " + glob(t, home, "triton/backends/nvidia/include")[0]
	out, err := exec.Command("make", "-C", "../cudart", "check-abi", "VERSION="+major, "CUDA_INCLUDE="+headers).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// glob returns the files of the installed packages that match; there is at least one.
func glob(t *testing.T, home, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(home, "lib/python*/site-packages", pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("nothing matches %q in %q (%v)", pattern, home, err)
	}
	return files
}

// installed returns the folder of the installed wheel.
func installed(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("./install.sh", version())
	cmd.Stderr = os.Stderr
	home, err := cmd.Output()
	if err != nil {
		t.Fatalf("installing torch %s: %v", version(), err)
	}
	return strings.TrimSpace(string(home))
}

func open(t *testing.T, path string) *elf.File {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
