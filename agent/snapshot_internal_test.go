package agent

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"stageprof/bpf"
	"stageprof/recording"
)

// stateWith is a thread that has been in the stages "outer" (from 100 on) and
// "inner" (from 150 on), accounted up to 200.
func stateWith(change func(s *threadState)) *threadState {
	s := &threadState{Serial: 1, Mark: 200, Depth: 2}
	s.Open[0] = bpf.ProbeOpenStage{Begin: 100, Child: 10}
	s.Open[0].Parts[bpf.ProbePartPART_RUNNING] = 40
	s.Open[1] = bpf.ProbeOpenStage{Begin: 150}
	s.Open[1].Parts[bpf.ProbePartPART_CUDA_CPU] = 50
	change(s)
	return s
}

// Each entry is read once, however many there are.
func TestEntries(t *testing.T) {
	for _, n := range []int{0, 1, entriesAtOnce, 10*entriesAtOnce + 1} {
		m := newMap(t, "regions")
		want := map[bpf.ProbeRegionKey]bpf.ProbeRegionRow{}
		for i := range n {
			key, row := bpf.ProbeRegionKey{Thread: uint32(i), Region: 7}, bpf.ProbeRegionRow{Count: uint64(i + 1)}
			want[key] = row
			put(t, m, key, row)
		}
		got, seen := map[bpf.ProbeRegionKey]bpf.ProbeRegionRow{}, 0
		err := entries(m, func(key bpf.ProbeRegionKey, row bpf.ProbeRegionRow) {
			got[key] = row
			seen++
		})
		if err != nil || seen != n || !maps.Equal(got, want) {
			t.Errorf("of %d entries %d were read, %d of them different ones: %v", n, seen, len(got), err)
		}
	}
}

// A row is waited for, if it is in mid-change for as long as a thread that was
// preempted.
func TestSettledWaits(t *testing.T) {
	m := newMap(t, "regions")
	key := bpf.ProbeRegionKey{Thread: 1}
	put(t, m, key, bpf.ProbeRegionRow{Count: 1, Min: ^uint64(0)})
	begin, whole := time.Now(), false
	_, ok, err := settled(m, key, bpf.ProbeRegionRow{}, func(*bpf.ProbeRegionRow) bool {
		whole = time.Since(begin) > 5*time.Millisecond
		return whole
	})
	if err != nil || !ok || !whole {
		t.Errorf("it was not waited for: %v", err)
	}
	if _, ok, err := settled(m, key, bpf.ProbeRegionRow{}, wholeRegion); err != nil || ok {
		t.Errorf("a row that never gets whole: %t, %v", ok, err)
	}
}

// A span whose end is being added to its row all the time is not in it yet.
func TestStageRowInMidChange(t *testing.T) {
	m := newMap(t, "stages")
	old, unknown, whole := bpf.ProbeStageKey{Thread: 1}, bpf.ProbeStageKey{Thread: 2}, bpf.ProbeStageKey{Thread: 3}
	before := bpf.ProbeStageRow{First: 5, Count: 1, Last: 5}
	put(t, m, old, bpf.ProbeStageRow{First: 9, Count: 2, Last: 5})
	put(t, m, unknown, bpf.ProbeStageRow{First: 9, Count: 1})
	put(t, m, whole, before)
	d := drain{Session: &Session{latest: latest{stages: map[bpf.ProbeStageKey]bpf.ProbeStageRow{old: before}}}, live: true}
	d.objects.Stages = m
	got, err := d.stageRows()
	if want := (map[bpf.ProbeStageKey]bpf.ProbeStageRow{old: before, whole: before}); err != nil || !maps.Equal(got, want) {
		t.Errorf("rows: %+v, %v", got, err)
	}
}

// A thread that is just ending has its time outside any stage in its state until
// it is all in the row, which is there before.
func TestTimeOutsideOfEndingThread(t *testing.T) {
	m := newMap(t, "stages")
	const made, half, ended = 1, 2, 3
	put(t, m, bpf.ProbeStageKey{Thread: made}, bpf.ProbeStageRow{})
	put(t, m, bpf.ProbeStageKey{Thread: half}, bpf.ProbeStageRow{First: 9, Wall: 5})
	put(t, m, bpf.ProbeStageKey{Thread: ended}, bpf.ProbeStageRow{First: 9, Wall: 5, Last: 9})
	d := drain{Session: &Session{}, live: true}
	d.objects.Stages = m
	var err error
	if d.stages, err = d.stageRows(); err != nil {
		t.Fatal(err)
	}
	if d.hasEnded(made) || d.hasEnded(half) || !d.hasEnded(ended) {
		t.Errorf("of the rows %+v", d.stages)
	}
	if _, ok := d.stages[bpf.ProbeStageKey{Thread: half}]; ok {
		t.Error("half a row is taken")
	}
}

func TestWholeRows(t *testing.T) {
	if wholeRegion(&bpf.ProbeRegionRow{Count: 2, PartialCount: 1, Done: 2}) || !wholeRegion(&bpf.ProbeRegionRow{Count: 2, PartialCount: 1, Done: 3}) {
		t.Error("a region")
	}
	if wholeAllocation(&bpf.ProbeAllocationRow{Count: 2, Freed: 1, Done: 2}) || !wholeAllocation(&bpf.ProbeAllocationRow{Count: 2, Freed: 1, Done: 3}) {
		t.Error("an allocation")
	}
}

// A thread that is never found between two changes keeps what was known of it,
// unless it is gone.
func TestPeekKeepsWhatWasKnown(t *testing.T) {
	state := func(serial, changes uint32) bpf.ProbeThreadState {
		return bpf.ProbeThreadState(*stateWith(func(s *threadState) { s.Serial, s.Changes = serial, changes }))
	}
	p := peeked{start: 50, seen: map[uint32]bool{}}
	p.take([]bpf.ProbeThreadState{state(1, 6), state(2, 1), state(3, 1), state(4, 1)}, 300)
	missing := p.take([]bpf.ProbeThreadState{state(1, 7), state(2, 2), state(3, 1)}, 300) // 4 has ended
	p.keep([]bpf.ProbeThreadState{state(1, 0), state(2, 0), state(3, 0), state(4, 0)}, missing)
	var serials []uint32
	for _, s := range p.states {
		serials = append(serials, s.Serial)
	}
	if !slices.Equal(serials, []uint32{1, 2, 3}) || p.states[2].Mark != 200 {
		t.Errorf("threads %v", serials)
	}
}

// Time up to now goes to what the thread is doing.
func TestStateAdvances(t *testing.T) {
	const futex = uint32(bpf.ProbePartPART_BLOCKED_FUTEX)
	tests := []struct {
		name   string
		change func(s *threadState)
		want   recording.Parts // of the inner stage, beyond what was there
	}{
		{"running", func(*threadState) {}, recording.Parts{RunningNS: 100}},
		{"in a call", func(s *threadState) { s.Sp = 1 }, recording.Parts{CUDACPUNS: 100}},
		{"asleep", func(s *threadState) { s.OffSince, s.OffPart = 200, futex }, recording.Parts{BlockedFutexNS: 100}},
		{"asleep in a call", func(s *threadState) { s.OffSince, s.OffPart, s.Sp = 200, futex, 1 }, recording.Parts{CUDABlockedNS: 100}},
		{"woken", func(s *threadState) { s.OffSince, s.OffPart, s.Woken = 200, futex, 230 },
			recording.Parts{BlockedFutexNS: 30, RunnableNS: 70}},
		{"woken later than now", func(s *threadState) { s.OffSince, s.OffPart, s.Woken = 200, futex, 330 }, recording.Parts{BlockedFutexNS: 100}},
		{"preempted in a program of ours", func(s *threadState) { s.OffTotal, s.OffCharged = 65, 40 }, recording.Parts{RunnableNS: 25, RunningNS: 75}},
		{"preempted there, and back unseen", func(s *threadState) {
			s.OffSince, s.OffPart, s.OffTotal, s.OffCharged = 250, uint32(bpf.ProbePartPART_RUNNABLE), 65, 40
		}, recording.Parts{RunnableNS: 75, RunningNS: 25}},
		{"accounted beyond now", func(s *threadState) { s.Mark = 310 }, recording.Parts{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := stateWith(test.change)
			s.advance(50, 300)
			got := partsOf(s.Open[1].Parts)
			got.CUDACPUNS -= 50
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
		})
	}
	outside := &threadState{Serial: 1}
	outside.advance(50, 300)
	if got := partsOf(outside.Outside.Parts); got != (recording.Parts{RunningNS: 250}) {
		t.Errorf("outside any stage: %+v", got)
	}
}

// Folding keeps every sum.
func TestFoldKeepsSums(t *testing.T) {
	r := newRetired(true)
	const threads = 9
	for serial := range uint32(threads) {
		r.info[serial] = bpf.ProbeThreadInfo{Tid: 7}
		r.serials = append(r.serials, serial)
		r.calls.add(bpf.ProbeCallKey{Thread: serial, Symbol: 3}, bpf.ProbeCallRow{Count: 2, Wall: 10, Min: uint64(serial), Max: 100 - uint64(serial)})
		r.debts.add(bpf.ProbeDebtKey{Thread: serial, Owner: 5}, bpf.ProbeDebtRow{Waits: 1, Wall: 5, Operations: 3})
		r.stages.add(bpf.ProbeStageKey{Thread: serial, Path: 5}, bpf.ProbeStageRow{Count: 1, Wall: 20, PartialCount: 1, Min: 4, Max: uint64(serial)})
		r.regions.add(bpf.ProbeRegionKey{Thread: serial, Region: 4}, bpf.ProbeRegionRow{Count: 3, Wall: 30, Min: 9, Max: uint64(serial), PartialCount: 1})
		r.allocations.add(bpf.ProbeAllocationKey{Thread: serial, Path: 6}, bpf.ProbeAllocationRow{Count: 1, Bytes: 5, Freed: 2, FreedBytes: 7, FreedUnknown: 1})
	}
	for want := threads; want > 0; {
		r.fold(map[uint32]bool{0: true})
		want -= (want + 1) / 2
		if len(r.serials) != want || r.single() != 5*want {
			t.Errorf("%d threads with %d rows are left, want %d", len(r.serials), r.single(), want)
		}
	}
	if len(r.info) != 1 { // thread 0 is in use
		t.Errorf("names of %d threads are left", len(r.info))
	}
	call := r.calls.rows[bpf.ProbeCallKey{Thread: foldedThread, Symbol: 3}]
	if len(r.calls.rows) != 1 || call.Count != 2*threads || call.Wall != 10*threads || call.Min != 0 || call.Max != 100 {
		t.Errorf("calls: %+v", r.calls.rows)
	}
	debt := r.debts.rows[bpf.ProbeDebtKey{Thread: foldedThread, Owner: 5}]
	if len(r.debts.rows) != 1 || debt != (bpf.ProbeDebtRow{Waits: threads, Wall: 5 * threads, Operations: 3 * threads}) {
		t.Errorf("debts: %+v", r.debts.rows)
	}
	stage := r.stages.rows[bpf.ProbeStageKey{Thread: foldedThread, Path: 5}]
	if len(r.stages.rows) != 1 || stage.Count != threads || stage.PartialCount != threads || stage.Max != threads-1 {
		t.Errorf("stages: %+v", r.stages.rows)
	}
	region := r.regions.rows[bpf.ProbeRegionKey{Thread: foldedThread, Region: 4}]
	if want := (bpf.ProbeRegionRow{Count: 3 * threads, Wall: 30 * threads, Min: 9, Max: threads - 1, PartialCount: threads}); len(r.regions.rows) != 1 || region != want {
		t.Errorf("regions: %+v", r.regions.rows)
	}
	allocation := r.allocations.rows[bpf.ProbeAllocationKey{Thread: foldedThread, Path: 6}]
	if want := (bpf.ProbeAllocationRow{
		Count: threads, Bytes: 5 * threads, Freed: 2 * threads, FreedBytes: 7 * threads, FreedUnknown: threads,
	}); len(r.allocations.rows) != 1 || allocation != want {
		t.Errorf("allocations: %+v", r.allocations.rows)
	}
}

// An error in one table loses nothing of the others.
func TestRetireLosesNothing(t *testing.T) {
	s := &Session{retired: newRetired(true), objects: bpf.ProbeObjects{ProbeMaps: bpf.ProbeMaps{
		Threads: newMap(t, "threads"), Calls: newMap(t, "calls"), Debts: newMap(t, "debts"),
		Stages: newMap(t, "stages"), Regions: newMap(t, "regions"), RegionParts: newMap(t, "region_parts"), Allocations: newMap(t, "allocations"),
	}}}
	const serial = 4
	call, stage := bpf.ProbeCallKey{Thread: serial}, bpf.ProbeStageKey{Thread: serial}
	put(t, s.objects.Threads, uint32(serial), bpf.ProbeThreadInfo{Ended: 1})
	put(t, s.objects.Threads, uint32(serial+1), bpf.ProbeThreadInfo{})
	put(t, s.objects.Calls, call, bpf.ProbeCallRow{Count: 2})
	put(t, s.objects.Calls, bpf.ProbeCallKey{Thread: serial + 1}, bpf.ProbeCallRow{Count: 7})
	put(t, s.objects.Stages, stage, bpf.ProbeStageRow{Count: 3})
	debts := s.objects.Debts
	s.objects.Debts = newMap(t, "debts")
	if err := s.objects.Debts.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.retire(); err == nil {
		t.Error("a table that can't be read is no error")
	}
	s.objects.Debts = debts
	// Late rows of the same keys.
	put(t, s.objects.Calls, call, bpf.ProbeCallRow{Count: 5})
	for range 2 {
		if err := s.retire(); err != nil {
			t.Errorf("taking the rest: %v", err)
		}
	}
	if len(s.retired.calls.rows) != 1 || s.retired.calls.rows[call].Count != 7 {
		t.Errorf("calls: %+v", s.retired.calls.rows)
	}
	if len(s.retired.stages.rows) != 1 || s.retired.stages.rows[stage].Count != 3 {
		t.Errorf("stages: %+v", s.retired.stages.rows)
	}
	if !slices.Equal(s.retired.serials, []uint32{serial}) {
		t.Errorf("threads: %v", s.retired.serials)
	}
}

// newMap is one of the kernel side's tables, empty.
func newMap(t *testing.T, name string) *ebpf.Map {
	t.Helper()
	spec, err := bpf.LoadProbe()
	if err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(spec.Maps[name])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func put[K, V any](t *testing.T, m *ebpf.Map, key K, row V) {
	t.Helper()
	if err := m.Put(&key, &row); err != nil {
		t.Fatal(err)
	}
}
