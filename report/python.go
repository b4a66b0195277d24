package report

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"stageprof/correlate"
	"stageprof/recording"
)

const (
	fewPython    = 6  // rows of the table of Python lines …
	mostPython   = 20 // … and in full
	mostOuter    = 3  // frames named that called the line
	noPythonLine = "(no Python code known)"
)

// writePython writes the table of the program's own lines of Python that driver
// calls were made by way of. Lines that made calls with the GIL held are always
// among them.
func (t *text) writePython() {
	lines := t.ledger.PythonLines()
	if lines == nil {
		return
	}
	python := &table{
		titles:   slices.Concat([]string{"PYTHON LINE", "CUDA"}, t.gilTitles(), []string{"CALLS", "SAMPLES", "IN STAGE"}),
		lastLeft: true,
	}
	shown := fewPython
	if t.full {
		shown = mostPython
	}
	if len(lines) == shown+1 {
		shown++ // the last one takes no more room than a line about it
	}
	var calls, wall, rest uint64
	for i := range lines {
		line := &lines[i]
		if i < shown || line.GIL[recording.GILHeld].Count > 0 {
			python.rows = append(python.rows, t.pythonRow(line))
			continue
		}
		rest++
		calls += line.Count
		wall += line.WallNS
	}
	t.printf("\n")
	python.write(&t.Builder, t.width)
	if rest > 0 {
		t.printf("%s: %s, %s\n", plural(rest, "more line"), plural(calls, "call"), duration(wall))
	}
	t.writePythonNotes()
}

func (t *text) pythonRow(line *correlate.PythonLine) row {
	stage := line.Path.Joined
	if line.Path.Outside() {
		stage = outsideTitle
	}
	r := row{
		cells: slices.Concat([]string{pythonName(t.ledger.Source, line.Frame), duration(line.WallNS)}, t.gilCells(&line.Sum),
			[]string{count(line.Count), count(line.Samples), printable(stage)}),
		notes: t.symbolNotes(&line.Breakdown),
	}
	if by := outerFrames(t.ledger.Source, line); by != "" {
		r.notes = append(r.notes, "from "+by)
	}
	return r
}

func pythonName(r *recording.Recording, f recording.PythonFrame) string {
	if f.Function < 0 {
		return noPythonLine
	}
	function := &r.PythonFunctions[f.Function]
	return fmt.Sprintf("%s:%d %s", shortFile(function.File), f.Line, printable(function.Name))
}

// shortFile is the last part of a path, and the one before where many files have
// the same.
func shortFile(file string) string {
	base := path.Base(file)
	if strings.HasPrefix(base, "__") {
		base = path.Join(path.Base(path.Dir(file)), base)
	}
	return printable(base)
}

// outerFrames names what called the line, mostly; "" where nothing is known.
func outerFrames(r *recording.Recording, line *correlate.PythonLine) string {
	if line.Stack < 0 {
		return ""
	}
	frames := r.PythonStacks[line.Stack].Frames
	frames = frames[min(line.Depth+1, len(frames)):]
	var by []string
	for _, f := range frames[:min(mostOuter, len(frames))] {
		by = append(by, fmt.Sprintf("%s:%d", printable(r.PythonFunctions[f.Function].Name), f.Line))
	}
	return strings.Join(by, " < ")
}

func (t *text) writePythonNotes() {
	note := func(text string) { writeWords(&t.Builder, text, "", "", t.width) }
	note("The innermost line outside installed packages. CUDA and CALLS are exact in each stage, how they are divided over lines is estimated from SAMPLES.")
	held := t.ledger.All.GIL[recording.GILHeld]
	if held.Count == 0 {
		return
	}
	var waited uint64
	for i := range t.ledger.Threads {
		waited += partOf(t.ledger.Threads[i].Parts, correlate.PartGILWait)
	}
	note(fmt.Sprintf("While a call has the GIL held, other threads can't run Python: %s in calls like that, and %s of all threads' time waiting for the GIL%s.",
		duration(held.WallNS), duration(waited), causedPart(&held)))
}

// causedPart says which part of the waiting was for calls that held the GIL.
func causedPart(held *correlate.Total) string {
	if held.GILWaitCausedNS == 0 {
		return ""
	}
	return ", of which " + duration(held.GILWaitCausedNS) + " for these calls"
}

func partOf(p *correlate.Partition, kind correlate.PartKind) (ns uint64) {
	if p == nil {
		return 0
	}
	for _, part := range p.Parts {
		if part.Kind == kind {
			ns += part.NS
		}
	}
	return ns
}
