package correlate

import (
	"cmp"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Group is all calls that have the same values of some Dimensions.
type Group struct {
	Key []string // in the order of the Dimensions
	Tally
}

// Tally is what groups sum. How calls are divided over Python lines is an
// estimate, so there RawWallNS, RawCPUNS, MinNS, MaxNS and Hist are 0: they are not
// known.
type Tally struct {
	Total
	Samples uint64     // Python stacks that were read, where calls are divided by them
	Time    *Partition // that threads spent, the calls they made in it included; nil unless Groups.Timed
}

// GroupOptions says how calls are grouped.
type GroupOptions struct {
	By    []Dimension
	Match *regexp.Regexp // only groups whose KeyText it matches; nil: all
	Sort  GroupColumn
	Top   int // at most so many groups; 0: all
}

// Groups are calls by group. Groups by region are of threads' time, too: then there
// can be some without a call.
type Groups struct {
	Options GroupOptions
	Sampled bool    // the calls are divided by Python line
	Timed   bool    // the groups have Time
	List    []Group // sorted as asked for, then by key
	Shown   Tally   // of List
	Rest    Tally   // of groups that did not come among the top
	Left    int     // how many they are
	Hidden  Tally   // of groups that do not match
	All     Tally   // of all of these
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
	value     func(*Tally) uint64
	in        func(by []Dimension) bool // nil: groups of all kinds have it
}

// groupColumns are the numbers of a group.
var groupColumns = []GroupColumn{
	{Name: "cuda", value: func(t *Tally) uint64 { return t.WallNS }},
	{Name: "calls", value: func(t *Tally) uint64 { return t.Count }},
	{Name: "cpu", value: func(t *Tally) uint64 { return t.CPUNS }},
	{Name: "blocked", value: func(t *Tally) uint64 { return t.BlockedNS() }},
	{Name: "mean", value: func(t *Tally) uint64 { return t.MeanNS() }},
	{Name: "p50", in: undivided, value: func(t *Tally) uint64 { ns, _ := t.Quantile(0.5); return ns }},
	{Name: "p99", in: undivided, value: func(t *Tally) uint64 { ns, _ := t.Quantile(0.99); return ns }},
	{Name: "max", in: undivided, value: func(t *Tally) uint64 { return t.MaxNS }},
	{Name: "bytes", value: func(t *Tally) uint64 { return t.Bytes }},
	{Name: "errors", value: func(t *Tally) uint64 { return t.Errors }},
	{Name: "caused", value: func(t *Tally) uint64 { return t.GILWaitCausedNS }},
	{Name: "samples", in: sampled, value: func(t *Tally) uint64 { return t.Samples }},
	{Name: "wall", in: timed, value: func(t *Tally) uint64 {
		if t.Time == nil {
			return 0
		}
		return t.Time.WallNS
	}},
}

// sampled reports whether groups by these divide calls by Python stack.
func sampled(by []Dimension) bool {
	return slices.ContainsFunc(by, func(d Dimension) bool { return d.level == ofStack })
}

func undivided(by []Dimension) bool { return !sampled(by) }

// timed reports whether a thread's time has all of these, the region among them. The
// time in stages as such is what the Ledger has.
func timed(by []Dimension) bool {
	return slices.ContainsFunc(by, func(d Dimension) bool { return d.Name == "region" }) &&
		!slices.ContainsFunc(by, func(d Dimension) bool { return d.level != ofTime })
}

// GroupColumnNames are the names of the numbers that groups can be sorted by; some
// groups do not have all of them.
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
	i := slices.IndexFunc(groupColumns, func(c GroupColumn) bool { return c.Name == name && (c.in == nil || c.in(by)) })
	if i < 0 {
		return GroupColumn{}, false
	}
	c = groupColumns[i]
	c.dimension = -1
	return c, true
}

// GroupCalls groups the calls of all Ledgers together.
func GroupCalls(ledgers []*Ledger, o GroupOptions) *Groups {
	g := newGrouping(o)
	for _, l := range ledgers {
		g.addCalls(l)
		g.addTimes(l)
	}
	return g.finish()
}

// grouping collects groups.
type grouping struct {
	options GroupOptions
	sampled bool
	groups  map[string]*groupSum // by key, quoted
}

type groupSum struct {
	Group
	time mix // what Group.Time is made of
}

func newGrouping(o GroupOptions) *grouping {
	return &grouping{options: o, sampled: sampled(o.By), groups: map[string]*groupSum{}}
}

// at is the group of a place.
func (g *grouping) at(p *place) *groupSum {
	key := make([]string, len(g.options.By))
	for i, d := range g.options.By {
		key[i] = d.of(p)
	}
	joined := fmt.Sprintf("%q", key)
	if g.groups[joined] == nil {
		g.groups[joined] = &groupSum{Group: Group{Key: key}}
	}
	return g.groups[joined]
}

func (g *grouping) addCalls(l *Ledger) {
	for i := range l.Calls {
		c := &l.Calls[i]
		for j := range c.Sites {
			site := &c.Sites[j]
			at := place{ledger: l, thread: c.Thread, path: c.Path, region: site.Region, call: c, site: site}
			if !g.sampled {
				g.at(&at).Total.add(&site.Total)
				continue
			}
			for _, stack := range site.knownStacks() {
				at.stack = &stack
				g.at(&at).Tally.add(&Tally{Total: stack.total(), Samples: stack.Samples})
			}
		}
	}
}

func (g *grouping) addTimes(l *Ledger) {
	if !timed(g.options.By) {
		return
	}
	for at, time := range l.timesByRegion() {
		g.at(&at).time.add(time)
	}
}

// timesByRegion are all times of threads of which the Recording says which regions
// were open: those in stages, without the stages inside them, and those outside any.
func (l *Ledger) timesByRegion() iter.Seq2[place, *Partition] {
	return func(yield func(place, *Partition) bool) {
		each := func(thread int, path Path, split []RegionPartition) bool {
			for i := range split {
				if !yield(place{ledger: l, thread: thread, path: path, region: split[i].Region}, &split[i].Partition) {
					return false
				}
			}
			return true
		}
		for i := range l.Threads {
			if !each(i, Path{}, l.Threads[i].OutsideByRegion) {
				return
			}
		}
		for i := range l.Stages {
			s := &l.Stages[i]
			for _, t := range s.Threads {
				if !each(t.Thread, s.Path, t.ByRegion) {
					return
				}
			}
		}
	}
}

// finish sorts groups, and takes those out that were not asked for.
func (g *grouping) finish() *Groups {
	groups := &Groups{Options: g.options, Sampled: g.sampled}
	for _, sum := range g.groups {
		groups.Timed = groups.Timed || sum.time.wall > 0
	}
	for _, sum := range g.groups {
		if groups.Timed {
			time := sum.time.partition()
			sum.Time = &time
		}
		if match := g.options.Match; match == nil || match.MatchString(groups.KeyText(&sum.Group)) {
			groups.List = append(groups.List, sum.Group)
		} else {
			groups.Hidden.add(&sum.Tally)
		}
	}
	groups.sort()
	if top := g.options.Top; top > 0 && top < len(groups.List) {
		for _, rest := range groups.List[top:] {
			groups.Rest.add(&rest.Tally)
		}
		groups.Left = len(groups.List) - top
		groups.List = groups.List[:top]
	}
	for i := range groups.List {
		groups.Shown.add(&groups.List[i].Tally)
	}
	for _, part := range []*Tally{&groups.Shown, &groups.Rest, &groups.Hidden} {
		groups.All.add(part)
	}
	return groups
}

func (t *Tally) add(o *Tally) {
	t.Total.add(&o.Total)
	t.Samples = add(t.Samples, o.Samples)
	if o.Time == nil {
		return
	}
	var sum mix
	if t.Time != nil {
		sum.add(t.Time)
	}
	sum.add(o.Time)
	time := sum.partition()
	t.Time = &time
}

func (g *Groups) sort() {
	by := g.Options.Sort
	slices.SortFunc(g.List, func(a, b Group) int {
		switch {
		case by.value != nil:
			return cmp.Or(cmp.Compare(by.value(&b.Tally), by.value(&a.Tally)), g.compareKeys(a.Key, b.Key))
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
