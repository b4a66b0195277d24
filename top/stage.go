package top

import (
	"math"
	"slices"
	"strconv"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/report"
)

// opened is the row that the screen is about.
type opened struct {
	screen   *screen
	row      *row
	now, all *correlate.Stage // nil when nothing is known of it
}

// panel is one table about a stage; it has no lines where it has nothing to say.
type panel func(*opened) []line

var panels = []panel{partsPanel, callsPanel, debtPanel, pythonPanel, threadsPanel}

// stageLines are the panels of the open stage.
func (s *screen) stageLines() []line {
	o := s.open()
	if o == nil {
		return []line{styled(dim, "Nothing is known of this stage since the last reset. esc goes back.")}
	}
	lines := []line{styled(bold, report.Printable(o.title())).cut(s.width)}
	for _, p := range panels {
		if more := p(o); len(more) > 0 {
			lines = append(append(lines, nil), more...)
		}
	}
	return lines
}

func (s *screen) open() *opened {
	if s.stage.outside && s.unit == perIteration { // it has none
		other := *s
		other.unit = perSecond
		return other.open()
	}
	rows := rowsOf(s.sample, s.order, s.unit, "")
	i := slices.IndexFunc(rows, func(r *row) bool { return r.key == s.stage })
	if i < 0 {
		return nil
	}
	return &opened{screen: s, row: rows[i], now: s.sample.now.stage(s.stage), all: s.sample.all.stage(s.stage)}
}

// stage is what is known of a row's stage; those of others beside it have the
// same.
func (s *span) stage(key rowKey) *correlate.Stage {
	if s == nil {
		return nil
	}
	key.adopted = ""
	i := slices.IndexFunc(s.Stages, func(st correlate.Stage) bool { return keyOf(&st) == key })
	if i < 0 {
		return nil
	}
	return &s.Stages[i]
}

func (o *opened) title() string {
	switch {
	case o.row.key.outside:
		return o.row.name
	case o.row.key.adopted != "":
		return o.row.key.path + " " + o.row.name
	default:
		return o.row.key.path
	}
}

// partsPanel says where the wall time went.
func partsPanel(o *opened) []line {
	if o.row.key.adopted != "" {
		return nil
	}
	s, now := o.screen, &o.row.now
	head, lines := grid(s.columns()[1:5], [][]cell{s.cells(o.row, false)[1:5]}, s.width)
	out := append([]line{head}, lines...)
	if now.parts == nil || now.parts.WallNS == 0 {
		return out
	}
	out = append(out, nil, bar(now.parts, s.width))
	var items []line
	for i, ns := range divideSegments(now.parts) {
		if ns == 0 {
			continue
		}
		name := segments[i].title
		if name == heldTitle {
			name = segments[i-1].title + ", " + name
		}
		items = append(items, line{{segments[i].letter, segmentLook + look(i)}, {" " + name + " ", dim},
			{report.Percent(float64(ns) / float64(now.parts.WallNS)), bold},
			{" " + duration(now.of(s.unit, float64(ns))), plain}})
	}
	out = append(out, flow(items, "   ", s.width)...)
	return append(out, flow(blockedReasons(now, s.unit), " · ", s.width)...)
}

// blockedReasons divide the blocked segment, where there is something to divide.
func blockedReasons(f *figures, u unit) (items []line) {
	for _, part := range f.parts.Parts {
		if part.Kind.Blocked() && float64(part.NS)*1000 > float64(f.parts.WallNS) {
			items = append(items, styled(dim, part.String()+" "+duration(f.of(u, float64(part.NS)))))
		}
	}
	return items
}

// calls are those that a row's CUDA sums up.
func (o *opened) calls(in *span, st *correlate.Stage) []correlate.Named {
	switch {
	case in != nil && o.row.key.outside:
		return in.Outside.Symbols
	case st == nil:
		return nil
	case o.row.key.adopted == "":
		return st.Within.Symbols
	}
	for i := range st.Adopted {
		if a := &st.Adopted[i]; a.Attribution == o.row.key.adopted {
			return a.Own.Symbols
		}
	}
	return nil
}

// callsPanel is about driver functions.
func callsPanel(o *opened) []line {
	f, unit := &o.row.now, o.unit()
	calls := o.calls(o.screen.sample.now, o.now)
	if len(calls) == 0 {
		return []line{styled(dim, "No driver call ended in the interval.")}
	}
	means := map[string]uint64{}
	for _, n := range o.calls(o.screen.sample.all, o.all) {
		means[n.Name] = n.MeanNS()
	}
	var rows [][]cell
	for i := range calls {
		n := &calls[i]
		rows = append(rows, []cell{
			{line: text(report.Printable(n.Name))},
			numberCell(number(f.of(unit, float64(n.Count)))),
			numberCell(duration(f.of(unit, float64(n.WallNS)))),
			numberCell(duration(f.of(unit, float64(n.GIL[recording.GILFree].WallNS)))),
			heldCell(f.of(unit, float64(n.GIL[recording.GILHeld].WallNS))),
			heldCell(f.of(unit, float64(n.GILWaitCausedNS))),
			numberCell(report.Duration(n.MeanNS())),
			numberCell(report.Duration(means[n.Name])),
			numberCell(report.Count(n.Errors)),
		})
	}
	head, lines := grid([]column{
		{title: "CALL", left: true}, {title: "CALLS/" + unit.sign()}, {title: "CUDA/" + unit.sign()},
		{title: "GIL FREE"}, {title: "GIL HELD"}, {title: causedTitle, from: 74},
		{title: "MEAN", from: 82}, {title: "ALL MEAN", from: 92}, {title: "ERRORS", from: 100},
	}, rows, o.screen.width)
	return append([]line{head}, lines...)
}

// unit is what the numbers of the row's calls are for.
func (o *opened) unit() unit {
	if math.IsNaN(o.row.now.mean) {
		return perSecond // there are no iterations
	}
	return o.screen.unit
}

// causedTitle is that of what other threads waited for the GIL, while calls had it
// held.
const causedTitle = "CAUSED"

// heldCell marks what keeps other threads from running Python.
func heldCell(ns float64) cell {
	c := numberCell(duration(ns))
	if ns > 0 {
		c.line[0].look = bad
	}
	return c
}

func (u unit) sign() string { return [...]string{"IT", "S"}[u] }

// threadsPanel is about the threads that are in the stage.
func threadsPanel(o *opened) []line {
	if o.now == nil || o.row.key.adopted != "" || len(o.now.Threads) == 0 {
		return nil
	}
	var rows [][]cell
	for i := range o.now.Threads {
		t := &o.now.Threads[i]
		thread := &o.screen.sample.now.Threads[t.Thread]
		f := stageFigures(&correlate.Stage{Spans: t.Spans, Parts: t.Parts}, iterations{}, o.row.now.window)
		rows = append(rows, []cell{
			{line: text(report.Printable(thread.Name))},
			numberCell(strconv.Itoa(thread.TID)),
			numberCell(duration(f.wallIn(perSecond))),
			numberCell(duration(f.rate(float64(t.Own.WallNS)))),
			{fill: func(width int) line { return bar(f.parts, width) }},
		})
	}
	head, lines := grid([]column{
		{title: "THREAD", left: true}, {title: "TID"}, {title: "WALL/S"}, {title: "CUDA/S"}, {title: barTitle, bar: true},
	}, rows, o.screen.width)
	return append([]line{head}, lines...)
}
