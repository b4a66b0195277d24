package correlate

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// Dimension is a property of calls that they can be grouped by.
type Dimension struct {
	Name   string
	Help   string // what its values are
	Number bool   // its values are whole numbers
	of     func(l *Ledger, c *Call, s *Site) string
}

// none stands for "no stage" where a stage's name is asked for.
const none = "none"

// Dimensions are all that calls can be grouped by. Every call has a value of
// each.
var Dimensions = []Dimension{
	{Name: "stage", Help: "the innermost stage", of: func(_ *Ledger, c *Call, _ *Site) string {
		return cmp.Or(c.Path.Innermost(), none)
	}},
	{Name: "stage_path", Help: "all open stages, joined with /", of: func(_ *Ledger, c *Call, _ *Site) string {
		return cmp.Or(c.Path.Joined, none)
	}},
	{Name: "symbol", Help: "the exact function", of: func(_ *Ledger, c *Call, _ *Site) string { return c.Symbol }},
	{Name: "api", Help: "the function in any spelling", of: func(_ *Ledger, c *Call, _ *Site) string { return c.API }},
	{Name: "group", Help: "the function's group, as of --probes", of: func(l *Ledger, _ *Call, s *Site) string {
		return l.Source.Symbols[s.Symbol].Group
	}},
	{Name: "gil", Help: "the state of Python's lock", of: func(_ *Ledger, c *Call, _ *Site) string { return string(c.GIL) }},
	{Name: "attribution", Help: "why the call has its stage", of: func(_ *Ledger, c *Call, _ *Site) string {
		return string(c.Attribution)
	}},
	{Name: "caller", Help: "what called the function", of: func(l *Ledger, _ *Call, s *Site) string { return l.CallerName(s.Caller) }},
	{Name: "region", Help: "the innermost region", of: func(l *Ledger, _ *Call, s *Site) string { return l.regionName(s.Region) }},
	{Name: "thread", Help: "the thread's name", of: func(l *Ledger, c *Call, _ *Site) string { return l.Threads[c.Thread].Name }},
	{Name: "tid", Help: "the thread's id", Number: true, of: func(l *Ledger, c *Call, _ *Site) string {
		return strconv.Itoa(l.Threads[c.Thread].TID)
	}},
	{Name: "pid", Help: "the process", Number: true, of: func(l *Ledger, _ *Call, _ *Site) string {
		return strconv.Itoa(l.Source.Target.PID)
	}},
	{Name: "rank", Help: "the process's rank", Number: true, of: func(l *Ledger, _ *Call, _ *Site) string {
		return strconv.Itoa(l.Source.Target.Rank)
	}},
}

// CallerName names a Frame: its function, else the place in its file; unknown
// if there is none.
func (l *Ledger) CallerName(frame int) string {
	if frame == -1 {
		return "unknown"
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

// FindDimension gives the Dimension of a name.
func FindDimension(name string) (d Dimension, ok bool) {
	i := slices.IndexFunc(Dimensions, func(d Dimension) bool { return d.Name == name })
	if i < 0 {
		return Dimension{}, false
	}
	return Dimensions[i], true
}

// Group is all calls that have the same values of some Dimensions.
type Group struct {
	Key []string // in the order of the Dimensions
	Total
}

// GroupOptions says how calls are grouped.
type GroupOptions struct {
	By    []Dimension
	Match *regexp.Regexp // only groups whose KeyText it matches; nil: all
	Sort  GroupColumn
	Top   int // at most so many groups; 0: all
}

// Groups are calls by group.
type Groups struct {
	Options GroupOptions
	List    []Group // sorted as asked for, then by key
	Shown   Total   // of List
	Rest    Total   // of groups that did not come among the top
	Left    int     // how many they are
	Hidden  Total   // of groups that do not match
	All     Total   // of all of these
}

// KeyText is the text that GroupOptions.Match is about: "stage=forward gil=free".
func (g *Groups) KeyText(of *Group) string { return keyText(g.Options.By, of.Key) }

func keyText(by []Dimension, key []string) string {
	var b strings.Builder
	for i, d := range by {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(d.Name + "=" + key[i])
	}
	return b.String()
}

// GroupColumn is a number of groups that they can be sorted by, the largest
// first, or a Dimension, by which they are sorted upwards.
type GroupColumn struct {
	Name      string
	dimension int // index in GroupOptions.By, -1 for none
	value     func(*Total) uint64
}

// groupColumns are the numbers of a group.
var groupColumns = []GroupColumn{
	{Name: "cuda", value: func(t *Total) uint64 { return t.WallNS }},
	{Name: "calls", value: func(t *Total) uint64 { return t.Count }},
	{Name: "cpu", value: func(t *Total) uint64 { return t.CPUNS }},
	{Name: "blocked", value: func(t *Total) uint64 { return t.BlockedNS() }},
	{Name: "mean", value: func(t *Total) uint64 { return t.MeanNS() }},
	{Name: "p50", value: func(t *Total) uint64 { ns, _ := t.Quantile(0.5); return ns }},
	{Name: "p99", value: func(t *Total) uint64 { ns, _ := t.Quantile(0.99); return ns }},
	{Name: "max", value: func(t *Total) uint64 { return t.MaxNS }},
	{Name: "bytes", value: func(t *Total) uint64 { return t.Bytes }},
	{Name: "errors", value: func(t *Total) uint64 { return t.Errors }},
	{Name: "caused", value: func(t *Total) uint64 { return t.GILWaitCausedNS }},
}

// GroupColumnNames are the names of the numbers that groups can be sorted by.
func GroupColumnNames() (names []string) {
	for _, c := range groupColumns {
		names = append(names, c.Name)
	}
	return names
}

// FindGroupColumn gives the column of a name, which may be that of one of the
// Dimensions that calls are grouped by.
func FindGroupColumn(name string, by []Dimension) (c GroupColumn, ok bool) {
	if i := slices.IndexFunc(by, func(d Dimension) bool { return d.Name == name }); i >= 0 {
		return GroupColumn{Name: name, dimension: i}, true
	}
	if i := slices.IndexFunc(groupColumns, func(c GroupColumn) bool { return c.Name == name }); i >= 0 {
		c = groupColumns[i]
		c.dimension = -1
		return c, true
	}
	return GroupColumn{}, false
}

// GroupCalls groups the calls of all Ledgers together.
func GroupCalls(ledgers []*Ledger, o GroupOptions) *Groups {
	g := &Groups{Options: o}
	byKey := map[string]*Group{}
	for _, l := range ledgers {
		for i := range l.Calls {
			for j := range l.Calls[i].Sites {
				g.add(byKey, l, &l.Calls[i], &l.Calls[i].Sites[j])
			}
		}
	}
	for _, group := range byKey {
		if o.Match == nil || o.Match.MatchString(g.KeyText(group)) {
			g.List = append(g.List, *group)
		} else {
			g.Hidden.add(&group.Total)
		}
	}
	g.sort()
	if o.Top > 0 && o.Top < len(g.List) {
		rest := g.List[o.Top:]
		for i := range rest {
			g.Rest.add(&rest[i].Total)
		}
		g.Left = len(rest)
		g.List = g.List[:o.Top]
	}
	for i := range g.List {
		g.Shown.add(&g.List[i].Total)
	}
	return g
}

func (g *Groups) add(byKey map[string]*Group, l *Ledger, c *Call, s *Site) {
	key := make([]string, len(g.Options.By))
	for i, d := range g.Options.By {
		key[i] = d.of(l, c, s)
	}
	joined := fmt.Sprintf("%q", key)
	if byKey[joined] == nil {
		byKey[joined] = &Group{Key: key}
	}
	byKey[joined].add(&s.Total)
	g.All.add(&s.Total)
}

func (g *Groups) sort() {
	by := g.Options.Sort
	slices.SortFunc(g.List, func(a, b Group) int {
		switch {
		case by.value != nil:
			return cmp.Or(cmp.Compare(by.value(&b.Total), by.value(&a.Total)), g.compareKeys(a.Key, b.Key))
		case len(g.Options.By) > by.dimension:
			return cmp.Or(g.compareValues(by.dimension, a.Key, b.Key), g.compareKeys(a.Key, b.Key))
		default:
			return g.compareKeys(a.Key, b.Key)
		}
	})
}

func (g *Groups) compareKeys(a, b []string) int {
	for i := range a {
		if c := g.compareValues(i, a, b); c != 0 {
			return c
		}
	}
	return 0
}

func (g *Groups) compareValues(i int, a, b []string) int {
	if g.Options.By[i].Number {
		x, _ := strconv.Atoi(a[i])
		y, _ := strconv.Atoi(b[i])
		if x != y {
			return cmp.Compare(x, y)
		}
	}
	return strings.Compare(a[i], b[i])
}
