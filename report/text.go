package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"stageprof/correlate"
	"stageprof/recording"
)

// TextOptions says how the table is set.
type TextOptions struct {
	Width int  // cells in a line; 0 is 100
	Top   int  // calls named below each stage; 0 is 3
	Full  bool // also the tables of single spans, functions and threads
}

const (
	defaultWidth = 100
	defaultTop   = 3
	mostSymbols  = 10 // rows of the table of functions
	mostThreads  = 12 // rows of the table of threads
)

// sections are the parts of the report in order. Those of which a first look has
// no need are left out unless all is asked for.
var sections = []struct {
	write func(*text)
	full  bool
}{
	{(*text).writeHead, false},
	{(*text).writeStages, false},
	{(*text).writeParts, false},
	{(*text).writeIterations, true},
	{(*text).writeSymbols, true},
	{(*text).writeThreads, true},
	{(*text).writeThreadParts, true},
	{(*text).writeLosses, false},
	{(*text).writeCost, false},
	{(*text).writeGPU, false},
	{(*text).writeWarnings, false},
}

// Text writes the tables that close a recording. Without stages, functions and
// threads are all that there is to see, so then nothing is left out.
func Text(w io.Writer, l *correlate.Ledger, o TextOptions) error {
	t := &text{
		ledger: l,
		width:  cmp.Or(max(o.Width, 0), defaultWidth),
		top:    cmp.Or(max(o.Top, 0), defaultTop),
		gil:    gilColumns(l),
	}
	full := o.Full || len(l.Stages) == 0
	for _, s := range sections {
		if full || !s.full {
			s.write(t)
		}
	}
	if !full {
		t.printf("\nSingle spans, functions and threads: --full\n")
	}
	if _, err := io.WriteString(w, t.String()); err != nil {
		return fmt.Errorf("writing report: %w", err)
	}
	return nil
}

type text struct {
	strings.Builder
	ledger *correlate.Ledger
	width  int
	top    int
	gil    []gilColumn
}

// gilColumn is a column of driver time by the state of the GIL.
type gilColumn struct {
	state recording.GIL
	title string
}

// gilColumns are the states that say something about this target: free and
// held always go together, and a target without Python has none.
func gilColumns(l *correlate.Ledger) []gilColumn {
	occurs := func(g recording.GIL) bool { return l.All.GIL[g].Count > 0 }
	var columns []gilColumn
	if occurs(recording.GILFree) || occurs(recording.GILHeld) {
		columns = append(columns, gilColumn{recording.GILFree, "GIL FREE"}, gilColumn{recording.GILHeld, "GIL HELD"})
	}
	if occurs(recording.GILUnknown) {
		columns = append(columns, gilColumn{recording.GILUnknown, "GIL ?"})
	}
	if occurs(recording.GILDisabled) {
		columns = append(columns, gilColumn{recording.GILDisabled, "NO GIL"})
	}
	return columns
}

func (t *text) gilTitles() (titles []string) {
	for _, c := range t.gil {
		titles = append(titles, c.title)
	}
	return titles
}

func (t *text) gilCells(s *correlate.Sum) (cells []string) {
	for _, c := range t.gil {
		cells = append(cells, duration(s.GIL[c.state].WallNS))
	}
	return cells
}

func (t *text) printf(format string, args ...any) { fmt.Fprintf(t, format, args...) }

func (t *text) writeHead() {
	l := t.ledger
	target, window := &l.Source.Target, &l.Source.Window
	items := []string{fmt.Sprintf("pid %d", target.PID)}
	if target.NSPID != 0 && target.NSPID != target.PID {
		items[0] += fmt.Sprintf(" (%d in its namespace)", target.NSPID)
	}
	if target.WorldSize > 1 {
		items = append(items, fmt.Sprintf("rank %d of %d", target.Rank, target.WorldSize))
	}
	command := printable(commandOf(target))
	items = append(items, shortened(command, t.width))
	writeItems(&t.Builder, append([]string{"stageprof " + printable(l.Source.Tool.Version)}, items...), "", t.width)

	when := duration(uint64(max(window.Duration, 0)))
	if !window.Start.IsZero() {
		when += " from " + window.Start.UTC().Format(time.DateTime) + " UTC"
	}
	if window.End != "" {
		when += ", ended by " + printable(string(window.End))
	}
	writeItems(&t.Builder, []string{
		when,
		plural(l.All.Count, "driver call") + " on " + plural(uint64(len(l.Threads)), "thread") +
			" took " + duration(l.All.WallNS) + " of host time",
	}, "", t.width)
}

// commandOf is the command line, or the best that is known of it.
func commandOf(t *recording.Target) string {
	return cmp.Or(strings.Join(t.Cmdline, " "), t.Comm, t.Exe)
}

func (t *text) writeLosses() {
	l := t.ledger
	t.printf("\nLOST\n")
	var rows []row
	for _, loss := range l.Losses {
		what := count(loss.Count) + " times"
		if loss.Kind != "other" {
			what = plural(loss.Count, strings.TrimSuffix(printable(loss.Kind), "s"))
		}
		rows = append(rows, row{cells: []string{what, printable(loss.Reason), printable(loss.Help)}})
	}
	if len(rows) == 0 {
		t.printf("  nothing\n")
	}
	t.writeList(rows)
	switch b := l.Balance; {
	case !b.Counted:
	case b.Holds():
		t.printf("  %s seen = %s reported + %s lost\n", plural(b.Seen, "call"), count(b.Reported), count(b.Lost))
	default:
		t.printf("  ATTENTION: %s seen, but %s reported and %s lost\n", plural(b.Seen, "call"), count(b.Reported), count(b.Lost))
	}
}

// writeList writes rows in columns to the left, the last one broken into lines
// where it is too long.
func (t *text) writeList(rows []row) {
	var widths []int
	for _, r := range rows {
		for i, c := range r.cells {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], cells(c))
		}
	}
	for _, r := range rows {
		line := gap
		last := len(r.cells) - 1
		for i, c := range r.cells[:last] {
			line += c + pad(c, widths[i]) + gap
		}
		writeWords(&t.Builder, r.cells[last], line, strings.Repeat(" ", cells(line)), max(t.width, cells(line)+leastName))
	}
}

func (t *text) writeCost() {
	r := t.ledger.Source
	o := &r.Overhead
	t.printf("\nCOST OF STAGEPROF\n")
	var rows []row
	item := func(name string, format string, args ...any) {
		rows = append(rows, row{cells: []string{name, fmt.Sprintf(format, args...)}})
	}
	if o.Calibrated {
		item("target", "%s per call, %s in all calls together", duration(uint64(max(o.CallCostNS, 0))), duration(o.AddedNS))
	} else {
		item("target", "not measured")
	}
	why := printable(cmp.Or(o.Calibration, "there was no calibration"))
	if taken := biasRange(r.Symbols); taken != "" {
		item("bias", "%s are taken out of each call above: %s", taken, why)
	} else {
		item("bias", "nothing is taken out of the calls above: %s", why)
	}
	item("agent", "%s of CPU%s, %s of memory and %s in the kernel",
		duration(uint64(max(o.AgentCPU, 0))), ofOneCore(o.AgentCPU, r.Window.Duration), size(o.AgentRSS), size(o.KernelBytes))
	detached := "detached after this was made"
	if o.Detach > 0 {
		detached = "detached in " + duration(uint64(o.Detach))
	}
	item("probes", "%s, attached in %s, %s",
		plural(uint64(max(o.ProbedSites, 0)), "site"), duration(uint64(max(o.Attach, 0))), detached)
	t.writeList(rows)
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

func (t *text) writeGPU() {
	r := t.ledger.Source
	if r.GPU == nil {
		if r.GPUNote != "" {
			t.printf("\nGPU\n")
			t.writeList([]row{{cells: []string{"not read: " + printable(r.GPUNote)}}})
		}
		return
	}
	t.printf("\nGPU (by NVML, driver %s)\n", printable(r.GPU.Driver))
	var rows []row
	for _, d := range r.GPU.Devices {
		items := []string{
			fmt.Sprintf("%.0f%% busy", d.UtilizationPct),
			fmt.Sprintf("%s of %s used", size(d.MemoryUsed), size(d.MemoryTotal)),
			fmt.Sprintf("%.0f W", d.PowerW),
		}
		if d.EnergyJ > 0 {
			items = append(items, threeDigits(d.EnergyJ, []unit{{"J", 1, 9999.5}, {"kJ", 1e3, 9999.5}, {"MJ", 1e6, 0}}))
		}
		rows = append(rows, row{cells: []string{fmt.Sprintf("%d %s", d.Index, printable(d.Name)), strings.Join(items, ", ")}})
	}
	if r.GPUNote != "" {
		rows = append(rows, row{cells: []string{"note", printable(r.GPUNote)}})
	}
	t.writeList(rows)
}

func (t *text) writeWarnings() {
	if r := t.ledger.Source; len(r.Warnings) > 0 {
		t.writeWarningList(r.Warnings)
	}
}

func (t *text) writeWarningList(warnings []string) {
	t.printf("\nWARNINGS\n")
	for _, w := range warnings {
		t.writeList([]row{{cells: []string{"-", printable(w)}}})
	}
}
