package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"stageprof/correlate"
	"stageprof/recording"
)

// Heading says what was recorded.
type Heading struct {
	Process []string // the version that recorded it, its pid, its rank
	Command string
	Window  string // how long, when, what ended it
	Calls   string // how many, on how many threads, how long they took
}

// Head is the heading of the tables.
func Head(l *correlate.Ledger) Heading {
	target, window := &l.Source.Target, &l.Source.Window
	pid := fmt.Sprintf("pid %d", target.PID)
	if target.NSPID != 0 && target.NSPID != target.PID {
		pid += fmt.Sprintf(" (%d in its namespace)", target.NSPID)
	}
	h := Heading{
		Process: []string{"stageprof " + printable(l.Source.Tool.Version), pid},
		Command: printable(commandOf(target)),
		Window:  recorded(l.Source),
		Calls: plural(l.All.Count, "driver call") + " on " + threads(l) +
			" took " + duration(l.All.WallNS) + " of host time",
	}
	if correlate.HasGaps(l.Source) {
		h.Window += ", in " + plural(uint64(len(l.Source.Budget.Windows)), "window") + ","
	}
	if target.WorldSize > 1 {
		h.Process = append(h.Process, fmt.Sprintf("rank %d of %d", target.Rank, target.WorldSize))
	}
	if !window.Start.IsZero() {
		h.Window += " from " + window.Start.UTC().Format(time.DateTime) + " UTC"
	}
	if window.End != "" {
		h.Window += ", ended by " + printable(string(window.End))
	}
	return h
}

// threads is how many threads there were, as far as they are told apart.
func threads(l *correlate.Ledger) string {
	sums := 0
	for _, t := range l.Source.Threads {
		if t.Folded {
			sums++
		}
	}
	if sums == 0 {
		return plural(uint64(len(l.Threads)), "thread")
	}
	return "more than " + plural(uint64(max(len(l.Threads)-sums, 0)), "thread")
}

// recorded is how long the windows were, of how much if that is not all.
func recorded(r *recording.Recording) string {
	whole := duration(uint64(max(r.Window.Duration, 0)))
	if c, ok := correlate.CoverageOf(r); ok && c.Gaps() {
		return whole + " of " + duration(uint64(c.Elapsed))
	}
	return whole
}

// Lost lists the losses: how many of what, the reason, what it means.
func Lost(l *correlate.Ledger) (notes [][]string) {
	for _, loss := range l.Losses {
		what := count(loss.Count) + " times"
		if loss.Kind != "other" {
			what = plural(loss.Count, strings.TrimSuffix(printable(loss.Kind), "s"))
		}
		notes = append(notes, []string{what, printable(loss.Reason), printable(loss.Help)})
	}
	return notes
}

// Account says that all calls are accounted for, or that they are not; "" when
// they were not counted.
func Account(l *correlate.Ledger) string {
	switch b := l.Balance; {
	case !b.Counted:
		return ""
	case b.Holds():
		return fmt.Sprintf("%s seen = %s reported + %s lost", plural(b.Seen, "call"), count(b.Reported), count(b.Lost))
	default:
		return fmt.Sprintf("ATTENTION: %s seen, but %s reported and %s lost", plural(b.Seen, "call"), count(b.Reported), count(b.Lost))
	}
}

// programCosts lists the programs that took most, each with the mean of its runs.
func programCosts(programs []recording.Program) string {
	const most = 6
	programs = slices.DeleteFunc(slices.Clone(programs), func(p recording.Program) bool { return p.Runs == 0 })
	slices.SortStableFunc(programs, func(a, b recording.Program) int { return cmp.Compare(b.WallNS, a.WallNS) })
	var texts []string
	for _, p := range programs[:min(most, len(programs))] {
		texts = append(texts, fmt.Sprintf("%s %s in %s", printable(p.Name), duration(p.WallNS/p.Runs), plural(p.Runs, "run")))
	}
	return strings.Join(texts, ", ")
}

// Cost lists what the recording itself cost: whom or what, how much.
func Cost(l *correlate.Ledger) (notes [][]string) {
	r := l.Source
	o := &r.Overhead
	item := func(name string, format string, args ...any) {
		notes = append(notes, []string{name, fmt.Sprintf(format, args...)})
	}
	if o.Calibrated {
		item("target", "%s per call, %s in all calls together", duration(uint64(max(o.CallCostNS, 0))), duration(o.AddedNS))
	} else {
		item("target", "not measured")
	}
	switch {
	case o.FollowedNS > 0:
		item("functions", "%s in %s", duration(o.FollowedNS), plural(o.Followed, "execution"))
	case o.Followed > 0:
		item("functions", "not measured, %s", plural(o.Followed, "execution"))
	}
	if o.Samples > 0 {
		item("stacks", "%s in the target for %s of Python, outside the calls' times", duration(o.SamplesNS), plural(o.Samples, "stack"))
	}
	if o.Looks > 0 {
		item("python", "%s in the target for %s at Python's stack, outside the calls' times", duration(o.LooksNS), plural(o.Looks, "look"))
	}
	why := printable(cmp.Or(o.Calibration, "there was no calibration"))
	if taken := biasRange(r.Symbols); taken != "" {
		item("bias", "%s are taken out of each call above: %s", taken, why)
	} else {
		item("bias", "nothing is taken out of the calls above: %s", why)
	}
	whole := r.Window.Duration
	if c, ok := correlate.CoverageOf(r); ok {
		whole = c.Elapsed
	}
	item("agent", "%s of CPU%s, %s of memory and %s in the kernel",
		duration(uint64(max(o.AgentCPU, 0))), ofOneCore(o.AgentCPU, whole), size(o.AgentRSS), size(o.KernelBytes))
	if programs := programCosts(o.Programs); programs != "" {
		item("kernel", "its own account, per run: %s", programs)
	}
	detached := "detached after this was made"
	if o.Detach > 0 {
		detached = "detached in " + duration(uint64(o.Detach))
	}
	item("probes", "%s, attached in %s, %s",
		plural(uint64(max(o.ProbedSites, 0)), "site"), duration(uint64(max(o.Attach, 0))), detached)
	return notes
}

func ofOneCore(cpu, window time.Duration) string {
	if window <= 0 {
		return ""
	}
	return fmt.Sprintf(" (%s of one core)", percent(float64(max(cpu, 0))/float64(window)))
}

// biasRange is what is taken out of the calls of the symbols, "" for nothing.
func biasRange(symbols []recording.Symbol) string {
	var low, high uint64
	for i, s := range symbols {
		bias := uint64(max(s.BiasNS, 0))
		if i == 0 {
			low = bias
		}
		low, high = min(low, bias), max(high, bias)
	}
	switch from, to := duration(low), duration(high); {
	case high == 0:
		return ""
	case from == to:
		return from
	default:
		return from + " to " + to
	}
}
