package correlate

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

func TestSplit(t *testing.T) {
	for _, tc := range []struct {
		name    string
		total   uint64
		weights [][]uint64
		want    []uint64
	}{
		{"even", 10, [][]uint64{{1, 1}}, []uint64{5, 5}},
		{"largest remainder", 10, [][]uint64{{2, 3, 2}}, []uint64{3, 4, 3}},
		{"first of equal remainders", 1, [][]uint64{{1, 1, 1}}, []uint64{1, 0, 0}},
		{"nothing", 0, [][]uint64{{3, 4}}, []uint64{0, 0}},
		{"next weights", 7, [][]uint64{{0, 0}, {0, 5}}, []uint64{0, 7}},
		{"no weights", 7, [][]uint64{{0, 0}, {0, 0}}, []uint64{4, 3}},
		{"large", math.MaxUint64, [][]uint64{{math.MaxUint64, math.MaxUint64}}, []uint64{1 << 63, 1<<63 - 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, split(tc.total, tc.weights...)); diff != "" {
				t.Errorf("-want +got: %s", diff)
			}
		})
	}
}

// Whatever the samples say, the parts sum to the total.
func TestDividedTotalsSumUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	number := func() uint64 { return rng.Uint64() >> rng.IntN(64) }
	for range 5000 {
		total := Total{Count: max(number(), 1), Errors: number(), Bytes: number(), WallNS: number(), GILWaitCausedNS: number()}
		total.CPUNS = total.WallNS >> rng.IntN(64)
		var samples []recording.Sample
		for i := range rng.IntN(6) {
			samples = append(samples, recording.Sample{
				Stack: i, Count: number(), WallNS: number(), CPUNS: number(),
				ForCount: number(), ForWallNS: number(), ForCPUNS: number(),
				GILWaitCausedNS: number(), ForGILWaitCausedNS: number(),
			})
		}
		var sum Stack
		for _, part := range divideTotal(&total, samples, float64(rng.IntN(1000))) {
			if part.Count == 0 || part.CPUNS > part.WallNS {
				t.Fatalf("a part %+v of %+v", part, total)
			}
			sum.Count += part.Count
			sum.Errors += part.Errors
			sum.Bytes += part.Bytes
			sum.WallNS += part.WallNS
			sum.CPUNS += part.CPUNS
			sum.GILWaitCausedNS += part.GILWaitCausedNS
		}
		want := Stack{
			Count: total.Count, Errors: total.Errors, Bytes: total.Bytes, WallNS: total.WallNS, CPUNS: total.CPUNS,
			GILWaitCausedNS: total.GILWaitCausedNS,
		}
		if sum != want {
			t.Fatalf("the parts sum to %+v, the total is %+v", sum, total)
		}
	}
}

// What was seen of a stack is its own; only the rest is divided by estimate.
func TestDivideKeepsWhatWasSeen(t *testing.T) {
	total := Total{Count: 1000, WallNS: 31_000_000, CPUNS: 2_000_000}
	got := divideTotal(&total, []recording.Sample{
		{Stack: 0, Count: 3, WallNS: 30_000_000, CPUNS: 1_000_000, ForCount: 3, ForWallNS: 30_000_000, ForCPUNS: 1_000_000},
		{Stack: 1, Count: 2, WallNS: 2_000, CPUNS: 2_000, ForCount: 512, ForWallNS: 512_000, ForCPUNS: 512_000},
		{Stack: 2, Count: 1, WallNS: 1_000, CPUNS: 1_000, ForCount: 256, ForWallNS: 256_000, ForCPUNS: 256_000},
	}, 0)
	want := []Stack{
		{Stack: 1, Samples: 2, Count: 665, WallNS: 666_667, CPUNS: 666_667},
		{Stack: 0, Samples: 3, Count: 3, WallNS: 30_000_000, CPUNS: 1_000_000},
		{Stack: 2, Samples: 1, Count: 332, WallNS: 333_333, CPUNS: 333_333},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got: %s", diff)
	}
}

// Samples chosen as the kernel side does estimate without bias: over many
// recordings the mean is the truth.
func TestDivideIsUnbiased(t *testing.T) {
	const calls, recordings = 2000, 400
	rng := rand.New(rand.NewPCG(3, 4))
	var mean float64
	for range recordings {
		total := Total{}
		samples := []recording.Sample{{Stack: 0}, {Stack: 1}}
		for i := range calls {
			stack := &samples[0]
			if rng.IntN(4) == 0 { // a quarter of the calls, at random
				stack = &samples[1]
			}
			total.Count++
			weight := uint64(1) << min(max(digits(i)-6, 0), 8)
			if rng.Uint64N(weight) == 0 {
				stack.Count++
				stack.ForCount += weight
			}
		}
		for _, part := range divideTotal(&total, samples, 0) {
			if part.Stack == 1 {
				mean += float64(part.Count) / recordings
			}
		}
	}
	if math.Abs(mean-calls/4) > calls/100 {
		t.Errorf("a quarter of %d calls is estimated to be %.1f", calls, mean)
	}
}

func digits(n int) (b int) {
	for ; n > 0; n >>= 1 {
		b++
	}
	return b
}

// pythonRecording has calls from a helper in an installed package that two lines
// of the program use, and one row that was not sampled.
func pythonRecording() *recording.Recording {
	b := recordingtest.New()
	thread := b.Thread(4300, "main")
	r := b.Recording()
	r.PythonFunctions = []recording.PythonFunction{
		{ID: 0, Name: "copy", File: "/opt/venv/lib/python3.11/site-packages/helper.py", FirstLine: 3},
		{ID: 1, Name: "Loop.run", File: "/job/train.py", FirstLine: 10},
	}
	r.PythonStacks = []recording.PythonStack{
		{ID: 0, Frames: []recording.PythonFrame{{Function: 0, Line: 5}, {Function: 1, Line: 20}}},
		{ID: 1, Frames: []recording.PythonFrame{{Function: 0, Line: 5}, {Function: 1, Line: 30}}},
		{ID: 2, Frames: []recording.PythonFrame{}},
	}
	c := b.Call(thread, "s", b.Symbol("cuMemcpyDtoHAsync_v2"), 100, time.Microsecond, time.Microsecond)
	c.Samples = []recording.Sample{
		{Stack: 0, Count: 3, WallNS: 3000, CPUNS: 3000, ForCount: 75, ForWallNS: 75_000, ForCPUNS: 75_000},
		{Stack: 1, Count: 1, WallNS: 1000, CPUNS: 1000, ForCount: 25, ForWallNS: 25_000, ForCPUNS: 25_000},
	}
	held := b.Call(thread, "s", b.Symbol("cuStreamSynchronize"), 2, time.Millisecond, 0)
	held.GIL = recording.GILHeld
	held.Samples = []recording.Sample{{Stack: 2, Count: 2, WallNS: 2_000_000, ForCount: 2, ForWallNS: 2_000_000}}
	b.Call(thread, "s", b.Symbol("cuEventRecord"), 1, time.Microsecond, 0)
	return r
}

func TestPythonLines(t *testing.T) {
	type line struct {
		Function, Line int
		Count, Wall    uint64
		Samples        uint64
		Stack, Depth   int
	}
	var got []line
	for _, l := range Build(pythonRecording()).PythonLines() {
		got = append(got, line{l.Frame.Function, l.Frame.Line, l.Count, l.WallNS, l.Samples, l.Stack, l.Depth})
	}
	want := []line{
		{-1, 0, 3, 2_001_000, 2, 2, 0},
		{1, 20, 75, 75_000, 3, 0, 1},
		{1, 30, 25, 25_000, 1, 1, 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got: %s", diff)
	}
}

func TestNoSamplesNoLines(t *testing.T) {
	r := pythonRecording()
	for i := range r.Calls {
		r.Calls[i].Samples = nil
	}
	l := Build(r)
	if lines := l.PythonLines(); lines != nil {
		t.Errorf("%d lines without a sample", len(lines))
	}
	for _, c := range l.Calls {
		if c.Stacks() != nil {
			t.Errorf("%s has stacks without a sample", c.Symbol)
		}
	}
}

// The interval between two snapshots has the samples of the interval.
func TestSinceSubtractsSamples(t *testing.T) {
	earlier, later := pythonRecording(), pythonRecording()
	later.Window.Duration *= 2
	// The later one met the stacks in another order.
	later.PythonStacks[0].Frames, later.PythonStacks[1].Frames = later.PythonStacks[1].Frames, later.PythonStacks[0].Frames
	c := &later.Calls[0]
	c.Count, c.WallNS, c.CPUNS, c.Hist[recordingtest.Bucket(time.Microsecond)] = 150, 150_000, 150_000, 150
	c.Samples = []recording.Sample{
		{Stack: 1, Count: 4, WallNS: 4000, CPUNS: 4000, ForCount: 100, ForWallNS: 100_000, ForCPUNS: 100_000},
		{Stack: 0, Count: 1, WallNS: 1000, CPUNS: 1000, ForCount: 25, ForWallNS: 25_000, ForCPUNS: 25_000},
	}
	got, err := Since(earlier, later)
	if err != nil {
		t.Fatal(err)
	}
	want := []recording.Sample{{Stack: 1, Count: 1, WallNS: 1000, CPUNS: 1000, ForCount: 25, ForWallNS: 25_000, ForCPUNS: 25_000}}
	if len(got.Calls) != 1 || got.Calls[0].Count != 50 {
		t.Fatalf("calls %+v", got.Calls)
	}
	if diff := cmp.Diff(want, got.Calls[0].Samples); diff != "" {
		t.Errorf("-want +got: %s", diff)
	}
	if len(later.Calls[0].Samples) != 2 || later.Calls[0].Samples[0].Count != 4 {
		t.Error("the later snapshot was changed")
	}
}
