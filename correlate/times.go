package correlate

import (
	"cmp"
	"slices"

	"stageprof/recording"
)

// times collects what threads did with their time, by thread and stage path.
// The path "" is their time outside any stage.
type times struct {
	rows       map[threadPath]*timeRow
	anyParts   bool // the Recording has parts at all
	anyRegions bool // … and says which of them were spent in regions
}

type threadPath struct {
	thread int
	path   string
}

// timeRow is a thread's time in one stage. Parents that a path implies are
// there too; they have not been seen.
type timeRow struct {
	path       Path
	seen       bool
	own, child uint64
	parts      recording.Parts         // of own, as far as known
	regions    map[int]recording.Parts // of parts, what was spent in a stack of regions
}

// divided is a timeRow in parts.
type divided struct {
	seen        bool
	own, within Partition
	byRegion    []RegionPartition // of own; nil unless the Recording says so
}

func (t *times) row(thread int, path Path) *timeRow {
	if t.rows == nil {
		t.rows = map[threadPath]*timeRow{}
	}
	k := threadPath{thread, path.Joined}
	if t.rows[k] == nil {
		t.rows[k] = &timeRow{path: path}
	}
	return t.rows[k]
}

// add adds time of a thread's own in a stage, and in the stages inside it.
func (t *times) add(thread int, path Path, own, child uint64, parts ...recording.Parts) {
	t.row(thread, Path{})
	for p := range parents(path.Joined, path.Names) {
		t.row(thread, p)
	}
	r := t.row(thread, path)
	r.seen = true
	r.own = add(r.own, own)
	r.child = add(r.child, child)
	for i := range parts {
		addParts(&r.parts, &parts[i])
		t.anyParts = t.anyParts || parts[i] != recording.Parts{}
	}
}

// addRegion splits time that was added before. Of a stage whose row was lost
// nothing is known.
func (t *times) addRegion(thread int, path Path, region int, parts *recording.Parts) {
	t.anyRegions = true
	r := t.rows[threadPath{thread, path.Joined}]
	if r == nil || !r.seen {
		return
	}
	if r.regions == nil {
		r.regions = map[int]recording.Parts{}
	}
	sum := r.regions[region]
	addParts(&sum, parts)
	r.regions[region] = sum
}

// divide divides all times. The calls are those that a thread made in its own
// time in a stage.
func (t *times) divide(calls map[threadPath][]callTime, compareRegions func(x, y int) int) map[threadPath]*divided {
	all := map[threadPath]*divided{}
	inside := map[threadPath]*mix{} // what the stages right inside a stage sum to
	for _, k := range t.innermostFirst() {
		row := t.rows[k]
		d := &divided{seen: row.seen}
		if t.anyRegions {
			d.byRegion = row.byRegion(calls[k], compareRegions)
			d.own = sumOfRegions(d.byRegion)
		} else {
			own := divide(row.own)
			own.takeParts(&row.parts, calls[k])
			d.own = own.partition()
		}
		d.within = row.within(&d.own, inside[k])
		all[k] = d
		if row.path.Outside() {
			continue
		}
		parent := threadPath{k.thread, row.path.parent()}
		if inside[parent] == nil {
			inside[parent] = &mix{}
		}
		inside[parent].add(&d.within)
	}
	return all
}

// within is own time and that of the stages inside. Their rows sum to the time
// that the stage spent in them, unless spans were lost; then what is missing
// is PartChildren, and so is everything when they sum to more.
func (r *timeRow) within(own *Partition, inside *mix) Partition {
	sum := mix{}
	sum.add(own)
	if inside == nil {
		inside = &mix{}
	}
	children := inside.partition()
	switch {
	case !r.seen || r.path.Outside():
		sum.add(&children)
	case children.WallNS <= r.child:
		sum.add(&children)
		sum.add(childStages(r.child - children.WallNS))
	default:
		sum.add(childStages(r.child))
	}
	return sum.partition()
}

func childStages(ns uint64) *Partition {
	return &Partition{WallNS: ns, Parts: []Part{{PartName{Kind: PartChildren}, ns}}}
}

func (t *times) innermostFirst() []threadPath {
	keys := make([]threadPath, 0, len(t.rows))
	for k := range t.rows {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b threadPath) int {
		return cmp.Or(cmp.Compare(a.thread, b.thread), comparePaths(t.rows[b].path, t.rows[a].path))
	})
	return keys
}

// parent is the path of the stage around the path's innermost one, "" of an
// outermost one.
func (p Path) parent() string {
	return p.Joined[:max(len(p.Joined)-len(p.Innermost())-1, 0)]
}

// known returns a partition of which anything is known.
func (t *times) known(p Partition) *Partition {
	if !t.anyParts || (p.WallNS > 0 && p.Of(PartUnknown) == p.WallNS) {
		return nil
	}
	return &p
}
