package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"stageprof/correlate"
	"stageprof/recording"
)

// Budget lists what a recording under a budget covers and has cost, and, apart from
// everything that was counted, an estimate for all of its time; nil when it had
// no budget.
func Budget(l *correlate.Ledger) (notes [][]string) {
	c, ok := correlate.CoverageOf(l.Source)
	if !ok {
		return nil
	}
	item := func(name string, format string, args ...any) {
		notes = append(notes, []string{name, fmt.Sprintf(format, args...)})
	}
	cost := l.Source.Budget.Cost
	item("budget", "%s of one CPU; %s was used, %s of all the process's threads together in %s",
		ofCPU(c.Share), ofCPU(c.Used), duration(cost.TotalNS()), duration(uint64(c.Elapsed)))
	item("used for", "%s", strings.Join(notZero([]costItem{
		{cost.CallsNS, "calls"}, {cost.StagesNS, "stages"}, {cost.SchedulerNS, "context switches"}, {cost.PythonNS, "Python's stacks"},
		{cost.IdleNS, "calls around the windows"}, {cost.SwitchingNS, "putting the probes in and taking them off"},
	}), ", "))
	if t := l.Source.Budget.Trial; t != nil {
		length := duration(uint64(max(t.Duration, 0)))
		item("left out", "%s: not probed since %s after the start, and in no number above", strings.Join(leftOut(t), ", "), length)
		item("trial", "the first %s, which showed that, are in no number above either, but paid for", length)
	}
	if !c.Gaps() {
		item("covered", "all of the time, in one window")
		return notes
	}
	item("covered", "%s of %s (%s), in %s; nothing above is about the rest",
		duration(uint64(c.Covered)), duration(uint64(c.Elapsed)), percent(1/c.Factor), plural(uint64(c.Windows), "window"))
	if c.Factor > 0 {
		item("estimate", "if the rest was like the windows, there were %s", estimate(l, c))
	}
	return notes
}

// estimate is what there was in all of the time, if it was like the windows.
func estimate(l *correlate.Ledger, c correlate.Coverage) string {
	of := ""
	if l.Source.Budget.Trial != nil {
		of = " of the functions that are not left out"
	}
	return fmt.Sprintf("about %s%s, which took %s: ×%s",
		plural(rounded(float64(l.All.Count)*c.Factor), "driver call"), of, duration(rounded(float64(l.All.WallNS)*c.Factor)),
		strconv.FormatFloat(c.Factor, 'f', 1, 64))
}

// leftOut lists the groups of functions that the budget had no room for.
func leftOut(t *recording.Trial) (texts []string) {
	for _, g := range t.Groups {
		if g.LeftOut {
			seconds := max(t.Duration, 1).Seconds()
			texts = append(texts, fmt.Sprintf("%s (%s/s, %s of one CPU)",
				printable(g.Group), plural(rounded(float64(g.Calls)/seconds), "call"), ofCPU(float64(g.CostNS)/1e9/seconds)))
		}
	}
	return texts
}

type costItem struct {
	ns   uint64
	what string
}

func notZero(items []costItem) (texts []string) {
	for _, i := range items {
		if i.ns > 0 {
			texts = append(texts, duration(i.ns)+" "+i.what)
		}
	}
	if texts == nil {
		return []string{"nothing"}
	}
	return texts
}

// ofCPU has digits enough for a budget of one in a million.
func ofCPU(share float64) string { return strconv.FormatFloat(100*share, 'g', 3, 64) + "%" }

// rounded is an estimate to three digits: it has no more.
func rounded(v float64) uint64 {
	if v < 1000 {
		return uint64(max(v, 0) + 0.5)
	}
	unit := math.Pow10(int(math.Log10(v)) - 2)
	if v = math.Round(v/unit) * unit; v < math.MaxUint64 {
		return uint64(v)
	}
	return math.MaxUint64
}

func (t *text) writeBudget() {
	if notes := Budget(t.ledger); notes != nil {
		t.printf("\nBUDGET\n")
		t.writeNotes(notes)
	}
}

// writeBudgets says of which part of its time each process's numbers are, what was left
// out of them, and, apart from all that was counted, an estimate for each. These are not
// added up: what one process did in a pause says nothing of the others.
func (s *several) writeBudgets() {
	t := &table{titles: []string{"BUDGET", "ALLOWED", "USED", "WINDOWS", "COVERED", "OF", "%TIME"}}
	var out, estimates []row
	for _, l := range s.ledgers {
		c, ok := correlate.CoverageOf(l.Source)
		if !ok {
			continue
		}
		t.rows = append(t.rows, row{cells: []string{
			nameOf(l), ofCPU(c.Share), ofCPU(c.Used), count(uint64(c.Windows)), duration(uint64(c.Covered)), duration(uint64(c.Elapsed)), coveredShare(c),
		}})
		if trial := l.Source.Budget.Trial; trial != nil {
			out = append(out, row{cells: []string{nameOf(l), strings.Join(leftOut(trial), ", ")}})
		}
		if c.Gaps() && c.Factor > 0 {
			estimates = append(estimates, row{cells: []string{nameOf(l), estimate(l, c)}})
		}
	}
	if len(t.rows) == 0 {
		return
	}
	s.printf("\n")
	t.write(&s.Builder, s.width)
	writeWords(&s.Builder, "ALLOWED and USED are shares of one CPU for each process. Everything above is about COVERED only: where that differs, compare PER SPAN and %WALL.", "", "", s.width)
	if len(out) > 0 {
		s.printf("Left out, not probed and in no number above:\n")
		writeList(&s.Builder, out, s.width)
	}
	if len(out) > 0 && !s.sameLeftOut() {
		writeWords(&s.Builder, "Not the same functions were left out of all processes: their CUDA and CALLS are of different ones.", "", "", s.width)
	}
	if len(estimates) > 0 {
		s.printf("Estimate, if the rest of a process's time was like its windows:\n")
		writeList(&s.Builder, estimates, s.width)
	}
}

func coveredShare(c correlate.Coverage) string {
	if c.Factor == 0 {
		return missing
	}
	return percent(1 / c.Factor)
}

// sameLeftOut tells whether the numbers of all processes are of the same functions.
func (s *several) sameLeftOut() bool {
	groups := func(l *correlate.Ledger) (names []string) {
		b := l.Source.Budget
		if b == nil || b.Trial == nil {
			return nil
		}
		for _, g := range b.Trial.Groups {
			if g.LeftOut {
				names = append(names, g.Group)
			}
		}
		slices.Sort(names)
		return names
	}
	first := groups(s.ledgers[0])
	return !slices.ContainsFunc(s.ledgers, func(l *correlate.Ledger) bool { return !slices.Equal(groups(l), first) })
}

type jsonBudget struct {
	Share     float64        `json:"share"`
	Used      float64        `json:"used"`
	ElapsedNS int64          `json:"elapsed_ns"`
	CoveredNS int64          `json:"covered_ns"`
	Windows   []jsonCovered  `json:"windows"`
	Cost      jsonCharge     `json:"cost"`
	Estimate  *jsonEstimated `json:"estimate"`
	Trial     *jsonTrial     `json:"trial"`
}

type jsonTrial struct {
	jsonCovered
	Groups []recording.GroupCost `json:"groups"`
}

type jsonCovered struct {
	StartNS    uint64 `json:"start_ns"`
	DurationNS int64  `json:"duration_ns"`
	CostNS     uint64 `json:"cost_ns"`
}

type jsonCharge struct {
	CallsNS     uint64 `json:"calls_ns"`
	IdleNS      uint64 `json:"idle_ns"`
	StagesNS    uint64 `json:"stages_ns"`
	SchedulerNS uint64 `json:"scheduler_ns"`
	PythonNS    uint64 `json:"python_ns"`
	SwitchingNS uint64 `json:"switching_ns"`
}

type jsonEstimated struct {
	Factor float64 `json:"factor"`
	Calls  uint64  `json:"calls"`
	WallNS uint64  `json:"wall_ns"`
}

func budgetOf(l *correlate.Ledger) *jsonBudget {
	c, ok := correlate.CoverageOf(l.Source)
	if !ok {
		return nil
	}
	b := l.Source.Budget
	j := &jsonBudget{
		Share: c.Share, Used: c.Used, ElapsedNS: int64(c.Elapsed), CoveredNS: int64(c.Covered), Windows: []jsonCovered{}, Cost: jsonCharge(b.Cost),
	}
	for _, w := range b.Windows {
		j.Windows = append(j.Windows, jsonCovered{w.StartNS, int64(w.Duration), w.CostNS})
	}
	if t := b.Trial; t != nil {
		j.Trial = &jsonTrial{jsonCovered{t.StartNS, int64(t.Duration), t.CostNS}, t.Groups}
	}
	if c.Gaps() && c.Factor > 0 {
		j.Estimate = &jsonEstimated{c.Factor, rounded(float64(l.All.Count) * c.Factor), rounded(float64(l.All.WallNS) * c.Factor)}
	}
	return j
}
