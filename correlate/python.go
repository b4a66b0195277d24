package correlate

import (
	"cmp"
	"slices"
	"strings"

	"stageprof/recording"
)

// PythonLine is the calls of one stage that were made by way of one line of the
// program's own Python code.
type PythonLine struct {
	Frame recording.PythonFrame // Function is -1 where there is none
	Path  Path
	Breakdown
	Samples uint64
	Stack   int // the costliest one, ID in Source.PythonStacks; -1 if none is known
	Depth   int // of Frame in that stack
}

// PythonLines divides all calls over the lines of Python code that they were
// made by way of, the costliest first. It is nil when no stack was sampled.
func (l *Ledger) PythonLines() []PythonLine {
	lines := map[lineKey]*lineSum{}
	sampled := false
	for i := range l.Calls {
		c := &l.Calls[i]
		for j := range c.Sites {
			sampled = sampled || c.Sites[j].Stacks != nil
			for _, s := range c.Sites[j].knownStacks() {
				l.addLine(lines, c, &s)
			}
		}
	}
	if !sampled {
		return nil
	}
	return finishLines(lines)
}

// knownStacks also gives the sites that were not sampled one part.
func (s *Site) knownStacks() []Stack {
	if s.Stacks != nil {
		return s.Stacks
	}
	return divideTotal(&s.Total, nil, 0)
}

type lineKey struct {
	frame recording.PythonFrame
	path  string
}

type lineSum struct {
	PythonLine
	sums   sums
	stacks map[int]uint64 // wall time
}

func (l *Ledger) addLine(lines map[lineKey]*lineSum, c *Call, s *Stack) {
	frame, depth := recording.PythonFrame{Function: -1}, 0
	if s.Stack != noStack {
		frame, depth = ownFrame(l.Source, &l.Source.PythonStacks[s.Stack])
	}
	key := lineKey{frame, c.Path.Joined}
	line := lines[key]
	if line == nil {
		line = &lineSum{PythonLine: PythonLine{Frame: frame, Path: c.Path, Stack: noStack}, stacks: map[int]uint64{}}
		lines[key] = line
	}
	line.Samples = add(line.Samples, s.Samples)
	total := s.total()
	line.sums.add(c.Symbol, c.API, c.GIL, &total)
	if s.Stack == noStack {
		return
	}
	line.stacks[s.Stack] = add(line.stacks[s.Stack], s.WallNS)
	if most := line.Stack; most == noStack || line.stacks[s.Stack] > line.stacks[most] {
		line.Stack, line.Depth = s.Stack, depth
	}
}

// ownFrame is the innermost frame of code that is no installed library's, or the
// innermost one if all are.
func ownFrame(r *recording.Recording, s *recording.PythonStack) (frame recording.PythonFrame, depth int) {
	for i, f := range s.Frames {
		if !library(r.PythonFunctions[f.Function].File) {
			return f, i
		}
	}
	if len(s.Frames) == 0 {
		return recording.PythonFrame{Function: -1}, 0
	}
	return s.Frames[0], 0
}

// library goes by where installers put packages and where CPython keeps its own
// library; modules that are frozen into the interpreter have no file.
func library(file string) bool {
	return strings.Contains(file, "/site-packages/") || strings.Contains(file, "/dist-packages/") ||
		strings.Contains(file, "/lib/python3") || strings.HasPrefix(file, "<frozen ")
}

func finishLines(lines map[lineKey]*lineSum) []PythonLine {
	list := make([]PythonLine, 0, len(lines))
	for _, line := range lines {
		line.Breakdown = line.sums.breakdown()
		list = append(list, line.PythonLine)
	}
	slices.SortFunc(list, func(a, b PythonLine) int {
		return cmp.Or(
			cmp.Compare(b.WallNS, a.WallNS), cmp.Compare(b.Count, a.Count), strings.Compare(a.Path.Joined, b.Path.Joined),
			cmp.Compare(a.Frame.Function, b.Frame.Function), cmp.Compare(a.Frame.Line, b.Frame.Line))
	})
	return list
}
