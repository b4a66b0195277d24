package top

import (
	"math"
	"time"

	"stageprof/correlate"
	"stageprof/recording"
)

// unit is what the numbers of the table are for.
type unit int

const (
	perIteration unit = iota
	perSecond
)

// figures are the numbers of one row in one window. Times are in nanoseconds,
// summed over threads.
type figures struct {
	window time.Duration
	timed  bool // it has a wall time of its own
	wall   float64
	ended  float64 // iterations
	mean   float64 // wall time of an iteration
	cuda   float64
	held   float64
	parts  *correlate.Partition // of wall; nil when it is not known
}

// unknown is shown as missing.
var unknown = math.NaN()

func stageFigures(s *correlate.Stage, it iterations, window time.Duration) figures {
	f := callFigures(&s.Within.Sum, window)
	if s.Spans == nil {
		return f
	}
	f.timed, f.ended, f.mean = true, it.ended, it.mean
	f.wall = float64(s.Spans.WindowNS())
	if s.Parts != nil {
		f.parts = withInside(s.Parts, s.Spans.WindowNS()-s.Spans.ExclusiveWindowNS())
	}
	return f
}

// callFigures are those of calls that are no part of any wall time.
func callFigures(s *correlate.Sum, window time.Duration) figures {
	return figures{window: window, mean: unknown, cuda: float64(s.WallNS), held: float64(s.GIL[recording.GILHeld].WallNS)}
}

// adoptedFigures are those of what others did for a stage: they have its
// iterations, and no wall time.
func adoptedFigures(s *correlate.Sum, stage figures) figures {
	f := callFigures(s, stage.window)
	f.wall, f.ended, f.mean = stage.wall, stage.ended, stage.mean
	return f
}

func outsideFigures(l *correlate.Ledger) figures {
	f := callFigures(&l.Outside.Sum, l.Source.Window.Duration)
	if l.PartsOutside != nil {
		f.timed, f.ended = true, unknown
		f.wall, f.parts = float64(l.PartsOutside.WallNS), l.PartsOutside
	}
	return f
}

// withInside is a stage's own time with the stages inside it as one part.
func withInside(own *correlate.Partition, inside uint64) *correlate.Partition {
	p := &correlate.Partition{WallNS: own.WallNS + inside, Parts: own.Parts}
	if inside > 0 {
		p.Parts = append(p.Parts[:len(p.Parts):len(p.Parts)],
			correlate.Part{PartName: correlate.PartName{Kind: correlate.PartChildren}, NS: inside})
	}
	return p
}

// rate is a number per second of the window.
func (f *figures) rate(v float64) float64 {
	if f.window <= 0 {
		return unknown
	}
	return v / f.window.Seconds()
}

// iterations is the number of complete spans per second.
func (f *figures) iterations() float64 {
	if !f.timed {
		return unknown
	}
	return f.rate(f.ended)
}

// of is a wall time of f in the unit.
func (f *figures) of(u unit, v float64) float64 {
	switch {
	case u == perSecond:
		return f.rate(v)
	case f.wall == 0:
		return unknown
	default:
		return v / f.wall * f.mean
	}
}

func (f *figures) wallIn(u unit) float64 {
	switch {
	case !f.timed:
		return unknown
	case u == perIteration:
		return f.mean
	default:
		return f.rate(f.wall)
	}
}
