package recording

import "fmt"

// Timeline holds single events of the last part of the window, in the order in
// which they ended. Times are CLOCK_MONOTONIC, durations as measured: those of
// calls include the symbol's BiasNS.
//
// Of the calls in the Recording's rows, those that are not lost to the timeline
// (its own reasons among the losses) are either in Calls or counted in Earlier.
type Timeline struct {
	StartNS uint64      `json:"start_ns"`          // what ended from here on is kept
	Earlier uint64      `json:"earlier,omitempty"` // calls that returned before
	Calls   []CallEvent `json:"calls"`
	Off     []OffEvent  `json:"off"`             // a thread that is not in it was on a CPU
	Waits   []WaitEvent `json:"waits,omitempty"` // nil when sync debt was not recorded
	// Spans are those that ended in it and are not among the Recording's: later
	// ones, and those of the whole process (Thread -1), which have no parts.
	Spans []Span `json:"spans,omitempty"`
}

// CallEvent is one call. A partial one had not returned when the window, or its
// thread, ended: it is in no row.
type CallEvent struct {
	Thread      int         `json:"thread"`
	Path        int         `json:"path"`
	Symbol      int         `json:"symbol"`
	GIL         GIL         `json:"gil"`
	Attribution Attribution `json:"attribution"`
	BeginNS     uint64      `json:"begin_ns"`
	WallNS      uint64      `json:"wall_ns"`
	CPUNS       uint64      `json:"cpu_ns"`
	Bytes       uint64      `json:"bytes,omitempty"`     // asked for, also by a call that failed
	Result      int         `json:"result,omitempty"`    // CUresult
	Stream      int         `json:"stream,omitempty"`    // numbered from 1; 0: the call has none, or none that is known
	Operation   uint64      `json:"operation,omitempty"` // which one, from 1, it gave its stream; 0: none
	Partial     bool        `json:"partial,omitempty"`
}

// OffState says why a thread was off the CPU.
type OffState string

// The states, named as the parts of a stage's time.
const (
	OffGILWait      OffState = "gil wait"
	OffRunnable     OffState = "runnable"
	OffBlockedFutex OffState = "blocked: futex"
	OffBlockedPoll  OffState = "blocked: poll"
	OffBlockedRead  OffState = "blocked: read"
	OffBlockedSleep OffState = "blocked: sleep"
	OffBlockedFault OffState = "blocked: page fault"
	OffBlockedOther OffState = "blocked: other"
)

// OffEvent is one time that a thread was in one state off the CPU.
type OffEvent struct {
	Thread  int      `json:"thread"`
	State   OffState `json:"state"`
	BeginNS uint64   `json:"begin_ns"`
	WallNS  uint64   `json:"wall_ns"`
	InCall  bool     `json:"in_call,omitempty"` // inside a driver call
	Partial bool     `json:"partial,omitempty"` // cut by an edge of the window
}

// WaitEvent says that a call waited, with success, for the operations after From
// up to Until of one stream. The call is the one of its thread that began at
// BeginNS.
type WaitEvent struct {
	Thread  int    `json:"thread"`
	BeginNS uint64 `json:"begin_ns"`
	Stream  int    `json:"stream"`
	From    uint64 `json:"from"`
	Until   uint64 `json:"until"`
}

// checkTimeline verifies the cross references of single events.
func (r *Recording) checkTimeline() error {
	if r.Timeline == nil {
		return nil
	}
	for i := range r.Timeline.Calls {
		c := &r.Timeline.Calls[i]
		if !within(c.Thread, len(r.Threads)) || !within(c.Path, len(r.Paths)) || !within(c.Symbol, len(r.Symbols)) {
			return fmt.Errorf("call event %d %w", i, errNoRow)
		}
	}
	for i := range r.Timeline.Off {
		if !within(r.Timeline.Off[i].Thread, len(r.Threads)) {
			return fmt.Errorf("off event %d %w", i, errNoRow)
		}
	}
	for i := range r.Timeline.Waits {
		if !within(r.Timeline.Waits[i].Thread, len(r.Threads)) {
			return fmt.Errorf("wait event %d %w", i, errNoRow)
		}
	}
	for i := range r.Timeline.Spans {
		if err := r.checkSpan(&r.Timeline.Spans[i], true); err != nil {
			return fmt.Errorf("span %d of the timeline %w", i, err)
		}
	}
	return nil
}
