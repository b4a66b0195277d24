package correlate

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

// spanOf adds a complete span without children, half of what is not in calls
// running and half asleep on a futex, and keeps the sums of its stage true.
func spanOf(r *recording.Recording, thread, path int, wall time.Duration, calls ...recording.SpanCall) {
	s := recording.Span{Thread: thread, Path: path, WallNS: uint64(wall), Calls: calls}
	s.BeginNS = r.Window.StartNS + uint64(len(r.Spans))*uint64(time.Microsecond)
	rest := s.WallNS
	for _, c := range calls {
		s.Parts.CUDACPUNS += c.CPUNS
		s.Parts.CUDABlockedNS += c.BlockedNS
		rest -= c.CPUNS + c.BlockedNS
	}
	s.Parts.RunningNS, s.Parts.BlockedFutexNS = rest-rest/2, rest/2
	r.Spans = append(r.Spans, s)
	i := slices.IndexFunc(r.Stages, func(s recording.Stage) bool { return s.Thread == thread && s.Path == path })
	if i < 0 {
		i = len(r.Stages)
		r.Stages = append(r.Stages, recording.Stage{Thread: thread, Path: path})
	}
	row := &r.Stages[i]
	row.Count++
	row.WallNS += s.WallNS
	row.MaxNS = max(row.MaxNS, s.WallNS)
	addParts(&row.Parts, &s.Parts)
}

// training makes a Recording of two stages with n iterations each, of about the
// given length; forward makes two calls of 100 µs in each.
func training(seed uint64, n int, forward, step time.Duration) *recording.Recording {
	rng := rand.New(rand.NewPCG(seed, 1))
	b := recordingtest.New()
	th := b.Thread(1, "main")
	launch := b.Symbol("cuLaunchKernel")
	around := func(d time.Duration) time.Duration { return d + time.Duration(rng.Int64N(int64(d)/10)) - d/20 }
	for range n {
		spanOf(b.Recording(), th, b.Path("forward"), around(forward),
			recording.SpanCall{Symbol: launch, GIL: recording.GILFree, Count: 2, CPUNS: 150_000, BlockedNS: 50_000})
		spanOf(b.Recording(), th, b.Path("step"), around(step))
	}
	return b.Recording()
}

func run(name string, r *recording.Recording) Run { return Run{name, Build(r)} }

var options = CompareOptions{Alpha: 0.05}

func compare(t *testing.T, before, after []Run, o CompareOptions) *Comparison {
	t.Helper()
	c, err := Compare(before, after, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func change(t *testing.T, c *Comparison, path string, m Metric) Change {
	t.Helper()
	for i := range c.Stages {
		if c.Stages[i].Path.Joined == path {
			return c.Stages[i].Find(m)
		}
	}
	t.Fatalf("no stage %q", path)
	return Change{}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b), 1) }

func TestCompare(t *testing.T) {
	c := compare(t, []Run{run("a", training(1, 200, 10*ms, 5*ms))}, []Run{run("b", training(2, 200, 8*ms, 5*ms))}, options)
	if got := c.Stages[0].Path.Joined; got != "forward" {
		t.Errorf("the first stage is %q, want the one that changed", got)
	}
	forward := &c.Stages[0]
	wall := forward.Wall()
	if !wall.Significant || math.Abs(wall.Delta()+2e6) > 1e5 {
		t.Errorf("forward changed by %.0f ns (significant: %t), want about -2 ms", wall.Delta(), wall.Significant)
	}
	if want := 200 * wall.Delta(); !near(forward.ImpactNS, want) {
		t.Errorf("the impact is %v, want %v", forward.ImpactNS, want)
	}
	if step := change(t, c, "step", Metric{Kind: MetricWall}); step.Significant || !step.Tested {
		t.Errorf("step: p = %v is significant, want it tested and not", step.P)
	}
	for _, m := range []Metric{{MetricCUDA, "cuLaunchKernel"}, {Kind: MetricCUDA}} {
		if got := change(t, c, "forward", m); got.Before.Mean != 200_000 || got.After.Mean != 200_000 || got.Significant {
			t.Errorf("%s: %v → %v, want 200 µs twice", m, got.Before.Mean, got.After.Mean)
		}
	}
	if got := change(t, c, "forward", Metric{MetricCalls, "cuLaunchKernel"}); got.Before.Mean != 2 || got.Delta() != 0 {
		t.Errorf("calls: %v, changed by %v; want 2 and 0", got.Before.Mean, got.Delta())
	}
	if got := forward.Rate; !near(got.Before, 200.0/30) || !near(got.After, 200.0/30) {
		t.Errorf("rates %v, want 200 in 30 s", got)
	}
}

// The parts of a stage sum to its wall time on both sides, whatever is compared,
// and their changes to its change.
func TestComparedPartsSumToWall(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	pairs := [][2]*recording.Recording{{recordingtest.Pipeline(), recordingtest.Pipeline()}}
	for range 50 {
		pairs = append(pairs, [2]*recording.Recording{recordingtest.RandomRun(rng), recordingtest.RandomRun(rng)})
	}
	compared := 0
	for _, p := range pairs {
		c, err := Compare([]Run{run("a", p[0])}, []Run{run("b", p[1])}, options)
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.Stages {
			s := &c.Stages[i]
			var before, after float64
			parts := 0
			for _, change := range s.Changes {
				if change.Kind == MetricPart {
					before, after, parts = before+meanOr0(change.Before), after+meanOr0(change.After), parts+1
				}
			}
			if parts == 0 {
				continue
			}
			compared++
			wall := s.Wall()
			if s.Sides != AfterOnly && wall.Before.N > 0 && !near(before, wall.Before.Mean) ||
				s.Sides != BeforeOnly && wall.After.N > 0 && !near(after, wall.After.Mean) {
				t.Errorf("%s: parts sum to %v and %v, wall is %v and %v", s.Path.Joined, before, after, wall.Before, wall.After)
			}
		}
	}
	if compared == 0 {
		t.Error("no stage had parts")
	}
}

// What is compared does not depend on the order of the files of a side, nor on
// that of the spans in them.
func TestCompareIgnoresOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	list := func(first uint64, forward time.Duration) []*recording.Recording {
		var all []*recording.Recording
		for i := range uint64(3) {
			all = append(all, training(first+i, 30+int(i), forward, 5*ms))
		}
		return all
	}
	runs := func(list []*recording.Recording) (runs []Run) {
		for i, r := range list {
			runs = append(runs, run(fmt.Sprint(i), r))
		}
		return runs
	}
	before, after := list(1, 10*ms), list(10, 9*ms)
	want := compare(t, runs(before), runs(after), options).Stages
	for range 5 {
		for _, side := range [][]*recording.Recording{before, after} {
			rng.Shuffle(len(side), func(i, j int) { side[i], side[j] = side[j], side[i] })
			for _, r := range side {
				rng.Shuffle(len(r.Spans), func(i, j int) { r.Spans[i], r.Spans[j] = r.Spans[j], r.Spans[i] })
			}
		}
		got := compare(t, runs(before), runs(after), options).Stages
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b float64) bool { return near(a, b) })); diff != "" {
			t.Fatalf("another order gives another comparison (-want +got):\n%s", diff)
		}
	}
}

// Exchanged sides give opposite changes, as probable as before.
func TestCompareIsSymmetric(t *testing.T) {
	a, b := []Run{run("a", training(1, 100, 10*ms, 5*ms))}, []Run{run("b", training(2, 120, 8*ms, 5*ms))}
	there, back := compare(t, a, b, options), compare(t, b, a, options)
	for i := range there.Stages {
		s := &there.Stages[i]
		for _, c := range s.Changes {
			o := change(t, back, s.Path.Joined, c.Metric)
			if !near(c.Delta(), -o.Delta()) || !near(c.P, o.P) || c.Significant != o.Significant {
				t.Errorf("%s %s: %v (p %v) and back %v (p %v)", s.Path.Joined, c.Metric, c.Delta(), c.P, o.Delta(), o.P)
			}
		}
	}
}

func TestCompareWithItself(t *testing.T) {
	r := []Run{run("a", recordingtest.Pipeline())}
	c := compare(t, r, r, options)
	for i := range c.Stages {
		for _, change := range c.Stages[i].Changes {
			if change.Significant || change.Delta() != 0 {
				t.Errorf("%s %s changed by %v", c.Stages[i].Path.Joined, change.Metric, change.Delta())
			}
		}
	}
	if len(c.Warnings) > 0 {
		t.Errorf("warnings %q, want none", c.Warnings)
	}
}

// A difference that is clear in the iterations of two runs is none if runs of
// one side differ as much.
func TestRunsOfOneSideCount(t *testing.T) {
	one := compare(t, []Run{run("a", training(1, 100, 10*ms, ms))}, []Run{run("b", training(2, 100, 11*ms, ms))}, options)
	if !one.Stages[0].Wall().Significant {
		t.Error("the difference of single runs is not significant")
	}
	several := compare(t,
		[]Run{run("a", training(1, 100, 10*ms, ms)), run("b", training(2, 100, 12*ms, ms))},
		[]Run{run("c", training(3, 100, 11*ms, ms)), run("d", training(4, 100, 13*ms, ms))}, options)
	if w := change(t, several, "forward", Metric{Kind: MetricWall}); w.Significant {
		t.Errorf("p = %v is significant, although runs of one side differ more than the sides", w.P)
	}
}

func TestPValue(t *testing.T) {
	constant := func(n int, v float64) sample { return sample{slices.Repeat([]float64{v}, n)} }
	cases := map[string]struct {
		a, b   sample
		tested bool
		low    float64
		high   float64
	}{
		"nothing":           {sample{}, sample{{1, 2, 3}}, false, 1, 1},
		"one value":         {sample{{1}}, sample{{1, 2, 3}}, false, 1, 1},
		"the same":          {constant(20, 3), constant(20, 3), true, 1, 1},
		"always one more":   {constant(20, 3), constant(20, 4), true, 0, 1e-6},
		"few, one more":     {constant(3, 3), constant(3, 4), true, 0.05, 0.2},
		"few and apart":     {sample{{1, 2, 1.5}}, sample{{101, 102, 101.5}}, true, 0.05, 0.2},
		"many and apart":    {sample{{1, 2, 1, 2, 1, 2, 1, 2, 1, 2}}, sample{{7, 8, 7, 8, 7, 8, 7, 8, 7, 8}}, true, 0, 1e-6},
		"one stray":         {constant(20, 3), sample{append(slices.Repeat([]float64{3}, 19), 1000)}, true, 0.1, 1},
		"runs always alike": {sample{{3, 3}, {3, 3}}, sample{{4, 4}, {4, 4}}, true, 0, 0.05},
		"runs differ alike": {sample{{1, 1, 2}, {9, 9, 8}}, sample{{1, 2, 2}, {9, 8, 8}}, true, 0.5, 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p, tested := pValue(c.a, c.b)
			if tested != c.tested || p < c.low || p > c.high {
				t.Errorf("p = %v, tested: %t; want within [%v, %v], %t", p, tested, c.low, c.high, c.tested)
			}
		})
	}
}

func TestCompareStagesOfOneSide(t *testing.T) {
	a, b := training(1, 20, ms, ms), training(2, 20, ms, ms)
	th := b.Threads[0].ID
	b.Paths = append(b.Paths, recording.StagePath{ID: len(b.Paths), Names: []string{"post"}})
	for range 10 {
		spanOf(b, th, len(b.Paths)-1, 40*ms)
	}
	c := compare(t, []Run{run("a", a)}, []Run{run("b", b)}, options)
	if s := &c.Stages[0]; s.Path.Joined != "post" || s.Sides != AfterOnly || s.ImpactNS != 10*40e6 || s.Wall().Tested {
		t.Errorf("first is %q on side %q with impact %v (tested: %t), want post after with 400 ms", s.Path.Joined, s.Sides, s.ImpactNS, s.Wall().Tested)
	}
	c = compare(t, []Run{run("b", b)}, []Run{run("a", a)}, options)
	if s := &c.Stages[0]; s.Path.Joined != "post" || s.Sides != BeforeOnly || s.ImpactNS != -10*40e6 {
		t.Errorf("first is %q on side %q with impact %v, want post before with -400 ms", s.Path.Joined, s.Sides, s.ImpactNS)
	}
}

// What other threads did for a stage has a sum and no test.
func TestCompareAdopted(t *testing.T) {
	make := func(calls uint64) *recording.Recording {
		b := recordingtest.New()
		th, worker := b.Thread(1, "main"), b.Thread(2, "pt_autograd_0")
		for range 10 {
			spanOf(b.Recording(), th, b.Path("backward"), 10*ms)
		}
		b.Call(worker, "backward", b.Symbol("cuLaunchKernel"), calls, 10*us, us).Attribution = recording.AttributionAutograd
		return b.Recording()
	}
	c := compare(t, []Run{run("a", make(1000))}, []Run{run("b", make(1500))}, options)
	got := change(t, c, "backward", Metric{MetricAdopted, string(recording.AttributionAutograd)})
	if text := got.Metric.String(); text != "adopted: autograd" {
		t.Errorf("it is called %q", text)
	}
	if got.Before == nil || got.Before.Mean != 1e6 || got.After.Mean != 1.5e6 || got.Tested {
		t.Errorf("adopted: %v → %v, want 1 ms → 1.5 ms per iteration, not tested", got.Before, got.After)
	}
}

func TestCompareRefuses(t *testing.T) {
	good := run("good", training(1, 5, ms, ms))
	other := recordingtest.New()
	spanOf(other.Recording(), other.Thread(1, "x"), other.Path("elsewhere"), ms)
	cases := map[string]struct {
		before, after Run
		want          string
	}{
		"empty before":      {run("none", recordingtest.New().Recording()), good, `"none" has no complete span`},
		"empty after":       {good, run("none", recordingtest.New().Recording()), `"none" has no complete span`},
		"nothing in common": {good, run("other", other.Recording()), "no stage ran on both sides"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Compare([]Run{c.before}, []Run{c.after}, options)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want one about %q", err, c.want)
			}
		})
	}
	if _, err := Compare([]Run{good}, []Run{run("other", other.Recording())}, options); !errors.Is(err, ErrNothingInCommon) {
		t.Errorf("got error %v, want ErrNothingInCommon", err)
	}
}

func TestCompareRefusesToSkipAll(t *testing.T) {
	good := run("good", training(1, 5, ms, ms))
	o := options
	o.Skip = Skip{First: 5}
	if _, err := Compare([]Run{good}, []Run{good}, o); err == nil || !strings.Contains(err.Error(), `"good" has no iteration left`) {
		t.Errorf("got error %v, want one about what is left", err)
	}
}

func TestCompareWarns(t *testing.T) {
	changed := func(change func(*recording.Recording)) *recording.Recording {
		r := training(2, 20, ms, ms)
		change(r)
		return r
	}
	cases := map[string]struct {
		after *recording.Recording
		want  string // "" for none
	}{
		"the same":           {training(2, 20, ms, ms), ""},
		"other arguments":    {changed(func(r *recording.Recording) { r.Target.Cmdline[2] = "--fast" }), ""},
		"another script":     {changed(func(r *recording.Recording) { r.Target.Cmdline[1] = "eval.py" }), "different programs"},
		"no Python":          {changed(func(r *recording.Recording) { r.Target.Python, r.Target.Exe = nil, "/bin/train" }), "different programs"},
		"fewer functions":    {changed(func(r *recording.Recording) { r.Symbols[0].Name, r.Symbols[0].API = "cuMemMap", "cuMemMap" }), "different driver functions"},
		"no single spans":    {changed(func(r *recording.Recording) { r.Spans = nil }), "no single spans"},
		"function absent":    {changed(func(r *recording.Recording) { r.Symbols[0].Name = "cuNew"; r.Absent = []string{"cuLaunchKernel"} }), "different driver functions (cuNew)"},
		"module, not script": {changed(func(r *recording.Recording) { r.Target.Cmdline = []string{"python3", "-m", "train.py"} }), ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(compare(t, []Run{run("a", training(1, 20, ms, ms))}, []Run{run("b", c.after)}, options).Warnings, "\n")
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("warnings %q, want %q", got, c.want)
			}
		})
	}
}

func TestCompareSkips(t *testing.T) {
	slow := training(1, 40, ms, ms)
	for i := range 6 {
		slow.Spans[i].WallNS *= 50 // three of each stage
		slow.Spans[i].Parts.RunningNS += slow.Spans[i].WallNS / 50 * 49
		slow.Stages[i%2].WallNS += slow.Spans[i].WallNS / 50 * 49
	}
	for name, skip := range map[string]Skip{"first": {First: 3}, "warm-up": {Warmup: true}, "both": {First: 1, Warmup: true}} {
		o := options
		o.Skip = skip
		wall := compare(t, []Run{run("a", slow)}, []Run{run("b", training(1, 40, ms, ms))}, o).Stages[0].Wall()
		if wall.Before.N != 37 || wall.Significant {
			t.Errorf("%s: %d iterations before, p = %v; want 37 and nothing significant", name, wall.Before.N, wall.P)
		}
	}
}

func TestProgram(t *testing.T) {
	python := &recording.Python{}
	cases := map[string]struct {
		target recording.Target
		want   string
	}{
		"native":      {recording.Target{Exe: "/opt/bin/train", Cmdline: []string{"./train", "x.yaml"}}, "train"},
		"script":      {recording.Target{Exe: "/usr/bin/python3.11", Python: python, Cmdline: []string{"python3", "-u", "dir/train.py", "-m", "x"}}, "train.py"},
		"module":      {recording.Target{Exe: "/usr/bin/python3.11", Python: python, Cmdline: []string{"python3", "-m", "pkg.train"}}, "pkg.train"},
		"embedded":    {recording.Target{Exe: "/opt/app", Python: python, Cmdline: []string{"app"}}, "app"},
		"with option": {recording.Target{Exe: "/usr/bin/python3", Python: python, Cmdline: []string{"python3", "-X", "dev", "a.py"}}, "python3"},
		"no exe":      {recording.Target{Cmdline: []string{"/x/train"}}, "train"},
	}
	for name, c := range cases {
		if got := Program(&c.target); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
