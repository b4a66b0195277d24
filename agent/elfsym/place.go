package elfsym

import (
	"debug/elf"
	"fmt"
	"slices"
)

// Class says how the kernel executes the instruction under a probe.
type Class uint8

const (
	// Stepped instructions are executed out of line with a single-step trap, which costs
	// several times as much as everything else about a probe.
	Stepped Class = iota
	// Nop is emulated.
	Nop
	// Push of a register is emulated.
	Push
	// Jump is a relative jmp, jcc or call and is emulated; on arm64 also a branch to a register and
	// the address of a place nearby.
	Jump
)

func (c Class) String() string {
	switch c {
	case Stepped:
		return "stepped"
	case Nop:
		return "nop"
	case Push:
		return "push"
	case Jump:
		return "jump"
	}
	return fmt.Sprintf("class %d", uint8(c))
}

// Placement is where to put a probe so that it sees a function's calls: at entry + Skip.
type Placement struct {
	Skip  uint64 // bytes
	Class Class
}

// Kernel is what placement needs to know about the running kernel.
type Kernel struct {
	// LongNops: the usual nops of three to eight bytes are emulated. Older kernels emulate
	// only those of one and two bytes and single-step the others.
	LongNops bool
}

const (
	maxSkip     = 64      // bytes; the window in which a site is searched
	maxBody     = 1 << 20 // bytes of a function that are searched for jumps back
	unknownBody = 64      // bytes looked at when the size of the function is unknown
)

// Place chooses the site for a probe on the function whose code is given from its entry to
// its end (or as much as is known to belong to it).
//
// The site is the first instruction that the kernel emulates, provided that everything there
// is as it was at the entry: the stack pointer, the frame pointer, the six integer argument
// registers, the return address at [rsp] and the caller's stack above it; that control always
// gets there; and that no jump inside the function lands between the entry and the site, so
// the probe is hit once per call. Otherwise the site is the entry.
//
// Code of machines other than x86-64 is probed at the entry.
func Place(m elf.Machine, code []byte, k Kernel) Placement {
	switch m {
	case elf.EM_X86_64:
		return placeX86(code, k)
	case elf.EM_AARCH64:
		return Placement{Class: classARM64(code)}
	}
	return Placement{}
}

// Probeable is [Symbol.Probeable] and also looks at the function's code, where that can forbid a probe.
func (f *File) Probeable(s Symbol) error {
	if err := s.Probeable(); err != nil || f.machine != elf.EM_AARCH64 {
		return err
	}
	first := make([]byte, 4)
	if err := f.ReadAtVaddr(s.Value, first); err != nil {
		return fmt.Errorf("reading the first instruction of %q: %w", s.Name, err)
	}
	if loadsLiteral(first) {
		return fmt.Errorf("%w: %q: it begins with a load relative to the program counter", ErrNotProbeable, s.Name)
	}
	return nil
}

// Place chooses the site for a probe on a function of this file; see the function [Place].
func (f *File) Place(s Symbol, k Kernel) (Placement, error) {
	if err := f.Probeable(s); err != nil {
		return Placement{}, err
	}
	size := s.Size
	if size == 0 {
		size = unknownBody
	}
	seg := f.loaded(func(g *Segment) bool { return s.Value >= g.Vaddr && s.Value-g.Vaddr < g.Filesz })
	if seg == nil {
		return Placement{}, fmt.Errorf("placing a probe on %q: %w", s.Name, ErrNoBytes)
	}
	size = min(size, maxBody, seg.Filesz-(s.Value-seg.Vaddr))
	if s.Offset < f.r.size {
		size = min(size, f.r.size-s.Offset)
	}
	code := make([]byte, size)
	if err := f.r.read(s.Offset, code); err != nil {
		return Placement{}, fmt.Errorf("placing a probe on %q: %w", s.Name, err)
	}
	return Place(f.machine, code, k), nil
}

// PlaceAll places probes on several functions of this file, in the order given, so that they
// do not disturb each other: where code falls from one function's entry into another's, the
// site must not reach the second entry, since calls of that would then be counted as calls of
// the first.
func (f *File) PlaceAll(symbols []Symbol, k Kernel) ([]Placement, error) {
	entries := make([]uint64, len(symbols))
	for i, s := range symbols {
		entries[i] = s.Offset
	}
	slices.Sort(entries)
	out := make([]Placement, len(symbols))
	for i, s := range symbols {
		p, err := f.Place(s, k)
		if err != nil {
			return nil, err
		}
		next, _ := slices.BinarySearch(entries, s.Offset+1)
		if p.Skip > 0 && next < len(entries) && entries[next] <= s.Offset+p.Skip {
			p = Placement{Class: Stepped}
		}
		out[i] = p
	}
	return out, nil
}
