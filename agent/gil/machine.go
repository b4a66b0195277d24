package gil

import (
	"debug/elf"
	"math"
)

// machine is what differs between processors: their code, and how glibc keeps threads on them.
type machine struct {
	decode decoder
	// above says that thread-local variables lie above the thread pointer, behind threadHead bytes; if
	// not, they end there.
	above bool
	// vectorAt is where the pointer to the thread's vector of TLS blocks is, from the thread pointer.
	vectorAt uint64
	// selfIsPointer says that pthread_self returns the thread pointer. If not, its code tells.
	selfIsPointer bool
	mutexSize     uint64 // of pthread_mutex_t
}

// threadHead is how many bytes at the thread pointer are the C library's where variables follow.
const threadHead = 16

// largestSelf bounds how far below the thread pointer pthread_self's result may be: it is the size of
// glibc's description of a thread, of some 1800 bytes.
const largestSelf = 1 << 16

var machines = map[elf.Machine]*machine{
	elf.EM_X86_64:  {decode: decodeX86, vectorAt: 8, selfIsPointer: true, mutexSize: mutexSizeX86},
	elf.EM_AARCH64: {decode: decodeAArch64, above: true, mutexSize: 48},
}

// machineOf returns what is known of a processor, which may be nothing.
func machineOf(processor elf.Machine) *machine {
	if m, ok := machines[processor]; ok {
		return m
	}
	return &machine{}
}

func (m *machine) known() bool { return m.decode != nil }

// holds reports whether a variable may lie at an offset from the thread pointer, in an area of this
// size.
func (m *machine) holds(offset, area int64) bool {
	if m.above {
		return offset >= threadHead && offset <= area
	}
	return offset < 0 && offset >= -area
}

// isOffset tells the argument of a TLS descriptor that is an offset from the thread pointer from one
// that is a pointer. No program has its heap as low as the static area is large.
func (m *machine) isOffset(argument uint64) bool {
	if m.above {
		return m.holds(int64(argument), staticArea)
	}
	return int64(argument) < 0
}

// isThreadPointer reports whether tp looks like one.
func (m *machine) isThreadPointer(mem reader, tp uint64) bool {
	first, err := word(mem, tp)
	if err != nil || m.selfIsPointer {
		return err == nil && first == tp // since code reads the thread pointer as fs:0
	}
	// The vector of TLS blocks: its length stands before it, and its first entry counts the libraries
	// that were loaded.
	vector, err := words(mem, first-16, 3)
	return err == nil && vector[0] > 0 && vector[0] <= largestModule && vector[2] <= math.MaxUint32
}

// mutexSizeX86 is pthread_mutex_t's size in layouts. Other processors have locks of another length, and
// what lies behind the lock elsewhere.
const (
	conditionSize = 48
	mutexSizeX86  = 40
)

func (m *machine) lockWordsEnd() uint64 { return lockWordsStart + 2*(conditionSize+m.mutexSize) }

// layout returns that of a version that does not describe itself.
func (m *machine) layout(minor int) (layout, bool) {
	l, ok := layouts[minor]
	if !m.known() {
		return layout{}, false
	}
	if l.current > l.lock {
		l.current += 2 * (m.mutexSize - mutexSizeX86)
	}
	return l, ok
}
