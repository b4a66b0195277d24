package top

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"stageprof/recording"
	"stageprof/report"
)

// head is what stands above everything: which process, what it costs, what was
// lost, and how the screen is set.
func (s *screen) head() []line {
	lines := []line{styled(bold, "stageprof top")}
	if s.sample != nil {
		lines = append([]line{s.targetLine()}, flow(s.costItems(), " · ", s.width)...)
	}
	return append(lines, flow(s.stateItems(), " · ", s.width)...)
}

func (s *screen) targetLine() line {
	t := &s.sample.total.Target
	l := line{{fmt.Sprintf("pid %d", t.PID), bold}}
	if t.WorldSize > 1 {
		l = append(l, piece{fmt.Sprintf(" · rank %d of %d", t.Rank, t.WorldSize), plain})
	}
	verb := "recording"
	if s.sample.ended() != "" || s.printed {
		verb = "recorded"
	}
	up := " · " + verb + " for " + elapsed(s.sample.total.Window.Duration)
	command := report.Printable(cmp.Or(strings.Join(t.Cmdline, " "), t.Comm, t.Exe))
	room := s.width - l.cells() - report.Cells(up) - report.Cells(" · ")
	return append(l, piece{" · " + report.Shortened(command, max(room, leastName)), plain}, piece{up, plain}).cut(s.width)
}

// costItems are about now, the losses about all of the recording: nothing that
// was ever lost disappears.
func (s *screen) costItems() []line {
	now, total := s.sample.now, s.sample.total
	window := now.Source.Window.Duration
	calls := callFigures(&now.All.Sum, window)
	items := []line{
		text(number(calls.rate(float64(now.All.Count))) + " calls/s"),
		text(duration(calls.rate(calls.cuda)) + " of CUDA per second"),
	}
	if o := &total.Overhead; o.Calibrated {
		items = append(items, text(fmt.Sprintf("stageprof costs %s per call, %s of wall",
			report.Duration(uint64(max(o.CallCostNS, 0))), report.Percent(addedShare(now.Source)))))
	} else {
		items = append(items, styled(bad, "what stageprof costs was not measured"))
	}
	return append(items, lossItem(total.Losses))
}

// addedShare is what the probes add, on all threads together, as a share of the
// window: no thread is slowed down by more.
func addedShare(r *recording.Recording) float64 {
	if r.Window.Duration <= 0 {
		return 0
	}
	return float64(r.Overhead.AddedNS) / float64(r.Window.Duration)
}

// harmless are calls that are still running, which are no loss yet, and single
// spans, of which nothing here is made.
var harmless = map[string]bool{recording.LossInFlight: true, "spans_not_kept": true, "span_records_full": true}

func lossItem(losses []recording.Loss) line {
	lost := map[string]uint64{}
	for _, l := range losses {
		if !harmless[l.Reason] && l.Count > 0 {
			lost[l.Kind] += l.Count
		}
	}
	var items []string
	for _, kind := range slices.Sorted(maps.Keys(lost)) {
		items = append(items, lossCount(kind, lost[kind]))
	}
	if len(items) == 0 {
		return text("nothing lost")
	}
	return styled(bad, "LOST "+strings.Join(items, ", "))
}

// lossCount writes how many of a kind were lost.
func lossCount(kind string, n uint64) string {
	if kind == "other" {
		return report.Count(n) + " other"
	}
	return report.Plural(n, strings.TrimSuffix(report.Printable(kind), "s"))
}

func (s *screen) stateItems() []line {
	var items []line
	if s.sample != nil {
		if end := s.sample.ended(); end != "" {
			items = append(items, styled(bad, report.Printable(string(end))))
		}
	}
	if s.paused {
		items = append(items, styled(bad, "paused"))
	}
	items = append(items, text("per "+s.unit.String()))
	if s.sample != nil && s.sample.ended() == "" {
		items = append(items, text("now: "+duration(float64(s.sample.now.Source.Window.Duration))))
	}
	if s.sample != nil {
		items = append(items, text("all: "+s.allItem()))
	}
	items = append(items, text("sorted by "+s.order.String()))
	if s.filter != "" {
		items = append(items, styled(selected, "filter: "+report.Printable(s.filter)))
	}
	if s.sample != nil && len(s.sample.total.Warnings) > 0 {
		items = append(items, styled(bad, report.Plural(uint64(len(s.sample.total.Warnings)), "warning")))
	}
	return items
}

func (s *screen) allItem() string {
	if s.sample.all == nil {
		return report.Missing
	}
	return elapsed(s.sample.all.Source.Window.Duration)
}
