package top

import (
	"strings"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/report"
)

// mostLines of Python are shown of a stage.
const mostLines = 8

// pythonPanel is about the program's own lines of Python that made the calls. An
// interval has few samples, so it is about all.
func pythonPanel(o *opened) []line {
	all := o.screen.sample.all
	if all == nil || o.row.key.adopted != "" || o.row.key.process {
		return nil
	}
	f, unit := &o.row.all, o.unit()
	var rows [][]cell
	for _, l := range all.PythonLines() {
		if !o.inside(l.Path) || len(rows) == mostLines {
			continue
		}
		rows = append(rows, []cell{
			{line: text(report.PythonName(all.Source, l.Frame))},
			numberCell(number(f.of(unit, float64(l.Count)))),
			numberCell(duration(f.of(unit, float64(l.WallNS)))),
			numberCell(duration(f.of(unit, float64(l.GIL[recording.GILFree].WallNS)))),
			heldCell(f.of(unit, float64(l.GIL[recording.GILHeld].WallNS))),
			heldCell(f.of(unit, float64(l.GILWaitCausedNS))),
			numberCell(report.Count(l.Samples)),
		})
	}
	if len(rows) == 0 {
		return nil
	}
	head, lines := grid([]column{
		{title: "PYTHON LINE, OF ALL (ESTIMATE)", left: true}, {title: "CALLS/" + unit.sign()}, {title: "CUDA/" + unit.sign()},
		{title: "GIL FREE"}, {title: "GIL HELD"}, {title: causedTitle, from: 82}, {title: "SAMPLES", from: 92},
	}, rows, o.screen.width)
	return append([]line{head}, lines...)
}

// inside tells whether a path is that of the open row, or of a stage inside it.
func (o *opened) inside(p correlate.Path) bool {
	if o.row.key.outside || p.Outside() {
		return o.row.key.outside == p.Outside()
	}
	return p.Joined == o.row.key.path || strings.HasPrefix(p.Joined, o.row.key.path+"/")
}
