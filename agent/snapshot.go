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
	now, err := s.peek()
	if err != nil {
		return nil, err
	}
	d := drain{
		Session: s, windowEnd: now, r: s.header(recording.EndOpen, now), live: true,
		states: s.latest.states, shared: s.latest.shared, unseeded: unseeded,
	}
	if err := d.run(); err != nil {
		return nil, err
	}
	s.latest.stages = d.stages
	d.r.Overhead = s.overhead(d.r, agentCPU()-s.startCPU, 0)
	d.addFollowed()
	return d.r, nil
}

// latest is what the latest snapshot has read: it stands for what is never found
// between two changes.
type latest struct {
	states []bpf.ProbeThreadState // of threads, up to now
	shared bpf.ProbeThreadState   // of the process
	stages map[bpf.ProbeStageKey]bpf.ProbeStageRow
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

// rows reads a table. While it is live, each row is read until it is whole. What
// never gets whole is taken as it is: of a half-made change, each number is one
// that there will have been.
func rows[K comparable, V comparable](m *ebpf.Map, live bool, whole func(*V) bool) (map[K]V, error) {
	return readRows(m, live, whole, func(_ K, row V) (V, bool) { return row, true })
}

// readRows is rows with another answer for what never gets whole: instead, if
// there is one.
func readRows[K comparable, V comparable](m *ebpf.Map, live bool, whole func(*V) bool, instead func(K, V) (V, bool)) (map[K]V, error) {
	table := map[K]V{}
	var failed error
	err := entries(m, func(key K, row V) {
		ok := true
		if live {
			var err error
			if row, ok, err = settled(m, key, row, whole); err != nil {
				failed = fmt.Errorf("reading a row of %v: %w", m, err)
			} else if !ok {
				row, ok = instead(key, row)
			}
		}
		if ok {
			table[key] = row
		}
	})
	return table, errors.Join(err, failed)
}

// settled reads a row until two readings agree, since then nothing has changed
// between them, and it is not in the middle of a change either; or until it is
// not ok. The first reading is before: an earlier one, or what rows begin as.
func settled[K any, V comparable](m *ebpf.Map, key K, before V, whole func(*V) bool) (row V, ok bool, err error) {
	for t := (tries{}); ; before = row {
		if err := m.Lookup(&key, &row); err != nil {
			return row, false, err
		}
		if row == before && whole(&row) {
			return row, true, nil
		}
		if !t.again() {
			return row, false, nil
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

// wholeState: somebody is changing it while the number of changes is odd.
func wholeState(state *bpf.ProbeThreadState) bool { return state.Changes%2 == 0 }

func wholeStage(row *bpf.ProbeStageRow) bool { return row.First == row.Last }

// stageRows reads the rows of stages. One that never gets whole is the latest
// snapshot's: a span whose end is just being added must not be in the row as well
// as open.
func (d *drain) stageRows() (map[bpf.ProbeStageKey]bpf.ProbeStageRow, error) {
	return readRows(d.objects.Stages, d.live, wholeStage, func(key bpf.ProbeStageKey, _ bpf.ProbeStageRow) (bpf.ProbeStageRow, bool) {
		row, ok := d.latest.stages[key]
		return row, ok
	})
}

// peek reads the state of each thread and of the process's stages, up to now,
// which it returns.
func (s *Session) peek() (now uint64, err error) {
	p := peeked{start: s.startMono, seen: map[uint32]bool{}}
	for t := (tries{}); ; {
		now = monotonic()
		// First of all: what is not noted yet when a state is copied counts from
		// then on.
		if err := s.objects.PeekedUntil.Set(now); err != nil {
			return 0, fmt.Errorf("telling the time of a snapshot: %w", err)
		}
		dump, err := readIterator(s.peeking)
		if err != nil {
			return 0, fmt.Errorf("reading the target's threads: %w", err)
		}
		copies, err := parseStates(dump)
		if err != nil {
			return 0, err
		}
		now = s.untilWindowEnd(now)
		if missing := p.take(copies, now); len(missing) == 0 || !t.again() {
			p.keep(s.latest.states, missing)
			s.latest.states = p.states
			break
		}
	}
	shared, ok, err := settled(s.objects.ProcessStages, uint32(0), bpf.ProbeThreadState{}, wholeState)
	if ok {
		s.latest.shared = shared
	}
	return now, err
}

// peeked collects the states of threads over several readings.
type peeked struct {
	start  uint64
	seen   map[uint32]bool // by serial number
	states []bpf.ProbeThreadState
}

// take adds, up to now, those of the copies that are of a moment between two
// changes, and returns which threads are missing.
func (p *peeked) take(copies []bpf.ProbeThreadState, now uint64) (missing map[uint32]bool) {
	missing = map[uint32]bool{}
	for i := range copies {
		state := (*threadState)(&copies[i])
		switch {
		case p.seen[state.Serial]:
		case !wholeState(&copies[i]):
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
			s.RegionParts[part] += until - since
			s.Mark = until
		}
	}
	running, waiting := bpf.ProbePartPART_RUNNING, bpf.ProbePartPART_RUNNABLE
	if s.Sp != 0 {
		running, waiting = bpf.ProbePartPART_CUDA_CPU, bpf.ProbePartPART_CUDA_BLOCKED
	}
	on := now
	if s.OffSince != 0 {
		on = min(now, s.OffSince)
	}
	charge(min(on, max(s.Mark, start)+s.OffTotal-s.OffCharged), waiting)
	charge(on, running)
	switch {
	case s.OffSince == 0:
	case s.Sp != 0:
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
	if thread >= 0 && !d.hasEnded(s.Serial) {
		d.addOutside(thread, partsOf(s.Outside.Parts))
	}
}

// hasEnded tells whether a thread's time outside any stage is in its row.
func (d *drain) hasEnded(serial uint32) bool {
	return d.stages[bpf.ProbeStageKey{Thread: serial, Path: pathNone}].Last != 0
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
