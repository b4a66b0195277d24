package agent

import (
	"errors"
	"fmt"
	"unsafe"

	"stageprof/bpf"
	"stageprof/recording"
)

// addOpen adds the stages of threads that were in mid-stage when the window
// opened and neither emitted a marker nor called the driver in it: they were
// open during the whole window. A snapshot has all other open stages too.
func (d *drain) addOpen() error {
	for i := range d.states {
		state := &d.states[i]
		thread := d.thread(state.Serial)
		switch {
		case state.Seeded == 0 && d.unseeded[state.Tid]:
			d.addUnseeded(thread, state)
		case d.live:
			d.addOpenStages(thread, state)
		}
	}
	d.addOpenOfProcess()
	return nil
}

// addOpenOfProcess does the same for the stages of the whole process.
func (d *drain) addOpenOfProcess() {
	for _, r := range d.registries {
		if d.shared.Seeded != 0 || len(d.shown(r.process.open)) == 0 {
			continue
		}
		for _, span := range d.allAlong(-1, r.process.open, recording.Parts{}, d.windowEnd-d.startMono) {
			d.cut(&span)
		}
	}
	if d.live && d.shared.Seeded != 0 {
		d.addOpenStages(-1, &d.shared)
	}
}

// addUnseeded adds the stages that a thread has been in since the window opened,
// up to now.
func (d *drain) addUnseeded(thread int, state *bpf.ProbeThreadState) {
	if d.hasEnded(state.Serial) { // then its row has them
		return
	}
	parts := partsOf(state.Outside.Parts)
	wall := d.windowEnd - d.startMono
	if d.live { // each thread is looked at in a moment of its own
		wall = parts.Total()
	}
	for _, span := range d.allAlong(thread, d.midStage[state.Tid].open, parts, wall) {
		d.cut(&span)
	}
}

// addUnseededEnd does the same for a thread that has ended. Its row has all of
// its time as outside any stage.
func (d *drain) addUnseededEnd(thread int, tid uint32, parts recording.Parts) {
	for _, span := range d.allAlong(thread, d.midStage[tid].open, parts, parts.Total()) {
		d.addPartial(&span)
		if !d.live {
			d.r.Spans = append(d.r.Spans, span)
		}
	}
}

// allAlong returns spans of stages that were open from the window's start on, of
// which the parts are the innermost one's. Without stages the time is outside.
func (d *drain) allAlong(thread int, all []openStage, parts recording.Parts, wall uint64) []recording.Span {
	stages := d.shown(all)
	if len(stages) == 0 {
		d.addOutside(thread, parts)
		return nil
	}
	var names []string
	spans := make([]recording.Span, len(stages))
	for i, stage := range stages {
		names = append(names, stage.name)
		spans[i] = recording.Span{
			Thread: thread, Path: d.pathOf(names[: i+1 : i+1]), BeginNS: d.startMono, WallNS: wall,
			CPUNS: parts.RunningNS + parts.CUDACPUNS, Partial: true, ChildNS: wall,
		}
	}
	innermost := &spans[len(spans)-1]
	innermost.ChildNS, innermost.Parts = 0, parts
	return spans
}

func (d *drain) addOutside(thread int, parts recording.Parts) {
	row := d.stage(thread, d.pathOf(nil))
	row.WallNS += parts.Total()
	row.Parts = row.Parts.Plus(parts)
}

// cut adds a span that the window's end, or the snapshot, cuts.
func (d *drain) cut(s *recording.Span) {
	d.addPartial(s)
	switch {
	case d.live:
		d.r.Open = append(d.r.Open, *s)
	case s.Thread >= 0:
		d.r.Spans = append(d.r.Spans, *s)
	case d.r.Timeline != nil:
		d.r.Timeline.Spans = append(d.r.Timeline.Spans, *s)
	}
}

// addPartial adds a span that an edge of the window cuts to its row.
func (d *drain) addPartial(s *recording.Span) {
	row := d.stage(s.Thread, s.Path)
	row.PartialCount++
	row.PartialWallNS += s.WallNS
	row.PartialChildNS += s.ChildNS
	row.PartialCPUNS += s.CPUNS
	row.PartialParts = row.PartialParts.Plus(s.Parts)
}

// parseStates decodes what the thread iterator wrote.
func parseStates(dump []byte) ([]bpf.ProbeThreadState, error) {
	const size = int(unsafe.Sizeof(bpf.ProbeThreadState{}))
	states := make([]bpf.ProbeThreadState, len(dump)/size)
	if len(dump)%size != 0 {
		return nil, fmt.Errorf("decoding %d bytes of thread states: %w", len(dump), errStates)
	}
	// The Go type has the kernel side's layout; reflection would take a multiple
	// of the time.
	copy(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(states))), len(dump)), dump)
	return states, nil
}

var errStates = errors.New("not a whole number of records")
