package top

import (
	"fmt"
	"strings"

	"stageprof/report"
)

// noteLines are what was lost, warned of, and what the recording costs, all of it
// since the start: a reset of the baseline changes none of them.
func (s *screen) noteLines() []line {
	total := s.sample.total
	lines := []line{styled(title, "LOST")}
	for _, l := range total.Losses {
		look := bad
		if harmless[l.Reason] {
			look = plain
		}
		lines = append(lines, line{{"  " + lossCount(l.Kind, l.Count) + "  " + report.Printable(l.Reason), look},
			{"  " + report.Printable(l.Help), dim}}.cut(s.width))
	}
	if len(total.Losses) == 0 {
		lines = append(lines, text("  nothing"))
	}
	if b := s.sample.calls; b.Counted {
		look := plain
		if !b.Holds() {
			look = bad
		}
		lines = append(lines, styled(look, fmt.Sprintf("  %s seen = %s reported + %s lost",
			report.Plural(b.Seen, "call"), report.Count(b.Reported), report.Count(b.Lost))))
	}
	lines = append(lines, nil, styled(title, "WARNINGS"))
	for _, w := range total.Warnings {
		lines = append(lines, wrapped(report.Printable(w), "  ", s.width)...)
	}
	if len(total.Warnings) == 0 {
		lines = append(lines, text("  none"))
	}
	o := &total.Overhead
	lines = append(lines, nil, styled(title, "COST OF STAGEPROF"))
	lines = append(lines, wrapped(fmt.Sprintf("target: %s in all calls so far, by calibration: %s", report.Duration(o.AddedNS), report.Printable(o.Calibration)), "  ", s.width)...)
	share := ""
	if total.Window.Duration > 0 {
		share = " (" + report.Percent(float64(max(o.AgentCPU, 0))/float64(total.Window.Duration)) + " of one core)"
	}
	lines = append(lines, wrapped(fmt.Sprintf("agent: %s of CPU%s, %s of memory and %s in the kernel, %s",
		report.Duration(uint64(max(o.AgentCPU, 0))), share, report.Size(o.AgentRSS), report.Size(o.KernelBytes),
		report.Plural(uint64(max(o.ProbedSites, 0)), "probed site")), "  ", s.width)...)
	return lines
}

// wrapped breaks running text between words.
func wrapped(s, indent string, width int) (lines []line) {
	var words []line
	for _, word := range strings.Fields(s) {
		words = append(words, text(word))
	}
	for _, l := range flow(words, " ", width-report.Cells(indent)) {
		lines = append(lines, text(indent+l.String()))
	}
	return lines
}
