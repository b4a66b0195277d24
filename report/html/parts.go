package html

import (
	"slices"
	"strings"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/report"
)

// segment is what a bar is divided into.
type segment struct {
	Title string `json:"title"`
	Class string `json:"class"` // its colour, in the style sheet
	Rare  bool   `json:"rare"`
	holds func(correlate.PartName) bool
}

// segments are the columns of the text report, those of driver time divided by
// whether the GIL was held.
var segments = makeSegments()

func makeSegments() (all []segment) {
	for _, column := range report.PartColumns() {
		s := segment{Title: column.Title(), Class: classOf(column.Title()), Rare: column.Rare()}
		s.holds = func(n correlate.PartName) bool { return column.Holds(n.Kind) }
		if !column.Holds(correlate.PartCUDACPU) && !column.Holds(correlate.PartCUDABlocked) {
			all = append(all, s)
			continue
		}
		free, held := s, s
		free.holds = func(n correlate.PartName) bool { return s.holds(n) && n.GIL != recording.GILHeld }
		held.holds = func(n correlate.PartName) bool { return s.holds(n) && n.GIL == recording.GILHeld }
		held.Title += ", GIL HELD"
		held.Class = classOf(held.Title)
		held.Rare = true
		all = append(all, free, held)
	}
	return all
}

// segmentOf is the index of the segment that a part belongs to: each kind of
// part is in one.
func segmentOf(n correlate.PartName) int {
	return slices.IndexFunc(segments, func(s segment) bool { return s.holds(n) })
}

func classOf(title string) string {
	return "part-" + strings.ToLower(strings.ReplaceAll(strings.ReplaceAll(title, ",", ""), " ", "-"))
}

// partName is what the page calls a part, and the segment that it belongs to.
type partName struct {
	Name    string `json:"name"`
	Segment int    `json:"segment"`
}

// partsData is a Partition; a part is the index of its name and its time.
type partsData struct {
	Wall  uint64      `json:"wall"`
	Parts [][2]uint64 `json:"parts"`
}

func (b *builder) partition(p *correlate.Partition) *partsData {
	if p == nil {
		return nil
	}
	d := &partsData{Wall: p.WallNS, Parts: [][2]uint64{}}
	for _, part := range p.Parts {
		d.Parts = append(d.Parts, [2]uint64{uint64(b.partName(part.PartName)), part.NS})
	}
	return d
}

func (b *builder) partName(n correlate.PartName) int {
	i, ok := b.parts[n]
	if !ok {
		i = len(b.names)
		b.parts[n] = i
		b.names = append(b.names, partName{
			Name:    report.Printable(n.String()),
			Segment: segmentOf(n),
		})
	}
	return i
}
