package agent

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"stageprof/agent/elfsym"
	"stageprof/agent/probe"
	"stageprof/bpf"
	"stageprof/recording"
)

// PyTorch's tracing points: its CUDA allocator tells of each tensor's memory.
const (
	allocationProvider = "pytorch"
	allocationMade     = "malloc" // pointer, device, size, stream
	allocationFreed    = "free"   // pointer
)

// allocationLibrary is the file that has them, so that not every file's notes
// have to be read.
const allocationLibrary = "libc10_cuda"

var errAllocationPoints = errors.New("its tracing points are of another kind")

// prepareAllocations keeps the tables of allocations small unless they are
// wanted.
func (s *Session) prepareAllocations(spec *ebpf.CollectionSpec) {
	if !s.config.Allocations {
		spec.Maps["allocations"].MaxEntries = 1
		spec.Maps["allocated"].MaxEntries = 1
	}
}

// attachAllocations probes the tracing points of PyTorch's allocator.
func (s *Session) attachAllocations() error {
	if !s.config.Allocations {
		return nil
	}
	for _, file := range s.names.opened() {
		if file.noAllocations {
			continue
		}
		file.noAllocations = true // whatever comes of it, once is enough
		points, err := allocationPoints(file)
		if err != nil {
			s.warnOnce(fmt.Sprintf("allocations are not seen: %v", err))
			continue
		}
		if len(points) == 0 {
			continue
		}
		if err := s.attachTo(file, s.objects.AllocationHit, points); err != nil {
			return err
		}
		s.allocationPoints += len(points)
	}
	return nil
}

// allocationPoints returns what to probe, nothing if the file has no such
// tracing points.
func allocationPoints(file *openImage) ([]probe.Point, error) {
	if !strings.HasPrefix(path.Base(file.path), allocationLibrary) || file.elf.Machine() != elf.EM_X86_64 {
		return nil, nil
	}
	all, err := file.elf.USDT()
	if err != nil {
		return nil, fmt.Errorf("reading the tracing points of %q: %w", file.path, err)
	}
	var points []probe.Point
	for _, p := range all {
		if p.Provider != allocationProvider {
			continue
		}
		point, err := allocationPoint(file.elf, p)
		if err != nil {
			return nil, fmt.Errorf("tracing point %s:%s of %q: %w", p.Provider, p.Name, file.path, err)
		}
		if point != nil {
			points = append(points, *point)
		}
	}
	return points, nil
}

// allocationPoint tells the kernel side where a tracing point's arguments are;
// nil for points that say nothing of allocations.
func allocationPoint(file *elfsym.File, p elfsym.USDTProbe) (*probe.Point, error) {
	var event bpf.ProbeAllocationEvent
	var places []int
	switch p.Name {
	case allocationMade:
		event, places = bpf.ProbeAllocationEventALLOCATION_MADE, []int{0, 2}
	case allocationFreed:
		event, places = bpf.ProbeAllocationEventALLOCATION_FREED, []int{0}
	default:
		return nil, nil
	}
	offset, err := file.USDTPlace(p)
	if err != nil {
		return nil, err
	}
	operands, err := p.Operands()
	if len(operands) <= slices.Max(places) {
		return nil, cmp.Or(err, errAllocationPoints)
	}
	cookie := uint64(event)
	for i, place := range places {
		bits, ok := operandBits(operands[place])
		if !ok {
			return nil, fmt.Errorf("%w: %q", errAllocationPoints, p.Arguments)
		}
		cookie |= bits << (8 + 24*i)
	}
	return &probe.Point{Offset: offset, Cookie: cookie, Semaphore: p.Semaphore}, nil
}

// operandBits is bpf/types.h's packing of the place of a 64-bit argument.
func operandBits(o elfsym.USDTOperand) (uint64, bool) {
	if max(o.Size, -o.Size) != 8 || o.Register < 0 || o.Value != int64(int16(o.Value)) {
		return 0, false
	}
	bits := uint64(o.Register) | uint64(uint16(o.Value))<<8
	if o.Memory {
		bits |= 1 << 4
	}
	return bits, true
}

// warnOfAllocations warns when nothing tells of allocations yet.
func (s *Session) warnOfAllocations() error {
	if s.config.Allocations && s.allocationPoints == 0 {
		s.warnOnce("the process has mapped no " + allocationLibrary + " with the tracing points pytorch:malloc and pytorch:free yet: allocations are not seen")
	}
	return nil
}

func (d *drain) addAllocations() error {
	for _, table := range []map[bpf.ProbeAllocationKey]bpf.ProbeAllocationRow{d.allocations, d.retired.allocations.rows} {
		for key, row := range table {
			d.addAllocation(key, row)
		}
	}
	return nil
}

func wholeAllocation(row *bpf.ProbeAllocationRow) bool { return row.Done == row.Count+row.Freed }

func (d *drain) addAllocation(key bpf.ProbeAllocationKey, row bpf.ProbeAllocationRow) {
	if row == (bpf.ProbeAllocationRow{}) {
		return
	}
	d.r.Allocations = append(d.r.Allocations, recording.Allocation{
		Thread: d.thread(key.Thread), Path: d.path(key.Path), Region: d.regions.path(key.Region),
		Attribution: attributions[bpf.ProbeAttribution(key.Attribution)],
		Count:       row.Count, Bytes: row.Bytes,
		Freed: row.Freed, FreedBytes: row.FreedBytes, FreedUnknown: row.FreedUnknown,
	})
}

// addAllocationRow adds up the rows of ended threads.
func addAllocationRow(to, from *bpf.ProbeAllocationRow) {
	to.Count += from.Count
	to.Bytes += from.Bytes
	to.Freed += from.Freed
	to.FreedBytes += from.FreedBytes
	to.FreedUnknown += from.FreedUnknown
	to.Done += from.Done
}
