package report

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"stageprof/correlate"
	"stageprof/recording"
)

// ErrNoSuchCall says that a function was not called.
var ErrNoSuchCall = errors.New("the recording has no call of it")

const histogramBar = 40 // cells of the fullest bucket

// Histogram shows how long the calls of a function took. The function is a
// symbol, or an api for all of its spellings.
func Histogram(l *correlate.Ledger, function string) (*View, error) {
	total, err := callsOf(l, function)
	if err != nil {
		return nil, err
	}
	v := &View{grid: histogramGrid(total)}
	v.notes = []string{
		fmt.Sprintf("%s: %s, mean %s, longest %s.", printable(function), plural(total.Count, "call"), duration(total.MeanNS()), duration(total.MaxNS)),
	}
	if bias := biasOf(total); bias > 0 {
		v.notes = append(v.notes, "The bounds are of durations as measured: "+duration(bias)+" of each call are the probes' own, which mean and longest do not include.")
	}
	v.json = histogramOf(function, total)
	return v, nil
}

func callsOf(l *correlate.Ledger, function string) (*correlate.Total, error) {
	for _, list := range [][]correlate.Named{l.All.Symbols, l.All.APIs} {
		if i := slices.IndexFunc(list, func(n correlate.Named) bool { return n.Name == function }); i >= 0 {
			return &list[i].Total, nil
		}
	}
	var names []string
	for _, s := range l.All.Symbols {
		names = append(names, s.Name)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("histogram of %q: %w; it has no calls at all", function, ErrNoSuchCall)
	}
	slices.Sort(names)
	return nil, fmt.Errorf("histogram of %q: %w; there are %s", function, ErrNoSuchCall, strings.Join(names, ", "))
}

func biasOf(t *correlate.Total) uint64 {
	if t.Count == 0 {
		return 0
	}
	return (t.RawWallNS - min(t.WallNS, t.RawWallNS)) / t.Count
}

// bucketBounds are the least duration of a bucket and that of the next; the
// last one has no bound.
func bucketBounds(i int) (from uint64, to *uint64) {
	if i > 0 {
		from = 1 << i
	}
	if i == recording.HistBuckets-1 {
		return from, nil
	}
	next := uint64(1) << (i + 1)
	return from, &next
}

// occupied are the buckets from the first to the last that count anything.
func occupied(h *recording.Hist) (first, last int, ok bool) {
	for i, n := range h {
		if n == 0 {
			continue
		}
		if !ok {
			first = i
		}
		last, ok = i, true
	}
	return first, last, ok
}

func histogramGrid(t *correlate.Total) *grid {
	g := &grid{columns: []gridColumn{
		{title: "FROM", key: "from_ns"}, {title: "BELOW", key: "below_ns"}, {title: "CALLS", key: "count"},
		{title: "%", key: "share"}, {title: "UP TO HERE", key: "cumulative_share"}, {title: "", key: "bar", left: true, rigid: true, noRaw: true},
	}}
	var whole, most, upTo uint64
	for _, n := range t.Hist {
		whole, most = whole+n, max(most, n)
	}
	first, last, ok := occupied(&t.Hist)
	for i := first; ok && i <= last; i++ {
		n := t.Hist[i]
		upTo += n
		from, to := bucketBounds(i)
		below := gridCell{text: "∞"}
		if to != nil {
			below = durationCell(*to)
		}
		g.rows = append(g.rows, gridRow{cells: []gridCell{
			durationCell(from), below, countCell(n),
			{shareOf(n, whole), float64(n) / float64(whole)}, {shareOf(upTo, whole), float64(upTo) / float64(whole)},
			{text: bar(n, most)},
		}})
	}
	return g
}

// bar is as long as n is to the most; what is not 0 can be seen.
func bar(n, most uint64) string {
	cells := int(float64(n) / float64(most) * histogramBar)
	if n > 0 {
		cells = max(cells, 1)
	}
	return strings.Repeat("█", cells)
}

type jsonHistogram struct {
	Format   int          `json:"format"`
	Function string       `json:"function"`
	Total    jsonTotal    `json:"total"`
	BiasNS   uint64       `json:"bias_ns"`
	Buckets  []jsonBucket `json:"buckets"`
}

type jsonBucket struct {
	FromNS  uint64  `json:"from_ns"`
	BelowNS *uint64 `json:"below_ns"`
	Count   uint64  `json:"count"`
}

func histogramOf(function string, t *correlate.Total) jsonHistogram {
	j := jsonHistogram{Format: jsonFormat, Function: function, Total: totalOf(t), BiasNS: biasOf(t), Buckets: []jsonBucket{}}
	first, last, ok := occupied(&t.Hist)
	for i := first; ok && i <= last; i++ {
		from, to := bucketBounds(i)
		j.Buckets = append(j.Buckets, jsonBucket{from, to, t.Hist[i]})
	}
	return j
}
