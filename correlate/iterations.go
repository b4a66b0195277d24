package correlate

import (
	"cmp"
	"iter"
	"math"
	"math/bits"
	"slices"

	"stageprof/recording"
)

// Span is one span of the Recording, in parts. The stages inside it are its
// part PartChildren.
type Span struct {
	Thread  int // index of Ledger.Threads
	Path    Path
	BeginNS uint64 // CLOCK_MONOTONIC
	Partial bool   // cut by the edge of the window
	Partition
	Record *recording.Span // the span itself, which also counts its calls
}

// Spans yields the single spans that the Recording has, in the order in which
// they ended.
func (l *Ledger) Spans() iter.Seq[Span] {
	return func(yield func(Span) bool) {
		for i := range l.Source.Spans {
			s := &l.Source.Spans[i]
			if !yield(Span{
				Thread: l.ThreadOf[s.Thread], Path: l.Paths[s.Path],
				BeginNS: s.BeginNS, Partial: s.Partial, Partition: divideSpan(l.Source, s), Record: s,
			}) {
				return
			}
		}
	}
}

func divideSpan(r *recording.Recording, s *recording.Span) Partition {
	d := divide(s.WallNS)
	d.takeKind(PartChildren, s.ChildNS)
	parts := partsOf(s.Parts, d.rest)
	d.takeParts(&parts, spanCalls(r, s.Calls))
	return d.partition()
}

func spanCalls(r *recording.Recording, calls []recording.SpanCall) []callTime {
	list := make([]callTime, 0, len(calls))
	for _, c := range calls {
		symbol := &r.Symbols[c.Symbol]
		probes := min(scaled(c.Count, symbol.BiasNS), c.CPUNS)
		list = append(list, callTime{
			api: symbol.API, gil: knownGIL(c.GIL),
			cpu: c.CPUNS - probes, probes: probes, blocked: c.BlockedNS,
		})
	}
	return list
}

// Iterations describes the complete spans of a stage, one by one. Its numbers
// are exact for the spans that it is about. Without any, only the counts have a
// meaning.
type Iterations struct {
	Count   uint64 // spans that the Recording has one by one, those that are skipped left out
	Skipped uint64 // see Skip
	Missing uint64 // complete spans that it has in sums only
	Wall    Distribution
	Parts   []PartDistribution // the largest in sum first
}

// Distribution describes durations. A percentile is the smallest duration that
// at least so many of them do not exceed.
type Distribution struct {
	MeanNS, P50NS, P99NS, MaxNS uint64
}

// PartDistribution describes one part of all spans; it is 0 in those that do
// not have it.
type PartDistribution struct {
	PartName
	Distribution
}

// iterations collects the durations of spans.
type iterations struct {
	wall  []uint64
	parts map[PartName][]uint64 // only those that are not 0
}

// describe describes a stage's single spans.
func (s *Series) describe(spans *Spans) *Iterations {
	it := &iterations{parts: map[PartName][]uint64{}}
	for i := range s.Spans {
		it.add(&s.Spans[i].Partition)
	}
	n := len(it.wall)
	done := &Iterations{Count: uint64(n), Skipped: s.Skipped}
	done.Missing = spans.Count - min(done.Count+done.Skipped, spans.Count)
	if n == 0 {
		return done
	}
	done.Wall = distribution(it.wall, n)
	for name, ns := range it.parts {
		done.Parts = append(done.Parts, PartDistribution{name, distribution(ns, n)})
	}
	slices.SortFunc(done.Parts, func(a, b PartDistribution) int {
		return cmp.Or(cmp.Compare(b.MeanNS, a.MeanNS), comparePartNames(a.PartName, b.PartName))
	})
	return done
}

func (it *iterations) add(p *Partition) {
	it.wall = append(it.wall, p.WallNS)
	for _, part := range p.Parts {
		it.parts[part.PartName] = append(it.parts[part.PartName], part.NS)
	}
}

// distribution describes n durations, of which those that are missing are 0.
// It sorts the others.
func distribution(ns []uint64, n int) Distribution {
	slices.Sort(ns)
	zeros := n - len(ns)
	at := func(q float64) uint64 {
		if i := int(math.Ceil(q*float64(n))) - 1 - zeros; i >= 0 {
			return ns[i]
		}
		return 0
	}
	return Distribution{MeanNS: mean(ns, uint64(n)), P50NS: at(0.5), P99NS: at(0.99), MaxNS: at(1)}
}

// mean is exact: the sum may take more than 64 bits.
func mean(ns []uint64, n uint64) uint64 {
	var high, low uint64
	for _, v := range ns {
		var carry uint64
		low, carry = bits.Add64(low, v, 0)
		high += carry
	}
	quotient, _ := bits.Div64(high, low, n)
	return quotient
}
