package agent

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"stageprof/bpf"
	"stageprof/recording"
)

// maxSpans bounds the spans that are kept one by one; it keeps the agent below
// some tens of megabytes. Totals hold all spans.
const maxSpans = 50_000

// maxLatestSpans bounds them in a window that is looked at while it is open:
// each snapshot holds all of them.
const maxLatestSpans = 16_384

// spanReader collects the spans that the kernel side streams.
type spanReader struct {
	*stream
	latest  bool // the latest are kept, not the first
	kept    []span
	dropped uint64           // that did not fit
	later   *eventList[span] // of a timeline: those that are not kept; nil: they are forgotten
}

// span is a record in as little memory as it takes.
type span struct {
	thread, path       uint32
	partial            bool
	begin, wall, child uint64
	cpu                uint64
	parts              [bpf.ProbePartPARTS]uint64
	calls              []spanCall
}

type spanCall struct {
	symbol       uint16
	gil          uint8
	count        uint32
	cpu, blocked uint64
}

func newSpanReader(ring *ebpf.Map, latest bool) (*spanReader, error) {
	spans, err := openStream(ring, "spans")
	if err != nil {
		return nil, err
	}
	return &spanReader{stream: spans, latest: latest}, nil
}

func (r *spanReader) read() error { return r.each(r.keep) }

func (r *spanReader) keep(record []byte) error {
	full := !r.latest && len(r.kept) >= maxSpans
	if full {
		r.dropped++
	}
	if full && r.later == nil {
		return nil
	}
	d, err := decode[bpf.ProbeSpanRecord](record)
	if err != nil {
		return err
	}
	s := span{
		thread: d.Thread, path: d.Path, partial: d.Partial != 0,
		begin: d.Begin, wall: d.Wall, child: d.Child, cpu: d.Cpu, parts: d.Parts,
	}
	calls := d.Calls[:min(int(d.CallsLen), len(d.Calls))]
	if len(calls) > 0 {
		s.calls = make([]spanCall, 0, len(calls))
	}
	for _, c := range calls {
		s.calls = append(s.calls, spanCall{c.Symbol, c.Gil, c.Count, c.Cpu, c.Blocked})
	}
	if r.later != nil && (full || s.thread == processThread) {
		r.later.add(s)
		return nil
	}
	r.kept = append(r.kept, s)
	if r.latest && len(r.kept) >= 2*maxLatestSpans {
		r.forget()
	}
	return nil
}

// forget drops all but the latest spans.
func (r *spanReader) forget() {
	if old := len(r.kept) - maxLatestSpans; r.latest && old > 0 {
		r.kept = slices.Delete(r.kept, 0, old)
		r.dropped += uint64(old)
	}
}

// threads are those whose spans are kept.
func (r *spanReader) threads() map[uint32]bool {
	threads := map[uint32]bool{}
	for i := range r.kept {
		threads[r.kept[i].thread] = true
	}
	return threads
}

// help says why spans were not kept.
func (r *spanReader) help() string {
	if r.latest {
		return fmt.Sprintf("spans before the latest %d are in the totals, but not kept one by one", maxLatestSpans)
	}
	return fmt.Sprintf("spans beyond the first %d are in the totals, but not kept one by one", maxSpans)
}

// partsOf gives the kernel side's parts their names.
func partsOf(p [bpf.ProbePartPARTS]uint64) recording.Parts {
	return recording.Parts{
		RunningNS:      p[bpf.ProbePartPART_RUNNING],
		CUDACPUNS:      p[bpf.ProbePartPART_CUDA_CPU],
		CUDABlockedNS:  p[bpf.ProbePartPART_CUDA_BLOCKED],
		GILWaitNS:      p[bpf.ProbePartPART_GIL_WAIT],
		RunnableNS:     p[bpf.ProbePartPART_RUNNABLE],
		BlockedFutexNS: p[bpf.ProbePartPART_BLOCKED_FUTEX],
		BlockedPollNS:  p[bpf.ProbePartPART_BLOCKED_POLL],
		BlockedReadNS:  p[bpf.ProbePartPART_BLOCKED_READ],
		BlockedSleepNS: p[bpf.ProbePartPART_BLOCKED_SLEEP],
		BlockedFaultNS: p[bpf.ProbePartPART_BLOCKED_FAULT],
		BlockedOtherNS: p[bpf.ProbePartPART_BLOCKED_OTHER],
	}
}

// addSpans puts the collected spans into the Recording.
func (d *drain) addSpans() error {
	if err := d.spans.read(); err != nil {
		return err
	}
	d.spans.forget()
	d.r.Spans = slices.Grow(d.r.Spans, len(d.spans.kept))
	for i := range d.spans.kept {
		if s := &d.spans.kept[i]; d.holds(s) {
			d.r.Spans = append(d.r.Spans, d.span(s))
		}
	}
	return nil
}

func (d *drain) span(s *span) recording.Span {
	row := recording.Span{
		Thread: d.thread(s.thread), Path: d.path(s.path), BeginNS: s.begin, WallNS: s.wall, ChildNS: s.child, CPUNS: s.cpu,
		Partial: s.partial, Parts: partsOf(s.parts),
	}
	for _, c := range s.calls {
		row.Calls = append(row.Calls, recording.SpanCall{
			Symbol: int(c.symbol), GIL: gilStates[bpf.ProbeGilState(c.gil)],
			Count: uint64(c.count), CPUNS: c.cpu, BlockedNS: c.blocked,
		})
	}
	return row
}
