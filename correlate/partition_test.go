package correlate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

// named are the parts of a partition by name.
func named(p *Partition) map[string]uint64 {
	if p == nil {
		return nil
	}
	parts := map[string]uint64{}
	for _, part := range p.Parts {
		parts[part.String()] += part.NS
	}
	return parts
}

// oneStage has one thread that was for 100 ms in a stage, most of it in calls.
func oneStage() (*recordingtest.Builder, *recording.Stage) {
	b := recordingtest.New()
	th := b.Thread(1, "MainThread")
	b.Call(th, "step", b.SymbolIn(1, "cuLaunchKernel", 500), 1000, 10*us, 8*us)
	b.Call(th, "step", b.SymbolIn(1, "cuLaunchKernel_ptsz", 500), 100, 10*us, 8*us)
	b.Call(th, "step", b.SymbolIn(1, "cuStreamSynchronize", 500), 2, 20*ms, ms).GIL = recording.GILHeld
	s := b.Spans(th, "step", 2, 50*ms, 0)
	s.Parts = recording.Parts{
		CUDACPUNS: 11_000_000, CUDABlockedNS: 40_300_000, GILWaitNS: 5_000_000, RunnableNS: 1_000_000,
		BlockedFutexNS: 2_000_000, BlockedPollNS: 3_000_000, BlockedReadNS: 4_000_000, BlockedSleepNS: 500_000,
		BlockedFaultNS: 600_000, BlockedOtherNS: 700_000, RunningNS: 31_900_000,
	}
	return b, s
}

func TestParts(t *testing.T) {
	b, _ := oneStage()
	s := stage(Build(b.Recording()), "step")
	want := map[string]uint64{
		"cuda cpu: cuLaunchKernel [gil free]":          1100*8_000 - 1100*500,
		"cuda cpu: cuStreamSynchronize [gil held]":     2*1_000_000 - 2*500,
		"cuda cpu: other":                              11_000_000 - 1100*8_000 - 2_000_000,
		"cuda blocked: cuLaunchKernel [gil free]":      1100 * 2_000,
		"cuda blocked: cuStreamSynchronize [gil held]": 2 * 19_000_000,
		"cuda blocked: other":                          40_300_000 - 1100*2_000 - 38_000_000,
		"stageprof":                                    1102 * 500,
		"gil wait":                                     5_000_000,
		"runnable":                                     1_000_000,
		"blocked: futex":                               2_000_000,
		"blocked: poll":                                3_000_000,
		"blocked: read":                                4_000_000,
		"blocked: sleep":                               500_000,
		"blocked: page fault":                          600_000,
		"blocked: other":                               700_000,
		"running":                                      31_900_000,
	}
	if diff := cmp.Diff(want, named(s.Parts)); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
	checkPartition(t, "step", s.Parts, uint64(100*ms))
	if diff := cmp.Diff(s.Parts, s.PartsWithin); diff != "" {
		t.Errorf("a stage without others inside has other parts with them (-own +within):\n%s", diff)
	}
	if diff := cmp.Diff(s.Parts, s.Threads[0].Parts); diff != "" {
		t.Errorf("its only thread has other parts (-stage +thread):\n%s", diff)
	}
	if got := s.Parts.Of(PartCUDACPU); got != 11_000_000-1102*500 {
		t.Errorf("cuda cpu = %d", got)
	}
}

// Wall times that the parts of a Recording do not explain.
func TestPartsThatDoNotFit(t *testing.T) {
	tests := []struct {
		name   string
		change func(r *recording.Recording, s *recording.Stage)
		want   map[string]uint64 // nil: no parts
	}{
		{"none", func(_ *recording.Recording, s *recording.Stage) { s.Parts = recording.Parts{} }, nil},
		{"too few", func(r *recording.Recording, s *recording.Stage) {
			r.Calls, s.Parts = nil, recording.Parts{RunningNS: 99_000_000}
		}, map[string]uint64{"running": 99_000_000, "unknown": 1_000_000}},
		{"too many", func(_ *recording.Recording, s *recording.Stage) { s.Parts.RunningNS++ }, nil},
		{"too many to add up", func(_ *recording.Recording, s *recording.Stage) {
			s.Parts.RunningNS, s.Parts.GILWaitNS = math.MaxUint64, math.MaxUint64
		}, nil},
		{"calls longer than driver time", func(_ *recording.Recording, s *recording.Stage) {
			s.Parts = recording.Parts{CUDACPUNS: 10_000_000, CUDABlockedNS: 2_300_000, RunningNS: 87_700_000}
		}, map[string]uint64{
			"cuda cpu: cuLaunchKernel [gil free]": 8_250_000, "cuda cpu: cuStreamSynchronize [gil held]": 1_200_000,
			"stageprof": 550_000,
			"cuda blocked: cuLaunchKernel [gil free]": 2_200_000, "cuda blocked: cuStreamSynchronize [gil held]": 100_000,
			"running": 87_700_000,
		}},
		{"all driver time unexplained", func(r *recording.Recording, s *recording.Stage) {
			r.Calls, s.Parts = nil, recording.Parts{CUDACPUNS: 60_000_000, CUDABlockedNS: 40_000_000}
		}, map[string]uint64{"cuda cpu: other": 60_000_000, "cuda blocked: other": 40_000_000}},
		{"partial spans without", func(_ *recording.Recording, s *recording.Stage) {
			s.Parts = recording.Parts{RunningNS: 100_000_000}
			s.PartialCount, s.PartialWallNS = 1, 7
		}, map[string]uint64{"running": 100_000_000, "unknown": 7}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, s := oneStage()
			tt.change(b.Recording(), s)
			got := stage(Build(b.Recording()), "step").Parts
			if diff := cmp.Diff(tt.want, named(got)); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
		})
	}
}

// Complete and partial spans are divided together, and apart as measured.
func TestPartsOfPartialSpans(t *testing.T) {
	b := recordingtest.New()
	s := b.Spans(b.Thread(1, "t"), "step", 2, 50*ms, 0)
	s.Parts = recording.Parts{RunningNS: uint64(100 * ms)}
	s.PartialCount, s.PartialWallNS, s.PartialParts = 1, uint64(7*ms), recording.Parts{RunnableNS: uint64(7 * ms)}
	got := stage(Build(b.Recording()), "step")
	if diff := cmp.Diff(map[string]uint64{"running": 100_000_000, "runnable": 7_000_000}, named(got.Parts)); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
	if got.Spans.Parts != s.Parts || got.Spans.Partial.Parts != s.PartialParts {
		t.Errorf("apart: %+v and %+v", got.Spans.Parts, got.Spans.Partial.Parts)
	}
}

func TestPartsWithin(t *testing.T) {
	running := func(d time.Duration) recording.Parts { return recording.Parts{RunningNS: uint64(d)} }
	tests := []struct {
		name  string
		child time.Duration // of the parent's time; its child was 30 ms in futex
		want  map[string]uint64
	}{
		{"whole", 30 * ms, map[string]uint64{"running": 70_000_000, "blocked: futex": 30_000_000}},
		{"children lost", 40 * ms, map[string]uint64{"running": 60_000_000, "blocked: futex": 30_000_000, "child stages": 10_000_000}},
		{"parents lost", 20 * ms, map[string]uint64{"running": 80_000_000, "child stages": 20_000_000}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := recordingtest.New()
			th := b.Thread(1, "t")
			b.Spans(th, "step", 1, 100*ms, tt.child).Parts = running(100*ms - tt.child)
			// No span of the stage between them was seen.
			b.Spans(th, "step/middle/leaf", 1, 30*ms, 0).Parts = recording.Parts{BlockedFutexNS: uint64(30 * ms)}
			l := Build(b.Recording())
			s := stage(l, "step")
			if diff := cmp.Diff(tt.want, named(s.PartsWithin)); diff != "" {
				t.Errorf("parts within (-want +got):\n%s", diff)
			}
			checkPartition(t, "step", s.PartsWithin, uint64(100*ms))
			if m := stage(l, "step/middle"); m.Parts != nil || m.PartsWithin != nil {
				t.Errorf("the stage that was not seen has parts %v and %v", m.Parts, m.PartsWithin)
			}
		})
	}
}

// What an autograd thread does for a stage is part of its own time, not of
// that of the stage.
func TestPartsOfAdoptedCalls(t *testing.T) {
	b := recordingtest.New()
	main, worker := b.Thread(1, "MainThread"), b.Thread(2, "pt_autograd_0")
	launch := b.Symbol("cuLaunchKernel")
	b.Spans(main, "backward", 1, 100*ms, 0).Parts = recording.Parts{BlockedFutexNS: uint64(100 * ms)}
	b.Call(worker, "backward", launch, 10, ms, ms).Attribution = recording.AttributionAutograd
	b.Call(worker, "", launch, 5, ms, ms).GIL = recording.GILHeld
	outside := recording.Stage{Thread: worker, Path: b.Path(""), WallNS: uint64(30 * sec)}
	outside.Parts = recording.Parts{CUDACPUNS: uint64(15 * ms), BlockedFutexNS: uint64(30*sec - 15*ms)}
	b.Recording().Stages = append(b.Recording().Stages, outside)

	l := Build(b.Recording())
	if diff := cmp.Diff(map[string]uint64{"blocked: futex": 100_000_000}, named(stage(l, "backward").Parts)); diff != "" {
		t.Errorf("parts of the stage (-want +got):\n%s", diff)
	}
	th := &l.Threads[1]
	want := map[string]uint64{
		"cuda cpu: cuLaunchKernel [gil free]": 10_000_000, "cuda cpu: cuLaunchKernel [gil held]": 5_000_000,
		"blocked: futex": 29_985_000_000,
	}
	if diff := cmp.Diff(want, named(th.PartsOutside)); diff != "" {
		t.Errorf("parts of the thread (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(th.PartsOutside, th.Parts); diff != "" {
		t.Errorf("the thread was in no stage, but (-outside +all):\n%s", diff)
	}
	if th.Role() != RoleAutograd || l.Threads[0].Role() != RoleNone {
		t.Errorf("roles %q and %q", l.Threads[0].Role(), th.Role())
	}
}

// The calls of Python functions are part of the time of the stage around them,
// or of that outside any; they have no time of their own.
func TestPartsAroundPythonFunctions(t *testing.T) {
	b, _ := oneStage()
	calls := b.Recording().Calls
	function, outside := b.Path("step/Model.forward()"), b.Path("warm_up()")
	b.Recording().Paths[function].PythonFunction, b.Recording().Paths[outside].PythonFunction = true, true
	calls[0].Path = function
	l := Build(b.Recording())
	plain, _ := oneStage()
	want, got := stage(Build(plain.Recording()), "step"), stage(l, "step")
	if diff := cmp.Diff(named(want.Parts), named(got.Parts)); diff != "" {
		t.Error(diff)
	}
	if got.Within.Count != want.Within.Count || got.Own.Count != want.Own.Count-1000 {
		t.Errorf("%d of %d calls are the stage's own", got.Own.Count, got.Within.Count)
	}
	if f := stage(l, "step/Model.forward()"); !f.Python || f.Spans != nil || f.Parts != nil || f.Own.Count != 1000 {
		t.Errorf("%+v", f)
	}
}

func TestPartsOfImpossibleTimes(t *testing.T) {
	b := recordingtest.New()
	th := b.Thread(1, "t")
	b.Recording().Stages = []recording.Stage{{Thread: th, Path: b.Path(""), WallNS: uint64(time.Hour), Parts: recording.Parts{RunningNS: uint64(time.Hour)}}}
	l := Build(b.Recording())
	if l.Threads[0].PartsOutside != nil || len(l.Losses) != 1 || l.Losses[0].Reason != ImpossibleDuration {
		t.Errorf("an hour in a window of 30 s gives %+v, losses %+v", l.Threads[0].PartsOutside, l.Losses)
	}
	b.Recording().Threads[th].Folded = true // then it is the time of many
	l = Build(b.Recording())
	if parts := l.Threads[0].PartsOutside; parts == nil || parts.WallNS != uint64(time.Hour) || len(l.Losses) != 0 {
		t.Errorf("an hour of many threads gives %+v, losses %+v", parts, l.Losses)
	}
}

func TestRoles(t *testing.T) {
	for name, want := range map[string]Role{
		"pt_autograd_1": RoleAutograd, "pt_nccl_watchdg": RoleWatchdog, "pt_data_pin": RolePinMemory,
		"MainThread": RoleNone, "": RoleNone, "my_pt_autograd_0": RoleNone,
	} {
		if got := (&Thread{Name: name}).Role(); got != want {
			t.Errorf("the role of %q is %q, want %q", name, got, want)
		}
	}
}

// checkPartition checks what holds of every partition.
func checkPartition(t *testing.T, of string, p *Partition, wall uint64) {
	t.Helper()
	if p == nil {
		t.Errorf("%s has no parts", of)
		return
	}
	var sum uint64
	for _, part := range p.Parts {
		sum += part.NS
		if part.NS == 0 {
			t.Errorf("%s has the part %s of 0", of, part)
		}
	}
	if sum != p.WallNS || p.WallNS != wall {
		t.Errorf("the parts of %s sum to %d, its partition is of %d, its wall time is %d", of, sum, p.WallNS, wall)
	}
}

// measured sums what a Recording says of a thread's kinds of part.
func measured(p *Partition) (cuda, blocked uint64) {
	return p.Of(PartCUDACPU) + p.Of(PartProbes), p.Of(PartCUDABlocked)
}

// randomLedger is a Recording in which everything fits together.
func randomLedger(rng *rand.Rand) *recording.Recording {
	b := recordingtest.New()
	symbols := []int{b.SymbolIn(1, "cuLaunchKernel", 612.5), b.SymbolIn(1, "cuLaunchKernel_ptsz", 0.3), b.SymbolIn(1, "cuStreamSynchronize", 1e4)}
	upTo := func(d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d) + 1)) }
	for i := range 1 + rng.IntN(4) {
		th := b.Thread(100+i/2, []string{"a", "b"}[i%2])
		for j := range 1 + rng.IntN(3) {
			// A stage with a chain of others inside, each shorter.
			path := fmt.Sprintf("stage%d", j)
			count := 1 + rng.Uint64N(40)
			wall, cut := upTo(30*ms), rng.IntN(2) == 0
			for depth := rng.IntN(4); ; depth-- {
				child := time.Duration(0)
				if depth > 0 {
					child = upTo(wall)
				}
				s := b.Spans(th, path, count, wall, child)
				if cut {
					s.PartialCount, s.PartialWallNS, s.PartialChildNS = 1, uint64(wall), uint64(child)
				}
				for _, symbol := range symbols {
					if d := upTo((wall - child) / 4); rng.IntN(3) > 0 {
						c := b.Call(th, path, symbol, count, d, upTo(d))
						c.GIL = GILStates[rng.IntN(len(GILStates))]
					}
				}
				if depth == 0 {
					break
				}
				path, wall = path+"/in", child
			}
		}
	}
	b.Outside()
	b.Divide()
	b.Unroll(30)
	return b.Recording()
}

func TestPartsSumToTheWall(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	for range 200 {
		r := randomLedger(rng)
		l := Build(r)
		checkAllPartitions(t, l)
		var want, got recording.Parts
		for i := range r.Stages {
			addParts(&want, &r.Stages[i].Parts)
			addParts(&want, &r.Stages[i].PartialParts)
		}
		for i := range l.Stages {
			got.CUDACPUNS, got.CUDABlockedNS = addMeasured(got, l.Stages[i].Parts)
		}
		for i := range l.Threads {
			got.CUDACPUNS, got.CUDABlockedNS = addMeasured(got, l.Threads[i].PartsOutside)
			checkPartition(t, "thread", l.Threads[i].Parts, uint64(30*sec)*uint64(l.Threads[i].Incarnations))
		}
		if got.CUDACPUNS != want.CUDACPUNS || got.CUDABlockedNS != want.CUDABlockedNS {
			t.Errorf("driver time %d on CPU, %d blocked; recorded %d, %d", got.CUDACPUNS, got.CUDABlockedNS, want.CUDACPUNS, want.CUDABlockedNS)
		}
		for i := range l.Stages {
			if s := &l.Stages[i]; s.Parts != nil && s.Parts.Of(PartUnknown)+s.PartsWithin.Of(PartUnknown)+s.PartsWithin.Of(PartChildren) != 0 {
				t.Errorf("%s has parts that are not known: %v", s.Path.Joined, named(s.PartsWithin))
			}
		}
	}
}

func addMeasured(to recording.Parts, p *Partition) (cuda, blocked uint64) {
	if p == nil {
		return to.CUDACPUNS, to.CUDABlockedNS
	}
	cuda, blocked = measured(p)
	return to.CUDACPUNS + cuda, to.CUDABlockedNS + blocked
}

// Also in Recordings that make no sense.
func TestPartsOfAnything(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 24))
	for range 300 {
		r := recordingtest.Random(rng)
		if rng.IntN(2) == 0 {
			r.Window.Duration = 0 // every duration may be true
		}
		checkAllPartitions(t, Build(r))
	}
}

func checkAllPartitions(t *testing.T, l *Ledger) {
	t.Helper()
	for i := range l.Stages {
		s := &l.Stages[i]
		if s.Parts != nil {
			checkPartition(t, s.Path.Joined, s.Parts, s.Spans.ExclusiveWindowNS())
		}
		if s.PartsWithin != nil {
			checkPartition(t, s.Path.Joined+" within", s.PartsWithin, s.PartsWithin.WallNS)
		}
		for j := range s.Threads {
			th := &s.Threads[j]
			if th.Parts != nil {
				checkPartition(t, s.Path.Joined+" on a thread", th.Parts, th.Spans.ExclusiveWindowNS())
			}
			if th.PartsWithin != nil {
				checkPartition(t, s.Path.Joined+" on a thread, within", th.PartsWithin, th.Spans.WindowNS())
			}
		}
	}
	for i := range l.Threads {
		if p := l.Threads[i].Parts; p != nil {
			checkPartition(t, "thread", p, p.WallNS)
		}
		if p := l.Threads[i].PartsOutside; p != nil {
			checkPartition(t, "thread outside", p, p.WallNS)
		}
	}
	i := 0
	for s := range l.Spans() {
		checkPartition(t, "span of "+s.Path.Joined, &s.Partition, l.Source.Spans[i].WallNS)
		i++
	}
	if i != len(l.Source.Spans) {
		t.Errorf("%d spans of %d", i, len(l.Source.Spans))
	}
}

// A Recording of before there were parts says that there are none.
func TestRecordingWithoutParts(t *testing.T) {
	r := recordingtest.Pipeline()
	for i := range r.Stages {
		r.Stages[i].Parts, r.Stages[i].PartialParts = recording.Parts{}, recording.Parts{}
	}
	r.Spans = nil
	l := Build(r)
	for i := range l.Stages {
		if s := &l.Stages[i]; s.Parts != nil || s.PartsWithin != nil || s.Iterations != nil {
			t.Errorf("%s has parts %v, %v and iterations %v", s.Path.Joined, s.Parts, s.PartsWithin, s.Iterations)
		}
	}
	for i := range l.Threads {
		if th := &l.Threads[i]; th.Parts != nil || th.PartsOutside != nil {
			t.Errorf("%s has parts %v, %v", th.Name, th.Parts, th.PartsOutside)
		}
	}
}

func TestSpanParts(t *testing.T) {
	b, _ := oneStage()
	r := b.Recording()
	r.Spans = []recording.Span{{
		Thread: 0, Path: b.Path("step"), BeginNS: 17, WallNS: 1000, ChildNS: 100, Partial: true,
		Parts: recording.Parts{CUDACPUNS: 550, CUDABlockedNS: 200, RunningNS: 150},
		Calls: []recording.SpanCall{
			{Symbol: 0, GIL: recording.GILFree, Count: 1, CPUNS: 510, BlockedNS: 5},
			{Symbol: 1, GIL: recording.GILFree, Count: 1, CPUNS: 20, BlockedNS: 5}, // less than its bias
			{Symbol: 2, GIL: "odd", Count: 1, CPUNS: 0, BlockedNS: 180},
		},
	}}
	for s := range Build(r).Spans() {
		want := map[string]uint64{
			"cuda cpu: cuLaunchKernel [gil free]": 10, "stageprof": 520, "cuda cpu: other": 20,
			"cuda blocked: cuLaunchKernel [gil free]": 10, "cuda blocked: cuStreamSynchronize [gil unknown]": 180, "cuda blocked: other": 10,
			"running": 150, "child stages": 100,
		}
		if diff := cmp.Diff(want, named(&s.Partition)); diff != "" {
			t.Errorf("parts (-want +got):\n%s", diff)
		}
		if s.Thread != 0 || s.Path.Joined != "step" || s.BeginNS != 17 || !s.Partial || s.WallNS != 1000 {
			t.Errorf("span %+v", s)
		}
	}
}

func TestIterations(t *testing.T) {
	b, _ := oneStage()
	r := b.Recording()
	for i := range uint64(100) { // 1 to 100 µs running; one in four waits for the GIL, too
		wait := uint64(0)
		if i%4 == 0 {
			wait = i + 1
		}
		r.Spans = append(r.Spans, recording.Span{
			Path: b.Path("step"), WallNS: 1000*(i+1) + wait,
			Parts: recording.Parts{RunningNS: 1000 * (i + 1), GILWaitNS: wait},
		})
	}
	r.Spans = append(r.Spans,
		recording.Span{Path: b.Path("step"), WallNS: 1, Partial: true},
		recording.Span{Path: b.Path("step"), WallNS: math.MaxUint64}, // impossible
		recording.Span{Path: b.Path(""), WallNS: 5})
	r.Stages[0].Count = 130
	want := &Iterations{
		Count: 100, Missing: 30,
		Wall: Distribution{MeanNS: 50_512, P50NS: 50_000, P99NS: 99_000, MaxNS: 100_000},
		Parts: []PartDistribution{
			{PartName{Kind: PartRunning}, Distribution{MeanNS: 50_500, P50NS: 50_000, P99NS: 99_000, MaxNS: 100_000}},
			{PartName{Kind: PartGILWait}, Distribution{MeanNS: 12, P50NS: 0, P99NS: 93, MaxNS: 97}},
		},
	}
	if diff := cmp.Diff(want, stage(Build(r), "step").Iterations); diff != "" {
		t.Errorf("iterations (-want +got):\n%s", diff)
	}
}

func TestPartNames(t *testing.T) {
	for _, kind := range PartKinds {
		if name := (PartName{Kind: kind}).String(); !strings.HasPrefix(name, string(kind)) {
			t.Errorf("the name of %q is %q", kind, name)
		}
	}
	n := PartName{PartCUDABlocked, "cuStreamSynchronize", recording.GILHeld}
	if n.String() != "cuda blocked: cuStreamSynchronize [gil held]" || n.Rest() {
		t.Errorf("%q, rest: %v", n, n.Rest())
	}
}
