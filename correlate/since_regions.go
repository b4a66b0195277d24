package correlate

import (
	"fmt"
	"slices"
	"strings"

	"stageprof/recording"
)

// regionID is a row of regions, or of what else is counted by them.
type regionID struct {
	thread      threadID
	path        string
	attribution recording.Attribution
	region      string
}

func (x *index) region(thread, path int, attribution recording.Attribution, region int) regionID {
	return regionID{x.thread(thread), x.paths[path], attribution, x.regionPath(region)}
}

// regionPath names a region path alike in all snapshots.
func (x *index) regionPath(id int) string {
	if id == 0 {
		return ""
	}
	var b strings.Builder
	for _, region := range x.RegionPaths[id].Regions {
		if region == -1 {
			b.WriteString("?\x00")
		} else {
			fmt.Fprintf(&b, "%s %x\x00", x.Regions[region].Symbol, x.Regions[region].Address)
		}
	}
	return b.String()
}

// subtractRegions leaves of the regions what ended in the interval. The extremes
// can't be subtracted: they are those of the whole recording.
func (d *interval) subtractRegions() (err error) {
	d.r.RegionTimes, err = subtractRows(d.earlier.RegionTimes, d.later.RegionTimes,
		func(t *recording.RegionTime) regionID {
			return d.earlier.region(t.Thread, t.Path, t.Attribution, t.Region)
		},
		func(t *recording.RegionTime) regionID {
			return d.later.region(t.Thread, t.Path, t.Attribution, t.Region)
		},
		func(t *recording.RegionTime) []*uint64 {
			return []*uint64{&t.Count, &t.PartialCount, &t.WallNS, &t.ChildNS, &t.PartialWallNS, &t.PartialChildNS}
		}, 2)
	if err != nil {
		return err
	}
	d.subtractRegionParts()
	d.r.Allocations, err = subtractRows(d.earlier.Allocations, d.later.Allocations,
		func(a *recording.Allocation) regionID {
			return d.earlier.region(a.Thread, a.Path, a.Attribution, a.Region)
		},
		func(a *recording.Allocation) regionID {
			return d.later.region(a.Thread, a.Path, a.Attribution, a.Region)
		},
		func(a *recording.Allocation) []*uint64 {
			return []*uint64{&a.Count, &a.Freed, &a.Bytes, &a.FreedBytes, &a.FreedUnknown}
		}, 2)
	return err
}

// subtractRows takes the sums of earlier rows from those of later ones. Rows of
// which none of the first sums, counts of them, is left are left out.
func subtractRows[R any](earlier, later []R, earlierID, laterID func(*R) regionID, sums func(*R) []*uint64, counts int) ([]R, error) {
	rows, at := []R{}, map[regionID]int{}
	for _, row := range later {
		id := laterID(&row)
		if i, ok := at[id]; ok {
			for j, sum := range sums(&rows[i]) {
				*sum += *sums(&row)[j]
			}
			continue
		}
		at[id] = len(rows)
		rows = append(rows, row)
	}
	for i := range earlier {
		id := earlierID(&earlier[i])
		folded := id
		folded.thread = foldedID
		row, err := locate(at, id, folded)
		if err != nil {
			return nil, err
		}
		for j, sum := range sums(&rows[row]) {
			if err := subtract(sum, *sums(&earlier[i])[j]); err != nil {
				return nil, err
			}
		}
	}
	left := rows[:0]
	for _, row := range rows {
		for _, count := range sums(&row)[:counts] {
			if *count > 0 {
				left = append(left, row)
				break
			}
		}
	}
	return left, nil
}

// subtractRegionParts leaves what was spent in regions in the interval. A row that
// only an open region had may be missing later, for want of room.
func (d *interval) subtractRegionParts() {
	type partsID struct {
		thread       threadID
		path, region string
	}
	idOf := func(x *index, p *recording.RegionParts) partsID {
		return partsID{x.thread(p.Thread), x.paths[p.Path], x.regionPath(p.Region)}
	}
	var rows []recording.RegionParts
	at := map[partsID]int{}
	for _, p := range d.later.RegionParts {
		id := idOf(d.later, &p)
		if i, ok := at[id]; ok {
			rows[i].Parts = rows[i].Parts.Plus(p.Parts)
			continue
		}
		at[id] = len(rows)
		rows = append(rows, p)
	}
	for i := range d.earlier.RegionParts {
		p := &d.earlier.RegionParts[i]
		id := idOf(d.earlier, p)
		folded := id
		folded.thread = foldedID
		if row, err := locate(at, id, folded); err == nil {
			rows[row].Parts = partsWithout(rows[row].Parts, p.Parts)
		}
	}
	d.r.RegionParts = slices.DeleteFunc(rows, func(p recording.RegionParts) bool { return p.Parts.Total() == 0 })
}
