package top

import (
	"fmt"
	"slices"
	"strings"

	"stageprof/correlate"
	"stageprof/report"
)

// rows are what the table has, all of them.
func (s *screen) rows() []*row {
	if s.sample == nil {
		return nil
	}
	return rowsOf(s.sample, s.order, s.unit, s.filter)
}

// selection is the index of the selected row, 0 if it is not there.
func (s *screen) selection(rows []*row) int {
	return max(slices.IndexFunc(rows, func(r *row) bool { return r.key == s.stage }), 0)
}

// columns of the table. Narrow screens go without some.
func (s *screen) columns() []column {
	per := "/" + s.unit.sign()
	again, never := 0, 0
	if s.printed || s.sample.ended() != "" { // nothing to compare
		again = s.width + 1
	}
	if s.printed {
		never = s.width + 1
	}
	return []column{
		{title: "  STAGE", left: true},
		{title: "SPANS/S"},
		{title: "WALL" + per},
		{title: "ALL", from: max(74, again)},
		{title: "CHANGE", from: max(82, again)},
		{title: "CUDA" + per, from: 92},
		{title: "HELD" + per, from: 102},
		{title: barTitle, bar: true},
		{title: "TREND", left: true, from: max(118, never)},
	}
}

const (
	barTitle   = "PARTS OF WALL"
	trendCells = 14

	legendHeight = 16 // lower screens go without a legend
)

func (s *screen) cells(r *row, selected bool) []cell {
	trend := spark(s.sample.trend.of(r.key, s.unit), trendCells)
	return []cell{
		{line: nameLine(r, selected)},
		numberCell(number(r.now.iterations())),
		numberCell(duration(r.now.wallIn(s.unit))),
		numberCell(duration(r.all.wallIn(s.unit))),
		changeCell(r.change(s.unit)),
		numberCell(duration(r.now.of(s.unit, r.now.cuda))),
		numberCell(duration(r.now.of(s.unit, r.now.held))),
		{fill: func(width int) line { return bar(r.now.parts, width) }},
		{line: line{{trend, dim}}.padded(trendCells, true)},
	}
}

func nameLine(r *row, isSelected bool) line {
	mark, l := "  ", plain
	if isSelected {
		mark, l = "▸ ", selected
	}
	return line{{mark, l}, {strings.Repeat("  ", r.depth), plain}, {r.name, l}}
}

// table is the table of stages, with room lines at most; no bound if it is 0.
func (s *screen) table(room int) []line {
	rows := s.rows()
	var partitions []*correlate.Partition
	for _, r := range rows {
		partitions = append(partitions, r.now.parts)
	}
	var explained []line
	if s.printed || s.height >= legendHeight {
		explained = legend(partitions, s.width)
	}
	at := s.selection(rows)
	if s.printed {
		at = -1
	}
	var cells [][]cell
	for i, r := range rows {
		cells = append(cells, s.cells(r, i == at))
	}
	head, lines := grid(s.columns(), cells, s.width)
	if len(rows) == 0 {
		lines = wrapped(s.whyEmpty(), "", s.width)
	}
	if room > 0 {
		lines = s.window(s.follow(lines, at, room-1-len(explained)), room-1-len(explained))
	}
	return append(append([]line{head}, lines...), explained...)
}

// follow scrolls so far that the selected line is among those shown.
func (s *screen) follow(lines []line, at, room int) []line {
	s.scroll = min(s.scroll, at)
	if at >= s.scroll+room-1 && len(lines) > room { // the last line may say that there are more
		s.scroll = min(at-room+2, len(lines)-room)
	}
	return lines
}

func (s *screen) whyEmpty() string {
	if s.filter != "" {
		return fmt.Sprintf("No stage has “%s” in its path.", report.Printable(s.filter))
	}
	return `No stage and no driver call yet. Mark stages in the training code, e.g. with stageprof.stage("forward"): ...`
}
