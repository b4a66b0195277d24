package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"

	"stageprof/bpf"
)

// maxRetired bounds the rows of threads that have ended which are kept one by
// one: some megabytes.
const maxRetired = 2048

// foldedThread is the serial number of all threads together that ended long ago.
const foldedThread = processThread - 1

// retired holds the rows of threads that have ended, out of the kernel side's
// tables. Nothing changes them any more.
type retired struct {
	calls   map[bpf.ProbeCallKey]bpf.ProbeCallRow
	debts   map[bpf.ProbeDebtKey]bpf.ProbeDebtRow
	stages  map[bpf.ProbeStageKey]bpf.ProbeStageRow
	regions map[bpf.ProbeRegionKey]bpf.ProbeRegionRow

	allocations map[bpf.ProbeAllocationKey]bpf.ProbeAllocationRow

	info    map[uint32]bpf.ProbeThreadInfo
	serials []uint32 // whose rows are not folded, in the order in which they were taken
	rows    int      // of these
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
	calls, err := take[bpf.ProbeCallKey, bpf.ProbeCallRow](s.objects.Calls, func(key bpf.ProbeCallKey) bool { return has(ended, key.Thread) })
	if err != nil {
		return err
	}
	debts, err := take[bpf.ProbeDebtKey, bpf.ProbeDebtRow](s.objects.Debts, func(key bpf.ProbeDebtKey) bool { return has(ended, key.Thread) })
	if err != nil {
		return err
	}
	stages, err := take[bpf.ProbeStageKey, bpf.ProbeStageRow](s.objects.Stages, func(key bpf.ProbeStageKey) bool { return has(ended, key.Thread) })
	if err != nil {
		return err
	}
	regions, err := take[bpf.ProbeRegionKey, bpf.ProbeRegionRow](s.objects.Regions, func(key bpf.ProbeRegionKey) bool { return has(ended, key.Thread) })
	if err != nil {
		return err
	}
	allocations, err := take[bpf.ProbeAllocationKey, bpf.ProbeAllocationRow](s.objects.Allocations,
		func(key bpf.ProbeAllocationKey) bool { return has(ended, key.Thread) })
	if err != nil {
		return err
	}
	for serial := range ended {
		if err := remove(s.objects.Threads, serial); err != nil {
			return err
		}
	}
	s.retired.add(ended, calls, debts, stages)
	s.retired.addRegions(regions, allocations)
	if s.retired.rows > maxRetired || len(s.retired.serials) > maxRetired {
		old := s.retired.fold(s.spans.threads())
		return s.samples.fold(old)
	}
	return nil
}

func has[V any](m map[uint32]V, serial uint32) bool {
	_, ok := m[serial]
	return ok
}

// take removes the rows of some keys from a table and returns them.
func take[K comparable, V any](m *ebpf.Map, wanted func(K) bool) (map[K]V, error) {
	taken := map[K]V{}
	err := entries(m, func(key K, row V) {
		if wanted(key) {
			taken[key] = row
		}
	})
	if err != nil {
		return nil, err
	}
	for key := range taken {
		if err := remove(m, key); err != nil {
			return nil, err
		}
	}
	return taken, nil
}

func remove[K any](m *ebpf.Map, key K) error {
	if err := m.Delete(&key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("taking the row of an ended thread out of %v: %w", m, err)
	}
	return nil
}

func (r *retired) add(ended map[uint32]bpf.ProbeThreadInfo, calls map[bpf.ProbeCallKey]bpf.ProbeCallRow,
	debts map[bpf.ProbeDebtKey]bpf.ProbeDebtRow, stages map[bpf.ProbeStageKey]bpf.ProbeStageRow) {
	if r.info == nil {
		r.calls, r.stages = map[bpf.ProbeCallKey]bpf.ProbeCallRow{}, map[bpf.ProbeStageKey]bpf.ProbeStageRow{}
		r.debts = map[bpf.ProbeDebtKey]bpf.ProbeDebtRow{}
		r.info = map[uint32]bpf.ProbeThreadInfo{}
	}
	first := len(r.serials)
	maps.Copy(r.info, ended)
	r.serials = slices.AppendSeq(r.serials, maps.Keys(ended))
	slices.Sort(r.serials[first:])
	maps.Copy(r.calls, calls)
	maps.Copy(r.debts, debts)
	maps.Copy(r.stages, stages)
	r.rows += len(calls) + len(debts) + len(stages)
}

// fold adds up the rows of the older half of the threads, which it returns. The
// names of those that are in use are kept.
func (r *retired) fold(inUse map[uint32]bool) (old map[uint32]bool) {
	half := (len(r.serials) + 1) / 2
	old = setOf(r.serials[:half])
	r.serials = slices.Clone(r.serials[half:])
	young := setOf(r.serials)
	maps.DeleteFunc(r.info, func(serial uint32, _ bpf.ProbeThreadInfo) bool { return !young[serial] && !inUse[serial] })
	r.rows -= foldRows(r.calls, old, func(k bpf.ProbeCallKey) uint32 { return k.Thread },
		func(k bpf.ProbeCallKey) bpf.ProbeCallKey { k.Thread = foldedThread; return k }, addCallRow)
	r.rows -= foldRows(r.debts, old, func(k bpf.ProbeDebtKey) uint32 { return k.Thread },
		func(k bpf.ProbeDebtKey) bpf.ProbeDebtKey { k.Thread = foldedThread; return k }, addDebtRow)
	r.rows -= foldRows(r.stages, old, func(k bpf.ProbeStageKey) uint32 { return k.Thread },
		func(k bpf.ProbeStageKey) bpf.ProbeStageKey { k.Thread = foldedThread; return k }, addStageRow)
	r.rows -= foldRows(r.regions, old, func(k bpf.ProbeRegionKey) uint32 { return k.Thread },
		func(k bpf.ProbeRegionKey) bpf.ProbeRegionKey { k.Thread = foldedThread; return k }, addRegionRow)
	r.rows -= foldRows(r.allocations, old, func(k bpf.ProbeAllocationKey) uint32 { return k.Thread },
		func(k bpf.ProbeAllocationKey) bpf.ProbeAllocationKey { k.Thread = foldedThread; return k }, addAllocationRow)
	return old
}

func (r *retired) addRegions(regions map[bpf.ProbeRegionKey]bpf.ProbeRegionRow, allocations map[bpf.ProbeAllocationKey]bpf.ProbeAllocationRow) {
	if r.regions == nil {
		r.regions, r.allocations = map[bpf.ProbeRegionKey]bpf.ProbeRegionRow{}, map[bpf.ProbeAllocationKey]bpf.ProbeAllocationRow{}
	}
	maps.Copy(r.regions, regions)
	maps.Copy(r.allocations, allocations)
	r.rows += len(regions) + len(allocations)
}

func setOf(serials []uint32) map[uint32]bool {
	set := make(map[uint32]bool, len(serials))
	for _, serial := range serials {
		set[serial] = true
	}
	return set
}

// foldRows adds the rows of old threads to those of all old threads, and returns
// how many they were.
func foldRows[K comparable, V any](rows map[K]V, old map[uint32]bool, thread func(K) uint32, folded func(K) K, add func(to, from *V)) int {
	n := 0
	for key, row := range rows {
		if !old[thread(key)] {
			continue
		}
		delete(rows, key)
		n++
		if sum, ok := rows[folded(key)]; ok {
			add(&sum, &row)
			row = sum
		}
		rows[folded(key)] = row
	}
	return n
}

func addCallRow(to, from *bpf.ProbeCallRow) {
	to.Count += from.Count
	to.Errors += from.Errors
	to.Wall += from.Wall
	to.Cpu += from.Cpu
	to.Bytes += from.Bytes
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
