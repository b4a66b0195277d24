package correlate

import (
	"time"

	"stageprof/recording"
)

// Coverage says which part of a recording under a budget is known.
type Coverage struct {
	Covered time.Duration // the windows together
	Elapsed time.Duration
	Windows int
	Share   float64 // what was allowed of one CPU
	Used    float64 // what was paid
	Factor  float64 // Elapsed in units of Covered, 0 when nothing is covered
}

// CoverageOf returns a recording's coverage, and whether it had a budget.
func CoverageOf(r *recording.Recording) (Coverage, bool) {
	b := r.Budget
	if b == nil {
		return Coverage{}, false
	}
	c := Coverage{
		Covered: max(r.Window.Duration, 0), Windows: len(b.Windows), Share: b.Share,
	}
	c.Elapsed = max(b.Elapsed, c.Covered)
	if c.Elapsed > 0 {
		c.Used = float64(b.Cost.TotalNS()) / float64(c.Elapsed)
	}
	if c.Covered > 0 {
		c.Factor = float64(c.Elapsed) / float64(c.Covered)
	}
	return c, true
}

// Gaps tells whether there is a time of which nothing is known.
func (c Coverage) Gaps() bool { return c.Elapsed > c.Covered }

// HasGaps tells whether there is a time in a recording of which nothing is known.
func HasGaps(r *recording.Recording) bool {
	c, ok := CoverageOf(r)
	return ok && c.Gaps()
}
