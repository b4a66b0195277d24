package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"stageprof/correlate"
)

// CompareOptions says how a comparison is shown.
type CompareOptions struct {
	Width    int  // cells in a line of text; 0 is 100
	Full     bool // every metric of every stage, not only what changed most
	Verdicts []correlate.Verdict
}

// What a comparison shows of a stage unless everything is asked for.
const (
	mostParts     = 3    // kinds of part
	mostFunctions = 2    // driver functions
	leastChange   = 0.05 // of the stage's longer wall time, of a part or function that is shown
)

// CompareText writes a comparison for people.
func CompareText(w io.Writer, c *correlate.Comparison, o CompareOptions) error {
	t := &text{width: cmp.Or(max(o.Width, 0), defaultWidth)}
	t.writeRuns("before", c.Before)
	t.writeRuns("after", c.After)
	t.printf("\n%s\n\n", Headline(c))
	changes := changeGrid(c, o.Full)
	changes.writeText(&t.Builder, t.width)
	t.writeChangeNotes(c)
	t.writeVerdicts(o.Verdicts)
	if len(c.Warnings) > 0 {
		t.writeWarningList(c.Warnings)
	}
	if _, err := io.WriteString(w, t.String()); err != nil {
		return fmt.Errorf("writing comparison: %w", err)
	}
	return nil
}

// CompareCSV writes every metric of every stage.
func CompareCSV(w io.Writer, c *correlate.Comparison) error { return changeGrid(c, true).writeCSV(w) }

// CompareMarkdown writes the table of CompareText.
func CompareMarkdown(w io.Writer, c *correlate.Comparison, full bool) error {
	if _, err := fmt.Fprintf(w, "%s\n\n", markdown(Headline(c))); err != nil {
		return fmt.Errorf("writing comparison: %w", err)
	}
	return changeGrid(c, full).writeMarkdown(w)
}

func (t *text) writeRuns(side string, runs []correlate.Run) {
	for _, run := range runs {
		r := run.Ledger.Source
		line := fmt.Sprintf("%-6s  %s · %s · %s%s · ", side, shortened(printable(run.Name), t.width/3),
			duration(uint64(max(r.Window.Duration, 0))), plural(run.Ledger.All.Count, "call"), lostOf(run.Ledger))
		t.printf("%s%s\n", line, clipped(printable(commandOf(&r.Target)), max(t.width-cells(line), leastName)))
	}
}

func lostOf(l *correlate.Ledger) string {
	if l.Balance.Lost == 0 {
		return ""
	}
	return " (+" + count(l.Balance.Lost) + " lost)"
}

// Headline says in one line what moved the wall clock most.
func Headline(c *correlate.Comparison) string {
	i := slices.IndexFunc(c.Stages, func(s correlate.StageChange) bool { return s.Wall().Significant })
	if i < 0 {
		return "no stage that ran on both sides takes significantly longer or shorter"
	}
	s := &c.Stages[i]
	wall := s.Wall()
	line := fmt.Sprintf("%s: %s → %s per iteration (%s, %s)", printable(s.Path.Joined),
		estimateText(wall.Before), estimateText(wall.After), ratioText(wall), pText(wall, "p"))
	if cause := causeOf(s); cause != nil {
		line += ", " + signed(cause.Delta()) + " " + printable(shortName(cause.Metric))
	}
	return line + fmt.Sprintf("; %s → %s iterations/s", number(s.Rate.Before), number(s.Rate.After))
}

// causeOf is what most of a stage's change consists of: a driver function if
// its change is at least half of it, else a kind of part, nil if neither is.
func causeOf(s *correlate.StageChange) *correlate.Change {
	delta := s.Wall().Delta()
	var best *correlate.Change
	for i := range s.Changes {
		c := &s.Changes[i]
		function := c.Kind == correlate.MetricCUDA && c.Of != ""
		if !c.Significant || !(function || c.Kind == correlate.MetricPart) || c.Delta()*delta <= 0 || 2*math.Abs(c.Delta()) < math.Abs(delta) {
			continue
		}
		switch {
		case best == nil, function && best.Kind == correlate.MetricPart:
			best = c
		case (best.Kind == c.Kind) && math.Abs(c.Delta()) > math.Abs(best.Delta()):
			best = c
		}
	}
	return best
}

// shortName leaves out that a function's time is that of driver calls.
func shortName(m correlate.Metric) string {
	if m.Kind == correlate.MetricCUDA && m.Of != "" {
		return m.Of
	}
	return m.String()
}

// changeGrid has a row for each stage and rows for what changed in it.
func changeGrid(c *correlate.Comparison, full bool) *grid {
	g := &grid{columns: []gridColumn{
		{title: "STAGE", key: "stage_path", left: true},
		{title: "METRIC", key: "metric", left: true, noText: true},
		{title: "BEFORE", key: "before"},
		{key: "before_low", raw: true},
		{key: "before_high", raw: true},
		{key: "before_n", raw: true},
		{title: "AFTER", key: "after"},
		{key: "after_low", raw: true},
		{key: "after_high", raw: true},
		{key: "after_n", raw: true},
		{title: "DELTA", key: "delta"},
		{title: "%", key: "delta_ratio"},
		{title: "P", key: "p"},
		{key: "significant", raw: true},
		{title: "IMPACT", key: "impact"},
		{key: "unit", raw: true},
		{key: "sides", raw: true},
		{key: "before_iterations", raw: true},
		{key: "after_iterations", raw: true},
		{key: "before_per_s", raw: true},
		{key: "after_per_s", raw: true},
	}}
	for i := range c.Stages {
		s := &c.Stages[i]
		for j, change := range shownChanges(s, full) {
			g.rows = append(g.rows, changeRow(s, change, j > 0))
		}
	}
	return g
}

// ChangeRow is what a comparison says of one metric of a stage.
type ChangeRow struct {
	Change *correlate.Change
	Cells  []string // below ChangeTitles
}

// ChangeTitles are the titles of ChangeRow's cells.
func ChangeTitles() (titles []string) {
	g := changeGrid(&correlate.Comparison{}, false)
	for _, i := range g.textColumns() {
		titles = append(titles, g.columns[i].title)
	}
	return titles
}

// ChangeRows are the rows of CompareText for one stage, of all of its metrics,
// that of its wall time first.
func ChangeRows(s *correlate.StageChange) (rows []ChangeRow) {
	g := changeGrid(&correlate.Comparison{Stages: []correlate.StageChange{*s}}, true)
	shown := g.textColumns()
	for i, change := range shownChanges(s, true) {
		rows = append(rows, ChangeRow{change, g.rows[i].texts(shown)})
	}
	return rows
}

// shownChanges are the wall time and what else is worth a row.
func shownChanges(s *correlate.StageChange, full bool) []*correlate.Change {
	shown := []*correlate.Change{s.Wall()}
	if full {
		for i := range s.Changes[1:] {
			shown = append(shown, &s.Changes[1+i])
		}
		return shown
	}
	least := leastChange * max(mean(s.Wall().Before), mean(s.Wall().After))
	largest := func(kind correlate.MetricKind, most int) {
		var some []*correlate.Change
		for i := range s.Changes {
			c := &s.Changes[i]
			if c.Kind == kind && c.Of != "" && (c.Significant || !c.Tested) && math.Abs(c.Delta()) >= least {
				some = append(some, c)
			}
		}
		slices.SortStableFunc(some, func(a, b *correlate.Change) int {
			return cmp.Compare(math.Abs(b.Delta()), math.Abs(a.Delta()))
		})
		shown = append(shown, some[:min(most, len(some))]...)
	}
	largest(correlate.MetricPart, mostParts)
	largest(correlate.MetricAdopted, mostParts)
	functions := len(shown)
	largest(correlate.MetricCUDA, mostFunctions)
	for _, c := range shown[functions:] {
		calls := s.Find(correlate.Metric{Kind: correlate.MetricCalls, Of: c.Of})
		if calls.Significant {
			shown = append(shown, &calls)
		}
	}
	return shown
}

func mean(e *correlate.Estimate) float64 {
	if e == nil {
		return 0
	}
	return e.Mean
}

func changeRow(s *correlate.StageChange, c *correlate.Change, below bool) gridRow {
	name, depth := textCell(s.Path.Joined), 0
	switch {
	case below:
		name.text, depth = printable(shortName(c.Metric)), 1
	case s.Process:
		name.text += " (whole process)"
	}
	unit, times := "ns", s.Iterations.After
	if c.Count() {
		unit = "calls"
	}
	if s.Sides == correlate.BeforeOnly {
		times = s.Iterations.Before
	}
	row := gridRow{cells: []gridCell{name, textCell(c.Metric.String())}, depth: depth}
	for _, e := range []*correlate.Estimate{c.Before, c.After} {
		row.cells = append(row.cells, estimateCells(c.Metric, e)...)
	}
	row.cells = append(row.cells,
		gridCell{deltaText(s, c), c.Delta()}, gridCell{changeText(s, c), nil}, gridCell{pText(c, ""), nil},
		gridCell{raw: c.Significant}, gridCell{impactText(c, times), c.Delta() * times},
		gridCell{raw: unit}, gridCell{raw: string(s.Sides)},
		gridCell{raw: s.Iterations.Before}, gridCell{raw: s.Iterations.After},
		gridCell{raw: s.Rate.Before}, gridCell{raw: s.Rate.After})
	const ratio, p = 11, 12
	if r, ok := c.Ratio(); ok {
		row.cells[ratio].raw = r
	}
	if c.Tested {
		row.cells[p].raw = c.P
	}
	return row
}

// estimateCells are the mean, the ends of its interval, and the number of
// iterations.
func estimateCells(m correlate.Metric, e *correlate.Estimate) []gridCell {
	if e == nil {
		return []gridCell{{text: missing}, {}, {}, {}}
	}
	cells := []gridCell{{valueText(m, e.Mean), e.Mean}, {}, {}, {raw: e.N}}
	if e.N > 1 {
		cells[1].raw, cells[2].raw = e.Low, e.High
	}
	return cells
}

func estimateText(e *correlate.Estimate) string {
	return valueText(correlate.Metric{Kind: correlate.MetricWall}, mean(e))
}

func valueText(m correlate.Metric, v float64) string {
	if m.Count() {
		return number(v)
	}
	return duration(uint64(math.Round(max(v, 0))))
}

// number writes a mean of counts with three digits.
func number(v float64) string {
	if v >= 1000 {
		return count(uint64(math.Round(v)))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// signed writes a change of time.
func signed(ns float64) string {
	sign := "+"
	if ns < 0 {
		sign = "-"
	}
	return sign + duration(uint64(math.Round(math.Abs(ns))))
}

func deltaText(s *correlate.StageChange, c *correlate.Change) string {
	switch {
	case s.Sides == correlate.AfterOnly:
		return "new"
	case s.Sides == correlate.BeforeOnly:
		return "gone"
	case c.Before == nil || c.After == nil:
		return missing
	case c.Tested && !c.Significant:
		return "~"
	case !c.Count():
		return signed(c.Delta())
	case c.Delta() < 0:
		return "-" + number(-c.Delta())
	default:
		return "+" + number(c.Delta())
	}
}

func changeText(s *correlate.StageChange, c *correlate.Change) string {
	if s.Sides != correlate.BothSides || (c.Tested && !c.Significant) {
		return ""
	}
	return ratioText(c)
}

// ratioText is the change in percent of the value before.
func ratioText(c *correlate.Change) string {
	ratio, ok := c.Ratio()
	switch {
	case !ok:
		return ""
	case math.Abs(ratio) >= 9.995:
		return fmt.Sprintf("×%.0f", 1+ratio)
	default:
		return fmt.Sprintf("%+.1f%%", 100*ratio)
	}
}

// pText writes a p-value, after a name for it if there is one.
func pText(c *correlate.Change, name string) string {
	equals := name
	if name != "" {
		equals += "="
	}
	switch {
	case !c.Tested:
		return name + missing
	case c.P < 0.001:
		return name + "<0.001"
	default:
		return equals + strconv.FormatFloat(c.P, 'f', 3, 64)
	}
}

func impactText(c *correlate.Change, times float64) string {
	if c.Count() || (c.Tested && !c.Significant) || (c.Before == nil && c.After == nil) {
		return ""
	}
	return signed(c.Delta() * times)
}

func (t *text) writeChangeNotes(c *correlate.Comparison) {
	note := func(text string) { writeWords(&t.Builder, text, "", "", t.width) }
	note("BEFORE and AFTER are means of an iteration: of one complete span. IMPACT: the change times the iterations of a run after.")
	tested := fmt.Sprintf("P: how likely chance alone makes such a difference; ~ not significant, P is not below %v.", c.Options.Alpha)
	if len(c.Before) < 2 || len(c.After) < 2 {
		tested += " It compares the iterations of these runs. Runs of one program differ too: record several on each side to take that in."
	}
	note(tested)
	if skip := skipText(c.Options.Skip); skip != "" {
		note("Left out: " + skip + ".")
	}
}

// skipText says which iterations are left out, "" for none.
func skipText(s correlate.Skip) string {
	var what []string
	switch {
	case s.First == 1:
		what = append(what, "the first iteration")
	case s.First > 1:
		what = append(what, "the first "+plural(uint64(s.First), "iteration"))
	}
	if s.Warmup {
		what = append(what, "the warm-up")
	}
	if len(what) == 0 {
		return ""
	}
	return strings.Join(what, " and ") + " of each stage on each thread"
}

func (t *text) writeVerdicts(verdicts []correlate.Verdict) {
	if len(verdicts) == 0 {
		return
	}
	t.printf("\nCONDITIONS\n")
	var rows []row
	for _, v := range verdicts {
		word := "ok"
		if len(v.Met) > 0 {
			word = "FAILED"
		}
		rows = append(rows, row{cells: []string{word, printable(v.Text)}})
		for i := range v.Met {
			rows = append(rows, row{cells: []string{"", "  " + MetText(&v.Met[i])}})
		}
	}
	writeList(&t.Builder, rows, t.width)
}

// MetText says which change met a condition.
func MetText(m *correlate.Met) string {
	p := "not tested"
	if m.Tested {
		p = pText(&m.Change, "p")
	}
	change := strings.TrimSpace(ratioText(&m.Change) + " " + p)
	return fmt.Sprintf("%s: %s %s → %s %s", printable(m.Path.Joined), printable(m.Metric.String()),
		valueText(m.Metric, mean(m.Before)), valueText(m.Metric, mean(m.After)), change)
}

type jsonComparison struct {
	Format     int             `json:"format"`
	Headline   string          `json:"headline"`
	Alpha      float64         `json:"alpha"`
	Confidence float64         `json:"confidence"`
	SkipFirst  int             `json:"skip_first"`
	SkipWarmup bool            `json:"skip_warmup"`
	Before     []jsonRun       `json:"before"`
	After      []jsonRun       `json:"after"`
	Stages     []jsonChanged   `json:"stages"`
	Conditions []jsonCondition `json:"conditions"`
	Warnings   []string        `json:"warnings"`
}

type jsonRun struct {
	File       string   `json:"file"`
	Version    string   `json:"version"`
	Program    string   `json:"program"`
	Cmdline    []string `json:"cmdline"`
	PID        int      `json:"pid"`
	Rank       int      `json:"rank"`
	DurationNS int64    `json:"duration_ns"`
	Calls      uint64   `json:"calls"`
	LostCalls  uint64   `json:"lost_calls"`
}

type jsonChanged struct {
	StagePath  string            `json:"stage_path"`
	Process    bool              `json:"process"`
	Sides      correlate.Sides   `json:"sides"`
	Iterations jsonPair[float64] `json:"iterations"`
	PerS       jsonPair[float64] `json:"per_s"`
	ImpactNS   float64           `json:"impact_ns"`
	Metrics    []jsonChange      `json:"metrics"`
}

type jsonPair[T any] struct {
	Before T `json:"before"`
	After  T `json:"after"`
}

type jsonChange struct {
	Metric      string        `json:"metric"`
	Unit        string        `json:"unit"`
	Before      *jsonEstimate `json:"before"`
	After       *jsonEstimate `json:"after"`
	Delta       float64       `json:"delta"`
	DeltaRatio  *float64      `json:"delta_ratio"`
	P           *float64      `json:"p"`
	Significant bool          `json:"significant"`
}

type jsonEstimate struct {
	Mean float64  `json:"mean"`
	Low  *float64 `json:"low"`
	High *float64 `json:"high"`
	N    int      `json:"n"`
}

type jsonCondition struct {
	Condition string   `json:"condition"`
	Failed    bool     `json:"failed"`
	Met       []string `json:"met"`
}

// CompareJSON writes a comparison as one JSON object, which the package's doc
// describes.
func CompareJSON(w io.Writer, c *correlate.Comparison, o CompareOptions) error {
	d := jsonComparison{
		Format: jsonFormat, Headline: Headline(c), Alpha: c.Options.Alpha, Confidence: correlate.Confidence,
		SkipFirst: c.Options.Skip.First, SkipWarmup: c.Options.Skip.Warmup,
		Before: runsOf(c.Before), After: runsOf(c.After),
		Stages: []jsonChanged{}, Conditions: []jsonCondition{}, Warnings: append([]string{}, c.Warnings...),
	}
	for i := range c.Stages {
		d.Stages = append(d.Stages, changedOf(&c.Stages[i]))
	}
	for _, v := range o.Verdicts {
		j := jsonCondition{Condition: v.Text, Failed: len(v.Met) > 0, Met: []string{}}
		for i := range v.Met {
			j.Met = append(j.Met, MetText(&v.Met[i]))
		}
		d.Conditions = append(d.Conditions, j)
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(d); err != nil {
		return fmt.Errorf("writing comparison: %w", err)
	}
	return nil
}

func runsOf(runs []correlate.Run) []jsonRun {
	list := []jsonRun{}
	for _, run := range runs {
		r := run.Ledger.Source
		list = append(list, jsonRun{
			File: run.Name, Version: r.Tool.Version, Program: correlate.Program(&r.Target),
			Cmdline: append([]string{}, r.Target.Cmdline...), PID: r.Target.PID, Rank: r.Target.Rank,
			DurationNS: int64(r.Window.Duration), Calls: run.Ledger.All.Count, LostCalls: run.Ledger.Balance.Lost,
		})
	}
	return list
}

func changedOf(s *correlate.StageChange) jsonChanged {
	j := jsonChanged{
		StagePath: s.Path.Joined, Process: s.Process, Sides: s.Sides, ImpactNS: s.ImpactNS,
		Iterations: jsonPair[float64](s.Iterations), PerS: jsonPair[float64](s.Rate), Metrics: []jsonChange{},
	}
	for i := range s.Changes {
		c := &s.Changes[i]
		change := jsonChange{
			Metric: c.Metric.String(), Unit: "ns", Before: estimateOf(c.Before), After: estimateOf(c.After),
			Delta: c.Delta(), Significant: c.Significant,
		}
		if c.Count() {
			change.Unit = "calls"
		}
		if ratio, ok := c.Ratio(); ok {
			change.DeltaRatio = &ratio
		}
		if c.Tested {
			change.P = &c.P
		}
		j.Metrics = append(j.Metrics, change)
	}
	return j
}

func estimateOf(e *correlate.Estimate) *jsonEstimate {
	if e == nil {
		return nil
	}
	j := &jsonEstimate{Mean: e.Mean, N: e.N}
	if e.N > 1 {
		j.Low, j.High = &e.Low, &e.High
	}
	return j
}
