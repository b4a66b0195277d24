package recording

import "fmt"

// Region is a native function that was followed: while it runs, the driver calls
// inside it carry it as a caller.
type Region struct {
	ID      int    `json:"id"`
	Name    string `json:"name"`    // as it stands in its source, without parameters
	Symbol  string `json:"symbol"`  // as it stands in its file
	Module  int    `json:"module"`  //
	Address uint64 `json:"address"` // in the target's address space
}

// RegionPath is a stack of regions, outermost first. Row 0, if there are any, is
// the path without regions.
type RegionPath struct {
	ID      int   `json:"id"`
	Regions []int `json:"regions"` // Region, -1 for those that found no room in the kernel side's table
}

// RegionTime is the exact total of the executions of one region, below others or
// not, that began on one thread in one stage. Those that an edge of the window
// cut, or that were not seen to be left, are counted apart.
type RegionTime struct {
	Thread         int         `json:"thread"`
	Path           int         `json:"path"`
	Attribution    Attribution `json:"attribution"` // of Path
	Region         int         `json:"region"`      // RegionPath
	Count          uint64      `json:"count"`       // complete executions
	WallNS         uint64      `json:"wall_ns"`
	ChildNS        uint64      `json:"child_ns"` // the part of WallNS inside regions inside it
	MinNS          uint64      `json:"min_ns"`
	MaxNS          uint64      `json:"max_ns"`
	PartialCount   uint64      `json:"partial_count"`
	PartialWallNS  uint64      `json:"partial_wall_ns"`
	PartialChildNS uint64      `json:"partial_child_ns"`
}

// RegionParts is what a stage's parts, those of its partial spans included, owe to
// one stack of regions: the time in which these were open and no other one inside
// them. What is left of the stage's parts was outside any region. The stage is the
// thread's own, as in Stage, also where a call in it is charged to another one's.
// Time inside a driver call belongs to the regions that were open when it began.
type RegionParts struct {
	Thread int   `json:"thread"`
	Path   int   `json:"path"`
	Region int   `json:"region"` // RegionPath
	Parts  Parts `json:"parts"`
}

// checkRegions verifies the cross references of everything about regions.
func (r *Recording) checkRegions() error {
	for i, region := range r.Regions {
		if region.ID != i {
			return fmt.Errorf("region %d has id %d", i, region.ID)
		}
		if !within(region.Module, len(r.Modules)) {
			return fmt.Errorf("region %q names module %d of %d", region.Name, region.Module, len(r.Modules))
		}
	}
	for i, p := range r.RegionPaths {
		if p.ID != i {
			return fmt.Errorf("region path %d has id %d", i, p.ID)
		}
		if (i == 0) != (len(p.Regions) == 0) || len(p.Regions) > MaxDepth {
			return fmt.Errorf("region path %d holds %d regions", i, len(p.Regions))
		}
		for _, region := range p.Regions {
			if region != -1 && !within(region, len(r.Regions)) {
				return fmt.Errorf("region path %d names region %d of %d", i, region, len(r.Regions))
			}
		}
	}
	for i, c := range r.Calls {
		if c.Region != 0 && !within(c.Region, len(r.RegionPaths)) {
			return fmt.Errorf("call row %d names region path %d of %d", i, c.Region, len(r.RegionPaths))
		}
	}
	for i, t := range r.RegionTimes {
		if !within(t.Thread, len(r.Threads)) || !within(t.Path, len(r.Paths)) || !within(t.Region, len(r.RegionPaths)) || t.Region == 0 {
			return fmt.Errorf("region row %d names a row that does not exist", i)
		}
	}
	for i, p := range r.RegionParts {
		if !within(p.Thread, len(r.Threads)) || !within(p.Path, len(r.Paths)) || !within(p.Region, len(r.RegionPaths)) || p.Region == 0 {
			return fmt.Errorf("row %d of the parts of regions names a row that does not exist", i)
		}
	}
	return nil
}
