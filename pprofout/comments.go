package pprofout

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"stageprof/correlate"
	"stageprof/recording"
)

// comments lists what pprof prints above its reports, then, behind "# ", what
// it prints only on request.
func comments(l *correlate.Ledger, o Options, title string) []string {
	r := l.Source
	shown := []string{"stageprof " + cmp.Or(o.Version, r.Tool.Version, unknown) +
		": " + title}
	shown = append(shown, lossComments(l)...)
	for _, warning := range r.Warnings {
		shown = append(shown, "warning: "+warning)
	}
	shown = append(shown, gilComments(l)...)
	shown = append(shown, costComment(&r.Overhead))
	shown = append(shown, budgetComments(r)...)
	if slices.ContainsFunc(l.Stages, func(s correlate.Stage) bool { return s.Python }) {
		shown = append(shown, "stages called NAME() are Python functions: their calls are exact, their own wall time is not known")
	}

	var details []string
	details = append(details, toolComments(r)...)
	details = append(details, biasComment(r))
	details = append(details, probeComments(r)...)
	details = append(details, gpuComments(r)...)
	details = append(details, debtComments(l)...)

	for i := range details {
		details[i] = "# " + details[i]
	}
	all := append(shown, details...)
	for i := range all {
		all[i] = readable(all[i])
	}
	return all
}

func lossComments(l *correlate.Ledger) []string {
	var list []string
	for _, loss := range l.Losses {
		list = append(list, fmt.Sprintf("lost: %d %s, %s: %s", loss.Count, loss.Kind, loss.Reason, loss.Help))
	}
	if list == nil {
		list = []string{"losses: none"}
	}
	if b := l.Balance; !b.Holds() {
		list = append(list, fmt.Sprintf("warning: %d calls were seen, but %d are reported and %d lost", b.Seen, b.Reported, b.Lost))
	}
	return list
}

// mostHolders bounds the functions of which the comments say what they made others
// wait.
const mostHolders = 5

// gilComments say what calls that held the GIL made other threads wait. That is no
// column: profiles whose columns differ can't be added or compared, so one more would
// part new profiles from old ones.
func gilComments(l *correlate.Ledger) []string {
	held := l.All.GIL[recording.GILHeld]
	if held.GILWaitCausedNS == 0 {
		return nil
	}
	by := slices.Clone(l.All.Symbols)
	slices.SortStableFunc(by, func(a, b correlate.Named) int { return cmp.Compare(b.GILWaitCausedNS, a.GILWaitCausedNS) })
	var functions []string
	for _, n := range by[:min(len(by), mostHolders)] {
		if n.GILWaitCausedNS > 0 {
			functions = append(functions, fmt.Sprintf("%s %v", n.Name, time.Duration(n.GILWaitCausedNS)))
		}
	}
	return []string{fmt.Sprintf("GIL held in calls: %v, for which other threads waited %v: %s",
		time.Duration(held.WallNS), time.Duration(held.GILWaitCausedNS), strings.Join(functions, ", "))}
}

func costComment(o *recording.Overhead) string {
	target := "cost to the target: not calibrated"
	if o.Calibrated {
		target = fmt.Sprintf("cost to the target: %.2f us per call, %s in all",
			o.CallCostNS/1000, rounded(clamp(o.AddedNS)))
	}
	return fmt.Sprintf("%s; the agent used %s of CPU and %d MiB", target, rounded(int64(o.AgentCPU)), o.AgentRSS>>20)
}

// budgetComments say what of the time the values are about.
func budgetComments(r *recording.Recording) []string {
	c, ok := correlate.CoverageOf(r)
	if !ok {
		return nil
	}
	used := fmt.Sprintf("budget: %.3g%% of one CPU, %.3g%% was used", 100*c.Share, 100*c.Used)
	if t := r.Budget.Trial; t != nil {
		used += fmt.Sprintf("; left out since a trial of %s: %s", rounded(int64(t.Duration)), leftOut(t))
	}
	if !c.Gaps() {
		return []string{used + "; all of the time was recorded"}
	}
	return []string{fmt.Sprintf("%s; %s of %s were recorded, in %d windows: every value is of these, none is extrapolated",
		used, rounded(int64(c.Covered)), rounded(int64(c.Elapsed)), c.Windows)}
}

// leftOut lists the groups of functions that the budget had no room for.
func leftOut(t *recording.Trial) string {
	var groups []string
	for _, g := range t.Groups {
		if g.LeftOut {
			groups = append(groups, fmt.Sprintf("%s (%d calls in it took %.3g%% of one CPU)", g.Group, g.Calls, 100*float64(g.CostNS)/float64(max(t.Duration, 1))))
		}
	}
	return strings.Join(groups, ", ")
}

func toolComments(r *recording.Recording) []string {
	t, w := &r.Target, &r.Window
	list := []string{
		"command: " + commandLine(r.Tool.Command),
		fmt.Sprintf("recorded by: stageprof %s with %s probes on Linux %s %s", r.Tool.Version, r.Tool.Mechanism, r.Tool.Kernel, r.Tool.Arch),
		fmt.Sprintf("target: pid %d (%d in its own namespace), rank %d of %d, started %s: %s",
			t.PID, t.NSPID, t.Rank, t.WorldSize, t.StartTime.UTC().Format(time.RFC3339), commandLine(t.Cmdline)),
		fmt.Sprintf("window: %s from %s, ended by: %s", rounded(int64(w.Duration)), w.Start.UTC().Format(time.RFC3339Nano), w.End),
		fmt.Sprintf("clocks: durations are CLOCK_MONOTONIC, the window began at %d ns of it; cpu comes from the scheduler", w.StartNS),
	}
	return append(list, pythonComment(t.Python), stacksComment(r))
}

// stacksComment says what the Python frames are worth.
func stacksComment(r *recording.Recording) string {
	p := r.Target.Python
	var samples uint64
	for i := range r.Calls {
		for _, s := range r.Calls[i].Samples {
			samples += s.Count
		}
	}
	switch {
	case p == nil:
		return "python stacks: none"
	case p.StacksReason != "":
		return "python stacks: not recorded: " + p.StacksReason
	case p.Stacks == "" || p.Stacks == "off":
		return "python stacks: not recorded"
	}
	return fmt.Sprintf("python stacks: read of %d calls (%s); each row's exact totals are divided over its stacks in proportion to them", samples, p.Stacks)
}

func pythonComment(p *recording.Python) string {
	switch {
	case p == nil:
		return "python: none"
	case p.GILReason != "":
		return fmt.Sprintf("python: %s in %s, the GIL's state is unknown: %s", p.Version, p.Path, p.GILReason)
	default:
		return fmt.Sprintf("python: %s in %s, the GIL's state is read by %s", p.Version, p.Path, p.GILMethod)
	}
}

func biasComment(r *recording.Recording) string {
	how := cmp.Or(r.Overhead.Calibration, "there was no calibration")
	var low, high float64
	for i, s := range r.Symbols {
		if i == 0 {
			low = s.BiasNS
		}
		low, high = min(low, s.BiasNS), max(high, s.BiasNS)
	}
	switch {
	case high == 0:
		return "bias: durations are as measured, nothing is taken out: " + how
	case low == high:
		return fmt.Sprintf("bias: %.0f ns are taken out of every call's wall and cpu: %s", low, how)
	default:
		return fmt.Sprintf("bias: %.0f to %.0f ns, by function, are taken out of every call's wall and cpu: %s", low, high, how)
	}
}

// probeComments names every probe, those at alike places in one line.
func probeComments(r *recording.Recording) []string {
	type place struct {
		module      int
		class       string
		offset      uint64
		file, build string
	}
	at := map[place][]string{}
	for _, s := range r.Symbols {
		m := &r.Modules[s.Module]
		p := place{s.Module, s.Placement, s.ProbeOffset, m.Path, m.BuildID}
		at[p] = append(at[p], fmt.Sprintf("%s at %#x", s.Name, s.Address-m.Start+m.Offset))
	}
	places := make([]place, 0, len(at))
	for p := range at {
		places = append(places, p)
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(
			strings.Compare(a.file, b.file), strings.Compare(a.build, b.build), cmp.Compare(a.module, b.module),
			cmp.Compare(a.offset, b.offset), strings.Compare(a.class, b.class))
	})
	list := []string{fmt.Sprintf("probes: %d functions, %d sites", len(r.Symbols), r.Overhead.ProbedSites)}
	for _, p := range places {
		slices.Sort(at[p])
		list = append(list, fmt.Sprintf("probed at entry+%d (%s) in %s, build id %s: %s",
			p.offset, p.class, p.file, cmp.Or(p.build, none), strings.Join(at[p], ", ")))
	}
	if len(r.Absent) > 0 {
		list = append(list, "known but absent: "+strings.Join(r.Absent, ", "))
	}
	return list
}

func gpuComments(r *recording.Recording) []string {
	if r.GPU == nil {
		return []string{"GPU: not read: " + cmp.Or(r.GPUNote, "NVML was not asked")}
	}
	var list []string
	for _, d := range r.GPU.Devices {
		list = append(list, fmt.Sprintf("GPU %d: %s, driver %s: NVML utilization %.0f%%, memory at most %d of %d MiB, %.0f W, %.0f J, mean of %d samples",
			d.Index, d.Name, r.GPU.Driver, d.UtilizationPct, d.MemoryUsed>>20, d.MemoryTotal>>20, d.PowerW, d.EnergyJ, d.Samples))
		if d.SMClockMHz > 0 || d.MemoryClockMHz > 0 {
			list = append(list, fmt.Sprintf("GPU %d: SM clock %.0f MHz, memory clock %.0f MHz, mean of %d samples", d.Index, d.SMClockMHz, d.MemoryClockMHz, d.Samples))
		}
		for _, l := range d.ClockLimits {
			list = append(list, fmt.Sprintf("GPU %d: clocks lower because of %s in %d of %d samples", d.Index, l.Reason, l.Samples, d.Samples))
		}
	}
	if r.GPUNote != "" {
		list = append(list, "GPU: "+r.GPUNote)
	}
	return list
}

// mostWaiting is how many stages' waits the comments tell of.
const mostWaiting = 10

// debtComments say whose work was waited for. Samples can't: they belong to the
// stage that waits, and how its time is divided is an estimate.
func debtComments(l *correlate.Ledger) []string {
	var list []string
	for _, w := range l.Waiting[:min(mostWaiting, len(l.Waiting))] {
		var owners []string
		for _, o := range w.Owners {
			share := 0.0
			if w.WallNS > 0 {
				share = 100 * float64(o.WallNS) / float64(w.WallNS)
			}
			owners = append(owners, fmt.Sprintf("%s %.1f%%", ownerName(o.Owner), share))
		}
		list = append(list, fmt.Sprintf("sync debt, an estimate by number of operations: %s waited %s for the work of %s",
			cmp.Or(w.Path.Joined, none), rounded(clamp(w.WallNS)), strings.Join(owners, ", ")))
	}
	return list
}

func ownerName(o correlate.Owner) string {
	if o.Kind != recording.DebtStage {
		return "(" + string(o.Kind) + ")"
	}
	return cmp.Or(o.Path.Joined, none)
}

// commandLine quotes the arguments that would not be read as one.
func commandLine(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = a
		if a == "" || strings.ContainsAny(a, " \t\n\"'\\") {
			quoted[i] = strconv.Quote(a)
		}
	}
	return strings.Join(quoted, " ")
}

func rounded(ns int64) time.Duration {
	d := time.Duration(ns)
	if d >= time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}
