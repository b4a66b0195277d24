package correlate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

const (
	us  = time.Microsecond
	ms  = time.Millisecond
	sec = time.Second
)

// stage returns the stage of a path, nil when the Ledger has none.
func stage(l *Ledger, joined string) *Stage {
	for i, s := range l.Stages {
		if s.Path.Joined == joined && !s.Process {
			return &l.Stages[i]
		}
	}
	return nil
}

func TestBuildMergesRowsThatLookAlike(t *testing.T) {
	b := recordingtest.New()
	copied := b.Module("/opt/app/lib/libcuda.so.1", "dd44", 0x7f1000000000)
	launch, launchCopy := b.Symbol("cuLaunchKernel"), b.SymbolIn(copied, "cuLaunchKernel", 0)
	first, again := b.Thread(4250, "worker"), b.Thread(4250, "worker")
	other := b.Thread(4250, "renamed")
	b.PathOf("step", "loss")

	b.Call(first, "step/loss", launch, 3, 10*us, 4*us)
	b.Call(again, "step/loss", launchCopy, 4, 20*us, 4*us)
	// One stage that is named like a nested one.
	alike := b.Call(again, "step/loss", launch, 5, 30*us, 4*us)
	alike.Path = b.PathOf("step/loss")
	b.Call(other, "step/loss", launch, 6, 40*us, 4*us)
	b.Call(first, "step/loss", launch, 7, 50*us, 4*us).GIL = recording.GILHeld

	l := Build(b.Recording())
	type visible struct {
		thread, path, symbol string
		gil                  recording.GIL
		count, wall          uint64
		sites                int
	}
	var got []visible
	for _, c := range l.Calls {
		got = append(got, visible{l.Threads[c.Thread].Name, c.Path.Joined, c.Symbol, c.GIL, c.Count, c.WallNS, len(c.Sites)})
	}
	want := []visible{
		{"renamed", "step/loss", "cuLaunchKernel", recording.GILFree, 6, 240_000, 1},
		{"worker", "step/loss", "cuLaunchKernel", recording.GILFree, 12, 30_000 + 80_000 + 150_000, 2},
		{"worker", "step/loss", "cuLaunchKernel", recording.GILHeld, 7, 350_000, 1},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(visible{})); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if got := l.Threads[1].Incarnations; got != 2 {
		t.Errorf("the thread that ran twice has %d incarnations, want 2", got)
	}
	if got := l.Calls[0].Path.Names; !slices.Equal(got, []string{"step", "loss"}) {
		t.Errorf("the path written step/loss has names %q, want the nested ones", got)
	}
	if s := stage(l, "step"); s == nil || s.Within.Count != 25 || s.Own.Count != 0 {
		t.Errorf("stage step = %+v, want the 25 calls within it and none of its own", s)
	}
}

func TestBuildSubtractsBias(t *testing.T) {
	tests := []struct {
		name              string
		bias              float64
		count             uint64
		wall, cpu         time.Duration // of each call
		wantWall, wantCPU uint64        // of all
	}{
		{"both", 600, 10, 1000, 800, 4000, 2000},
		{"fractions of a nanosecond add up", 0.25, 1000, 10, 10, 9750, 9750},
		{"never below zero", 600, 10, 500, 100, 0, 0},
		{"cpu is never more than wall", 0, 10, 100, 150, 1000, 1000},
		{"blocked time stays", 600, 10, 1_000_000, 700, 9_994_000, 1000},
		{"a negative bias is none", -5, 10, 100, 100, 1000, 1000},
		{"a bias that is no number is none", math.NaN(), 10, 100, 100, 1000, 1000},
		{"an endless bias leaves nothing", math.Inf(1), 10, 100, 100, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := recordingtest.New()
			b.Call(b.Thread(1, "t"), "s", b.SymbolIn(1, "cuLaunchKernel", tt.bias), tt.count, tt.wall, tt.cpu)
			c := Build(b.Recording()).Calls[0]
			if c.WallNS != tt.wantWall || c.CPUNS != tt.wantCPU {
				t.Errorf("wall %d, cpu %d; want %d, %d", c.WallNS, c.CPUNS, tt.wantWall, tt.wantCPU)
			}
			if c.RawWallNS != tt.count*uint64(tt.wall) || c.RawCPUNS != tt.count*uint64(tt.cpu) {
				t.Errorf("raw wall %d, raw cpu %d: not as measured", c.RawWallNS, c.RawCPUNS)
			}
		})
	}
}

// An 18 ns function, measured by probes that add 640 ns, is not reported as
// one of more than 100 ns.
func TestBuildShortFunctionStaysShort(t *testing.T) {
	b := recordingtest.New()
	b.Call(b.Thread(1, "t"), "", b.SymbolIn(1, "cuCtxGetDevice", 640), 1_000_000, 658, 658)
	if got := Build(b.Recording()).Calls[0].MeanNS(); got != 18 {
		t.Errorf("mean = %d ns, want 18", got)
	}
}

func TestBuildSplitsByGILAndFunction(t *testing.T) {
	b := recordingtest.New()
	th := b.Thread(1, "MainThread")
	launch, launchPT, syn := b.Symbol("cuLaunchKernel"), b.Symbol("cuLaunchKernel_ptsz"), b.Symbol("cuStreamSynchronize")
	b.Spans(th, "forward", 4, 25*ms, 0)
	b.Call(th, "forward", launch, 1000, 5*us, 5*us)
	b.Call(th, "forward", launchPT, 100, 5*us, 5*us)
	b.Call(th, "forward", syn, 4, 10*ms, 0).GIL = recording.GILHeld
	b.Call(th, "forward", syn, 1, 5*ms, 0)

	s := stage(Build(b.Recording()), "forward")
	if got, want := s.Own.WallNS, uint64(50_500_000); got != want {
		t.Errorf("CUDA time = %d, want %d", got, want)
	}
	wantGIL := map[recording.GIL]uint64{recording.GILFree: 10_500_000, recording.GILHeld: 40_000_000}
	for gil, part := range s.Own.GIL {
		if part.WallNS != wantGIL[gil] {
			t.Errorf("CUDA time with the GIL %s = %d, want %d", gil, part.WallNS, wantGIL[gil])
		}
	}
	if len(s.Own.GIL) != len(wantGIL) {
		t.Errorf("GIL states = %v, want only those that occurred", s.Own.GIL)
	}
	names := func(list []Named) (names []string) {
		for _, n := range list {
			names = append(names, n.Name)
		}
		return names
	}
	if got, want := names(s.Own.Symbols), []string{"cuStreamSynchronize", "cuLaunchKernel", "cuLaunchKernel_ptsz"}; !slices.Equal(got, want) {
		t.Errorf("symbols = %q, want %q", got, want)
	}
	if got, want := names(s.Own.APIs), []string{"cuStreamSynchronize", "cuLaunchKernel"}; !slices.Equal(got, want) {
		t.Errorf("apis = %q, want %q", got, want)
	}
	if got := s.Own.APIs[1].Count; got != 1100 {
		t.Errorf("launches in both spellings = %d, want 1100", got)
	}
	share, ok := s.Share(s.Own.Total)
	if !ok || math.Abs(share-0.505) > 1e-9 {
		t.Errorf("share = %v, %v; want 0.505", share, ok)
	}
}

// step > forward > attention: the exclusive parts sum to the step's wall time,
// for spans and for calls.
func TestCaseC02NestedStages(t *testing.T) {
	b := recordingtest.New()
	th := b.Thread(1, "MainThread")
	launch := b.Symbol("cuLaunchKernel")
	b.Spans(th, "step", 10, 100*ms, 70*ms)
	b.Spans(th, "step/forward", 10, 50*ms, 20*ms)
	b.Spans(th, "step/forward/attention", 40, 5*ms, 0)
	b.Spans(th, "step/backward", 10, 20*ms, 0)
	b.Call(th, "step", launch, 1, 1*ms, 0)
	b.Call(th, "step/forward", launch, 10, 2*ms, 0)
	b.Call(th, "step/forward/attention", launch, 100, 1*ms, 0)
	b.Call(th, "step/backward", launch, 1000, 100*us, 0)

	l := Build(b.Recording())
	var exclusive, own uint64
	for _, s := range l.Stages {
		exclusive += s.Spans.ExclusiveNS
		own += s.Own.WallNS
	}
	step := stage(l, "step")
	if step.Spans.WallNS != uint64(sec) || exclusive != step.Spans.WallNS {
		t.Errorf("step lasted %d, its parts %d; want both %d", step.Spans.WallNS, exclusive, uint64(sec))
	}
	if step.Within.WallNS != own || own != uint64(221*ms) {
		t.Errorf("calls within step took %d, the stages' own ones %d; want both %d", step.Within.WallNS, own, uint64(221*ms))
	}
	tests := []struct {
		path                     string
		wall, exclusive          time.Duration
		ownCount, withinCount    uint64
		ownPercent, allInPercent float64
	}{
		{"step", sec, 300 * ms, 1, 1111, 0.1, 22.1},
		{"step/forward", 500 * ms, 300 * ms, 10, 110, 4, 24},
		{"step/forward/attention", 200 * ms, 200 * ms, 100, 100, 50, 50},
		{"step/backward", 200 * ms, 200 * ms, 1000, 1000, 50, 50},
	}
	for _, tt := range tests {
		s := stage(l, tt.path)
		if s.Spans.WallNS != uint64(tt.wall) || s.Spans.ExclusiveNS != uint64(tt.exclusive) {
			t.Errorf("%s: wall %d, exclusive %d", tt.path, s.Spans.WallNS, s.Spans.ExclusiveNS)
		}
		if s.Own.Count != tt.ownCount || s.Within.Count != tt.withinCount {
			t.Errorf("%s: %d own calls, %d within; want %d, %d", tt.path, s.Own.Count, s.Within.Count, tt.ownCount, tt.withinCount)
		}
		own, _ := s.Share(s.Own.Total)
		within, _ := s.Share(s.Within.Total)
		if math.Abs(100*own-tt.ownPercent) > 1e-9 || math.Abs(100*within-tt.allInPercent) > 1e-9 {
			t.Errorf("%s: shares %v and %v, want %v%% and %v%%", tt.path, own, within, tt.ownPercent, tt.allInPercent)
		}
	}
}

func TestBuildPartialSpans(t *testing.T) {
	b := recordingtest.New()
	th := b.Thread(1, "MainThread")
	s := b.Spans(th, "forward", 8, 100*ms, 25*ms)
	s.PartialCount, s.PartialWallNS, s.PartialChildNS, s.PartialCPUNS = 2, uint64(200*ms), uint64(50*ms), uint64(10*ms)
	b.Spans(th, "forward/inner", 10, 25*ms, 0)
	b.Call(th, "forward", b.Symbol("cuLaunchKernel"), 100, 5*ms, 0)

	forward := stage(Build(b.Recording()), "forward")
	want := Partial{Count: 2, WallNS: uint64(200 * ms), ExclusiveNS: uint64(150 * ms), CPUNS: uint64(10 * ms)}
	if forward.Spans.Partial != want {
		t.Errorf("partial = %+v, want %+v", forward.Spans.Partial, want)
	}
	if forward.Spans.Count != 8 || forward.Spans.WallNS != uint64(800*ms) {
		t.Errorf("complete spans = %d in %d ns, want 8 in 800 ms", forward.Spans.Count, forward.Spans.WallNS)
	}
	// The calls were made in both kinds of span.
	if share, _ := forward.Share(forward.Own.Total); share != 0.5 {
		t.Errorf("share = %v, want 0.5", share)
	}
}

func TestBuildOnlyPartialSpans(t *testing.T) {
	b := recordingtest.New()
	th := b.Thread(1, "MainThread")
	s := b.Spans(th, "train", 0, 0, 0)
	s.PartialCount, s.PartialWallNS = 1, uint64(30*sec)
	b.Call(th, "train", b.Symbol("cuLaunchKernel"), 10, 300*ms, 0)
	train := stage(Build(b.Recording()), "train")
	if share, ok := train.Share(train.Own.Total); !ok || share != 0.1 {
		t.Errorf("share = %v, %v; want 0.1", share, ok)
	}
}

func TestBuildAdoptedCallsStayBeside(t *testing.T) {
	b := recordingtest.New()
	main, worker, helper := b.Thread(1, "MainThread"), b.Thread(2, "pt_autograd_0"), b.Thread(3, "helper")
	launch := b.Symbol("cuLaunchKernel")
	b.Spans(main, "step", 10, 100*ms, 50*ms)
	b.Spans(main, "step/backward", 10, 50*ms, 0)
	b.Spans(-1, "epoch", 1, 20*sec, 0)
	b.Call(main, "step/backward", launch, 1, 1*ms, 0)
	b.Call(worker, "step/backward", launch, 1000, 400*us, 0).Attribution = recording.AttributionAutograd
	b.Call(helper, "epoch", launch, 50, 1*ms, 0).Attribution = recording.AttributionProcess

	l := Build(b.Recording())
	backward, step := stage(l, "step/backward"), stage(l, "step")
	if backward.Own.Count != 1 || backward.Within.Count != 1 || step.Within.Count != 1 {
		t.Errorf("own calls: %d, %d, %d; want 1 each: adopted ones are no part of the wall time",
			backward.Own.Count, backward.Within.Count, step.Within.Count)
	}
	for name, s := range map[string]*Stage{"step/backward": backward, "step": step} {
		if len(s.Adopted) != 1 || s.Adopted[0].Attribution != recording.AttributionAutograd || s.Adopted[0].Within.Count != 1000 {
			t.Errorf("%s: adopted = %+v, want the 1000 calls of autograd", name, s.Adopted)
		}
	}
	if step.Adopted[0].Own.Count != 0 || backward.Adopted[0].Own.Count != 1000 {
		t.Errorf("adopted by step itself %d, by backward %d; want 0 and 1000", step.Adopted[0].Own.Count, backward.Adopted[0].Own.Count)
	}
	epoch := l.Stages[len(l.Stages)-1]
	if !epoch.Process || epoch.Path.Joined != "epoch" || epoch.Spans == nil || epoch.Adopted[0].Own.Count != 50 || epoch.Own.Count != 0 {
		t.Errorf("the stage of the whole process = %+v", epoch)
	}
	byName := map[string]Thread{}
	for _, th := range l.Threads {
		byName[th.Name] = th
	}
	if w := byName["pt_autograd_0"]; w.Adopted.Count != 1000 || w.Outside.Count != 0 || w.Staged {
		t.Errorf("the worker = %+v, want 1000 adopted calls and no stage", w)
	}
	if m := byName["MainThread"]; !m.Staged || m.StagesNS != uint64(sec) {
		t.Errorf("the main thread was %d ns in stages (%v), want 1 s", m.StagesNS, m.Staged)
	}
	if l.All.Count != 1051 {
		t.Errorf("all calls = %d, want 1051", l.All.Count)
	}
}

func TestBuildCallsOutsideAnyStage(t *testing.T) {
	b := recordingtest.New()
	th := b.Thread(1, "MainThread")
	launch := b.Symbol("cuLaunchKernel")
	b.Call(th, "", launch, 5, 1*ms, 0)
	// A call with a path has a stage, and one without has none, whatever the
	// row says.
	b.Call(th, "", launch, 6, 1*ms, 0).Attribution = recording.AttributionOwn
	b.Call(th, "s", launch, 7, 1*ms, 0).Attribution = recording.AttributionNone
	// Backward was called outside any stage.
	b.Call(th, "", launch, 8, 1*ms, 0).Attribution = recording.AttributionAutograd

	l := Build(b.Recording())
	if l.Outside.Count != 19 || l.Threads[0].Outside.Count != 19 {
		t.Errorf("outside any stage: %d, on the thread %d; want 19", l.Outside.Count, l.Threads[0].Outside.Count)
	}
	got := map[recording.Attribution]uint64{}
	for _, c := range l.Calls {
		got[c.Attribution] += c.Count
	}
	want := map[recording.Attribution]uint64{recording.AttributionNone: 11, recording.AttributionOwn: 7, recording.AttributionAutograd: 8}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("attributions (-want +got):\n%s", diff)
	}
}

// Half of the steps have no backward markers, and one end marker was lost.
func TestCaseC23MissingStageIsMissing(t *testing.T) {
	b := recordingtest.New()
	th := b.Thread(1, "MainThread")
	launch := b.Symbol("cuLaunchKernel")
	b.Spans(th, "step", 10, 100*ms, 20*ms)
	b.Spans(th, "step/backward", 5, 40*ms, 0)
	b.Call(th, "step/backward", launch, 5, 20*ms, 0)
	b.Call(th, "step", launch, 5, 20*ms, 0) // of the unmarked backwards
	b.Call(th, "eval/decode", launch, 3, 1*ms, 0)
	b.Loss("spans", "unmatched_end", 1, "an end marker was lost")

	l := Build(b.Recording())
	if s := stage(l, "step/backward"); s.Spans.Count != 5 || s.Spans.WallNS/s.Spans.Count != uint64(40*ms) {
		t.Errorf("backward = %+v, want 5 spans of 40 ms: the unmarked ones do not pull its mean down", s.Spans)
	}
	for _, path := range []string{"eval/decode", "eval"} {
		s := stage(l, path)
		if s == nil || s.Spans != nil {
			t.Errorf("%s = %+v, want a stage without times", path, s)
			continue
		}
		if _, ok := s.Share(s.Within.Total); ok {
			t.Errorf("%s has a share of a wall time that nobody measured", path)
		}
		if s.Within.Count != 3 {
			t.Errorf("calls within %s = %d, want 3", path, s.Within.Count)
		}
	}
	if stage(l, "forward") != nil {
		t.Error("a stage that nobody opened is listed")
	}
	if len(l.Losses) != 1 || l.Losses[0].Reason != "unmatched_end" {
		t.Errorf("losses = %+v, want the lost end marker", l.Losses)
	}
}

func TestCaseC24ImpossibleDurations(t *testing.T) {
	const window = 30 * sec
	type row struct {
		count         uint64
		wall, longest time.Duration
		hist          map[time.Duration]uint64 // by a duration in the bucket
	}
	tests := []struct {
		name        string
		row         row
		count, lost uint64
		wall        time.Duration
		maximum     time.Duration
	}{
		{"possible", row{3, 3 * sec, 1 * sec, map[time.Duration]uint64{sec: 3}}, 3, 0, 3 * sec, sec},
		{"as long as the recording", row{1, window, window, map[time.Duration]uint64{window: 1}}, 1, 0, window, window},
		{"a lost return, entered again 60 s later",
			row{1000, 60*sec + 999*ms, 60 * sec, map[time.Duration]uint64{ms: 999, 60 * sec: 1}}, 999, 1, 999 * ms, 1048575},
		{"the only call", row{1, 60 * sec, 60 * sec, map[time.Duration]uint64{60 * sec: 1}}, 0, 1, 0, 0},
		{"beside another long one", row{2, 65 * sec, 60 * sec, map[time.Duration]uint64{60 * sec: 2}}, 1, 1, 5 * sec, 5 * sec},
		{"more than can be told apart",
			row{10, 150 * sec, 60 * sec, map[time.Duration]uint64{60 * sec: 10}}, 0, 10, 0, 0},
		{"without a histogram", row{1000, 60*sec + 999*ms, 60 * sec, nil}, 999, 1, 999 * ms, 999 * ms},
		{"a sum that cannot be", row{2, 90 * sec, sec, map[time.Duration]uint64{sec: 2}}, 0, 2, 0, 0},
		{"30 million calls and one impossible one",
			row{30_000_000, 60*sec + 29_999_999*4*us, 60 * sec, map[time.Duration]uint64{4 * us: 29_999_999, 60 * sec: 1}},
			29_999_999, 1, 29_999_999 * 4 * us, 4095},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := recordingtest.New()
			b.Recording().Window.Duration = window
			var hist recording.Hist
			for d, n := range tt.row.hist {
				hist[recordingtest.Bucket(d)] += n
			}
			th := b.Thread(1, "t")
			c := b.Call(th, "s", b.Symbol("cuStreamSynchronize"), tt.row.count, 0, 0)
			c.WallNS, c.MaxNS, c.Hist = uint64(tt.row.wall), uint64(tt.row.longest), hist
			s := b.Spans(th, "s", tt.row.count, 0, 0)
			s.WallNS, s.MaxNS, s.Hist = c.WallNS, c.MaxNS, c.Hist
			b.Recording().Seen = &recording.Seen{Calls: tt.row.count}

			l := Build(b.Recording())
			var spans Spans
			if got := stage(l, "s"); got != nil && got.Spans != nil {
				spans = *got.Spans
			}
			if l.All.Count != tt.count || l.All.WallNS != uint64(tt.wall) || l.All.MaxNS != uint64(tt.maximum) {
				t.Errorf("calls: %d in %d ns, longest %d; want %d in %d ns, longest %d",
					l.All.Count, l.All.WallNS, l.All.MaxNS, tt.count, tt.wall, tt.maximum)
			}
			if spans.Count != tt.count || spans.WallNS != uint64(tt.wall) {
				t.Errorf("spans: %d in %d ns, want %d in %d ns", spans.Count, spans.WallNS, tt.count, tt.wall)
			}
			lost := map[string]uint64{}
			for _, loss := range l.Losses {
				if loss.Reason != ImpossibleDuration || loss.Help == "" {
					t.Errorf("loss = %+v", loss)
				}
				lost[loss.Kind] = loss.Count
			}
			if lost[LossCalls] != tt.lost || lost[LossSpans] != tt.lost {
				t.Errorf("lost %v, want %d calls and spans", lost, tt.lost)
			}
			if !l.Balance.Holds() || !l.Balance.Counted {
				t.Errorf("balance %+v does not hold", l.Balance)
			}
		})
	}
}

func TestCaseC24CountersDoNotWrap(t *testing.T) {
	b := recordingtest.New()
	b.Recording().Window.Duration = 0 // nothing is impossible
	th := b.Thread(1, "t")
	for range 3 {
		c := b.Call(th, "s", b.Symbol("cuLaunchKernel"), math.MaxUint64/2, 1, 1)
		c.WallNS, c.Bytes = math.MaxUint64/2, math.MaxUint64-1
	}
	all := Build(b.Recording()).All
	if all.Count != math.MaxUint64 || all.WallNS != math.MaxUint64 || all.Bytes != math.MaxUint64 {
		t.Errorf("sums = %+v, want the largest number", all.Total)
	}
}

func TestBuildRejectsImpossiblePartialSpans(t *testing.T) {
	b := recordingtest.New()
	s := b.Spans(b.Thread(1, "t"), "s", 0, 0, 0)
	s.PartialCount, s.PartialWallNS = 1, uint64(40*sec)
	l := Build(b.Recording())
	if stage(l, "s") != nil {
		t.Error("a span longer than the window is reported")
	}
	if len(l.Losses) != 1 || l.Losses[0].Kind != LossSpans || l.Losses[0].Count != 1 {
		t.Errorf("losses = %+v, want one span", l.Losses)
	}
}

func TestBuildBalance(t *testing.T) {
	tests := []struct {
		name string
		seen *recording.Seen
		want Balance
		holds,
		counted bool
	}{
		{"nothing missing", &recording.Seen{Calls: 107}, Balance{Seen: 107, Counted: true, Reported: 100, Lost: 7}, true, true},
		{"something missing", &recording.Seen{Calls: 108}, Balance{Seen: 108, Counted: true, Reported: 100, Lost: 7}, false, true},
		{"not counted", nil, Balance{Reported: 100, Lost: 7}, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := recordingtest.New()
			b.Call(b.Thread(1, "t"), "s", b.Symbol("cuLaunchKernel"), 100, us, us)
			b.Loss("calls", "row_map_full", 4, "")
			b.Loss("calls", "lost_return", 3, "")
			b.Loss("spans", "ring_full", 99, "")
			b.Recording().Seen = tt.seen
			got := Build(b.Recording()).Balance
			if got != tt.want || got.Holds() != tt.holds {
				t.Errorf("balance = %+v, holds %v; want %+v, %v", got, got.Holds(), tt.want, tt.holds)
			}
		})
	}
}

func TestBuildMergesLosses(t *testing.T) {
	b := recordingtest.New()
	b.Loss("spans", "ring_full", 1, "the ring was full")
	b.Loss("calls", "map_full", 2, "the map was full")
	b.Loss("calls", "map_full", 3, "the map was full")
	b.Loss("calls", "never_happened", 0, "")
	b.Loss("names", "names_full", 9, "")
	b.Loss("calls", "a_few", 1, "")
	b.Loss("other", "others_full", 2, "")
	want := []recording.Loss{ // what the sums lack first, and the most of it
		{Kind: "calls", Reason: "map_full", Count: 5, Help: "the map was full"},
		{Kind: "calls", Reason: "a_few", Count: 1},
		{Kind: "spans", Reason: "ring_full", Count: 1, Help: "the ring was full"},
		{Kind: "other", Reason: "others_full", Count: 2},
		{Kind: "names", Reason: "names_full", Count: 9},
	}
	if diff := cmp.Diff(want, Build(b.Recording()).Losses); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
}

func TestBuildNamesStagesThatCannotBeRead(t *testing.T) {
	b := recordingtest.New()
	th := b.Thread(1, "t")
	b.Call(th, "", b.Symbol("cuLaunchKernel"), 1, us, us).Path = b.PathOf("")
	b.Call(th, "", b.Symbol("cuLaunchKernel"), 2, us, us)
	l := Build(b.Recording())
	if l.Outside.Count != 2 {
		t.Errorf("outside any stage = %d, want 2: a stage without a name is still a stage", l.Outside.Count)
	}
	if s := stage(l, "(empty)"); s == nil || s.Own.Count != 1 {
		t.Errorf("the stage without a name = %+v", s)
	}
}

func TestBuildNothing(t *testing.T) {
	l := Build(&recording.Recording{})
	if len(l.Calls)+len(l.Stages)+len(l.Threads)+len(l.Losses) != 0 || !l.Balance.Holds() {
		t.Errorf("an empty Recording gives %+v", l)
	}
}

// The agent meets rows in the order of a hash map. The Ledger does not depend
// on it.
func TestBuildDoesNotDependOnTheOrderOfRows(t *testing.T) {
	r := recordingtest.Pipeline()
	want := Build(r)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 6 {
		shuffled := *r
		shuffled.Calls = slices.Clone(r.Calls)
		shuffled.Stages = slices.Clone(r.Stages)
		shuffled.Losses = slices.Clone(r.Losses)
		rng.Shuffle(len(shuffled.Calls), func(i, j int) {
			shuffled.Calls[i], shuffled.Calls[j] = shuffled.Calls[j], shuffled.Calls[i]
		})
		rng.Shuffle(len(shuffled.Stages), func(i, j int) {
			shuffled.Stages[i], shuffled.Stages[j] = shuffled.Stages[j], shuffled.Stages[i]
		})
		rng.Shuffle(len(shuffled.Losses), func(i, j int) {
			shuffled.Losses[i], shuffled.Losses[j] = shuffled.Losses[j], shuffled.Losses[i]
		})
		if diff := cmp.Diff(want, Build(&shuffled), cmpopts.IgnoreFields(Ledger{}, "Source")); diff != "" {
			t.Fatalf("other order, other Ledger (-want +got):\n%s", diff)
		}
	}
}

// Every call is in exactly one place of each way to cut the whole.
func TestBuildPartsSumToTheWhole(t *testing.T) {
	l := Build(recordingtest.Pipeline())
	checkParts(t, l)
	if l.All.Count == 0 || !l.Balance.Counted || !l.Balance.Holds() {
		t.Errorf("balance = %+v", l.Balance)
	}
}

// That holds for Recordings that make no sense, too.
func TestBuildOfAnything(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		checkParts(t, Build(recordingtest.Random(rng)))
	}
}

func checkParts(t *testing.T, l *Ledger) {
	t.Helper()
	var byCall, bySite, byThread, byStage, byRoot Total
	for i := range l.Calls {
		c := &l.Calls[i]
		byCall.add(&c.Total)
		for j := range c.Sites {
			bySite.add(&c.Sites[j].Total)
		}
	}
	for i := range l.Threads {
		byThread.add(&l.Threads[i].All.Total)
	}
	byStage.add(&l.Outside.Total)
	byRoot.add(&l.Outside.Total)
	for i := range l.Stages {
		s := &l.Stages[i]
		byStage.add(&s.Own.Total)
		for j := range s.Adopted {
			byStage.add(&s.Adopted[j].Own.Total)
		}
		if len(s.Path.Names) == 1 {
			byRoot.add(&s.Within.Total)
			for j := range s.Adopted {
				byRoot.add(&s.Adopted[j].Within.Total)
			}
		}
	}
	for name, got := range map[string]Total{
		"calls": byCall, "sites": bySite, "threads": byThread, "stages": byStage, "outermost stages": byRoot,
	} {
		if diff := cmp.Diff(l.All.Total, got); diff != "" {
			t.Errorf("%s do not sum to all calls (-all +%s):\n%s", name, name, diff)
		}
	}
}
