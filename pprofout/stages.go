package pprofout

import (
	"cmp"
	"io"
	"slices"

	"github.com/google/pprof/profile"

	"stageprof/correlate"
	"stageprof/recording"
)

// WriteStages writes the profile of the stages of l, gzip-compressed, as pprof
// reads it.
func WriteStages(w io.Writer, l *correlate.Ledger, o Options) error {
	p, err := Stages(l, o)
	return encode(w, p, err)
}

// Stages makes a profile of what threads did with their wall time, inside and
// outside of stages. It fails only when the result would not be a valid
// profile.
func Stages(l *correlate.Ledger, o Options) (*profile.Profile, error) {
	w := newWriter(l, o, stagesShape)
	for i := range l.Stages {
		if s := &l.Stages[i]; !s.Process {
			w.addStage(s)
		}
	}
	for i := range l.Threads {
		if t := &l.Threads[i]; t.PartsOutside != nil {
			w.addTime(i, correlate.Path{}, t.PartsOutside, t.OutsideByRegion)
		}
	}
	for _, loss := range l.Losses {
		if loss.Kind == correlate.LossSpans {
			w.addLoss(loss)
		}
	}
	return w.finish()
}

// The sample types of stages. The first one takes the losses.
const (
	stageSpans = iota
	stageWall
	stageCPU
)

var stagesShape = shape{
	title: "wall time of stages and what it consists of",
	types: []profile.ValueType{
		stageSpans: {Type: "spans", Unit: "count"},
		stageWall:  {Type: "wall", Unit: "nanoseconds"},
		stageCPU:   {Type: "cpu", Unit: "nanoseconds"},
	},
}

func (w *writer) addStage(s *correlate.Stage) {
	for i := range s.Threads {
		t := &s.Threads[i]
		if t.Spans == nil {
			continue
		}
		w.addSpans(t.Thread, s.Path, t.Spans.Count)
		parts := t.Parts
		if parts == nil {
			parts = undivided(t.Spans.ExclusiveWindowNS())
		}
		w.addTime(t.Thread, s.Path, parts, t.ByRegion)
	}
}

// addTime adds a partition, by region where that is known.
func (w *writer) addTime(thread int, path correlate.Path, whole *correlate.Partition, byRegion []correlate.RegionPartition) {
	if byRegion == nil {
		w.addParts(thread, path, 0, whole)
	}
	for i := range byRegion {
		w.addParts(thread, path, byRegion[i].Region, &byRegion[i].Partition)
	}
}

// undivided is a wall time of which the Recording does not say more.
func undivided(wall uint64) *correlate.Partition {
	unknown := correlate.Part{PartName: correlate.PartName{Kind: correlate.PartUnknown}, NS: wall}
	return &correlate.Partition{WallNS: wall, Parts: []correlate.Part{unknown}}
}

// addSpans counts spans at the frame of their stage.
func (w *writer) addSpans(thread int, path correlate.Path, count uint64) {
	if count == 0 {
		return
	}
	of := w.labelsOf(thread, path)
	of.gil, of.attribution = none, ownOrNone(path)
	w.add(w.tables.stages(path), of, []int64{stageSpans: clamp(count), stageCPU: 0})
}

func (w *writer) addParts(thread int, path correlate.Path, region int, p *correlate.Partition) {
	stages, regions := w.tables.stages(path), w.tables.regionPath(region)
	for _, part := range p.Parts {
		if part.NS == 0 {
			continue
		}
		of := w.labelsOf(thread, path)
		of.gil, of.attribution = gilOf(part.PartName), ownOrNone(path)
		value := []int64{stageWall: clamp(part.NS), stageCPU: 0}
		if part.Kind.OnCPU() {
			value[stageCPU] = value[stageWall]
		}
		leaf := w.tables.part(leafName(part.PartName))
		w.add(slices.Concat([]*profile.Location{leaf}, regions, stages), of, value)
	}
}

// leafName calls driver time by its api only: whether it was on the CPU is told
// by the values, and the state of the GIL by the label.
func leafName(n correlate.PartName) string {
	switch {
	case !n.Kind.CUDA():
		return string(n.Kind)
	case n.Rest():
		return "cuda: other"
	default:
		return "cuda: " + n.API
	}
}

func gilOf(n correlate.PartName) string {
	if !n.Kind.CUDA() {
		return none
	}
	return cmp.Or(string(n.GIL), unknown)
}

func ownOrNone(path correlate.Path) string {
	if path.Outside() {
		return string(recording.AttributionNone)
	}
	return string(recording.AttributionOwn)
}
