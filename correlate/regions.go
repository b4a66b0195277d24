package correlate

import (
	"cmp"
	"slices"
	"strings"

	"stageprof/recording"
)

// OtherRegions is the name of regions that found no room in the kernel side's
// tables.
const OtherRegions = "(other regions)"

// Region is what is known of one stack of regions in one stage, over all threads.
// Its times are those of its innermost region.
type Region struct {
	Path        Path // of the stage in which it was entered
	Attribution recording.Attribution
	Names       []string // outermost first; never empty

	Count       uint64 // complete executions; the next four are about them
	WallNS      uint64
	ExclusiveNS uint64 // outside the regions inside it
	MinNS       uint64
	MaxNS       uint64
	Partial     RegionPartial

	Own    Breakdown // calls that were made in it, outside the regions inside it
	Within Breakdown // Own, and those made in regions inside it
}

// RegionPartial sums the executions of a region that an edge of the window cut,
// or that were not seen to be left.
type RegionPartial struct {
	Count       uint64
	WallNS      uint64
	ExclusiveNS uint64
}

// Innermost returns the name of the region itself.
func (r *Region) Innermost() string { return r.Names[len(r.Names)-1] }

// regionKey is the visible key of a Region; its names are joined with NUL.
type regionKey struct {
	path        string
	attribution recording.Attribution
	names       string
}

type regionSum struct {
	Region
	own, within sums
}

// regionTable collects regions.
type regionTable struct {
	names [][]string // by the Recording's region path ID
	sums  map[regionKey]*regionSum
}

func newRegionTable(r *recording.Recording) regionTable {
	t := regionTable{sums: map[regionKey]*regionSum{}}
	for _, p := range r.RegionPaths {
		t.names = append(t.names, regionNames(r, p))
	}
	return t
}

func regionNames(r *recording.Recording, p recording.RegionPath) []string {
	names := make([]string, 0, len(p.Regions))
	for _, region := range p.Regions {
		if region == -1 {
			names = append(names, OtherRegions)
		} else {
			names = append(names, cmp.Or(r.Regions[region].Name, r.Regions[region].Symbol, unnamed))
		}
	}
	return names
}

const unnamed = "(empty)"

func (t *regionTable) sum(path Path, attribution recording.Attribution, names []string) *regionSum {
	key := regionKey{path.Joined, attribution, strings.Join(names, "\x00")}
	if t.sums[key] == nil {
		t.sums[key] = &regionSum{Region: Region{Path: path, Attribution: attribution, Names: names}}
	}
	return t.sums[key]
}

// addCall adds calls that were made with a stack of regions open.
func (t *regionTable) addCall(region int, key callKey, path Path, total *Total) {
	if region == 0 {
		return
	}
	names := t.names[region]
	for i := range names {
		s := t.sum(path, key.attribution, names[:i+1:i+1])
		s.within.add(key.symbol, key.api, key.gil, total)
		if i == len(names)-1 {
			s.own.add(key.symbol, key.api, key.gil, total)
		}
	}
}

// addTime adds executions, and returns how many can't be true.
func (t *regionTable) addTime(row recording.RegionTime, path Path, limit uint64) (impossible uint64) {
	if row.Count > 0 && row.WallNS/row.Count > limit {
		impossible, row.Count, row.WallNS, row.ChildNS = row.Count, 0, 0, 0
	}
	if row.PartialCount > 0 && row.PartialWallNS/row.PartialCount > limit {
		impossible = add(impossible, row.PartialCount)
		row.PartialCount, row.PartialWallNS, row.PartialChildNS = 0, 0, 0
	}
	if row.Count == 0 && row.PartialCount == 0 {
		return impossible
	}
	s := t.sum(path, knownAttribution(row.Attribution, path), t.names[row.Region])
	if row.Count > 0 {
		if s.Count == 0 || row.MinNS < s.MinNS {
			s.MinNS = row.MinNS
		}
		s.MaxNS = max(s.MaxNS, row.MaxNS)
	}
	s.Count = add(s.Count, row.Count)
	s.WallNS = add(s.WallNS, row.WallNS)
	s.ExclusiveNS = add(s.ExclusiveNS, row.WallNS-min(row.ChildNS, row.WallNS))
	s.Partial.Count = add(s.Partial.Count, row.PartialCount)
	s.Partial.WallNS = add(s.Partial.WallNS, row.PartialWallNS)
	s.Partial.ExclusiveNS = add(s.Partial.ExclusiveNS, row.PartialWallNS-min(row.PartialChildNS, row.PartialWallNS))
	return impossible
}

// finish orders regions by stage and attribution, those inside a region behind
// it.
func (t *regionTable) finish() []Region {
	regions := make([]Region, 0, len(t.sums))
	for _, s := range t.sums {
		r := s.Region
		r.Own, r.Within = s.own.breakdown(), s.within.breakdown()
		regions = append(regions, r)
	}
	slices.SortFunc(regions, func(a, b Region) int {
		return cmp.Or(comparePaths(a.Path, b.Path), cmp.Compare(a.Attribution, b.Attribution), slices.Compare(a.Names, b.Names))
	})
	return regions
}
