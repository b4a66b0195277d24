package agent

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"stageprof/bpf"
	"stageprof/recording"
)

// ErrClosed: the session was closed before its window ended.
var ErrClosed = errors.New("the recording was closed")

// Snapshot returns what was seen since the window's start, as if the window had
// ended now: spans that are open have their time so far in the partial sums of
// their stage, and are listed in Open. After Wait it returns what Wait did.
//
// Each row is read in a moment of its own and is whole; from snapshot to snapshot
// no count and no sum of a row decreases, complete and partial spans taken
// together. Calls that are running are the loss recording.LossInFlight; those that
// were entered or returned while the rows were read are left to the next snapshot.
// A span that ended meanwhile is either closed or open, never both or none.
func (s *Session) Snapshot() (*recording.Recording, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.final != nil:
		return s.final, nil
	case s.closed:
		return nil, ErrClosed
	}
	if s.config.Live {
		if err := s.retire(); err != nil {
			return nil, err
		}
	}
	unseeded, err := s.unseeded()
	if err != nil {
		return nil, err
	}
	now, states, err := s.peek()
	if err != nil {
		return nil, err
	}
	d := drain{Session: s, windowEnd: now, r: s.header(recording.EndOpen, now), states: states, unseeded: unseeded, live: true}
	if err := d.run(); err != nil {
		return nil, err
	}
	d.r.Overhead = s.overhead(d.r, agentCPU()-s.startCPU, 0)
	d.addFollowed()
	return d.r, nil
}

// A row or a thread's state can be read while it is being changed. It is read
// again then, at once and after pauses: a thread that is preempted in the middle
// of a change is away for some milliseconds. Not for ever, though: the pauses
// make some 25 ms.
const (
	quickTries = 16
	firstPause = 50 * time.Microsecond
	lastPause  = firstPause << 8
)

// tries counts how often something was read.
type tries struct {
	n     int
	pause time.Duration
}

// again tells whether to read once more, maybe after a pause.
func (t *tries) again() bool {
	switch t.n++; {
	case t.n < quickTries:
		return true
	case t.pause == 0:
		t.pause = firstPause
	default:
		t.pause *= 2
	}
	if t.pause > lastPause {
		return false
	}
	time.Sleep(t.pause)
	return true
}

// rows reads a table. While it is live, each row is read until it is whole.
func rows[K comparable, V comparable](m *ebpf.Map, live bool, whole func(*V) bool) (map[K]V, error) {
	table := map[K]V{}
	var failed error
	err := entries(m, func(key K, row V) {
		if live {
			var err error
			if row, err = settled(m, key, whole); err != nil {
				failed = fmt.Errorf("reading a row of %v: %w", m, err)
			}
		}
		table[key] = row
	})
	return table, errors.Join(err, failed)
}

// settled reads a row until two readings agree, since then nothing has changed
// between them, and it is not in the middle of a change either.
func settled[K any, V comparable](m *ebpf.Map, key K, whole func(*V) bool) (V, error) {
	var before, row V
	if err := m.Lookup(&key, &before); err != nil {
		return before, err
	}
	for t := (tries{}); ; before = row {
		if err := m.Lookup(&key, &row); err != nil || row == before && whole(&row) || !t.again() {
			return row, err
		}
	}
}

// wholeCall: the count is the first that is changed, the histogram the last.
func wholeCall(row *bpf.ProbeCallRow) bool {
	var n uint64
	for _, count := range row.Hist {
		n += count
	}
	return n == row.Count
}

// anyDebt: shares of a wait that is just being divided can be missing.
func anyDebt(*bpf.ProbeDebtRow) bool { return true }

// anyState: the process's stages can't be checked.
func anyState(*bpf.ProbeThreadState) bool { return true }

func wholeStage(row *bpf.ProbeStageRow) bool { return row.First == row.Last }

// peek returns the state of each thread, up to now, and the time of that. What
// was peeked last stands for threads that are always found in mid-change.
func (s *Session) peek() (now uint64, states []bpf.ProbeThreadState, err error) {
	p := peeked{start: s.startMono, seen: map[uint32]bool{}}
	for t := (tries{}); ; {
		now = s.untilWindowEnd(monotonic())
		dump, err := readIterator(s.peeking)
		if err != nil {
			return 0, nil, fmt.Errorf("reading the target's threads: %w", err)
		}
		copies, err := parseStates(dump)
		if err != nil {
			return 0, nil, err
		}
		if missing := p.take(copies, now); len(missing) == 0 || !t.again() {
			p.keep(s.lastPeek, missing)
			s.lastPeek = p.states
			return now, p.states, nil
		}
	}
}

// peeked collects the states of threads over several readings.
type peeked struct {
	start  uint64
	seen   map[uint32]bool // by serial number
	states []bpf.ProbeThreadState
}

// take adds, up to now, those of the copies that add up, and returns which
// threads are missing.
func (p *peeked) take(copies []bpf.ProbeThreadState, now uint64) (missing map[uint32]bool) {
	missing = map[uint32]bool{}
	for i := range copies {
		state := (*threadState)(&copies[i])
		switch {
		case p.seen[state.Serial]:
		case !state.addsUp(p.start):
			missing[state.Serial] = true
		default:
			p.seen[state.Serial] = true
			state.advance(p.start, now)
			p.states = append(p.states, copies[i])
		}
	}
	return missing
}

// keep adds what was known earlier of threads.
func (p *peeked) keep(earlier []bpf.ProbeThreadState, missing map[uint32]bool) {
	for i := range earlier {
		if missing[earlier[i].Serial] {
			p.states = append(p.states, earlier[i])
		}
	}
}

// untilWindowEnd cuts a time at the end of the target's program.
func (s *Session) untilWindowEnd(now uint64) uint64 {
	var end uint64
	if err := s.objects.WindowEnd.Get(&end); err == nil && end != 0 {
		return min(now, end)
	}
	return now
}

// threadState is a copy of a thread's state.
type threadState bpf.ProbeThreadState

// open are the stages that are open and known.
func (s *threadState) open() []bpf.ProbeOpenStage {
	return s.Open[:min(int(s.Depth), len(s.Open))]
}

// rowOf is the row to which the open stage number i will be added.
func (s *threadState) rowOf(i int) bpf.ProbeStageKey {
	key := bpf.ProbeStageKey{Thread: s.Serial, Path: s.Open[i].Path}
	if key.Path == pathOther {
		key.Path = pathOtherAt + uint32(i)
	}
	return key
}

// addsUp tells whether the copy was made between two changes: the parts of what
// is open then sum to the time that is accounted.
func (s *threadState) addsUp(start uint64) bool {
	mark, inner := max(s.Mark, start), uint64(0)
	for i := len(s.open()) - 1; i >= 0; i-- {
		stage := &s.Open[i]
		inner += stage.Child + partsOf(stage.Parts).Total()
		if begin := max(stage.Begin, start); mark < begin || inner != mark-begin {
			return false
		}
	}
	return true
}

// advance charges the time up to now, as the kernel side will at the thread's
// next event.
func (s *threadState) advance(start, now uint64) {
	current := &s.Outside
	if n := len(s.open()); n > 0 {
		current = &s.Open[n-1]
	}
	charge := func(until uint64, part bpf.ProbePart) {
		if since := max(s.Mark, start); until > since {
			current.Parts[part] += until - since
			s.Mark = until
		}
	}
	running, waiting := bpf.ProbePartPART_RUNNING, bpf.ProbePartPART_RUNNABLE
	if s.Sp != 0 {
		running, waiting = bpf.ProbePartPART_CUDA_CPU, bpf.ProbePartPART_CUDA_BLOCKED
	}
	switch {
	case s.OffSince == 0:
		charge(min(now, max(s.Mark, start)+s.Deferred), waiting)
		charge(now, running)
	case s.Sp != 0 || s.Busy != 0:
		charge(now, waiting)
	case s.Woken != 0:
		charge(min(now, s.Woken), bpf.ProbePart(s.OffPart))
		charge(now, waiting)
	default:
		charge(now, bpf.ProbePart(s.OffPart))
	}
}

// addOpenStages adds what a thread, or the process, has open, and the time that
// the thread has been outside any stage.
func (d *drain) addOpenStages(thread int, state *bpf.ProbeThreadState) {
	s := (*threadState)(state)
	var inner recording.Span
	for i := len(s.open()) - 1; i >= 0; i-- {
		inner = d.openSpan(thread, s, i, &inner)
		// It has ended since, and is in its row, if the row's latest span is not
		// an earlier one.
		if row, ok := d.stages[s.rowOf(i)]; !ok || row.Last < s.Open[i].Begin {
			d.cut(&inner)
		}
	}
	// A thread that has ended since has this time in its row.
	if _, ended := d.stages[bpf.ProbeStageKey{Thread: s.Serial, Path: pathNone}]; thread >= 0 && !ended {
		d.addOutside(thread, partsOf(s.Outside.Parts))
	}
}

// openSpan is the open stage number i so far; inner is the one inside it.
func (d *drain) openSpan(thread int, s *threadState, i int, inner *recording.Span) recording.Span {
	stage := &s.Open[i]
	span := recording.Span{
		Thread: thread, Path: d.path(stage.Path), BeginNS: max(stage.Begin, d.startMono), Partial: true,
		ChildNS: stage.Child + inner.WallNS,
	}
	if thread < 0 { // it has no parts
		span.WallNS = d.windowEnd - min(span.BeginNS, d.windowEnd)
		span.ChildNS = min(span.ChildNS, span.WallNS)
		return span
	}
	span.Parts = partsOf(stage.Parts)
	span.WallNS = span.Parts.Total() + span.ChildNS
	span.CPUNS = span.Parts.RunningNS + span.Parts.CUDACPUNS + stage.ChildCpu + inner.CPUNS
	calls := s.Calls[min(int(stage.CallsBase), len(s.Calls)):min(int(s.CallsLen), len(s.Calls))]
	if i+1 < len(s.open()) {
		calls = s.Calls[min(int(stage.CallsBase), len(s.Calls)):min(int(s.Open[i+1].CallsBase), len(s.Calls))]
	}
	for _, c := range calls[:min(len(calls), bpfSpanCalls)] {
		span.Calls = append(span.Calls, recording.SpanCall{
			Symbol: int(c.Symbol), GIL: gilStates[bpf.ProbeGilState(c.Gil)], Count: uint64(c.Count), CPUNS: c.Cpu, BlockedNS: c.Blocked,
		})
	}
	return span
}

const bpfSpanCalls = len(bpf.ProbeSpanRecord{}.Calls)

// holds tells whether a span is in the rows that were read. One that ended after
// that is left to the next snapshot.
func (d *drain) holds(s *span) bool {
	if !d.live {
		return true
	}
	row, ok := d.stages[bpf.ProbeStageKey{Thread: s.thread, Path: s.path}]
	if !ok {
		_, ended := d.retired.info[s.thread]
		return ended
	}
	return max(row.Last, d.startMono) >= s.begin
}
