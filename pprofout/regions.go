package pprofout

import (
	"cmp"

	"github.com/google/pprof/profile"

	"stageprof/correlate"
	"stageprof/recording"
)

// regions are the frames of the regions around a site's calls, innermost first.
// The region whose own code made the calls is the caller already.
func (t *tables) regions(s *correlate.Site) []*profile.Location {
	if s.Region == 0 {
		return nil
	}
	path := t.source.RegionPaths[s.Region].Regions
	var list []*profile.Location
	for i := len(path) - 1; i >= 0; i-- {
		if i == len(path)-1 && t.isCaller(path[i], s.Caller) {
			continue
		}
		list = append(list, t.region(path[i]))
	}
	return list
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
