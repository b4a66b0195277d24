package correlate

import (
	"cmp"
	"slices"
)

// Skip says which complete spans of a stage are left out of what is said of
// its single iterations: the first ones of every thread that runs it.
type Skip struct {
	First  int  // so many
	Warmup bool // those of the thread's warm-up; with First, the more of both
}

// Series is the complete single spans of a stage, in the order in which they
// began.
type Series struct {
	Path    Path
	Spans   []Span // those that were not skipped
	Skipped uint64
	Warmups []Warmup // of each thread that ran the stage, by thread
}

// Warmup says how a thread's iterations of a stage began.
type Warmup struct {
	Thread  int  // index of Ledger.Threads
	Spans   int  // that many at the beginning were not yet like the later ones
	Settled bool // false: there are too few spans, or they never became alike
}

// Series are the single spans of every stage, by path.
func (l *Ledger) Series(skip Skip) []Series {
	limit := longest(l.Source)
	byPath := map[string][]Span{}
	for s := range l.Spans() {
		if !s.Partial && s.WallNS <= limit {
			byPath[s.Path.Joined] = append(byPath[s.Path.Joined], s)
		}
	}
	series := make([]Series, 0, len(byPath))
	for _, spans := range byPath {
		series = append(series, newSeries(spans, skip))
	}
	slices.SortFunc(series, func(a, b Series) int { return comparePaths(a.Path, b.Path) })
	return series
}

// newSeries skips spans of one stage, of which there is at least one.
func newSeries(spans []Span, skip Skip) Series {
	slices.SortStableFunc(spans, func(a, b Span) int {
		return cmp.Or(cmp.Compare(a.Thread, b.Thread), cmp.Compare(a.BeginNS, b.BeginNS), cmp.Compare(a.WallNS, b.WallNS))
	})
	s := Series{Path: spans[0].Path}
	for len(spans) > 0 {
		thread := spans[0].Thread
		n := slices.IndexFunc(spans, func(s Span) bool { return s.Thread != thread })
		if n == -1 {
			n = len(spans)
		}
		w := warmup(spans[:n])
		w.Thread = thread
		s.Warmups = append(s.Warmups, w)
		first := min(skip.of(w), n)
		s.Skipped += uint64(first)
		s.Spans = append(s.Spans, spans[first:n]...)
		spans = spans[n:]
	}
	slices.SortStableFunc(s.Spans, func(a, b Span) int { return cmp.Compare(a.BeginNS, b.BeginNS) })
	return s
}

// of is the number of spans to leave out at the beginning.
func (s Skip) of(w Warmup) int {
	n := max(s.First, 0)
	if s.Warmup {
		n = max(n, w.Spans)
	}
	return n
}

// The rule of warm-up, which the package's doc describes.
const (
	leastSteady = 8 // spans in the second half, to know what is usual
	inARow      = 3 // usual spans that end the warm-up
)

// warmup finds out how many of one thread's spans, which are in order, are
// warm-up.
func warmup(spans []Span) Warmup {
	half := len(spans) / 2
	if len(spans)-half < leastSteady {
		return Warmup{}
	}
	usual := usualRange(spans[half:])
	for n, run := 0, 0; n <= half; n, run = n+run+1, 0 {
		for run < inARow && usual.holds(spans[n+run].WallNS) {
			run++
		}
		if run == inARow {
			return Warmup{Spans: mostly(spans[:n], usual), Settled: true}
		}
	}
	return Warmup{}
}

// mostly is the number of spans if more than half of them are unusual, else 0:
// then it is a single stray one.
func mostly(spans []Span, usual wallRange) int {
	odd := 0
	for i := range spans {
		if !usual.holds(spans[i].WallNS) {
			odd++
		}
	}
	if 2*odd > len(spans) {
		return len(spans)
	}
	return 0
}

// wallRange is what wall times are usual.
type wallRange struct{ low, high uint64 }

func (r wallRange) holds(ns uint64) bool { return ns >= r.low && ns <= r.high }

// usualRange is the median and as much on both sides as is normal: a quarter
// of it, or five times the median deviation from it if that is more.
func usualRange(spans []Span) wallRange {
	walls := make([]uint64, len(spans))
	for i := range spans {
		walls[i] = spans[i].WallNS
	}
	middle := median(walls)
	for i, ns := range walls {
		walls[i] = max(ns, middle) - min(ns, middle)
	}
	margin := max(middle/4, mulSaturating(median(walls), 5))
	return wallRange{middle - min(margin, middle), add(middle, margin)}
}

// median sorts the values; of an even number it is the lower middle one.
func median(values []uint64) uint64 {
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

func mulSaturating(a uint64, times int) (product uint64) {
	for range times {
		product = add(product, a)
	}
	return product
}

// seriesOf is the Series of the stage; ok is false when there are no single spans.
func seriesOf(series []Series, path Path) (s *Series, ok bool) {
	i, ok := slices.BinarySearchFunc(series, path, func(s Series, p Path) int { return comparePaths(s.Path, p) })
	if !ok {
		return nil, false
	}
	return &series[i], true
}

// Trend is how the spans of a stage went on: in order, cut into points of
// consecutive spans whose numbers differ by one at most.
type Trend struct {
	Spans []int                 // of each point
	Wall  []uint64              // their mean, ns
	Parts map[PartKind][]uint64 // the same of their parts; of kinds that occur
}

// Trend cuts the series into at most n points.
func (s *Series) Trend(n int) Trend {
	n = min(n, len(s.Spans))
	t := Trend{Parts: map[PartKind][]uint64{}}
	for i := range n {
		spans := s.Spans[i*len(s.Spans)/n : (i+1)*len(s.Spans)/n]
		t.Spans = append(t.Spans, len(spans))
		t.Wall = append(t.Wall, meanOf(spans, func(s *Span) uint64 { return s.WallNS }))
		for _, kind := range PartKinds {
			m := meanOf(spans, func(s *Span) uint64 { return s.Of(kind) })
			if m > 0 && t.Parts[kind] == nil {
				t.Parts[kind] = make([]uint64, n)
			}
			if m > 0 {
				t.Parts[kind][i] = m
			}
		}
	}
	return t
}

func meanOf(spans []Span, value func(*Span) uint64) uint64 {
	values := make([]uint64, len(spans))
	for i := range spans {
		values[i] = value(&spans[i])
	}
	return mean(values, uint64(len(values)))
}

// Mean is the mean wall time of the series' spans, 0 without any.
func (s *Series) Mean() uint64 {
	if len(s.Spans) == 0 {
		return 0
	}
	return meanOf(s.Spans, func(s *Span) uint64 { return s.WallNS })
}
