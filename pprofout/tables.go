package pprofout

import (
	"cmp"
	"slices"
	"strings"

	"github.com/google/pprof/profile"

	"stageprof/correlate"
	"stageprof/recording"
)

// ownMapping holds the frames that are no code of the target. pprof does not
// try to find a file for a name in brackets. pythonMapping holds Python code.
const (
	ownMapping    = "[stageprof]"
	pythonMapping = "[python]"
)

// tables interns a profile's mappings, functions and locations.
type tables struct {
	source *recording.Recording

	executable  *profile.Mapping
	modules     map[recording.Module]*profile.Mapping // used ones, ID left out
	own         *profile.Mapping                      // nil until used
	interpreted *profile.Mapping                      // of Python code; nil until used

	functions   interned[profile.Function, profile.Function]
	locations   interned[locationKey, profile.Location]
	stageLists  map[string][]*profile.Location
	pythonLists map[int][]*profile.Location // by stack
}

type locationKey struct {
	mapping  *profile.Mapping
	address  uint64
	function *profile.Function
	line     int64
}

// interned keeps the order in which its values were first asked for.
type interned[K comparable, V any] struct {
	byKey map[K]*V
	order []*V
}

func (t *interned[K, V]) get(key K, make func(id uint64) *V) *V {
	if v, ok := t.byKey[key]; ok {
		return v
	}
	v := make(uint64(len(t.order) + 1))
	if t.byKey == nil {
		t.byKey = map[K]*V{}
	}
	t.byKey[key] = v
	t.order = append(t.order, v)
	return v
}

func newTables(source *recording.Recording) *tables {
	t := &tables{
		source:      source,
		modules:     map[recording.Module]*profile.Mapping{},
		stageLists:  map[string][]*profile.Location{},
		pythonLists: map[int][]*profile.Location{},
	}
	if len(source.Modules) > 0 {
		t.executable = t.module(0)
	} else {
		t.executable = newMapping(recording.Module{})
	}
	// pprof titles its reports with the first mapping, which needs a name.
	t.executable.File = cmp.Or(t.executable.File, readable(source.Target.Exe), readable(source.Target.Comm), unknown)
	return t
}

// newMapping says that everything is known of the mapping's frames that pprof
// could look for, so that it does not look.
func newMapping(m recording.Module) *profile.Mapping {
	return &profile.Mapping{
		Start: m.Start, Limit: m.Limit, Offset: m.Offset,
		File: readable(m.Path), BuildID: readable(m.BuildID),
		HasFunctions: true, HasFilenames: true, HasLineNumbers: true, HasInlineFrames: true,
	}
}

func (t *tables) module(id int) *profile.Mapping {
	m := t.source.Modules[id]
	m.ID = 0
	if t.modules[m] == nil {
		t.modules[m] = newMapping(m)
	}
	return t.modules[m]
}

func (t *tables) function(name, systemName, file string) *profile.Function {
	return t.define(profile.Function{Name: readable(name), SystemName: readable(systemName), Filename: file})
}

func (t *tables) define(f profile.Function) *profile.Function {
	return t.functions.get(f, func(id uint64) *profile.Function {
		f.ID = id
		return &f
	})
}

func (t *tables) location(m *profile.Mapping, address uint64, f *profile.Function) *profile.Location {
	return t.locationAt(m, address, f, 0)
}

func (t *tables) locationAt(m *profile.Mapping, address uint64, f *profile.Function, line int64) *profile.Location {
	return t.locations.get(locationKey{m, address, f, line}, func(id uint64) *profile.Location {
		return &profile.Location{ID: id, Mapping: m, Address: address, Line: []profile.Line{{Function: f, Line: line}}}
	})
}

// leaf is the entry of a driver function.
func (t *tables) leaf(symbol int) *profile.Location {
	s := &t.source.Symbols[symbol]
	return t.location(t.module(s.Module), s.Address, t.function(s.Name, s.Name, ""))
}

// caller is where a driver function was called from. Names of C++ functions
// stay mangled: pprof demangles a name that equals the system name.
func (t *tables) caller(frame int) *profile.Location {
	f := &t.source.Frames[frame]
	m := t.module(f.Module)
	name := t.source.FrameName(frame)
	systemName := name
	if f.Function == "" {
		systemName = "stageprof.frame." + name
	}
	return t.location(m, f.Address-min(1, f.Address), t.function(name, systemName, ""))
}

// cutFrame stands for the outer frames of a Python stack that was too deep.
const cutFrame = "(more Python frames)"

// python is the frames of a Python stack, innermost first; none for stack -1.
func (t *tables) python(stack int) []*profile.Location {
	if list, ok := t.pythonLists[stack]; ok || stack < 0 {
		return list
	}
	if t.interpreted == nil {
		t.interpreted = newMapping(recording.Module{Path: pythonMapping})
	}
	s := &t.source.PythonStacks[stack]
	var list []*profile.Location
	for _, f := range s.Frames {
		list = append(list, t.pythonFrame(f))
	}
	if s.Cut {
		list = append(list, t.location(t.interpreted, 0, t.function(cutFrame, "stageprof.python.cut", "stageprof://python")))
	}
	t.pythonLists[stack] = list
	return list
}

// pythonFrame has a system name that differs: pprof would take brackets out of
// one that doesn't.
func (t *tables) pythonFrame(frame recording.PythonFrame) *profile.Location {
	f := &t.source.PythonFunctions[frame.Function]
	name := cmp.Or(readable(f.Name), unknown)
	return t.locationAt(t.interpreted, 0, t.define(profile.Function{
		Name: name, SystemName: "python." + name, Filename: readable(f.File), StartLine: int64(f.FirstLine),
	}), int64(frame.Line))
}

// stages are the frames of a stage path, innermost first.
func (t *tables) stages(p correlate.Path) []*profile.Location {
	if list, ok := t.stageLists[p.Joined]; ok {
		return list
	}
	names := p.Names
	if p.Outside() {
		names = []string{none}
	}
	var list []*profile.Location
	for _, name := range slices.Backward(names) {
		list = append(list, t.synthetic("stage:"+name, "stageprof.stage."+name, "stageprof://stage"))
	}
	t.stageLists[p.Joined] = list
	return list
}

// part is what a thread did in a stage.
func (t *tables) part(name string) *profile.Location {
	return t.synthetic(name, "stageprof.part."+name, "stageprof://part")
}

func (t *tables) loss(reason string) *profile.Location {
	return t.synthetic("stageprof lost: "+reason, "stageprof.lost."+reason, "stageprof://loss")
}

// synthetic is a frame that is no code. Its two names differ, which keeps
// pprof's demangler from cutting brackets out of it.
func (t *tables) synthetic(name, systemName, file string) *profile.Location {
	if t.own == nil {
		t.own = newMapping(recording.Module{Path: ownMapping})
	}
	return t.location(t.own, 0, t.function(name, systemName, file))
}

// finish puts the tables into p: the executable is the first mapping; what is no
// file comes last.
func (t *tables) finish(p *profile.Profile) {
	others := make([]*profile.Mapping, 0, len(t.modules))
	for _, m := range t.modules {
		if m != t.executable {
			others = append(others, m)
		}
	}
	slices.SortFunc(others, func(a, b *profile.Mapping) int {
		return cmp.Or(
			strings.Compare(a.File, b.File), cmp.Compare(a.Start, b.Start), cmp.Compare(a.Limit, b.Limit),
			cmp.Compare(a.Offset, b.Offset), strings.Compare(a.BuildID, b.BuildID))
	})
	p.Mapping = append([]*profile.Mapping{t.executable}, others...)
	for _, m := range []*profile.Mapping{t.interpreted, t.own} {
		if m != nil {
			p.Mapping = append(p.Mapping, m)
		}
	}
	for i, m := range p.Mapping {
		m.ID = uint64(i + 1)
	}
	p.Function = t.functions.order
	p.Location = t.locations.order
}
