package top

import (
	"cmp"
	"image/color"
	"slices"
	"strings"

	"charm.land/lipgloss/v2"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/report"
)

// segment is a part of a bar. Without colours its letter tells it apart.
type segment struct {
	title  string
	letter string
	colour color.Color
	rare   bool // named in the legend only where it occurs
	holds  func(correlate.PartName) bool
}

// ink is how a column of parts is drawn.
type ink struct {
	letter, held       string
	colour, heldColour string
}

// inks are by the titles of report's columns. The colours are of middle
// brightness: they are seen on dark and on light ground.
var inks = map[string]ink{
	"CUDA CPU":  {letter: "c", held: "C", colour: "#2e9e4f", heldColour: "#e0457b"},
	"CUDA BLKD": {letter: "b", held: "B", colour: "#3f7fd0", heldColour: "#a33ea1"},
	"GIL WAIT":  {letter: "g", colour: "#d9a400"},
	"RUNNABLE":  {letter: "r", colour: "#e07b39"},
	"BLOCKED":   {letter: ".", colour: "#6b7280"},
	"RUNNING":   {letter: "#", colour: "#9fb4c7"},
	"PROBES":    {letter: "p", colour: "#c0392b"},
	"INSIDE":    {letter: ">", colour: "#4a4f57"},
	"UNKNOWN":   {letter: "?", colour: "#8a6d3b"},
}

// heldTitle is that of the segment after the one whose time it was taken from.
const heldTitle = "GIL held"

// segments are all of them, in the order in which they are drawn.
var segments = makeSegments()

func makeSegments() (all []segment) {
	for _, column := range report.PartColumns() {
		i, known := inks[column.Title()]
		if !known {
			i = ink{letter: "?", colour: "#8a6d3b"}
		}
		s := segment{
			title: strings.ToLower(column.Title()), letter: i.letter, colour: lipgloss.Color(i.colour),
			rare:  column.Rare(),
			holds: func(n correlate.PartName) bool { return column.Holds(n.Kind) },
		}
		if i.held == "" {
			all = append(all, s)
			continue
		}
		free, held := s, s
		held.title, held.letter, held.colour = heldTitle, i.held, lipgloss.Color(i.heldColour)
		free.holds = func(n correlate.PartName) bool { return s.holds(n) && n.GIL != recording.GILHeld }
		held.holds = func(n correlate.PartName) bool { return s.holds(n) && n.GIL == recording.GILHeld }
		all = append(all, free, held)
	}
	return all
}

// divideSegments gives the time of each segment.
func divideSegments(p *correlate.Partition) []uint64 {
	ns := make([]uint64, len(segments))
	if p == nil {
		return ns
	}
	for _, part := range p.Parts {
		if i := slices.IndexFunc(segments, func(s segment) bool { return s.holds(part.PartName) }); i >= 0 {
			ns[i] += part.NS
		}
	}
	return ns
}

// bar is all of a wall time in width cells.
func bar(p *correlate.Partition, width int) (l line) {
	if p == nil || p.WallNS == 0 {
		return nil
	}
	for i, n := range apportion(divideSegments(p), width) {
		if n > 0 {
			l = append(l, piece{strings.Repeat(segments[i].letter, n), segmentLook + look(i)})
		}
	}
	return l
}

// apportion divides n among shares, so that all of it is given away: what each
// is due, rounded down, and what is left to those that rounding took most from.
func apportion(shares []uint64, n int) []int {
	var whole float64
	for _, s := range shares {
		whole += float64(s)
	}
	given := make([]int, len(shares))
	if whole == 0 {
		return given
	}
	lost, order, left := make([]float64, len(shares)), make([]int, len(shares)), n
	for i, s := range shares {
		due := float64(n) * float64(s) / whole
		given[i] = int(due)
		lost[i], order[i] = due-float64(given[i]), i
		left -= given[i]
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(lost[b], lost[a]) })
	for _, i := range order[:min(max(left, 0), len(order))] {
		given[i]++
	}
	return given
}

// legend says what the segments of the bars are.
func legend(partitions []*correlate.Partition, width int) []line {
	occurs := make([]bool, len(segments))
	for _, p := range partitions {
		for i, ns := range divideSegments(p) {
			occurs[i] = occurs[i] || ns > 0
		}
	}
	var items []line
	for i, s := range segments {
		if !s.rare || occurs[i] {
			items = append(items, line{{s.letter, segmentLook + look(i)}, {" " + s.title, dim}})
		}
	}
	return flow(items, "  ", width)
}

// sparks are eighths of a cell.
var sparks = []rune(" ▁▂▃▄▅▆▇█")

// spark draws the last values of a series, the highest one as a full cell. What
// is not known is a gap.
func spark(values []float64, width int) string {
	values = values[max(len(values)-width, 0):]
	var top float64
	for _, v := range values {
		if v > top { // false of what is not known
			top = v
		}
	}
	var b strings.Builder
	for _, v := range values {
		switch {
		case !(v >= 0):
			b.WriteRune(' ')
		case top == 0:
			b.WriteRune(sparks[1])
		default:
			b.WriteRune(sparks[1+int(v/top*float64(len(sparks)-2))])
		}
	}
	return b.String()
}
