package report

import (
	"cmp"
	"slices"

	"stageprof/correlate"
	"stageprof/recording"
)

// node is a stage with the stages inside it.
type node struct {
	stage    *correlate.Stage
	children []*node
}

// cost is what the order of stages goes by: all driver time that they are the
// reason of.
func (n *node) cost() uint64 {
	cost := n.stage.Within.WallNS
	for _, a := range n.stage.Adopted {
		cost += a.Within.WallNS
	}
	return cost
}

// tree arranges the Ledger's stages, the costliest ones first.
func tree(stages []correlate.Stage) []*node {
	type key struct {
		process bool
		path    string
	}
	root := &node{}
	nodes := map[key]*node{}
	for i := range stages {
		s := &stages[i]
		n := &node{stage: s}
		nodes[key{s.Process, s.Path.Joined}] = n
		parent := root
		if depth := len(s.Path.Names); depth > 1 {
			above := len(s.Path.Joined) - len(s.Path.Innermost()) - 1
			// Only a damaged file has a stage inside of what was left out.
			parent = cmp.Or(nodes[key{s.Process, s.Path.Joined[:above]}], root)
		}
		parent.children = append(parent.children, n)
	}
	root.sort()
	return root.children
}

func (n *node) sort() {
	slices.SortStableFunc(n.children, func(a, b *node) int {
		return cmp.Or(cmp.Compare(b.cost(), a.cost()), cmp.Compare(wallOf(b.stage), wallOf(a.stage)))
	})
	for _, c := range n.children {
		c.sort()
	}
}

func wallOf(s *correlate.Stage) uint64 {
	if s.Spans == nil {
		return 0
	}
	return s.Spans.WindowNS()
}

const (
	outsideTitle = "(outside any stage)"
	itselfTitle  = "(itself)"
	allTitle     = "all calls"
)

func (t *text) writeStages() {
	l := t.ledger
	stages := &table{titles: slices.Concat([]string{"STAGE", "SPANS", "WALL", "PER SPAN", "CUDA", "%WALL"}, t.gilTitles(), []string{"CALLS"})}
	for _, n := range tree(l.Stages) {
		t.addStage(stages, n, 0)
	}
	if l.Outside.Count > 0 {
		t.addCalls(stages, outsideTitle, 0, &l.Outside)
	}
	all := l.All
	all.Symbols = nil // the next table is about them
	t.addCalls(stages, allTitle, 0, &all)
	t.printf("\n")
	stages.write(&t.Builder, t.width)
	t.writeStageNotes()
}

func (t *text) addStage(to *table, n *node, depth int) {
	s := n.stage
	name := printable(s.Path.Innermost())
	if s.Process && depth == 0 {
		name += " (whole process)"
	}
	within := s.Within
	spans := s.Spans
	if len(n.children) > 0 {
		within.Symbols = nil // they are named below
	}
	whole := wholeTime(spans, within.WallNS)
	if s.Process {
		whole.share = "" // it is on no thread, so no thread's calls are a part of it
	}
	to.rows = append(to.rows, t.stageRow(name, depth, whole, &within))
	if len(n.children) == 0 {
		t.addAdopted(to, s, depth+1)
		return
	}
	for _, child := range n.children {
		t.addStage(to, child, depth+1)
	}
	if !s.Process && (spans != nil || s.Own.Count > 0) {
		to.rows = append(to.rows, t.stageRow(itselfTitle, depth+1, exclusiveTime(spans, s.Own.WallNS), &s.Own))
	}
	t.addAdopted(to, s, depth+1)
}

// addAdopted adds a row for what other threads did for the stage itself.
func (t *text) addAdopted(to *table, s *correlate.Stage, depth int) {
	for i := range s.Adopted {
		if a := &s.Adopted[i]; a.Own.Count > 0 {
			t.addCalls(to, "+ "+string(a.Attribution), depth, &a.Own)
		}
	}
}

// addCalls adds a row of calls that are no part of any wall time.
func (t *text) addCalls(to *table, name string, depth int, b *correlate.Breakdown) {
	to.rows = append(to.rows, t.stageRow(name, depth, timeCells{}, b))
}

// timeCells are what the table says about a stage's time.
type timeCells struct{ spans, wall, perSpan, share string }

// stageRow is a row of the table of stages.
func (t *text) stageRow(name string, depth int, time timeCells, b *correlate.Breakdown) row {
	return row{
		cells: slices.Concat(
			[]string{name, time.spans, time.wall, time.perSpan, duration(b.WallNS), time.share},
			t.gilCells(&b.Sum), []string{count(b.Count)}),
		notes: t.symbolNotes(b),
		depth: depth,
	}
}

// wholeTime is the time of a stage's spans, of which cudaNS was spent in calls.
func wholeTime(s *correlate.Spans, cudaNS uint64) timeCells {
	if s == nil {
		return timeCells{missing, missing, missing, missing}
	}
	return timeCells{spanCount(s), duration(s.WindowNS()), perSpan(s.WallNS, s.Count), shareOf(cudaNS, s.WindowNS())}
}

// exclusiveTime is the same without the stages inside.
func exclusiveTime(s *correlate.Spans, cudaNS uint64) timeCells {
	if s == nil {
		return timeCells{missing, missing, missing, missing}
	}
	return timeCells{"", duration(s.ExclusiveWindowNS()), perSpan(s.ExclusiveNS, s.Count), shareOf(cudaNS, s.ExclusiveWindowNS())}
}

func shareOf(part, whole uint64) string {
	if whole == 0 {
		return missing
	}
	return percent(float64(part) / float64(whole))
}

func spanCount(s *correlate.Spans) string {
	if s.Partial.Count == 0 {
		return count(s.Count)
	}
	return count(s.Count) + " +" + count(s.Partial.Count)
}

func perSpan(wall, spans uint64) string {
	if spans == 0 {
		return missing
	}
	return duration(wall / spans)
}

// symbolNotes names the functions that cost the stage most.
func (t *text) symbolNotes(b *correlate.Breakdown) (notes []string) {
	for i := range b.Symbols[:min(t.top, len(b.Symbols))] {
		s := &b.Symbols[i]
		note := printable(s.Name) + " " + duration(s.WallNS) + " ×" + count(s.Count)
		if held := s.GIL[recording.GILHeld]; held.WallNS > s.WallNS/2 {
			note += " GIL held" + causedNote(&held)
		}
		notes = append(notes, note)
	}
	return notes
}

// causedNote is what follows "held" of calls that others waited for the GIL in.
func causedNote(held *correlate.Total) string {
	if held.GILWaitCausedNS == 0 {
		return ""
	}
	return ", others waited " + duration(held.GILWaitCausedNS)
}

// writeStageNotes explains what of the table is not clear by itself, and only
// what occurs in it.
func (t *text) writeStageNotes() {
	l := t.ledger
	note := func(text string) { writeWords(&t.Builder, text, "", "", t.width) }
	if len(l.Stages) == 0 {
		note(`No stage was seen. Mark stages in the training code, e.g. with stageprof.stage("forward"): ...`)
		return
	}
	note("CUDA is host time inside driver calls, not GPU time. WALL and CUDA are summed over threads and include the stages inside.")
	var partial, adopted, unseen, python bool
	for i := range l.Stages {
		s := &l.Stages[i]
		partial = partial || (s.Spans != nil && s.Spans.Partial.Count > 0)
		adopted = adopted || len(s.Adopted) > 0
		unseen = unseen || s.Spans == nil && !s.Python
		python = python || s.Python
	}
	if partial {
		note("+n: spans that the edge of the recording cut; they count in WALL and %WALL, not in PER SPAN.")
	}
	if l.All.GILWaitCausedNS > 0 {
		note("others waited: for the GIL, while these calls had it held; summed over threads.")
	}
	if adopted {
		note("+ autograd, + process: calls of other threads on behalf of the stage, beside its WALL.")
	}
	if python {
		note("NAME(): a Python function, with the calls for which it was the innermost one. Its own time is not known: it is part of the stage around it.")
	}
	if unseen {
		note("- : no span of the stage was seen to begin and end, so its time is not known.")
	}
}
