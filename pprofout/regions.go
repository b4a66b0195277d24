package pprofout

import (
	"cmp"
	"slices"

	"github.com/google/pprof/profile"

	"stageprof/correlate"
	"stageprof/recording"
)

// regions are the frames of the regions around a site's calls, innermost first.
// The region whose own code made the calls is the caller already.
func (t *tables) regions(s *correlate.Site) []*profile.Location {
	list := t.regionPath(s.Region)
	if len(list) > 0 && t.isCaller(t.innermostRegion(s.Region), s.Caller) {
		return list[1:]
	}
	return list
}

// regionPath are the frames of a stack of regions, innermost first.
func (t *tables) regionPath(id int) (list []*profile.Location) {
	if id == 0 {
		return nil
	}
	for _, region := range slices.Backward(t.source.RegionPaths[id].Regions) {
		list = append(list, t.region(region))
	}
	return list
}

func (t *tables) innermostRegion(id int) int {
	regions := t.source.RegionPaths[id].Regions
	return regions[len(regions)-1]
}

// region is the entry of a region's function.
func (t *tables) region(id int) *profile.Location {
	if id == -1 {
		return t.synthetic(correlate.OtherRegions, "stageprof.region.other", "stageprof://region")
	}
	r := &t.source.Regions[id]
	symbol := cmp.Or(r.Symbol, r.Name, unknown)
	return t.location(t.module(r.Module), r.Address, t.function(symbol, symbol, ""))
}

// isCaller tells whether a caller's frame is in the region's function.
func (t *tables) isCaller(region, caller int) bool {
	if region == -1 || caller == -1 {
		return false
	}
	r, f := &t.source.Regions[region], &t.source.Frames[caller]
	return r.Symbol != "" && f.Function == r.Symbol && sameFile(&t.source.Modules[f.Module], &t.source.Modules[r.Module])
}

func sameFile(a, b *recording.Module) bool { return a.Path == b.Path && a.BuildID == b.BuildID }
