package correlate

import (
	"math"
	"math/bits"

	"stageprof/recording"
)

// Total sums calls. WallNS, CPUNS, MinNS and MaxNS are corrected for the
// probes' bias, the others are as measured. All sums stop at their largest
// value instead of wrapping.
type Total struct {
	Count     uint64
	Errors    uint64
	WallNS    uint64
	CPUNS     uint64
	Bytes     uint64
	RawWallNS uint64
	RawCPUNS  uint64
	MinNS     uint64 // shortest call
	MaxNS     uint64 // longest call
	Hist      recording.Hist

	GILWaitCausedNS uint64 // of other threads, while these calls had the GIL held
}

// MeanNS is the mean wall time of a call, 0 without calls.
func (t Total) MeanNS() uint64 {
	if t.Count == 0 {
		return 0
	}
	return t.WallNS / t.Count
}

// BlockedNS is the part of the wall time in which the thread was not running.
func (t Total) BlockedNS() uint64 { return t.WallNS - min(t.CPUNS, t.WallNS) }

// Quantile estimates the wall time that the share q of the calls does not
// exceed, 0 <= q <= 1; ok is false when there is no histogram. See the
// package's doc for its error.
func (t Total) Quantile(q float64) (ns uint64, ok bool) {
	raw, ok := quantile(&t.Hist, q)
	if !ok {
		return 0, false
	}
	if t.Count > 0 {
		raw -= min(raw, (t.RawWallNS-min(t.WallNS, t.RawWallNS))/t.Count)
	}
	return min(max(raw, t.MinNS), t.MaxNS), true
}

// Quantile is Total.Quantile for complete spans.
func (s *Spans) Quantile(q float64) (ns uint64, ok bool) {
	raw, ok := quantile(&s.Hist, q)
	return min(max(raw, s.MinNS), s.MaxNS), ok
}

// quantile interpolates linearly inside the bucket that holds the quantile.
func quantile(h *recording.Hist, q float64) (ns uint64, ok bool) {
	var n float64
	for _, c := range h {
		n += float64(c)
	}
	if n == 0 {
		return 0, false
	}
	rank := min(max(q, 0), 1) * n
	last := 0
	for i, c := range h {
		if c == 0 {
			continue
		}
		if rank <= float64(c) {
			return bucketFloor(i) + uint64(rank/float64(c)*float64(bucketWidth(i))), true
		}
		rank -= float64(c)
		last = i
	}
	// Rounding left a rest of the rank behind the last bucket.
	return bucketFloor(last) + bucketWidth(last), true
}

func bucketFloor(i int) uint64 {
	if i == 0 {
		return 0
	}
	return 1 << i
}

func bucketWidth(i int) uint64 { return 1<<(i+1) - 1 - bucketFloor(i) }

func bucketOf(ns uint64) int {
	return min(max(bits.Len64(ns)-1, 0), recording.HistBuckets-1)
}

// corrected takes the probes' bias out of a row.
func corrected(c *recording.Call, biasNS float64) Total {
	bias := scaled(c.Count, biasNS)
	wall := c.WallNS - min(bias, c.WallNS)
	each := scaled(1, biasNS)
	return Total{
		Count:     c.Count,
		Errors:    min(c.Errors, c.Count),
		WallNS:    wall,
		CPUNS:     min(c.CPUNS-min(bias, c.CPUNS), wall),
		Bytes:     c.Bytes,
		RawWallNS: c.WallNS,
		RawCPUNS:  c.CPUNS,
		MinNS:     c.MinNS - min(each, c.MinNS),
		MaxNS:     c.MaxNS - min(each, c.MaxNS),
		Hist:      c.Hist,

		GILWaitCausedNS: c.GILWaitCausedNS,
	}
}

// scaled is count x each, rounded; what isn't a positive number counts as 0.
func scaled(count uint64, each float64) uint64 {
	switch product := float64(count)*each + 0.5; {
	case !(each > 0):
		return 0
	case product >= math.MaxUint64:
		return math.MaxUint64
	default:
		return uint64(product)
	}
}

func (t *Total) add(o *Total) {
	if o.Count == 0 {
		return
	}
	if t.Count == 0 {
		t.MinNS = o.MinNS
	}
	t.MinNS = min(t.MinNS, o.MinNS)
	t.MaxNS = max(t.MaxNS, o.MaxNS)
	t.Count = add(t.Count, o.Count)
	t.Errors = add(t.Errors, o.Errors)
	t.WallNS = add(t.WallNS, o.WallNS)
	t.CPUNS = add(t.CPUNS, o.CPUNS)
	t.Bytes = add(t.Bytes, o.Bytes)
	t.RawWallNS = add(t.RawWallNS, o.RawWallNS)
	t.RawCPUNS = add(t.RawCPUNS, o.RawCPUNS)
	t.GILWaitCausedNS = add(t.GILWaitCausedNS, o.GILWaitCausedNS)
	addHist(&t.Hist, &o.Hist)
}

func (s *Sum) add(gil recording.GIL, t *Total) {
	s.Total.add(t)
	if s.GIL == nil {
		s.GIL = map[recording.GIL]Total{}
	}
	part := s.GIL[gil]
	part.add(t)
	s.GIL[gil] = part
}

func (s *Spans) add(o *Spans) {
	if o.Count > 0 {
		if s.Count == 0 {
			s.MinNS = o.MinNS
		}
		s.MinNS = min(s.MinNS, o.MinNS)
		s.MaxNS = max(s.MaxNS, o.MaxNS)
	}
	s.Count = add(s.Count, o.Count)
	s.WallNS = add(s.WallNS, o.WallNS)
	s.ExclusiveNS = add(s.ExclusiveNS, o.ExclusiveNS)
	s.CPUNS = add(s.CPUNS, o.CPUNS)
	addHist(&s.Hist, &o.Hist)
	addParts(&s.Parts, &o.Parts)
	addParts(&s.Partial.Parts, &o.Partial.Parts)
	s.Partial.Count = add(s.Partial.Count, o.Partial.Count)
	s.Partial.WallNS = add(s.Partial.WallNS, o.Partial.WallNS)
	s.Partial.ExclusiveNS = add(s.Partial.ExclusiveNS, o.Partial.ExclusiveNS)
	s.Partial.CPUNS = add(s.Partial.CPUNS, o.Partial.CPUNS)
}

func addHist(h, o *recording.Hist) {
	for i, c := range o {
		h[i] = add(h[i], c)
	}
}

// add is a + b, or the largest number where that would wrap.
func add(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}
