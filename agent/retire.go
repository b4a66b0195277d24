package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"stageprof/bpf"
)

// What bounds the rows of threads that have ended which are kept one by one. Each
// snapshot of a live window has all of them: some megabytes. The one Recording of
// other windows may have as many as the kernel side's tables hold.
const (
	maxRetired     = 65_536
	maxRetiredLive = 2048
)

// When rows are taken out, which takes a reading of all tables: once so many threads have
// begun since the last time as have no more than crowdRows in all, and in a window that is
// looked at while it is open every second anyway. The smallest table has twice that room.
const (
	retireInterval = time.Second
	crowdRows      = 8192
	leastCrowd     = 256
	mostCrowd      = 2048
)

// foldedThread is the serial number of all threads together that ended long ago.
const foldedThread = processThread - 1

// retired holds the rows of threads that have ended, out of the kernel side's
// tables. Nothing changes them any more.
type retired struct {
	most        int // rows that are kept one by one
	calls       table[bpf.ProbeCallKey, bpf.ProbeCallRow]
	debts       table[bpf.ProbeDebtKey, bpf.ProbeDebtRow]
	stages      table[bpf.ProbeStageKey, bpf.ProbeStageRow]
	regions     table[bpf.ProbeRegionKey, bpf.ProbeRegionRow]
	regionParts table[bpf.ProbeRegionPartsKey, bpf.ProbeRegionPartsRow]
	allocations table[bpf.ProbeAllocationKey, bpf.ProbeAllocationRow]

	rowsEach int // rows of a thread, rounded up, of those that were taken last; 0: not known

	info    map[uint32]bpf.ProbeThreadInfo
	serials []uint32 // whose rows are not folded, in the order in which they were taken
}

func newRetired(live bool) retired {
	most := maxRetired
	if live {
		most = maxRetiredLive
	}
	return retired{
		most:        most,
		calls:       newTable(func(k *bpf.ProbeCallKey) *uint32 { return &k.Thread }, addCallRow),
		debts:       newTable(func(k *bpf.ProbeDebtKey) *uint32 { return &k.Thread }, addDebtRow),
		stages:      newTable(func(k *bpf.ProbeStageKey) *uint32 { return &k.Thread }, addStageRow),
		regions:     newTable(func(k *bpf.ProbeRegionKey) *uint32 { return &k.Thread }, addRegionRow),
		regionParts: newTable(func(k *bpf.ProbeRegionPartsKey) *uint32 { return &k.Thread }, addRegionPartsRow),
		allocations: newTable(func(k *bpf.ProbeAllocationKey) *uint32 { return &k.Thread }, addAllocationRow),
		info:        map[uint32]bpf.ProbeThreadInfo{},
	}
}

// table holds rows of one of the kernel side's tables.
type table[K comparable, V any] struct {
	rows   map[K]V
	folded int              // rows of all threads that ended long ago together
	thread func(*K) *uint32 // whose row it is
	sum    func(to, from *V)
}

func newTable[K comparable, V any](thread func(*K) *uint32, sum func(to, from *V)) table[K, V] {
	return table[K, V]{rows: map[K]V{}, thread: thread, sum: sum}
}

// take moves the rows of some threads from the kernel side's table to this one.
// On an error each row is in one of them still.
func (t *table[K, V]) take(m *ebpf.Map, threads map[uint32]bpf.ProbeThreadInfo) error {
	found := map[K]V{}
	if err := entries(m, func(key K, row V) {
		if _, ok := threads[*t.thread(&key)]; ok {
			found[key] = row
		}
	}); err != nil {
		return err
	}
	var errs []error
	for key, row := range found {
		if err := remove(m, key); err != nil {
			errs = append(errs, err)
			continue
		}
		t.add(key, row)
	}
	return errors.Join(errs...)
}

func (t *table[K, V]) add(key K, row V) {
	if sum, ok := t.rows[key]; ok {
		t.sum(&sum, &row)
		row = sum
	} else if *t.thread(&key) == foldedThread {
		t.folded++
	}
	t.rows[key] = row
}

// fold adds the rows of old threads to those of all old threads.
func (t *table[K, V]) fold(old map[uint32]bool) {
	for key, row := range t.rows {
		if thread := t.thread(&key); old[*thread] {
			delete(t.rows, key)
			*thread = foldedThread
			t.add(key, row)
		}
	}
}

// single is how many rows are of one thread each.
func (t *table[K, V]) single() int { return len(t.rows) - t.folded }

// retireIfDue does what retire does, if it is time to.
func (w *watcher) retireIfDue() error {
	var begun uint32
	if err := w.objects.LastThread.Get(&begun); err != nil {
		return fmt.Errorf("reading how many threads there were: %w", err)
	}
	crowd, late := int(begun-w.begun) >= w.retired.crowd(), time.Since(w.lastRetired) >= retireInterval
	if !crowd && !(w.config.Live && late) {
		return nil
	}
	w.begun, w.lastRetired = begun, time.Now()
	return w.retire()
}

// crowd is how many threads may begin until rows are taken out again.
func (r *retired) crowd() int {
	if r.rowsEach == 0 {
		return leastCrowd
	}
	return min(max(crowdRows/r.rowsEach, leastCrowd), mostCrowd)
}

// retire takes the rows of threads that have ended out of the kernel side's
// tables, so that a target which goes through many threads does not fill them.
func (s *Session) retire() error {
	// Who has ended is read before the rows: then these are complete.
	ended := map[uint32]bpf.ProbeThreadInfo{}
	err := entries(s.objects.Threads, func(serial uint32, info bpf.ProbeThreadInfo) {
		if info.Ended != 0 {
			ended[serial] = info
		}
	})
	if err != nil || len(ended) == 0 {
		return err
	}
	r := &s.retired
	before := r.single()
	if err := errors.Join(
		r.calls.take(s.objects.Calls, ended),
		r.debts.take(s.objects.Debts, ended),
		r.stages.take(s.objects.Stages, ended),
		r.regions.take(s.objects.Regions, ended),
		r.regionParts.take(s.objects.RegionParts, ended),
		r.allocations.take(s.objects.Allocations, ended),
	); err != nil {
		return err
	}
	r.rowsEach = (r.single() - before + len(ended) - 1) / len(ended)
	if err := r.takeThreads(s.objects.Threads, ended); err != nil {
		return err
	}
	return s.foldRetired()
}

// foldRetired adds the rows of old threads up, if there are too many.
func (s *Session) foldRetired() error {
	r := &s.retired
	if !r.tooMany() {
		return nil
	}
	// Spans and events need the names of their threads.
	if err := errors.Join(s.spans.read(), s.timeline.read()); err != nil {
		return err
	}
	inUse := s.spans.threads()
	s.timeline.addThreads(inUse)
	for r.tooMany() && len(r.serials) > 0 {
		if err := s.samples.fold(r.fold(inUse)); err != nil {
			return err
		}
	}
	return nil
}

func (r *retired) tooMany() bool { return r.single() > r.most || len(r.serials) > r.most }

// takeThreads takes the threads themselves, whose rows have all been taken.
func (r *retired) takeThreads(m *ebpf.Map, ended map[uint32]bpf.ProbeThreadInfo) error {
	var errs []error
	for _, serial := range slices.Sorted(maps.Keys(ended)) {
		if err := remove(m, serial); err != nil {
			errs = append(errs, err)
			continue
		}
		r.info[serial] = ended[serial]
		r.serials = append(r.serials, serial)
	}
	return errors.Join(errs...)
}

func remove[K any](m *ebpf.Map, key K) error {
	if err := m.Delete(&key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("taking the row of an ended thread out of %v: %w", m, err)
	}
	return nil
}

// single is how many rows are of one thread each.
func (r *retired) single() int {
	return r.calls.single() + r.debts.single() + r.stages.single() +
		r.regions.single() + r.regionParts.single() + r.allocations.single()
}

// fold adds up the rows of the older half of the threads, which it returns. The
// names of those that are in use are kept.
func (r *retired) fold(inUse map[uint32]bool) (old map[uint32]bool) {
	half := (len(r.serials) + 1) / 2
	old = setOf(r.serials[:half])
	r.serials = slices.Clone(r.serials[half:])
	young := setOf(r.serials)
	maps.DeleteFunc(r.info, func(serial uint32, _ bpf.ProbeThreadInfo) bool { return !young[serial] && !inUse[serial] })
	r.calls.fold(old)
	r.debts.fold(old)
	r.stages.fold(old)
	r.regions.fold(old)
	r.regionParts.fold(old)
	r.allocations.fold(old)
	return old
}

func setOf(serials []uint32) map[uint32]bool {
	set := make(map[uint32]bool, len(serials))
	for _, serial := range serials {
		set[serial] = true
	}
	return set
}

func addCallRow(to, from *bpf.ProbeCallRow) {
	to.Count += from.Count
	to.Errors += from.Errors
	to.Wall += from.Wall
	to.Cpu += from.Cpu
	to.Bytes += from.Bytes
	to.GilWait += from.GilWait
	to.Min, to.Max = min(to.Min, from.Min), max(to.Max, from.Max)
	addTo(to.Hist[:], from.Hist[:])
}

func addDebtRow(to, from *bpf.ProbeDebtRow) {
	to.Waits += from.Waits
	to.Wall += from.Wall
	to.Operations += from.Operations
}

func addStageRow(to, from *bpf.ProbeStageRow) {
	to.Count += from.Count
	to.Wall += from.Wall
	to.Child += from.Child
	to.Cpu += from.Cpu
	to.Min, to.Max = min(to.Min, from.Min), max(to.Max, from.Max)
	addTo(to.Parts[:], from.Parts[:])
	to.PartialCount += from.PartialCount
	to.PartialWall += from.PartialWall
	to.PartialChild += from.PartialChild
	to.PartialCpu += from.PartialCpu
	addTo(to.PartialParts[:], from.PartialParts[:])
	addTo(to.Hist[:], from.Hist[:])
}

func addTo(to, from []uint64) {
	for i := range to {
		to[i] += from[i]
	}
}
