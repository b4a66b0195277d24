package timeline

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strings"

	"stageprof/recording"
)

// ErrNone: the Recording has no single events.
var ErrNone = errors.New(`it has no timeline: record again with "stageprof record --timeline --save FILE"`)

// track is one row of a trace.
type track struct {
	thread int // -1: the whole process
	kind   kind
}

type kind int

const (
	stages kind = iota
	calls
	offCPU
	kinds
)

var kindNames = [kinds]string{stages: "stages", calls: "calls", offCPU: "off the CPU"}

// slice is one interval on a track.
type slice struct {
	name       string
	categories []string
	begin, end uint64
	args       []arg
	held       bool // the GIL: by this call, or by another thread that this one waits for

	flowTo    uint64   // the flow that begins here, 0: none
	flowsFrom []uint64 // those that end here
}

// arg is one argument of a slice: a text, or a number.
type arg struct {
	name   string
	text   string
	number uint64
	isText bool
}

func (s *slice) text(name, value string) {
	s.args = append(s.args, arg{name: name, text: value, isText: true})
}

// number adds an argument, unless it is 0.
func (s *slice) number(name string, value uint64) {
	if value != 0 {
		s.args = append(s.args, arg{name: name, number: value})
	}
}

func (s *slice) partial(is bool) {
	if is {
		s.text("partial", "yes")
	}
}

// sink takes a trace: track after track, and on each the slices in the order of
// their begins, outer ones first. No slice ends after one that it lies in.
type sink interface {
	track(track) error
	slice(*slice) error
}

// walker hands the tracks of a Recording to a sink.
type walker struct {
	*recording.Recording
	to    sink
	paths []string // written out
	flows flows
	open  []uint64 // on this track: when the slices end that the next one may lie in
	next  slice
}

func walk(r *recording.Recording, to sink) error {
	if r.Timeline == nil {
		return ErrNone
	}
	w := walker{Recording: r, to: to, flows: findFlows(r.Timeline)}
	for _, p := range r.Paths {
		w.paths = append(w.paths, strings.Join(p.Names, "/"))
	}
	t := r.Timeline
	spans := w.spans()
	calls := byThread(len(r.Threads), t.Calls, func(e *recording.CallEvent) int { return e.Thread })
	off := byThread(len(r.Threads), t.Off, func(e *recording.OffEvent) int { return e.Thread })
	if err := w.stageTrack(-1, spans[-1]); err != nil {
		return err
	}
	for thread := range r.Threads {
		if err := w.stageTrack(thread, spans[thread]); err != nil {
			return err
		}
		if err := w.callTrack(thread, calls[thread]); err != nil {
			return err
		}
		if err := w.offTrack(thread, off[thread]); err != nil {
			return err
		}
	}
	return nil
}

// byThread gives the indices of each thread's events, in their order.
func byThread[T any](threads int, events []T, thread func(*T) int) [][]int {
	lists := make([][]int, threads)
	for i := range events {
		t := thread(&events[i])
		lists[t] = append(lists[t], i)
	}
	return lists
}

// spans are those that ended in the timeline, by thread, outer ones before those
// inside them.
func (w *walker) spans() map[int][]*recording.Span {
	lists := map[int][]*recording.Span{}
	for _, all := range [][]recording.Span{w.Recording.Spans, w.Timeline.Spans} {
		for i := range all {
			if s := &all[i]; sum(s.BeginNS, s.WallNS) >= w.Timeline.StartNS {
				lists[s.Thread] = append(lists[s.Thread], s)
			}
		}
	}
	for _, list := range lists {
		slices.SortStableFunc(list, func(a, b *recording.Span) int {
			return cmp.Or(
				cmp.Compare(a.BeginNS, b.BeginNS), cmp.Compare(b.WallNS, a.WallNS),
				cmp.Compare(len(w.Paths[a.Path].Names), len(w.Paths[b.Path].Names)),
			)
		})
	}
	return lists
}

// sum adds two times of a file that may hold anything.
func sum(a, b uint64) uint64 {
	if a+b < a {
		return math.MaxUint64
	}
	return a + b
}

// begin starts a track, unless it is empty.
func (w *walker) begin(thread int, kind kind, slices int) error {
	w.open = w.open[:0]
	if slices == 0 {
		return nil
	}
	return w.to.track(track{thread, kind})
}

// slice starts the next slice of the track.
func (w *walker) slice(name string, begin, wall uint64) *slice {
	w.next = slice{name: name, begin: begin, end: sum(begin, wall), args: w.next.args[:0]}
	return &w.next
}

// put hands on the slice. One that ends after what it lies in, which no recording
// has, is cut: viewers would take its end for the outer one's.
func (w *walker) put(s *slice) error {
	for len(w.open) > 0 && w.open[len(w.open)-1] <= s.begin {
		w.open = w.open[:len(w.open)-1]
	}
	if len(w.open) > 0 {
		s.end = min(s.end, w.open[len(w.open)-1])
	}
	w.open = append(w.open, s.end)
	return w.to.slice(s)
}

var stageCategories = []string{"stage"}

func (w *walker) stageTrack(thread int, spans []*recording.Span) error {
	if err := w.begin(thread, stages, len(spans)); err != nil {
		return err
	}
	for _, span := range spans {
		s := w.slice(w.stageName(span.Path), span.BeginNS, span.WallNS)
		s.categories = stageCategories
		s.text("stage_path", w.paths[span.Path])
		s.number("cpu_ns", span.CPUNS)
		s.number("children_ns", span.ChildNS)
		p := &span.Parts
		s.number("running_ns", p.RunningNS)
		s.number("cuda_cpu_ns", p.CUDACPUNS)
		s.number("cuda_blocked_ns", p.CUDABlockedNS)
		s.number("gil_wait_ns", p.GILWaitNS)
		s.number("runnable_ns", p.RunnableNS)
		s.number("blocked_ns", p.BlockedFutexNS+p.BlockedPollNS+p.BlockedReadNS+p.BlockedSleepNS+p.BlockedFaultNS+p.BlockedOtherNS)
		s.partial(span.Partial)
		if err := w.put(s); err != nil {
			return err
		}
	}
	return nil
}

// stageName is the innermost name of a path.
func (w *walker) stageName(path int) string {
	names := w.Paths[path].Names
	if len(names) == 0 {
		return "(outside any stage)"
	}
	return names[len(names)-1]
}

var callCategories = map[recording.GIL][]string{
	recording.GILHeld:     {"cuda", "gil held"},
	recording.GILFree:     {"cuda", "gil free"},
	recording.GILNone:     {"cuda"},
	recording.GILDisabled: {"cuda", "gil disabled"},
	recording.GILUnknown:  {"cuda", "gil unknown"},
}

func (w *walker) callTrack(thread int, events []int) error {
	if err := w.begin(thread, calls, len(events)); err != nil {
		return err
	}
	slices.SortStableFunc(events, func(a, b int) int {
		return cmp.Compare(w.Timeline.Calls[a].BeginNS, w.Timeline.Calls[b].BeginNS)
	})
	for _, i := range events {
		e := &w.Timeline.Calls[i]
		s := w.slice(w.Symbols[e.Symbol].Name, e.BeginNS, e.WallNS)
		s.categories = callCategories[e.GIL]
		if s.held = e.GIL == recording.GILHeld; s.held {
			s.name += " (gil held)"
		}
		if path := w.paths[e.Path]; path != "" {
			s.text("stage_path", path)
			s.text("attribution", string(e.Attribution))
		}
		s.number("cpu_ns", e.CPUNS)
		s.number("bytes", e.Bytes)
		s.number("result", uint64(e.Result))
		s.number("stream", uint64(e.Stream))
		s.partial(e.Partial)
		s.flowTo, s.flowsFrom = w.flows.to(i), w.flows.from[i]
		if err := w.put(s); err != nil {
			return err
		}
	}
	return nil
}

var (
	offCategories     = []string{"off the CPU"}
	offCategoriesCall = []string{"off the CPU", "in a call"}
)

func (w *walker) offTrack(thread int, events []int) error {
	if err := w.begin(thread, offCPU, len(events)); err != nil {
		return err
	}
	slices.SortStableFunc(events, func(a, b int) int {
		return cmp.Compare(w.Timeline.Off[a].BeginNS, w.Timeline.Off[b].BeginNS)
	})
	for _, i := range events {
		e := &w.Timeline.Off[i]
		s := w.slice(string(e.State), e.BeginNS, e.WallNS)
		s.categories = offCategories
		if e.InCall {
			s.categories = offCategoriesCall
		}
		s.held = e.State == recording.OffGILWait
		s.partial(e.Partial)
		if err := w.put(s); err != nil {
			return err
		}
	}
	return nil
}
