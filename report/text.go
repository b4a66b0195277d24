package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

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
	{(*text).writeDebts, false},
	{(*text).writeRegions, false},
	{(*text).writeRegionParts, false},
	{(*text).writeAllocations, false},
	{(*text).writePython, false},
	{(*text).writeIterations, true},
	{(*text).writeSymbols, true},
	{(*text).writeThreads, true},
	{(*text).writeThreadParts, true},
	{(*text).writeLosses, false},
	{(*text).writeBudget, false},
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
		full:   o.Full || len(l.Stages) == 0,
	}
	for _, s := range sections {
		if t.full || !s.full {
			s.write(t)
		}
	}
	if !t.full {
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
	full   bool
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
	h := Head(t.ledger)
	writeItems(&t.Builder, append(slices.Clone(h.Process), shortened(h.Command, t.width)), "", t.width)
	writeItems(&t.Builder, []string{h.Window, h.Calls}, "", t.width)
}

// commandOf is the command line, or the best that is known of it.
func commandOf(t *recording.Target) string {
	return cmp.Or(strings.Join(t.Cmdline, " "), t.Comm, t.Exe)
}

func (t *text) writeLosses() {
	t.printf("\nLOST\n")
	lost := Lost(t.ledger)
	if len(lost) == 0 {
		t.printf("  nothing\n")
	}
	t.writeNotes(lost)
	if account := Account(t.ledger); account != "" {
		t.printf("  %s\n", account)
	}
}

// writeNotes writes rows that are cells only.
func (t *text) writeNotes(notes [][]string) {
	rows := make([]row, len(notes))
	for i := range notes {
		rows[i].cells = notes[i]
	}
	writeList(&t.Builder, rows, t.width)
}

// writeList writes rows in columns to the left, the last one broken into lines
// where it is too long.
func writeList(b *strings.Builder, rows []row, width int) {
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
		writeWords(b, r.cells[last], line, strings.Repeat(" ", cells(line)), max(width, cells(line)+leastName))
	}
}

func (t *text) writeCost() {
	t.printf("\nCOST OF STAGEPROF\n")
	t.writeNotes(Cost(t.ledger))
}

func (t *text) writeWarnings() {
	if r := t.ledger.Source; len(r.Warnings) > 0 {
		t.writeWarningList(r.Warnings)
	}
}

func (t *text) writeWarningList(warnings []string) {
	t.printf("\nWARNINGS\n")
	for _, w := range warnings {
		writeList(&t.Builder, []row{{cells: []string{"-", printable(w)}}}, t.width)
	}
}
