package top

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/report"
)

// rowKey tells rows apart, through all samples.
type rowKey struct {
	outside bool // any stage; there is one such row
	process bool
	path    string                // joined
	adopted recording.Attribution // "": the stage itself
}

// row is one line of the table.
type row struct {
	key      rowKey
	name     string // printable
	depth    int
	now, all figures
	sorted   *figures // what the order goes by: all, or now right after a reset
	inside   []*row
}

// order is what rows are sorted by.
type order int

const (
	byCUDA order = iota
	byWall
	byHeld
	byChange
	byName
	orders // how many there are
)

func (o order) String() string {
	return [...]string{byCUDA: "cuda", byWall: "wall", byHeld: "GIL held", byChange: "change", byName: "name"}[o]
}

// figures are those of every row that something is known of.
func (s *span) figures() map[rowKey]figures {
	all := map[rowKey]figures{}
	if s == nil {
		return all
	}
	window := s.Source.Window.Duration
	for i := range s.Stages {
		st := &s.Stages[i]
		key := keyOf(st)
		all[key] = stageFigures(st, s.iterations[key], window)
		for j := range st.Adopted {
			a := &st.Adopted[j]
			if a.Own.Count > 0 {
				key.adopted = a.Attribution
				all[key] = adoptedFigures(&a.Own.Sum, all[keyOf(st)])
			}
		}
	}
	if s.Outside.Count > 0 || s.PartsOutside != nil {
		all[outsideKey] = outsideFigures(s.Ledger)
	}
	return all
}

var outsideKey = rowKey{outside: true}

func keyOf(s *correlate.Stage) rowKey { return rowKey{process: s.Process, path: s.Path.Joined} }

// rowsOf arranges what a sample has something about as a tree, and sets it out
// in lines, parents before their children.
func rowsOf(s *sample, o order, u unit, filter string) []*row {
	now, all := s.now.figures(), s.all.figures()
	rows := map[rowKey]*row{}
	top := &row{}
	for _, l := range []*span{s.now, s.all} {
		if l == nil {
			continue
		}
		for i := range l.Stages {
			addStage(rows, top, &l.Stages[i])
		}
	}
	for _, known := range []map[rowKey]figures{now, all} {
		if _, ok := known[outsideKey]; ok && rows[outsideKey] == nil {
			addRow(rows, top, outsideKey, report.OutsideTitle)
		}
	}
	window := s.now.Source.Window.Duration
	for key, r := range rows {
		r.now, r.all = now[key], all[key]
		r.sorted = &r.all
		if s.all == nil {
			r.sorted = &r.now
		}
		if _, ok := now[key]; !ok {
			r.now = figures{window: window, mean: unknown, timed: r.all.timed} // nothing of it happened
		}
	}
	top.sort(o, u)
	return top.lines(nil, strings.ToLower(filter))
}

// addStage adds the row of a stage and those of what others did for it, unless
// they are there. Its parents come before it.
func addStage(rows map[rowKey]*row, top *row, s *correlate.Stage) {
	key := keyOf(s)
	r := rows[key]
	if r == nil {
		parent := top
		if outer := len(s.Path.Joined) - len(s.Path.Innermost()) - 1; outer > 0 && len(s.Path.Names) > 1 {
			parent = rows[rowKey{process: s.Process, path: s.Path.Joined[:outer]}]
		}
		name := report.Printable(s.Path.Innermost())
		if s.Process && parent == top {
			name += " (whole process)"
		}
		r = addRow(rows, parent, key, name)
	}
	for i := range s.Adopted {
		key.adopted = s.Adopted[i].Attribution
		if rows[key] == nil && s.Adopted[i].Own.Count > 0 {
			addRow(rows, r, key, "+ "+string(key.adopted))
		}
	}
}

func addRow(rows map[rowKey]*row, parent *row, key rowKey, name string) *row {
	r := &row{key: key, name: name, depth: parent.depth + 1}
	if parent.name == "" {
		r.depth = 0
	}
	rows[key] = r
	parent.inside = append(parent.inside, r)
	return r
}

func (r *row) sort(o order, u unit) {
	slices.SortStableFunc(r.inside, func(a, b *row) int {
		return cmp.Or(
			cmp.Compare(a.rank(), b.rank()), descending(a.weight(o, u), b.weight(o, u)),
			strings.Compare(a.name, b.name), strings.Compare(a.key.path, b.key.path))
	})
	for _, c := range r.inside {
		c.sort(o, u)
	}
}

// rank keeps what others did right below its stage, and what is outside last.
func (r *row) rank() int {
	switch {
	case r.key.outside:
		return 2
	case r.key.adopted != "":
		return 0
	default:
		return 1
	}
}

// weight is what a row is sorted by; the heaviest is first.
func (r *row) weight(o order, u unit) float64 {
	switch o {
	case byCUDA:
		return r.cost()
	case byWall:
		return r.sorted.wall
	case byHeld:
		return r.sorted.held
	case byChange:
		return math.Abs(r.change(u))
	default:
		return 0
	}
}

// cost is all driver time that the row is the reason of.
func (r *row) cost() float64 {
	cost := r.sorted.cuda
	for _, c := range r.inside {
		if c.key.adopted != "" {
			cost += c.sorted.cuda
		} else {
			cost += c.cost() - c.sorted.cuda // r has what is inside it already
		}
	}
	return cost
}

// descending puts the larger one first, and what is not known last.
func descending(a, b float64) int {
	switch {
	case math.IsNaN(a) && math.IsNaN(b):
		return 0
	case math.IsNaN(a):
		return 1
	case math.IsNaN(b):
		return -1
	default:
		return cmp.Compare(b, a)
	}
}

// change is how much longer the wall time of now is than that of all, as a
// share of the latter.
func (r *row) change(u unit) float64 {
	now, all := r.now.wallIn(u), r.all.wallIn(u)
	if !(all > 0) {
		return unknown
	}
	return now/all - 1
}

// lines appends the rows inside r, depth first. Of a filter that is not empty
// remain the rows whose path has it in it, with those around and inside them.
func (r *row) lines(to []*row, filter string) []*row {
	for _, c := range r.inside {
		if strings.Contains(strings.ToLower(c.label()), filter) {
			to = c.lines(append(to, c), "")
			continue
		}
		if found := c.lines(nil, filter); len(found) > 0 {
			to = append(append(to, c), found...)
		}
	}
	return to
}

// label is what a filter looks at.
func (r *row) label() string {
	if r.key.outside || r.key.adopted != "" {
		return r.name
	}
	return report.Printable(r.key.path)
}
