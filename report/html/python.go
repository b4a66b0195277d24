package html

import (
	"cmp"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/report"
)

type pythonData struct {
	Line    string                      `json:"line"`
	Stage   string                      `json:"stage"`
	From    string                      `json:"from"`
	Calls   totalData                   `json:"calls"`
	GIL     map[recording.GIL]totalData `json:"gil"`
	Symbols []symbolData                `json:"symbols"`
	Samples uint64                      `json:"samples"`
}

type symbolData struct {
	Name string `json:"name"`
	totalData
}

// pythonOf is null when no Python stack was read.
func pythonOf(l *correlate.Ledger) (lines []pythonData) {
	for _, line := range l.PythonLines() {
		d := pythonData{
			Line: report.PythonName(l.Source, line.Frame), From: report.OuterFrames(l.Source, &line),
			Stage: cmp.Or(report.Printable(line.Path.Joined), report.OutsideTitle),
			Calls: totalOf(&line.Total), GIL: gilOf(&line.Sum), Samples: line.Samples,
		}
		for i := range line.Symbols {
			s := &line.Symbols[i]
			d.Symbols = append(d.Symbols, symbolData{report.Printable(s.Name), totalOf(&s.Total)})
		}
		lines = append(lines, d)
	}
	return lines
}
