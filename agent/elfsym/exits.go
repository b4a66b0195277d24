package elfsym

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrNoBody is wrapped by the reasons why a function's exits can't be known.
var ErrNoBody = errors.New("the function's exits can't be found")

func noBody(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrNoBody, fmt.Sprintf(format, args...))
}

// ExitKind says when the instruction of an [Exit] leaves the function.
type ExitKind uint8

const (
	// Always: a return, or a jump to somewhere else.
	Always ExitKind = iota
	// If: a conditional jump to somewhere else, when its condition holds.
	If
	// ByRegister: a jump to where a register says, when that lies outside the function.
	ByRegister
)

// Exit is an instruction at which control can leave a function with its stack frame taken
// down: the stack pointer is what it was at the entry.
type Exit struct {
	Offset uint64 // position in the file
	Kind   ExitKind
	// Number is the condition code of If (the low four bits of its opcode), or the register
	// of ByRegister, as instructions encode it.
	Number uint8
	Class  Class
}

// Body is how a function is entered and left.
type Body struct {
	Entry Placement
	Exits []Exit // by offset; none if the function never returns
	Size  uint64 // bytes, from the entry on
	// ColdStart and ColdSize are where the compiler has put the parts of the function that
	// it takes for rarely run: the distance in bytes from the entry, and the length; 0 if it
	// has put none apart.
	ColdStart int64
	ColdSize  uint64
}

// part is a stretch of a function's code.
type part struct {
	vaddr, offset uint64
	code          []byte
}

func (p part) holds(vaddr uint64) bool { return vaddr-p.vaddr < uint64(len(p.code)) }

// Body finds a function's exits by decoding all of its code, including the part that the
// compiler may have split off (a symbol of the same name with ".cold" behind it, in cold). The
// error wraps [ErrNoBody] unless every instruction is understood: an exit that is missed would
// leave the function open.
func (f *File) Body(s Symbol, cold []Symbol, k Kernel) (Body, error) {
	if err := s.Probeable(); err != nil {
		return Body{}, err
	}
	if f.machine != elf.EM_X86_64 {
		return Body{}, noBody("%q: code of %v is not decoded", s.Name, f.machine)
	}
	hot, err := f.part(s)
	if err != nil {
		return Body{}, err
	}
	parts := []part{hot}
	for _, c := range cold {
		p, err := f.part(c)
		if err != nil {
			return Body{}, err
		}
		if jumpsTo(hot, p) {
			parts = append(parts, p)
		}
	}
	if len(parts) > 2 {
		return Body{}, noBody("%q: %d parts of it are split off", s.Name, len(parts)-1)
	}
	body := Body{Size: s.Size}
	if len(parts) == 2 {
		body.ColdStart, body.ColdSize = int64(parts[1].vaddr-hot.vaddr), uint64(len(parts[1].code))
	}
	exits, err := exitsX86(parts)
	if err == nil {
		exits, err = f.settleTables(exits, parts)
	}
	if err == nil {
		err = f.checkTargets(exits)
	}
	if err != nil {
		return Body{}, fmt.Errorf("%q: %w", s.Name, err)
	}
	for _, e := range exits {
		body.Exits = append(body.Exits, e.Exit)
	}
	body.Entry, err = entryApart(placeX86(hot.code, k), s, hot, body.Exits)
	return body, err
}

// exit is an [Exit] with where it leads, 0 if the code does not say.
type exit struct {
	Exit
	target uint64
	table  bool // the target is a table of where it may lead
	down   bool // a jump, not a conditional one, with the stack as at the entry
}

// settleTables drops the jumps through tables of the function's own, and refuses others.
func (f *File) settleTables(exits []exit, parts []part) ([]exit, error) {
	var settled []exit
	for _, e := range exits {
		switch {
		case !e.table:
			settled = append(settled, e)
		case !f.isOwnTable(e.target, parts):
			return nil, noBody("a jump by the table at %#x may go to other functions", e.target)
		}
	}
	return settled, nil
}

// isOwnTable tells whether a table is one of places within the function: its first entry is, and
// not the function's beginning, which a table of functions could hold.
func (f *File) isOwnTable(vaddr uint64, parts []part) bool {
	var b [8]byte
	if f.ReadAtVaddr(vaddr, b[:]) != nil {
		return false
	}
	first := binary.LittleEndian.Uint64(b[:])
	return first != parts[0].vaddr && slices.ContainsFunc(parts, func(p part) bool { return p.holds(first) })
}

// checkTargets refuses jumps to where no function begins, unless they are made with the stack
// frame taken down, and not on a condition. Compilers make such jumps to the rarely run part of a function, whose symbol has
// been stripped then: what that does is not known.
func (f *File) checkTargets(exits []exit) error {
	var offsets []uint64
	for _, e := range exits {
		if e.target == 0 || e.down || f.inLinkageTable(e.target) {
			continue
		}
		offset, err := f.FileOffset(e.target)
		if err != nil {
			return noBody("a jump goes to %#x: %v", e.target, err)
		}
		offsets = append(offsets, offset)
	}
	if err := f.Functions(offsets); err != nil { // in one pass over the symbols
		return err
	}
	for _, offset := range offsets {
		vaddr, err := f.Vaddr(offset)
		if err != nil {
			return err
		}
		if _, start, err := f.Function(offset); err != nil || start != vaddr {
			return noBody("part of it lies apart at %#x, and the file has no symbol for that", vaddr)
		}
	}
	return nil
}

// inLinkageTable tells whether the vaddr is in a table of jumps to other files' functions.
func (f *File) inLinkageTable(vaddr uint64) bool {
	sections, _ := f.sections()
	return slices.ContainsFunc(sections, func(s Section) bool {
		return strings.HasPrefix(s.Name, ".plt") && vaddr-s.Addr < s.Size
	})
}

// IsCold tells whether a symbol names the split-off part of the function that is called name.
func IsCold(symbol, name string) bool {
	return strings.HasPrefix(symbol, name) && strings.HasPrefix(symbol[len(name):], ".cold")
}

func (f *File) part(s Symbol) (part, error) {
	switch {
	case s.Size == 0:
		return part{}, noBody("%q: the file does not say how long it is", s.Name)
	case s.Size > maxBody:
		return part{}, noBody("%q: %d bytes are too many", s.Name, s.Size)
	}
	p := part{vaddr: s.Value, offset: s.Offset, code: make([]byte, s.Size)}
	if err := f.ReadAtVaddr(s.Value, p.code); err != nil {
		return part{}, fmt.Errorf("reading %q: %w", s.Name, err)
	}
	return p, nil
}

// entryApart keeps the probe on the entry away from those on the exits: of two on one
// instruction, either may come first.
func entryApart(entry Placement, s Symbol, hot part, exits []Exit) (Placement, error) {
	isExit := func(skip uint64) bool {
		return slices.ContainsFunc(exits, func(e Exit) bool { return e.Offset == s.Offset+skip })
	}
	if isExit(entry.Skip) {
		entry = Placement{Skip: uint64(behindNop5(hot.code)), Class: Stepped}
	}
	if isExit(entry.Skip) {
		return Placement{}, noBody("%q: its first instruction leaves it", s.Name)
	}
	return entry, nil
}
