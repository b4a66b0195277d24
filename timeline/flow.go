package timeline

import (
	"cmp"
	"slices"

	"stageprof/recording"
)

// flows are the arrows from calls that gave a stream an operation to those that
// waited for it. A flow has the number of the call that it begins with, + 1.
type flows struct {
	begins []bool           // by call
	from   map[int][]uint64 // by call: the flows that end there
}

// to is the flow that begins with a call, 0 for none.
func (f *flows) to(call int) uint64 {
	if !f.begins[call] {
		return 0
	}
	return uint64(call) + 1
}

// waitKey tells the call that a wait is of.
type waitKey struct {
	thread int
	begin  uint64
}

// streamCalls are the calls that gave one stream operations, in the order of these.
type streamCalls struct {
	calls []int
	next  []int // by place in calls: the first place from there on that no flow begins with
}

// free returns the first place from i on that no flow begins with.
func (s *streamCalls) free(i int) int {
	for s.next[i] != i {
		s.next[i] = s.next[s.next[i]] // halves the way for the next time
		i = s.next[i]
	}
	return i
}

// findFlows gives each operation to the first call that waited for it.
func findFlows(t *recording.Timeline) flows {
	f := flows{begins: make([]bool, len(t.Calls)), from: map[int][]uint64{}}
	waits := map[waitKey][]*recording.WaitEvent{}
	for i := range t.Waits {
		w := &t.Waits[i]
		waits[waitKey{w.Thread, w.BeginNS}] = append(waits[waitKey{w.Thread, w.BeginNS}], w)
	}
	streams := callsByStream(t)
	for i := range t.Calls {
		c := &t.Calls[i]
		if c.Partial {
			continue
		}
		for _, w := range waits[waitKey{c.Thread, c.BeginNS}] {
			if s := streams[w.Stream]; s != nil {
				f.add(t, s, i, w)
			}
		}
	}
	return f
}

// callsByStream lists the calls that gave streams operations.
func callsByStream(t *recording.Timeline) map[int]*streamCalls {
	streams := map[int]*streamCalls{}
	for i := range t.Calls {
		c := &t.Calls[i]
		if c.Stream == 0 || c.Operation == 0 || c.Partial {
			continue
		}
		if streams[c.Stream] == nil {
			streams[c.Stream] = &streamCalls{}
		}
		streams[c.Stream].calls = append(streams[c.Stream].calls, i)
	}
	for _, s := range streams {
		slices.SortStableFunc(s.calls, func(a, b int) int { return cmp.Compare(t.Calls[a].Operation, t.Calls[b].Operation) })
		for i := range len(s.calls) + 1 {
			s.next = append(s.next, i)
		}
	}
	return streams
}

// add lets flows of one stream end at the call that waited.
func (f *flows) add(t *recording.Timeline, s *streamCalls, call int, w *recording.WaitEvent) {
	first, _ := slices.BinarySearchFunc(s.calls, w.From, func(i int, from uint64) int {
		if t.Calls[i].Operation > from {
			return 1
		}
		return -1
	})
	for i := s.free(first); i < len(s.calls); i = s.free(i) {
		source := s.calls[i]
		if t.Calls[source].Operation > w.Until {
			return
		}
		s.next[i] = i + 1
		if source == call || t.Calls[source].BeginNS > t.Calls[call].BeginNS {
			continue // viewers show no arrow back in time, and no recording has one
		}
		f.begins[source] = true
		f.from[call] = append(f.from[call], uint64(source)+1)
	}
}
