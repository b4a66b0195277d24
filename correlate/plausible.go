package correlate

import (
	"math"
	"time"

	"stageprof/recording"
)

// edgeSlack allows for the moments between the clock readings of the window
// and of attaching, which are taken apart from each other.
const edgeSlack = 100 * time.Millisecond

// longest is the longest duration that the recording can have measured: the
// time from the first probe's placing to the last one's removal.
func longest(r *recording.Recording) uint64 {
	if r.Window.Duration <= 0 {
		return math.MaxUint64 // not known, so nothing is impossible
	}
	sum := uint64(edgeSlack)
	if opened := r.Window.OpenedNS; opened != 0 {
		sum = add(sum, r.Window.StartNS-min(opened, r.Window.StartNS))
	}
	for _, d := range []time.Duration{r.Window.Duration, r.Overhead.Attach, r.Overhead.Detach} {
		sum = add(sum, uint64(max(d, 0)))
	}
	return sum
}

// durations is what a row says about the durations of its calls or spans.
type durations struct {
	count, wall, max *uint64
	hist             *recording.Hist
}

// rejectOver takes the durations over limit out of the row and returns how
// many they were.
//
// Only the longest one is known exactly. When all others are certainly
// possible, that one is taken out and the rest stays exact, but for the new
// maximum, which is then an upper bound. Otherwise the row can't be mended and
// is rejected as a whole.
func (d durations) rejectOver(limit uint64) (rejected uint64) {
	if *d.count == 0 || (*d.max <= limit && *d.wall / *d.count <= limit) {
		return 0
	}
	if *d.count == 1 || !d.dropLongest(limit) {
		rejected = *d.count
		*d.count, *d.wall, *d.max, *d.hist = 0, 0, 0, recording.Hist{}
		return rejected
	}
	return 1
}

func (d durations) dropLongest(limit uint64) bool {
	if *d.max <= limit || *d.wall < *d.max {
		return false
	}
	hist, rest := *d.hist, *d.wall-*d.max
	if b := bucketOf(*d.max); hist[b] > 0 {
		hist[b]--
	}
	top, known := highest(&hist)
	if rest > limit && (!known || top >= bucketOf(limit)) {
		return false // another one may be impossible too
	}
	*d.count--
	*d.wall = rest
	*d.max = rest
	if known && top < recording.HistBuckets-1 {
		*d.max = min(rest, bucketFloor(top)+bucketWidth(top))
	}
	*d.hist = hist
	return true
}

// highest returns the highest bucket that counts anything.
func highest(h *recording.Hist) (bucket int, ok bool) {
	for i := len(h) - 1; i >= 0; i-- {
		if h[i] > 0 {
			return i, true
		}
	}
	return 0, false
}

// plausibleCall returns the row without the calls that can't have lasted as
// long as measured, and how many they were.
func plausibleCall(c recording.Call, limit uint64) (recording.Call, uint64) {
	rejected := durations{&c.Count, &c.WallNS, &c.MaxNS, &c.Hist}.rejectOver(limit)
	if rejected > 0 {
		c.MinNS = min(c.MinNS, c.MaxNS)
	}
	return c, rejected
}

// plausibleSpans does the same for a row of spans, and turns it into Spans.
func plausibleSpans(s recording.Stage, limit uint64) (Spans, uint64) {
	rejected := durations{&s.Count, &s.WallNS, &s.MaxNS, &s.Hist}.rejectOver(limit)
	if s.PartialCount > 0 && s.PartialWallNS/s.PartialCount > limit {
		rejected = add(rejected, s.PartialCount)
		s.PartialCount = 0
	}
	if s.PartialCount == 0 {
		s.PartialWallNS = 0
	}
	if s.Count == 0 {
		s.WallNS, s.MinNS, s.MaxNS = 0, 0, 0
	}
	exclusive := s.WallNS - min(s.ChildNS, s.WallNS)
	partial := s.PartialWallNS - min(s.PartialChildNS, s.PartialWallNS)
	return Spans{
		Count:       s.Count,
		WallNS:      s.WallNS,
		ExclusiveNS: exclusive,
		CPUNS:       min(s.CPUNS, s.WallNS),
		MinNS:       min(s.MinNS, s.MaxNS),
		MaxNS:       s.MaxNS,
		Hist:        s.Hist,
		Parts:       partsOf(s.Parts, exclusive),
		Partial: Partial{
			Count:       s.PartialCount,
			WallNS:      s.PartialWallNS,
			ExclusiveNS: partial,
			CPUNS:       min(s.PartialCPUNS, s.PartialWallNS),
			Parts:       partsOf(s.PartialParts, partial),
		},
	}, rejected
}
