package html

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const ms = time.Millisecond

func pageOf(t *testing.T, r *recording.Recording) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, correlate.Run{Name: "run.rec", Ledger: correlate.Build(r)}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// nested has a stage inside another, calls with the GIL held and free, a thread
// without stages, and losses.
func nested() *recording.Recording { return nestedOf(3) }

// nestedOf is nested with a number of iterations.
func nestedOf(n uint64) *recording.Recording {
	b := recordingtest.New()
	main, worker := b.Thread(4250, "MainThread"), b.Thread(4251, "pt_autograd_0")
	b.Spans(main, "step", n, 60*ms, 20*ms)
	copied := b.Spans(main, "step/copy", n, 20*ms, 0)
	copied.PartialCount, copied.PartialWallNS = 1, uint64(5*ms)
	held := b.Call(main, "step/copy", b.SymbolIn(1, "cuStreamSynchronize", 500), n, 4*ms, 10*time.Microsecond)
	held.GIL, held.Caller = recording.GILHeld, b.Frame(0, 0x1234, "")
	held.Samples = []recording.Sample{{Stack: 0, Count: 2, WallNS: uint64(8 * ms), ForCount: held.Count, ForWallNS: held.WallNS}}
	held.GILWaitCausedNS = n * uint64(3*ms)
	b.Call(main, "step", b.Symbol("cuMemcpyDtoHAsync_v2"), n, ms, ms/2).Bytes = 1 << 20
	b.Call(worker, "step", b.Symbol("cuLaunchKernel"), 10*n, 10*time.Microsecond, 9*time.Microsecond).Attribution = recording.AttributionAutograd
	b.Outside()
	b.Divide()
	b.Unroll(100)
	b.Debt(main, "step/copy", b.Symbol("cuStreamSynchronize"), "step", n, 3*ms*time.Duration(n), 40)
	b.Debt(main, "step/copy", b.Symbol("cuStreamSynchronize"), "step/copy", n, ms*time.Duration(n), 2)
	b.Loss("calls", "in_flight_at_end", 2, "the calls were still running when the window ended")
	r := b.Recording()
	r.PythonFunctions = []recording.PythonFunction{
		{ID: 0, Name: "Tensor.cpu", File: "/usr/lib/python3/dist-packages/tensor.py"},
		{ID: 1, Name: "copy", File: "/job/train.py"}, {ID: 2, Name: "main", File: "/job/train.py"},
	}
	r.PythonStacks = []recording.PythonStack{{ID: 0, Frames: []recording.PythonFrame{{Function: 0, Line: 5}, {Function: 1, Line: 17}, {Function: 2, Line: 60}}}}
	r.Seen = &recording.Seen{Calls: 12*n + 2}
	r.Warnings = []string{"a warning with <brackets> & ampersand"}
	r.GPUNote = "NVML is not installed"
	r.Overhead = recording.Overhead{CallCostNS: 1140, AddedNS: 40_000, AgentCPU: 20 * ms, AgentRSS: 40 << 20, Calibration: "median of 20 runs", Calibrated: true, ProbedSites: 3}
	return r
}

// recordings are those that a page must cope with.
func recordings() map[string]*recording.Recording {
	noSpans := recordingtest.Pipeline()
	noSpans.Spans = nil
	noParts := recordingtest.Pipeline()
	for i := range noParts.Stages {
		noParts.Stages[i].Parts, noParts.Stages[i].PartialParts = recording.Parts{}, recording.Parts{}
	}
	noPython := nested()
	noPython.Target.Python, noPython.PythonFunctions, noPython.PythonStacks = nil, nil, nil
	for i := range noPython.Calls {
		noPython.Calls[i].GIL, noPython.Calls[i].Samples = recording.GILNone, nil
	}
	process := recordingtest.New()
	process.Spans(-1, "epoch", 1, time.Second, 0)
	process.Call(process.Thread(1, "worker"), "epoch", process.Symbol("cuLaunchKernel"), 3, ms, ms).Attribution = recording.AttributionProcess
	onlyCalls := recordingtest.New()
	onlyCalls.Call(onlyCalls.Thread(1, "a"), "", onlyCalls.Symbol("cuLaunchKernel"), 3, ms, ms)
	return map[string]*recording.Recording{
		"pipeline": recordingtest.Pipeline(), "nested": nested(), "empty": recordingtest.New().Recording(),
		"zero": {Format: recording.FormatVersion}, "no spans": noSpans, "no parts": noParts, "no Python": noPython,
		"whole process": process.Recording(), "only calls": onlyCalls.Recording(), "many spans": manySpans(5000),
	}
}

// manySpans has n spans of four stages on two threads.
func manySpans(n int) *recording.Recording {
	b := recordingtest.New()
	each := uint64(n) / 8
	wall := 30 * time.Second / time.Duration(4*each)
	for thread := range 2 {
		id := b.Thread(4250+thread, "loop")
		for _, stage := range []string{"forward", "backward", "step", "wait"} {
			b.Spans(id, stage, each, wall, 0)
		}
	}
	b.Divide()
	b.Unroll(n)
	return b.Recording()
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// faster is 20 iterations of nested with half of the time that the copy was
// blocked.
func faster() *recording.Recording {
	r := nestedOf(20)
	for i := range r.Spans {
		s := &r.Spans[i]
		for j := range s.Calls {
			if r.Symbols[s.Calls[j].Symbol].Name == "cuStreamSynchronize" {
				gone := s.Parts.CUDABlockedNS / 2
				s.Parts.CUDABlockedNS -= gone
				s.WallNS -= gone
				s.Calls[j].BlockedNS = min(s.Calls[j].BlockedNS, s.Parts.CUDABlockedNS)
			}
		}
	}
	return r
}

func compared(t *testing.T, before, after *recording.Recording) []byte {
	t.Helper()
	c, err := correlate.Compare(
		[]correlate.Run{{Name: "before.rec", Ledger: correlate.Build(before)}},
		[]correlate.Run{{Name: "after.rec", Ledger: correlate.Build(after)}},
		correlate.CompareOptions{Alpha: 0.05})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := WriteComparison(&b, c); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestComparisonData(t *testing.T) {
	var data struct{ Comparison json.RawMessage }
	if err := json.Unmarshal(embedded(t, compared(t, nestedOf(20), faster())), &data); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, data.Comparison, "", " "); err != nil {
		t.Fatal(err)
	}
	golden(t, "comparison.json", append(b.Bytes(), '\n'))
}

// embedded returns the data in a page, as the browser would find it.
func embedded(t *testing.T, page []byte) []byte {
	t.Helper()
	_, rest, found := bytes.Cut(page, []byte(`<script type="application/json" id="data">`))
	data, _, ended := bytes.Cut(rest, []byte("</script>"))
	if !found || !ended {
		t.Fatal("the page has no data")
	}
	return data
}

func TestData(t *testing.T) {
	var b bytes.Buffer
	if err := json.Indent(&b, embedded(t, pageOf(t, nested())), "", " "); err != nil {
		t.Fatal(err)
	}
	golden(t, "nested.json", append(b.Bytes(), '\n'))
}

func TestPageIsDeterministic(t *testing.T) {
	for name, r := range recordings() {
		if !bytes.Equal(pageOf(t, r), pageOf(t, r)) {
			t.Errorf("%s: two pages differ", name)
		}
	}
}

// Names of the target can't end the script that holds them.
func TestDataStaysData(t *testing.T) {
	rng := rand.New(rand.NewPCG(25, 26))
	hostile := nested()
	hostile.Paths[0].Names = []string{`</script><script>alert(1)</script><!--`}
	hostile.Target.Cmdline = []string{"</title><script>"}
	for _, r := range []*recording.Recording{hostile, recordingtest.Random(rng), recordingtest.Random(rng)} {
		page := pageOf(t, r)
		if n := bytes.Count(page, []byte("<script")); n != 2 {
			t.Errorf("%d scripts begin", n)
		}
		if n := bytes.Count(page, []byte("</script")); n != 2 {
			t.Errorf("%d scripts end", n)
		}
		if data := embedded(t, page); !json.Valid(data) || bytes.ContainsAny(data, "<>&\u2028\u2029") {
			t.Error("the data are not safe inside a script")
		}
	}
}

// Nothing on the page names another place.
func TestPageNamesNoAddress(t *testing.T) {
	page := string(pageOf(t, recordingtest.New().Recording()))
	for _, address := range []string{"http:", "https:", "//www", "url(", "@import", " src="} {
		if strings.Contains(page, address) {
			t.Errorf("the page contains %q", address)
		}
	}
}

// Each part of a partition belongs to a segment of the bars, and its parts sum
// to the wall time.
func TestPartitionsAreWhole(t *testing.T) {
	for name, r := range recordings() {
		d := dataOf(correlate.Run{Ledger: correlate.Build(r)})
		check := func(what string, p *partsData) {
			if p == nil {
				return
			}
			var sum uint64
			for _, part := range p.Parts {
				sum += part[1]
			}
			if sum != p.Wall {
				t.Errorf("%s: parts of %s sum to %d of %d", name, what, sum, p.Wall)
			}
		}
		for _, s := range d.Stages {
			check(s.Path, s.Parts)
			check(s.Path, s.PartsWithin)
		}
		for _, th := range d.Threads {
			check(th.Name, th.Parts)
		}
		check("outside", d.Outside)
		for _, n := range d.PartNames {
			if n.Segment < 0 {
				t.Errorf("%s: part %q is in no segment", name, n.Name)
			}
		}
	}
}

// The lists of spans belong together.
func TestSpansAreWhole(t *testing.T) {
	r := recordingtest.Pipeline()
	d := dataOf(correlate.Run{Ledger: correlate.Build(r)})
	s := d.Spans
	if len(s.Wall) != len(r.Spans) || len(s.Begin) != len(s.Wall) || len(s.Stage) != len(s.Wall) || len(s.Thread) != len(s.Wall) {
		t.Fatalf("lists of %d, %d, %d, %d spans; the Recording has %d", len(s.Wall), len(s.Begin), len(s.Stage), len(s.Thread), len(r.Spans))
	}
	at := 0
	for i, wall := range s.Wall {
		var sum uint64
		for range s.Parts[at] {
			sum += s.Parts[at+2]
			at += 2
		}
		at++
		if sum != wall {
			t.Fatalf("span %d: parts sum to %d of %d", i, sum, wall)
		}
	}
	if at != len(s.Parts) {
		t.Errorf("%d of %d numbers are parts of spans", at, len(s.Parts))
	}
}

var errBroken = errors.New("no space left")

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestWriteReportsErrors(t *testing.T) {
	err := Write(brokenWriter{}, correlate.Run{Ledger: correlate.Build(nested())})
	if !errors.Is(err, errBroken) {
		t.Errorf("error = %v", err)
	}
}
