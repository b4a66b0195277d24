package agent

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"stageprof/bpf"
	"stageprof/recording"
)

// DefaultTimeline is the length of a timeline unless another one is asked for.
const DefaultTimeline = 10 * time.Second

// MaxTimelineEvents bounds the calls that a timeline holds, its times off the CPU
// and its waits, each by itself; it keeps the agent below some hundred megabytes.
// Each process of a family has a quarter of that, and of the ring buffer.
const MaxTimelineEvents = 500_000

// timelineRoom is the size of the ring buffer of events in bytes: room for all
// calls of some tenths of a second at the highest rate.
const timelineRoom = 32 << 20

func (c *Config) validateTimeline() error {
	if c.Timeline < 0 || c.Timeline > MaxDuration {
		return fmt.Errorf("%w: a timeline of %v is not between 0 and %v", ErrUsage, c.Timeline, MaxDuration)
	}
	if c.Timeline > 0 && c.Live {
		return fmt.Errorf("%w: a window that is looked at while it is open has no timeline", ErrUsage)
	}
	if c.TimelineRoom == 0 {
		c.TimelineRoom = timelineRoom
	}
	if r := c.TimelineRoom; r < os.Getpagesize() || r > 1<<30 || r&(r-1) != 0 {
		return fmt.Errorf("%w: a timeline's room of %d bytes is not a power of two of a page to a gigabyte", ErrUsage, r)
	}
	return nil
}

// prepareTimeline switches single events on. Otherwise their ring buffer takes as
// little room as there can be.
func (s *Session) prepareTimeline(spec *ebpf.CollectionSpec) error {
	room := os.Getpagesize()
	if s.config.Timeline > 0 {
		room = max(s.ownShare(s.config.TimelineRoom), room)
	}
	spec.Maps["timeline_events"].MaxEntries = uint32(room)
	if err := spec.Variables["timeline"].Set(s.config.Timeline > 0); err != nil {
		return fmt.Errorf("switching the timeline: %w", err)
	}
	return nil
}

// openTimeline is called when the programs are loaded.
func (s *Session) openTimeline() error {
	if s.config.Timeline == 0 {
		return nil
	}
	events, err := openStream(s.objects.TimelineEvents, "the timeline's events")
	if err != nil {
		return err
	}
	s.timeline = &timelineReader{
		stream: events, window: s.config.Timeline, most: s.ownShare(MaxTimelineEvents),
		calls: eventList[bpf.ProbeCallEvent]{end: func(e *bpf.ProbeCallEvent) uint64 { return e.Begin + e.Wall }},
		off:   eventList[bpf.ProbeOffEvent]{end: func(e *bpf.ProbeOffEvent) uint64 { return e.End }},
		waits: eventList[bpf.ProbeWaitEvent]{end: func(e *bpf.ProbeWaitEvent) uint64 { return e.Begin + e.Wall }},
		spans: eventList[span]{end: func(s *span) uint64 { return s.begin + s.wall }},
	}
	s.spans.later = &s.timeline.spans
	return nil
}

// timelineReader keeps the latest events that the kernel side streams.
type timelineReader struct {
	*stream
	window time.Duration
	most   int // events of each kind

	calls    eventList[bpf.ProbeCallEvent]
	off      eventList[bpf.ProbeOffEvent]
	waits    eventList[bpf.ProbeWaitEvent]
	spans    eventList[span] // that are not kept elsewhere
	returned uint64          // calls that have come, but for those that were cut
}

// eventList is events in the order in which they ended, but for a little.
type eventList[T any] struct {
	kept []T
	end  func(*T) uint64
	cut  uint64 // when the last one ended that found no room
}

func (l *eventList[T]) add(event T) { l.kept = append(l.kept, event) }

// trim forgets events that ended before a time, and all but the latest. It waits
// until there are many, since the rest has to be moved.
func (l *eventList[T]) trim(before uint64, most int) {
	if len(l.kept) < most/4 {
		return
	}
	old := 0
	for old < len(l.kept) && l.end(&l.kept[old]) < before {
		old++
	}
	if excess := len(l.kept) - most; excess > max(old, most/4) {
		for i := old; i < excess; i++ {
			l.cut = max(l.cut, l.end(&l.kept[i]))
		}
		old = excess
	}
	if old > most/8 {
		l.kept = slices.Delete(l.kept, 0, old)
	}
}

// from returns what ended at a time or later.
func (l *eventList[T]) from(time uint64) []T {
	return slices.DeleteFunc(l.kept, func(e T) bool { return l.end(&e) < time })
}

func (r *timelineReader) read() error {
	if r == nil {
		return nil
	}
	if err := r.each(r.take); err != nil {
		return err
	}
	r.trim(monotonic())
	return nil
}

// begin is when the window that ends at a time begins. The clock counts from the
// machine's start on, which may be later.
func (r *timelineReader) begin(end uint64) uint64 { return end - min(end, uint64(r.window)) }

func (r *timelineReader) trim(now uint64) {
	before := r.begin(now)
	r.calls.trim(before, r.most)
	r.off.trim(before, r.most)
	r.waits.trim(before, r.most)
	r.spans.trim(before, r.most)
}

// take adds one record, which says in its first word what it is.
func (r *timelineReader) take(b []byte) error {
	kind, err := decode[uint32](b)
	if err != nil {
		return err
	}
	switch bpf.ProbeEventKind(*kind) {
	case bpf.ProbeEventKindEVENT_CALL:
		return r.takeCall(b)
	case bpf.ProbeEventKindEVENT_OFF:
		return take(&r.off, b)
	case bpf.ProbeEventKindEVENT_WAIT:
		return take(&r.waits, b)
	}
	return fmt.Errorf("there is no kind %d", *kind)
}

func (r *timelineReader) takeCall(b []byte) error {
	if err := take(&r.calls, b); err != nil {
		return err
	}
	if last := &r.calls.kept[len(r.calls.kept)-1]; last.Result != resultNone {
		r.returned++
	}
	return nil
}

// resultNone is bpf/types.h's RESULT_NONE.
const resultNone = ^uint32(0)

// take adds a record.
func take[T any](l *eventList[T], b []byte) error {
	event, err := decode[T](b)
	if err != nil {
		return err
	}
	l.add(*event)
	return nil
}

// addThreads adds the threads of all events to a set.
func (r *timelineReader) addThreads(threads map[uint32]bool) {
	if r == nil {
		return
	}
	for i := range r.calls.kept {
		threads[r.calls.kept[i].Thread] = true
	}
	for i := range r.off.kept {
		threads[r.off.kept[i].Thread] = true
	}
	for i := range r.waits.kept {
		threads[r.waits.kept[i].Thread] = true
	}
	for i := range r.spans.kept {
		threads[r.spans.kept[i].thread] = true
	}
}

func (r *timelineReader) close() error {
	if r == nil {
		return nil
	}
	return r.stream.close()
}

// start is from when on the timeline is whole, but for the losses.
func (r *timelineReader) start(opened, end uint64) (start uint64, cut bool) {
	asked := max(opened, r.begin(end))
	start = max(asked, r.calls.cut+1, r.off.cut+1, r.waits.cut+1, r.spans.cut+1)
	return start, start > asked
}

// addTimeline puts the single events into the Recording.
func (d *drain) addTimeline() error {
	r := d.timeline
	if r == nil {
		return nil
	}
	if err := r.read(); err != nil {
		return err
	}
	start, cut := r.start(d.startMono, d.windowEnd)
	if cut {
		d.r.Warnings = append(d.r.Warnings, fmt.Sprintf("the timeline begins %v before the end of the window: it holds at most %d events of a kind",
			time.Duration(d.windowEnd-start).Round(time.Millisecond), r.most))
	}
	t := &recording.Timeline{StartNS: start, Calls: []recording.CallEvent{}, Off: []recording.OffEvent{}}
	d.r.Timeline = t
	kept := uint64(0)
	for _, e := range r.calls.from(start) {
		t.Calls = append(t.Calls, d.callEvent(&e))
		if e.Result != resultNone {
			kept++
		}
	}
	t.Earlier = r.returned - kept
	d.addCallsInProgress()
	for _, e := range r.off.from(start) {
		t.Off = d.appendOff(t.Off, &e)
	}
	for _, e := range r.waits.from(start) {
		t.Waits = append(t.Waits, recording.WaitEvent{
			Thread: d.thread(e.Thread), BeginNS: e.Begin, Stream: int(e.Stream) + 1, From: e.From, Until: e.Until,
		})
	}
	for _, s := range r.spans.from(start) {
		t.Spans = append(t.Spans, d.span(&s))
	}
	return nil
}

func (d *drain) callEvent(e *bpf.ProbeCallEvent) recording.CallEvent {
	event := recording.CallEvent{
		Thread: d.thread(e.Thread), Path: d.path(e.Path), Symbol: int(e.Symbol),
		GIL:         gilStates[bpf.ProbeGilState(e.Gil)],
		Attribution: attributions[bpf.ProbeAttribution(e.Attribution)],
		BeginNS:     e.Begin, WallNS: e.Wall, CPUNS: e.Cpu, Bytes: e.Size,
		Result: int(e.Result), Stream: int(e.Stream), Operation: e.Operation,
	}
	if e.Result == resultNone {
		event.Result, event.Partial = 0, true
	}
	return event
}

// addCallsInProgress adds the calls in which the window's end found threads.
func (d *drain) addCallsInProgress() {
	for i := range d.states {
		s := &d.states[i]
		if s.Sp == 0 || s.Begin >= d.windowEnd {
			continue
		}
		wall := d.windowEnd - s.Begin
		d.r.Timeline.Calls = append(d.r.Timeline.Calls, d.callEvent(&bpf.ProbeCallEvent{
			Thread: s.Serial, Path: s.Path, Symbol: s.Symbol, Gil: s.Gil, Attribution: s.Attribution,
			Begin: s.Begin, Wall: wall, Cpu: wall - min(wall, s.OffTotal-s.OffBase), Size: s.Size, Result: resultNone,
		}))
	}
}

var offStates = map[bpf.ProbePart]recording.OffState{
	bpf.ProbePartPART_GIL_WAIT:      recording.OffGILWait,
	bpf.ProbePartPART_RUNNABLE:      recording.OffRunnable,
	bpf.ProbePartPART_BLOCKED_FUTEX: recording.OffBlockedFutex,
	bpf.ProbePartPART_BLOCKED_POLL:  recording.OffBlockedPoll,
	bpf.ProbePartPART_BLOCKED_READ:  recording.OffBlockedRead,
	bpf.ProbePartPART_BLOCKED_SLEEP: recording.OffBlockedSleep,
	bpf.ProbePartPART_BLOCKED_FAULT: recording.OffBlockedFault,
	bpf.ProbePartPART_BLOCKED_OTHER: recording.OffBlockedOther,
}

// appendOff adds what a thread was waiting for, and then for a CPU.
func (d *drain) appendOff(events []recording.OffEvent, e *bpf.ProbeOffEvent) []recording.OffEvent {
	woken := e.End
	if e.Woken != 0 {
		woken = min(max(e.Woken, e.Begin), e.End)
	}
	add := func(state recording.OffState, begin, end uint64) {
		if end > begin {
			events = append(events, recording.OffEvent{
				Thread: d.thread(e.Thread), State: state, BeginNS: begin, WallNS: end - begin,
				InCall: e.InCall != 0, Partial: e.Cut != 0,
			})
		}
	}
	add(offStates[bpf.ProbePart(e.Part)], e.Begin, woken)
	add(recording.OffRunnable, woken, e.End)
	return events
}
