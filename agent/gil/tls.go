package gil

import (
	"errors"
	"fmt"
)

const (
	// largestBlock bounds a module's thread-local block and the static area of a thread.
	largestBlock = 1 << 30
	// largestModule bounds module numbers; they are small and dense.
	largestModule = 1 << 16
	// staticArea bounds the distance from the thread pointer that counts as the static area.
	staticArea = 1 << 20
)

var errSlot = errors.New("a slot that holds neither an offset nor a module")

// place is where a thread-local variable lies: in the block of a module, or from the thread pointer
// when module is 0.
type place struct {
	module uint64
	offset int64
}

// locate reads what the dynamic linker put into the slot that an access uses; bias is the difference
// between the addresses in memory and at link time.
func (m *machine) locate(mem reader, bias uint64, a access) (place, error) {
	switch a.anchor {
	case fromThreadPointer:
		return place{offset: a.disp}, nil
	case fromGOT:
		slot, err := word(mem, bias+a.slot)
		if err != nil {
			return place{}, err
		}
		return m.static(slot, a.disp)
	case fromModule:
		return inModule(mem, bias+a.slot, a.disp)
	}
	descriptor, err := words(mem, bias+a.slot, 2) // a function and its argument:
	if err != nil {
		return place{}, err
	}
	if argument := descriptor[1]; !m.isOffset(argument) { // where to find module and offset,
		return inModule(mem, argument, a.disp)
	}
	return m.static(descriptor[1], a.disp) // or the offset itself
}

func (m *machine) static(offset uint64, disp int64) (place, error) {
	p := place{offset: int64(offset) + disp}
	if !m.holds(p.offset, largestBlock) {
		return place{}, fmt.Errorf("%w: %#x", errSlot, offset)
	}
	return p, nil
}

func inModule(mem reader, at uint64, disp int64) (place, error) {
	pair, err := words(mem, at, 2)
	if err != nil {
		return place{}, err
	}
	p := place{module: pair[0], offset: int64(pair[1]) + disp}
	if p.module == 0 || p.module > largestModule || p.offset < 0 || p.offset > largestBlock {
		return place{}, fmt.Errorf("%w: %#x, %#x", errSlot, pair[0], pair[1])
	}
	return p, nil
}

// fold turns a place in a module's block into one from the thread pointer, which the kernel side reads
// with one access instead of four. That holds for modules loaded at program start, whose blocks the C
// library lays out at one distance from every thread pointer. The given threads' own vectors tell: it
// is such a module if glibc notes nothing to free for the block and the distance is the same for all.
func (m *machine) fold(mem reader, p place, threadPointers []uint64) place {
	if p.module == 0 || len(threadPointers) == 0 {
		return p
	}
	var distance int64
	for i, tp := range threadPointers {
		d, ok := m.blockDistance(mem, tp, p.module)
		if !ok || i > 0 && d != distance {
			return p
		}
		distance = d
	}
	return place{offset: distance + p.offset}
}

// blockDistance returns how far from its thread pointer a thread's block of a module begins.
func (m *machine) blockDistance(mem reader, tp, module uint64) (int64, bool) {
	vector, err := word(mem, tp+m.vectorAt)
	if err != nil {
		return 0, false
	}
	size, err := word(mem, vector-16)
	if err != nil || module > size {
		return 0, false
	}
	entry, err := words(mem, vector+16*module, 2) // the block, and what to free with it
	if err != nil || entry[1] != 0 {
		return 0, false
	}
	distance := int64(entry[0] - tp)
	return distance, m.holds(distance, staticArea)
}
