package report

import (
	"stageprof/correlate"
)

// StageTable shows one row for each stage: its spans, its time, what it
// consists of, and its calls, with the stages inside.
func StageTable(l *correlate.Ledger) *View {
	var partitions []*correlate.Partition
	for i := range l.Stages {
		partitions = append(partitions, l.Stages[i].PartsWithin)
	}
	columns := partColumns(partitions)
	g := &grid{columns: []gridColumn{
		{title: "STAGE", key: "stage_path", left: true},
		{title: "SPANS", key: "spans"}, {title: "CUT", key: "partial_spans"}, {title: "WALL", key: "wall_ns"},
		{title: "PER SPAN", key: "mean_ns"}, {title: "CUDA", key: "cuda_ns"}, {title: "CALLS", key: "calls"},
	}}
	for _, c := range columns {
		g.columns = append(g.columns, gridColumn{title: c.title, key: c.key})
	}
	for i := range l.Stages {
		g.rows = append(g.rows, gridRow{cells: stageCells(&l.Stages[i], columns)})
	}
	return &View{grid: g}
}

func stageCells(s *correlate.Stage, columns []partColumn) []gridCell {
	name := textCell(s.Path.Joined)
	if s.Process {
		name.text += " (whole process)"
		name.raw = name.text
	}
	unknown := gridCell{text: missing}
	cells := []gridCell{name, unknown, unknown, unknown, unknown, durationCell(s.Within.WallNS), countCell(s.Within.Count)}
	if spans := s.Spans; spans != nil {
		cells[1], cells[2], cells[3] = countCell(spans.Count), countCell(spans.Partial.Count), durationCell(spans.WindowNS())
		if spans.Count > 0 {
			cells[4] = durationCell(spans.WallNS / spans.Count)
		}
	}
	for _, c := range columns {
		cell := unknown
		if s.PartsWithin != nil {
			cell = durationCell(c.of(s.PartsWithin))
		}
		cells = append(cells, cell)
	}
	return cells
}
