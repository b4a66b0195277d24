package correlate

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"

	"github.com/ianlancetaylor/demangle"
)

// Dimension is a property of calls that they can be grouped by. Some are
// properties of a thread's time, too.
type Dimension struct {
	Name   string
	Help   string // what its values are
	Number bool   // its values are whole numbers, where they are known
	of     func(p *place) string
	level  level
}

// level is how finely calls have to be divided for a Dimension.
type level int

const (
	ofTime  level = iota // a thread's time has it, too
	ofSite               // all calls of a Site have the same
	ofStack              // they differ by Python stack
)

// place is what has the properties: calls, or a thread's time, which has no call,
// site and stack.
type place struct {
	ledger *Ledger
	thread int // index of Ledger.Threads
	path   Path
	region int // ID in Source.RegionPaths
	call   *Call
	site   *Site
	stack  *Stack // nil unless calls are divided by stack
}

// none stands for "no stage" where a stage's name is asked for.
const none = "none"

// Where a call has no Python line.
const (
	NotSampled = "(not sampled)" // it is of a row without a sample
	NoPython   = "(no Python)"   // its thread ran none
)

// Dimensions are all that calls can be grouped by. Every call has a value of
// each.
var Dimensions = []Dimension{
	{Name: "stage", Help: "the innermost stage", of: func(p *place) string { return cmp.Or(p.path.Innermost(), none) }},
	{Name: "stage_path", Help: "all open stages, joined with /", of: func(p *place) string { return cmp.Or(p.path.Joined, none) }},
	{Name: "symbol", Help: "the exact function", level: ofSite, of: func(p *place) string { return p.call.Symbol }},
	{Name: "api", Help: "the function in any spelling", level: ofSite, of: func(p *place) string { return p.call.API }},
	{Name: "group", Help: "the function's group, as of --probes", level: ofSite, of: func(p *place) string {
		return p.ledger.Source.Symbols[p.site.Symbol].Group
	}},
	{Name: "gil", Help: "the state of Python's lock", level: ofSite, of: func(p *place) string { return string(p.call.GIL) }},
	{Name: "attribution", Help: "why the call has its stage", level: ofSite, of: func(p *place) string {
		return string(p.call.Attribution)
	}},
	{Name: "caller", Help: "what called the function", level: ofSite, of: func(p *place) string {
		return p.ledger.CallerName(p.site.Caller)
	}},
	{Name: "python", Help: "the line of Python, as far as calls were sampled", level: ofStack, of: func(p *place) string {
		return p.ledger.pythonLine(p.stack.Stack)
	}},
	{Name: "region", Help: "the innermost region", of: func(p *place) string { return p.ledger.regionName(p.region) }},
	{Name: "thread", Help: "the thread's name", of: func(p *place) string { return p.ledger.Threads[p.thread].Name }},
	{Name: "tid", Help: "the thread's id", Number: true, of: func(p *place) string {
		return strconv.Itoa(p.ledger.Threads[p.thread].TID)
	}},
	{Name: "pid", Help: "the process", Number: true, of: func(p *place) string {
		return strconv.Itoa(p.ledger.Source.Target.PID)
	}},
	{Name: "rank", Help: "the process's rank", Number: true, of: func(p *place) string {
		return strconv.Itoa(p.ledger.Source.Target.Rank)
	}},
	{Name: "device", Help: "the GPU, by NVML's index, where NVML saw the process on one only", Number: true, of: func(p *place) string {
		if device, ok := p.ledger.Device(); ok {
			return strconv.Itoa(device)
		}
		return unknown
	}},
}

const unknown = "unknown"

// FindDimension gives the Dimension of a name.
func FindDimension(name string) (d Dimension, ok bool) {
	i := slices.IndexFunc(Dimensions, func(d Dimension) bool { return d.Name == name })
	if i < 0 {
		return Dimension{}, false
	}
	return Dimensions[i], true
}

// CallerName names a Frame: its function, else the place in its file; unknown
// if there is none.
func (l *Ledger) CallerName(frame int) string {
	if frame == -1 {
		return unknown
	}
	f := &l.Source.Frames[frame]
	if f.Function != "" {
		return demangle.Filter(f.Function)
	}
	return fmt.Sprintf("%s+%#x", path.Base(l.Source.Modules[f.Module].Path), f.Offset)
}

// RegionNames names the regions of a RegionPath, outermost first; of 0, which is
// outside any, there are none.
func (l *Ledger) RegionNames(id int) []string {
	if id == 0 {
		return []string{}
	}
	return regionNames(l.Source, l.Source.RegionPaths[id])
}

// regionName names the innermost region of a RegionPath.
func (l *Ledger) regionName(id int) string {
	if id == 0 {
		return none
	}
	names := l.RegionNames(id)
	return names[len(names)-1]
}

// pythonLine names the line of the program's own code by way of which the calls of
// a stack were made.
func (l *Ledger) pythonLine(stack int) string {
	if stack == noStack {
		return NotSampled
	}
	frame, _ := ownFrame(l.Source, &l.Source.PythonStacks[stack])
	if frame.Function < 0 {
		return NoPython
	}
	function := &l.Source.PythonFunctions[frame.Function]
	return fmt.Sprintf("%s:%d %s", function.File, frame.Line, function.Name)
}

// Device is the GPU that all calls were for, by NVML's index; ok is false where that
// can't be said. The driver API's surface does not say it, so it is known only if
// NVML saw the process on one device and on no other.
func (l *Ledger) Device() (index int, ok bool) {
	if l.Source.GPU == nil {
		return 0, false
	}
	for _, d := range l.Source.GPU.Devices {
		if d.Process == nil {
			continue
		}
		if ok {
			return 0, false
		}
		index, ok = d.Index, true
	}
	return index, ok
}
