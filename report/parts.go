package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"stageprof/correlate"
)

// partColumn is a column of the tables of parts: a share of the wall time.
type partColumn struct {
	title string
	key   string
	holds func(correlate.PartKind) bool
	rare  bool // left out where it is 0 everywhere
}

func kind(k correlate.PartKind) func(correlate.PartKind) bool {
	return func(other correlate.PartKind) bool { return k == other }
}

// allPartColumns hold every kind of part once.
var allPartColumns = []partColumn{
	{"CUDA CPU", "cuda_cpu_ns", kind(correlate.PartCUDACPU), false},
	{"CUDA BLKD", "cuda_blocked_ns", kind(correlate.PartCUDABlocked), false},
	{"GIL WAIT", "gil_wait_ns", kind(correlate.PartGILWait), false},
	{"RUNNABLE", "runnable_ns", kind(correlate.PartRunnable), false},
	{"BLOCKED", "blocked_ns", correlate.PartKind.Blocked, false},
	{"RUNNING", "running_ns", kind(correlate.PartRunning), false},
	{"PROBES", "stageprof_ns", kind(correlate.PartProbes), true},
	{"INSIDE", "child_stages_ns", kind(correlate.PartChildren), true},
	{"UNKNOWN", "unknown_ns", kind(correlate.PartUnknown), true},
}

// words is the column's name in a sentence.
func (c *partColumn) words() string {
	return strings.ReplaceAll(strings.TrimSuffix(c.key, "_ns"), "_", " ")
}

func (c *partColumn) of(p *correlate.Partition) (ns uint64) {
	for _, part := range p.Parts {
		if c.holds(part.Kind) {
			ns += part.NS
		}
	}
	return ns
}

// partColumns leaves out what occurs in none of the partitions.
func partColumns(partitions []*correlate.Partition) []partColumn {
	return slices.DeleteFunc(slices.Clone(allPartColumns), func(c partColumn) bool {
		return c.rare && !slices.ContainsFunc(partitions, func(p *correlate.Partition) bool {
			return p != nil && c.of(p) > 0
		})
	})
}

func partTitles(columns []partColumn) (titles []string) {
	for _, c := range columns {
		titles = append(titles, c.title)
	}
	return titles
}

// partCells are the wall time and the shares of it, which sum to 100.0 %.
func partCells(columns []partColumn, p *correlate.Partition) []string {
	cells := []string{missing}
	if p == nil {
		return append(cells, slices.Repeat([]string{missing}, len(columns))...)
	}
	cells[0] = duration(p.WallNS)
	parts := make([]uint64, len(columns))
	for i := range columns {
		parts[i] = columns[i].of(p)
	}
	for i, n := range perMille(parts, p.WallNS) {
		switch {
		case parts[i] == 0:
			cells = append(cells, "0")
		default:
			cells = append(cells, fmt.Sprintf("%d.%d%%", n/10, n%10))
		}
	}
	return cells
}

// perMille rounds the shares of the parts of a whole so that they sum to 1000:
// those that lose most by rounding down are rounded up.
func perMille(parts []uint64, whole uint64) []int {
	shares := make([]int, len(parts))
	if whole == 0 {
		return shares
	}
	lost := make([]float64, len(parts))
	order := make([]int, len(parts))
	left := 1000
	for i, part := range parts {
		exact := 1000 * (float64(part) / float64(whole))
		shares[i] = int(exact)
		lost[i], order[i] = exact-float64(shares[i]), i
		left -= shares[i]
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(lost[b], lost[a]) })
	for _, i := range order[:min(max(left, 0), len(order))] {
		shares[i]++
	}
	return shares
}

// hasParts reports whether anything is known of what wall times consist of.
func hasParts(l *correlate.Ledger) bool {
	return slices.ContainsFunc(l.Stages, func(s correlate.Stage) bool { return s.PartsWithin != nil }) ||
		slices.ContainsFunc(l.Threads, func(t correlate.Thread) bool { return t.Parts != nil })
}

// writeParts writes what the wall time of stages consists of.
func (t *text) writeParts() {
	l := t.ledger
	if !hasParts(l) {
		if slices.ContainsFunc(l.Stages, func(s correlate.Stage) bool { return s.Spans != nil && !s.Process }) {
			t.printf("\n")
			writeWords(&t.Builder, "The recording has no parts of wall time: it does not say what stages did outside of driver calls.", "", "", t.width)
		}
		return
	}
	partitions := []*correlate.Partition{l.PartsOutside}
	for i := range l.Stages {
		partitions = append(partitions, l.Stages[i].PartsWithin, l.Stages[i].Parts)
	}
	columns := partColumns(partitions)
	parts := &table{titles: append([]string{"WALL TIME OF", "WALL"}, partTitles(columns)...)}
	for _, n := range tree(withoutFunctions(l.Stages)) {
		addParts(parts, columns, n, 0)
	}
	if l.PartsOutside != nil {
		addPartsRow(parts, columns, outsideTitle, 0, l.PartsOutside)
	}
	t.printf("\n")
	parts.write(&t.Builder, t.width)
	t.writePartNotes(columns)
}

// withoutFunctions leaves out Python functions, which have no time of their own
// and nothing inside them.
func withoutFunctions(stages []correlate.Stage) []correlate.Stage {
	return slices.DeleteFunc(slices.Clone(stages), func(s correlate.Stage) bool { return s.Python })
}

func addParts(to *table, columns []partColumn, n *node, depth int) {
	s := n.stage
	if s.Process {
		return // it is on no thread
	}
	whole := s.PartsWithin
	if len(n.children) == 0 {
		addPartsRow(to, columns, printable(s.Path.Innermost()), depth, whole)
		return
	}
	to.rows = append(to.rows, row{cells: append([]string{printable(s.Path.Innermost())}, partCells(columns, whole)...), depth: depth})
	for _, child := range n.children {
		addParts(to, columns, child, depth+1)
	}
	if s.Parts != nil {
		addPartsRow(to, columns, itselfTitle, depth+1, s.Parts)
	}
}

// addPartsRow adds a row with the reasons for which the thread was blocked.
func addPartsRow(to *table, columns []partColumn, name string, depth int, p *correlate.Partition) {
	to.rows = append(to.rows, row{cells: append([]string{name}, partCells(columns, p)...), notes: blockedNotes(p), depth: depth})
}

// blockedNotes names the reasons that took most of the time.
func blockedNotes(p *correlate.Partition) (notes []string) {
	if p == nil {
		return nil
	}
	const (
		prefix = "blocked: "
		least  = 0.005 // of the wall time
		most   = 4
	)
	var reasons []correlate.Part
	for _, part := range p.Parts {
		if part.Kind.Blocked() && float64(part.NS) >= least*float64(p.WallNS) {
			reasons = append(reasons, part)
		}
	}
	slices.SortStableFunc(reasons, func(a, b correlate.Part) int { return cmp.Compare(b.NS, a.NS) })
	for _, part := range reasons[:min(most, len(reasons))] {
		notes = append(notes, strings.TrimPrefix(part.String(), prefix)+" "+duration(part.NS))
	}
	if len(notes) > 0 {
		notes[0] = prefix + notes[0]
	}
	return notes
}

func (t *text) writePartNotes(columns []partColumn) {
	note := func(text string) { writeWords(&t.Builder, text, "", "", t.width) }
	note("Each row is 100% of its WALL. CUDA BLKD: off the CPU inside driver calls. GIL WAIT: asleep for Python's lock. RUNNABLE: ready, without a CPU. BLOCKED: asleep for another reason. RUNNING: outside driver calls.")
	for _, c := range columns {
		switch {
		case c.holds(correlate.PartProbes):
			note("PROBES: the probes' own time inside calls, which CUDA CPU does not include.")
		case c.holds(correlate.PartChildren):
			note("INSIDE: in stages inside, of which no more is known since markers or rows were lost.")
		case c.holds(correlate.PartUnknown):
			note("UNKNOWN: the recording does not say.")
		}
	}
}

// mostStages bounds the rows of stages in the table of single spans.
const mostStages = 12

// writeIterations writes how long single spans of the stages took, and their
// largest parts.
func (t *text) writeIterations() {
	var stages []*correlate.Stage
	for i := range t.ledger.Stages {
		if s := &t.ledger.Stages[i]; s.Iterations != nil {
			stages = append(stages, s)
		}
	}
	if len(stages) == 0 {
		return
	}
	slices.SortStableFunc(stages, func(a, b *correlate.Stage) int { return cmp.Compare(wallOf(b), wallOf(a)) })
	spans := &table{titles: []string{"ONE SPAN OF", "SPANS", "MEAN", "%MEAN", "P50", "P99", "MAX"}}
	shown := min(mostStages, len(stages))
	missed, skipped := false, false
	for _, s := range stages[:shown] {
		t.addIterations(spans, s)
		missed = missed || s.Iterations.Missing > 0
		skipped = skipped || s.Iterations.Skipped > 0
	}
	t.printf("\n")
	spans.write(&t.Builder, t.width)
	if rest := len(stages) - shown; rest > 0 {
		t.printf("%s\n", plural(uint64(rest), "more stage"))
	}
	if missed {
		writeWords(&t.Builder, "n of m: the others are in sums only, their single spans were not kept.", "", "", t.width)
	}
	if skipped {
		writeWords(&t.Builder, "n of m: the first ones were left out, as asked for; they are in all other tables.", "", "", t.width)
	}
}

func (t *text) addIterations(to *table, s *correlate.Stage) {
	it := s.Iterations
	number := count(it.Count)
	if whole := it.Count + it.Skipped + it.Missing; whole > it.Count {
		number += " of " + count(whole)
	}
	if it.Count == 0 {
		to.rows = append(to.rows, row{cells: []string{printable(s.Path.Joined), number, missing, "", missing, missing, missing}})
		return
	}
	add := func(name, spans, share string, depth int, d correlate.Distribution) {
		to.rows = append(to.rows, row{cells: []string{
			name, spans, duration(d.MeanNS), share, duration(d.P50NS), duration(d.P99NS), duration(d.MaxNS),
		}, depth: depth})
	}
	add(printable(s.Path.Joined), number, "", 0, it.Wall)
	for _, p := range it.Parts[:min(t.top, len(it.Parts))] {
		if p.MeanNS*100 < it.Wall.MeanNS {
			break // the parts are in order: no more is worth a line
		}
		add(printable(p.String()), "", shareOf(p.MeanNS, it.Wall.MeanNS), 1, p.Distribution)
	}
}

// writeThreadParts writes what threads did all the time, those first that ran
// most.
func (t *text) writeThreadParts() {
	l := t.ledger
	var threads []*correlate.Thread
	var partitions []*correlate.Partition
	for i := range l.Threads {
		if th := &l.Threads[i]; th.Parts != nil {
			threads = append(threads, th)
			partitions = append(partitions, th.Parts)
		}
	}
	if len(threads) == 0 {
		return
	}
	slices.SortStableFunc(threads, func(a, b *correlate.Thread) int { return cmp.Compare(onCPU(b.Parts), onCPU(a.Parts)) })
	columns := partColumns(partitions)
	parts := &table{titles: append([]string{"THREAD", "TID", "ROLE", "WALL"}, partTitles(columns)...)}
	shown := min(mostThreads, len(threads))
	if len(threads) == shown+1 {
		shown++
	}
	for _, th := range threads[:shown] {
		parts.rows = append(parts.rows, row{cells: append(
			[]string{printable(th.Name), strconv.Itoa(th.TID), string(th.Role())}, partCells(columns, th.Parts)...)})
	}
	t.printf("\n")
	parts.write(&t.Builder, t.width)
	if rest := len(threads) - shown; rest > 0 {
		t.printf("%s\n", plural(uint64(rest), "more thread"))
	}
}

func onCPU(p *correlate.Partition) (ns uint64) {
	for _, part := range p.Parts {
		if part.Kind.OnCPU() {
			ns += part.NS
		}
	}
	return ns
}
