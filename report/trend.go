package report

import (
	"cmp"
	"slices"
	"strings"

	"stageprof/correlate"
)

const (
	trendPoints = 32   // bars of a line of text, and points in JSON
	trendParts  = 3    // columns of parts that a stage shows
	trendLeast  = 0.05 // of its wall time that a part has if it is shown
)

// bars are the heights of a line of text.
var bars = []rune("▁▂▃▄▅▆▇█")

// sparkline draws values as bars from 0 to the highest one.
func sparkline(values []uint64) string {
	highest := uint64(0)
	for _, v := range values {
		highest = max(highest, v)
	}
	var b strings.Builder
	for _, v := range values {
		level := 0
		if highest > 0 {
			level = min(int(float64(v)/float64(highest)*float64(len(bars))), len(bars)-1)
		}
		b.WriteRune(bars[level])
	}
	return b.String()
}

// Trend shows how the iterations of each stage went on, the longest stages
// first.
func Trend(l *correlate.Ledger, skip correlate.Skip) *View {
	series := l.Series(skip)
	slices.SortStableFunc(series, func(a, b correlate.Series) int {
		return cmp.Compare(b.Mean()*uint64(len(b.Spans)), a.Mean()*uint64(len(a.Spans)))
	})
	v := &View{grid: &grid{columns: []gridColumn{
		{title: "TREND OF", key: "stage_path", left: true},
		{title: "PART", key: "part", left: true, noText: true},
		{title: "SPANS", key: "spans"},
		{title: "WARM-UP", key: "warmup"},
		{title: "MEAN", key: "mean_ns"},
		{title: "FIRST ¼", key: "first_quarter_ns"},
		{title: "LAST ¼", key: "last_quarter_ns"},
		{title: "OVER TIME", key: "over_time", left: true, rigid: true},
	}}}
	doc := jsonTrends{Format: jsonFormat, SkipFirst: skip.First, SkipWarmup: skip.Warmup, Stages: []jsonTrend{}}
	for i := range series {
		addTrend(v.grid, &series[i])
		doc.Stages = append(doc.Stages, trendOf(l, &series[i]))
	}
	v.json = doc
	v.notes = trendNotes(l, series, skip)
	return v
}

func addTrend(to *grid, s *correlate.Series) {
	if len(s.Spans) == 0 {
		to.rows = append(to.rows, gridRow{cells: []gridCell{
			textCell(s.Path.Joined), {raw: "wall"}, countCell(0), warmupCell(s), {text: missing}, {text: missing}, {text: missing}, {},
		}})
		return
	}
	t, quarters := s.Trend(trendPoints), s.Trend(4)
	to.rows = append(to.rows, trendRow(s, "wall", 0, t.Wall, quarters.Wall, s.Mean()))
	type shown struct {
		title          string
		mean           uint64
		line, quarters []uint64
	}
	var parts []shown
	for _, c := range allPartColumns {
		line, four := partLine(&t, &c), partLine(&quarters, &c)
		mean := weightedMean(line, t.Spans)
		if float64(mean) >= trendLeast*float64(s.Mean()) && mean > 0 {
			parts = append(parts, shown{c.words(), mean, line, four})
		}
	}
	slices.SortStableFunc(parts, func(a, b shown) int { return cmp.Compare(b.mean, a.mean) })
	for _, p := range parts[:min(trendParts, len(parts))] {
		to.rows = append(to.rows, trendRow(s, p.title, 1, p.line, p.quarters, p.mean))
	}
}

// partLine sums the parts of a column, point by point.
func partLine(t *correlate.Trend, c *partColumn) []uint64 {
	line := make([]uint64, len(t.Wall))
	for kind, values := range t.Parts {
		if !c.holds(kind) {
			continue
		}
		for i, v := range values {
			line[i] += v
		}
	}
	return line
}

func weightedMean(values []uint64, weights []int) uint64 {
	sum, n := 0.0, 0
	for i, v := range values {
		sum += float64(v) * float64(weights[i])
		n += weights[i]
	}
	return uint64(sum / float64(n))
}

func trendRow(s *correlate.Series, part string, depth int, line, quarters []uint64, mean uint64) gridRow {
	name := textCell(s.Path.Joined)
	spans, warm := countCell(uint64(len(s.Spans))), warmupCell(s)
	if depth > 0 {
		name.text, spans.text, warm.text = part, "", ""
	}
	return gridRow{depth: depth, cells: []gridCell{
		name, {raw: part}, spans, warm, durationCell(mean),
		durationCell(quarters[0]), durationCell(quarters[len(quarters)-1]), {sparkline(line), sparkline(line)},
	}}
}

// warmupCell is the longest warm-up of the stage's threads.
func warmupCell(s *correlate.Series) gridCell {
	longest, settled := 0, false
	for _, w := range s.Warmups {
		longest, settled = max(longest, w.Spans), settled || w.Settled
	}
	if !settled {
		return gridCell{text: missing}
	}
	return countCell(uint64(longest))
}

func trendNotes(l *correlate.Ledger, series []correlate.Series, skip correlate.Skip) (notes []string) {
	if len(series) == 0 {
		return []string{"The recording has no single complete spans."}
	}
	notes = append(notes, "Each line of bars is means of consecutive spans, from 0 to its own highest one. FIRST ¼, LAST ¼: the means of those spans.",
		"WARM-UP: spans at the beginning that are not like the later ones, of the thread with most; - too few spans to tell, or they never became alike.")
	if what := skipText(skip); what != "" {
		notes = append(notes, "Left out: "+what+".")
	}
	for i := range l.Stages {
		if it := l.Stages[i].Iterations; it != nil && it.Missing > 0 {
			return append(notes, "Of some stages not all spans were kept one by one: the last ones are missing.")
		}
	}
	return notes
}

type jsonTrends struct {
	Format     int         `json:"format"`
	SkipFirst  int         `json:"skip_first"`
	SkipWarmup bool        `json:"skip_warmup"`
	Stages     []jsonTrend `json:"stages"`
}

type jsonTrend struct {
	StagePath string              `json:"stage_path"`
	Spans     int                 `json:"spans"`
	Skipped   uint64              `json:"skipped"`
	Warmup    []jsonWarmup        `json:"warmup"`
	Points    []int               `json:"points"`
	WallNS    []uint64            `json:"wall_ns"`
	Parts     map[string][]uint64 `json:"parts"`
}

type jsonWarmup struct {
	Thread  string `json:"thread"`
	TID     int    `json:"tid"`
	Spans   int    `json:"spans"`
	Settled bool   `json:"settled"`
}

func trendOf(l *correlate.Ledger, s *correlate.Series) jsonTrend {
	t := s.Trend(trendPoints)
	j := jsonTrend{
		StagePath: s.Path.Joined, Spans: len(s.Spans), Skipped: s.Skipped, Warmup: []jsonWarmup{},
		Points: append([]int{}, t.Spans...), WallNS: append([]uint64{}, t.Wall...), Parts: map[string][]uint64{},
	}
	for kind, values := range t.Parts {
		j.Parts[string(kind)] = values
	}
	for _, w := range s.Warmups {
		th := &l.Threads[w.Thread]
		j.Warmup = append(j.Warmup, jsonWarmup{th.Name, th.TID, w.Spans, w.Settled})
	}
	return j
}
