package recordingtest

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"
	"time"

	"stageprof/recording"
)

// Outside adds the rows of the threads' time outside any stage, for threads
// that lived as long as the window.
func (b *Builder) Outside() {
	staged := make([]uint64, len(b.r.Threads))
	for _, s := range b.r.Stages {
		if s.Thread != -1 && len(b.r.Paths[s.Path].Names) == 1 {
			staged[s.Thread] += s.WallNS + s.PartialWallNS
		}
	}
	window := uint64(b.r.Window.Duration)
	for thread, ns := range staged {
		if ns < window {
			b.r.Stages = append(b.r.Stages, recording.Stage{Thread: thread, Path: b.Path(""), WallNS: window - ns})
		}
	}
}

// Divide gives the stage rows of all threads their parts. The time in driver
// calls is that of the rows' calls; what is left of a stage that is called
// "wait" is mostly asleep on a futex, that of others mostly running.
func (b *Builder) Divide() {
	for i := range b.r.Stages {
		s := &b.r.Stages[i]
		if s.Thread == -1 {
			continue
		}
		var cpu, blocked uint64
		for _, c := range b.callsOf(s.Thread, s.Path) {
			cpu += c.CPUNS
			blocked += c.WallNS - c.CPUNS
		}
		names := b.r.Paths[s.Path].Names
		shares := busy
		if len(names) == 0 || strings.Contains(names[len(names)-1], "wait") {
			shares = idle
		}
		complete, partial := s.WallNS-s.ChildNS, s.PartialWallNS-s.PartialChildNS
		cutCPU, cutBlocked := portion(cpu, partial, complete+partial), portion(blocked, partial, complete+partial)
		s.Parts = shares.of(complete, cpu-cutCPU, blocked-cutBlocked)
		s.PartialParts = shares.of(partial, cutCPU, cutBlocked)
	}
}

// callsOf are the calls in the thread's own time at a path: calls for another
// thread's stage are made outside any stage of one's own.
func (b *Builder) callsOf(thread, path int) (calls []recording.Call) {
	outside := len(b.r.Paths[path].Names) == 0
	for _, c := range b.r.Calls {
		adopted := c.Attribution == recording.AttributionAutograd || c.Attribution == recording.AttributionProcess
		if c.Thread == thread && ((adopted && outside) || (!adopted && c.Path == path)) {
			calls = append(calls, c)
		}
	}
	return calls
}

// shares says in percent what a thread does with its time outside of calls;
// what is left is running.
type shares struct{ gil, runnable, futex, poll, read, sleep, fault, other uint64 }

var (
	busy = shares{gil: 12, runnable: 3, futex: 5, poll: 2, read: 2, sleep: 1, fault: 2, other: 3}
	idle = shares{gil: 2, runnable: 1, futex: 94}
)

// of divides a time of which some was spent in driver calls.
func (s shares) of(whole, cudaCPU, cudaBlocked uint64) recording.Parts {
	rest := whole - cudaCPU - cudaBlocked
	percent := func(n uint64) uint64 { return portion(rest, n, 100) }
	p := recording.Parts{
		CUDACPUNS: cudaCPU, CUDABlockedNS: cudaBlocked,
		GILWaitNS: percent(s.gil), RunnableNS: percent(s.runnable),
		BlockedFutexNS: percent(s.futex), BlockedPollNS: percent(s.poll), BlockedReadNS: percent(s.read),
		BlockedSleepNS: percent(s.sleep), BlockedFaultNS: percent(s.fault), BlockedOtherNS: percent(s.other),
	}
	p.RunningNS = whole - sum(&p)
	return p
}

// portion is total x part / whole, 0 of nothing.
func portion(total, part, whole uint64) uint64 {
	if whole == 0 {
		return 0
	}
	high, low := bits.Mul64(total, part)
	quotient, _ := bits.Div64(high, low, whole)
	return quotient
}

// fields are the parts, each once.
func fields(p *recording.Parts) []*uint64 {
	return []*uint64{
		&p.RunningNS, &p.CUDACPUNS, &p.CUDABlockedNS, &p.GILWaitNS, &p.RunnableNS, &p.BlockedFutexNS,
		&p.BlockedPollNS, &p.BlockedReadNS, &p.BlockedSleepNS, &p.BlockedFaultNS, &p.BlockedOtherNS,
	}
}

func sum(p *recording.Parts) (ns uint64) {
	for _, f := range fields(p) {
		ns += *f
	}
	return ns
}

// Unroll adds the single spans of the stage rows of all threads, at most the
// given number of each row. They differ in length and sum to their row, which
// gets their minimum, maximum and histogram. Divide comes before it.
func (b *Builder) Unroll(most int) {
	for i := range b.r.Stages {
		if s := &b.r.Stages[i]; s.Thread != -1 {
			b.unroll(s, most)
		}
	}
	slices.SortStableFunc(b.r.Spans, func(x, y recording.Span) int {
		return cmp.Compare(x.BeginNS+x.WallNS, y.BeginNS+y.WallNS)
	})
}

func (b *Builder) unroll(s *recording.Stage, most int) {
	calls := b.callsOf(s.Thread, s.Path)
	w := weights(s.Count)
	s.Hist, s.MinNS, s.MaxNS = recording.Hist{}, ^uint64(0), 0
	for n := range int(s.Count) {
		span := recording.Span{Thread: s.Thread, Path: s.Path, ChildNS: w.share(s.ChildNS, n)}
		for j, f := range fields(&s.Parts) {
			*fields(&span.Parts)[j] = w.share(*f, n)
		}
		span.WallNS = span.ChildNS + sum(&span.Parts)
		span.BeginNS = b.r.Window.StartNS + portion(uint64(b.r.Window.Duration), uint64(n), s.Count)
		for _, c := range calls {
			span.Calls = append(span.Calls, recording.SpanCall{
				Symbol: c.Symbol, GIL: c.GIL, Count: w.share(c.Count, n),
				CPUNS: min(w.share(c.CPUNS, n), span.Parts.CUDACPUNS), BlockedNS: min(w.share(c.WallNS-c.CPUNS, n), span.Parts.CUDABlockedNS),
			})
		}
		s.Hist[Bucket(time.Duration(span.WallNS))]++
		s.MinNS, s.MaxNS = min(s.MinNS, span.WallNS), max(s.MaxNS, span.WallNS)
		if n < most {
			b.r.Spans = append(b.r.Spans, span)
		}
	}
	if s.PartialCount > 0 {
		b.r.Spans = append(b.r.Spans, recording.Span{
			Thread: s.Thread, Path: s.Path, BeginNS: b.r.Window.StartNS, Partial: true,
			WallNS: s.PartialWallNS, ChildNS: s.PartialChildNS, Parts: s.PartialParts,
		})
	}
}

// cumulative holds the sums of the weights of the spans before each.
type cumulative []uint64

// weights lets spans be up to a tenth longer or shorter than others, and one
// in a hundred of twice their length.
func weights(count uint64) cumulative {
	w := make(cumulative, 1, count+1)
	for i := range count {
		each := 90 + i*7%21
		if i%100 == 50 {
			each *= 2
		}
		w = append(w, w[i]+each)
	}
	return w
}

// share is the n-th span's share of a total. All shares sum to it.
func (w cumulative) share(total uint64, n int) uint64 {
	whole := w[len(w)-1]
	return portion(total, w[n+1], whole) - portion(total, w[n], whole)
}
