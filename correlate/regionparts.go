package correlate

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"stageprof/recording"
)

// RegionPartition is what of a partition's time was spent in one stack of regions,
// outside the regions inside it, or outside of any.
type RegionPartition struct {
	Region int // ID in Source.RegionPaths; 0: no region was open
	Partition
}

// byRegion divides a time by region first; outside of any comes first. What the
// regions are said to have had, and the stage did not have, is cut: snapshots read
// the two one after the other. Calls in regions of which no time is known are with
// the rest.
func (r *timeRow) byRegion(calls []callTime, compare func(x, y int) int) []RegionPartition {
	in := map[int][]callTime{}
	for _, c := range calls {
		if _, known := r.regions[c.region]; !known {
			c.region = 0
		}
		in[c.region] = append(in[c.region], c)
	}
	rest, left := r.parts, divide(r.own)
	split := []RegionPartition{{}}
	for _, region := range slices.SortedFunc(maps.Keys(r.regions), compare) {
		parts := r.regions[region]
		takeFrom(&rest, &parts)
		total, _ := sumParts(&parts)
		d := left.split(total)
		d.parts = new([]Part)
		d.takeParts(&parts, in[region])
		split = append(split, RegionPartition{region, d.partition()})
	}
	d := divide(left.rest)
	d.takeParts(&rest, in[0])
	split[0].Partition = d.partition()
	return split
}

// takeFrom takes parts out of others, at most what is there, and cuts them to that.
func takeFrom(rest, parts *recording.Parts) {
	from := partFields(rest)
	for i, ns := range partFields(parts) {
		*ns = min(*ns, *from[i])
		*from[i] -= *ns
	}
}

func sumOfRegions(split []RegionPartition) Partition {
	var sum mix
	for i := range split {
		sum.add(&split[i].Partition)
	}
	return sum.partition()
}

// regionMix sums partitions by region.
type regionMix map[int]*mix

func (m regionMix) add(split []RegionPartition) {
	for i := range split {
		region := split[i].Region
		if m[region] == nil {
			m[region] = &mix{}
		}
		m[region].add(&split[i].Partition)
	}
}

// regionPartitions are the parts of a whole in a fixed order; nil if nothing is
// known of it.
func (b *builder) regionPartitions(whole *Partition, m regionMix) []RegionPartition {
	if whole == nil {
		return nil
	}
	var split []RegionPartition
	for region, sum := range m {
		split = append(split, RegionPartition{region, sum.partition()})
	}
	slices.SortFunc(split, func(x, y RegionPartition) int { return b.compareRegions(x.Region, y.Region) })
	return split
}

// NamedPartition is the partition of what has a name, "" for the rest.
type NamedPartition struct {
	Name string
	Partition
}

// ByInnermostRegion sums partitions by the name of their innermost region, the
// longest first and what is outside any last.
func ByInnermostRegion(l *Ledger, split []RegionPartition) []NamedPartition {
	sums := map[string]*mix{}
	for i := range split {
		name := ""
		if names := l.RegionNames(split[i].Region); len(names) > 0 {
			name = names[len(names)-1]
		}
		if sums[name] == nil {
			sums[name] = &mix{}
		}
		sums[name].add(&split[i].Partition)
	}
	var named []NamedPartition
	for name, sum := range sums {
		named = append(named, NamedPartition{name, sum.partition()})
	}
	slices.SortFunc(named, func(a, b NamedPartition) int {
		if (a.Name == "") != (b.Name == "") {
			return strings.Compare(b.Name, a.Name)
		}
		return cmp.Or(cmp.Compare(b.WallNS, a.WallNS), strings.Compare(a.Name, b.Name))
	})
	return named
}
