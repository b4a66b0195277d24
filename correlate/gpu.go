package correlate

import (
	"cmp"
	"slices"

	"stageprof/recording"
)

// DeviceStage is what one device did while a stage was open on any thread. The
// two are joined by time only: whose work the device did is not known.
type DeviceStage struct {
	Path   Path
	Device int // recording.Device.Index

	// OpenNS is how long the stage was open on at least one thread, as far as
	// its single spans and the device's readings tell.
	OpenNS uint64

	UtilizationPct float64 // mean over OpenNS
	PowerW         float64 // mean over OpenNS
	// EnergyJ is the device's in OpenNS: all of an interval between two readings
	// in which the stage was open throughout, and a part in proportion of others.
	// Stages that were open at the same time each have it.
	EnergyJ float64
}

// devicesOfStages joins the readings of each device with the time in which each
// stage was open; by path, then device. Stages that no reading covers are left
// out.
func devicesOfStages(r *recording.Recording, paths []Path) []DeviceStage {
	if r.GPU == nil {
		return nil
	}
	var stages []DeviceStage
	for _, open := range openTimes(r.Spans, paths) {
		for _, device := range r.GPU.Devices {
			s := whileOpen(device.Intervals, open.times)
			if s.OpenNS > 0 {
				s.Path, s.Device = open.path, device.Index
				stages = append(stages, s)
			}
		}
	}
	slices.SortFunc(stages, func(x, y DeviceStage) int {
		return cmp.Or(comparePaths(x.Path, y.Path), cmp.Compare(x.Device, y.Device))
	})
	return stages
}

// stretch is a time on the clock of spans.
type stretch struct{ begin, end uint64 }

// openTime is when a stage was open on at least one thread: stretches in order,
// with gaps between them.
type openTime struct {
	path  Path
	times []stretch
}

func openTimes(spans []recording.Span, paths []Path) []openTime {
	at := map[string]int{}
	var open []openTime
	for _, s := range spans {
		path := paths[s.Path]
		if path.Outside() {
			continue
		}
		i, known := at[path.Joined]
		if !known {
			i = len(open)
			at[path.Joined] = i
			open = append(open, openTime{path: path})
		}
		open[i].times = append(open[i].times, stretch{s.BeginNS, add(s.BeginNS, s.WallNS)})
	}
	for i := range open {
		open[i].times = union(open[i].times)
	}
	return open
}

// union sorts stretches and joins those that overlap or touch.
func union(times []stretch) []stretch {
	slices.SortFunc(times, func(a, b stretch) int { return cmp.Compare(a.begin, b.begin) })
	joined := times[:0]
	for _, t := range times {
		if last := len(joined) - 1; last >= 0 && t.begin <= joined[last].end {
			joined[last].end = max(joined[last].end, t.end)
			continue
		}
		joined = append(joined, t)
	}
	return joined
}

// whileOpen is what a device's intervals say of the stretches.
func whileOpen(intervals []recording.DeviceInterval, open []stretch) (s DeviceStage) {
	intervals = slices.Clone(intervals)
	slices.SortFunc(intervals, func(a, b recording.DeviceInterval) int { return cmp.Compare(a.BeginNS, b.BeginNS) })
	var busy, power float64 // times nanoseconds
	for _, i := range intervals {
		// Stretches that are over before this interval are so for all later ones.
		for len(open) > 0 && open[0].end <= i.BeginNS {
			open = open[1:]
		}
		inside := overlap(i, open)
		if inside == 0 {
			continue
		}
		s.OpenNS = add(s.OpenNS, inside)
		busy += i.UtilizationPct * float64(inside)
		power += i.PowerW * float64(inside)
		s.EnergyJ += i.EnergyJ * (float64(inside) / float64(i.EndNS-i.BeginNS))
	}
	if s.OpenNS > 0 {
		s.UtilizationPct, s.PowerW = busy/float64(s.OpenNS), power/float64(s.OpenNS)
	}
	return s
}

// overlap is how much of an interval lies in the stretches.
func overlap(i recording.DeviceInterval, open []stretch) (inside uint64) {
	for _, t := range open {
		if t.begin >= i.EndNS {
			break
		}
		if begin, end := max(t.begin, i.BeginNS), min(t.end, i.EndNS); begin < end {
			inside += end - begin
		}
	}
	return inside
}
