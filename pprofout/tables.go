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
// try to find a file for a name in brackets.
const ownMapping = "[stageprof]"

// tables interns a profile's mappings, functions and locations.
type tables struct {
	source *recording.Recording

	executable *profile.Mapping
	modules    map[recording.Module]*profile.Mapping // used ones, ID left out
	own        *profile.Mapping                      // nil until used

	functions  interned[profile.Function, profile.Function]
	locations  interned[locationKey, profile.Location]
	stageLists map[string][]*profile.Location
}

type locationKey struct {
	mapping  *profile.Mapping
	address  uint64
	function *profile.Function
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
		source:     source,
		modules:    map[recording.Module]*profile.Mapping{},
		stageLists: map[string][]*profile.Location{},
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
	key := profile.Function{Name: readable(name), SystemName: readable(systemName), Filename: file}
	return t.functions.get(key, func(id uint64) *profile.Function {
		f := key
		f.ID = id
		return &f
	})
}

func (t *tables) location(m *profile.Mapping, address uint64, f *profile.Function) *profile.Location {
	return t.locations.get(locationKey{m, address, f}, func(id uint64) *profile.Location {
		return &profile.Location{ID: id, Mapping: m, Address: address, Line: []profile.Line{{Function: f}}}
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

// finish puts the tables into p: the executable is the first mapping, our own
// the last one.
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
	if t.own != nil {
		p.Mapping = append(p.Mapping, t.own)
	}
	for i, m := range p.Mapping {
		m.ID = uint64(i + 1)
	}
	p.Function = t.functions.order
	p.Location = t.locations.order
}
