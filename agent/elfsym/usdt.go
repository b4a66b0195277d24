package elfsym

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// USDTProbe is one place in a file where a static probe (USDT, SystemTap's
// sys/sdt.h) stands. A probe that the compiler has copied stands in several.
type USDTProbe struct {
	Provider, Name string
	Vaddr          uint64 // of the nop
	Semaphore      uint64 // position in the file of the 16-bit counter of tracers, 0: none
	Arguments      string // as in the note, separated by spaces
}

const (
	usdtSection     = ".note.stapsdt"
	usdtBaseSection = ".stapsdt.base"
	usdtOwner       = "stapsdt"
	usdtType        = 3
)

// USDT returns the static probes of the file, in the order of its notes; none if
// it has none. Notes that make no sense are left out.
func (f *File) USDT() ([]USDTProbe, error) {
	notes, err := f.SectionNotes(usdtSection)
	if err != nil {
		return nil, fmt.Errorf("reading static probes: %w", err)
	}
	var probes []USDTProbe
	for _, n := range notes {
		if n.Owner != usdtOwner || n.Type != usdtType {
			continue
		}
		if p, ok := f.usdt(n.Desc); ok {
			probes = append(probes, p)
		}
	}
	return probes, nil
}

// usdt decodes a note: address, the base section's address when the note was
// made, the semaphore's address, then provider, name and arguments.
func (f *File) usdt(desc []byte) (USDTProbe, bool) {
	const addresses = 24
	if len(desc) < addresses {
		return USDTProbe{}, false
	}
	texts := bytes.SplitN(desc[addresses:], []byte{0}, 4)
	if len(texts) < 4 || len(texts[0]) == 0 || len(texts[1]) == 0 {
		return USDTProbe{}, false
	}
	u64 := binary.LittleEndian.Uint64
	vaddr, base, semaphore := u64(desc), u64(desc[8:]), u64(desc[16:])
	moved := uint64(0)
	if s, ok := f.Section(usdtBaseSection); ok && base != 0 {
		moved = s.Addr - base // by prelink, which does not know of the notes
	}
	p := USDTProbe{
		Provider: string(texts[0]), Name: string(texts[1]), Arguments: string(texts[2]), Vaddr: vaddr + moved,
	}
	if semaphore != 0 {
		offset, err := f.FileOffset(semaphore + moved)
		if err != nil {
			return USDTProbe{}, false
		}
		p.Semaphore = offset
	}
	return p, true
}

// USDTPlace returns the position in the file of a static probe's nop. Others
// than one-byte nops are refused: the kernel makes calls of the 5-byte ones, to a
// page that forked children do not have.
func (f *File) USDTPlace(p USDTProbe) (uint64, error) {
	var code [1]byte
	offset, err := f.FileOffset(p.Vaddr)
	if err == nil {
		err = f.ReadAtVaddr(p.Vaddr, code[:])
	}
	if err != nil {
		return 0, fmt.Errorf("reading the code at the probe %s:%s: %w", p.Provider, p.Name, err)
	}
	if f.machine == elf.EM_X86_64 && code[0] != 0x90 {
		return 0, fmt.Errorf("%w: the probe %s:%s stands on the byte %#02x, not on a one-byte nop", ErrNotProbeable, p.Provider, p.Name, code[0])
	}
	return offset, nil
}

// USDTOperand says where an argument of a static probe is found.
type USDTOperand struct {
	Size     int   // bytes; negative: signed
	Register int   // number in machine code; -1: a constant
	Memory   bool  // the argument lies where the register points to, plus Value
	Value    int64 // the constant, or the distance from the register
}

// ErrOperand: an argument of a static probe is written in a way that is not
// understood.
var ErrOperand = errors.New("unknown kind of argument")

// The forms of x86-64's operands: $5, %rsi, -104(%rbp), (%rax).
var (
	usdtSize     = regexp.MustCompile(`^(-?[1248])@(.+)$`)
	usdtConstant = regexp.MustCompile(`^\$(-?\d+)$`)
	usdtRegister = regexp.MustCompile(`^%(\w+)$`)
	usdtMemory   = regexp.MustCompile(`^(-?\d*)\(%(\w+)\)$`)
)

// registers64 are x86-64's registers by their numbers in machine code.
var registers64 = []string{
	"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
}

// registersNarrow are the names of their lower parts.
var registersNarrow = map[string]int{
	"eax": 0, "ax": 0, "al": 0, "ecx": 1, "cx": 1, "cl": 1, "edx": 2, "dx": 2, "dl": 2, "ebx": 3, "bx": 3, "bl": 3,
	"esp": 4, "sp": 4, "spl": 4, "ebp": 5, "bp": 5, "bpl": 5, "esi": 6, "si": 6, "sil": 6, "edi": 7, "di": 7, "dil": 7,
}

func registerNumber(name string) (int, bool) {
	for number, r := range registers64 {
		if name == r || number >= 8 && len(name) == len(r)+1 && strings.HasPrefix(name, r) && strings.ContainsAny(name[len(r):], "dwb") {
			return number, true
		}
	}
	number, ok := registersNarrow[name]
	return number, ok
}

// Operands decodes a static probe's arguments as x86-64's assembler writes them.
// Operands of other forms, such as those with two registers or relative to code,
// are ErrOperand.
func (p USDTProbe) Operands() ([]USDTOperand, error) {
	var operands []USDTOperand
	for _, text := range strings.Fields(p.Arguments) {
		o, err := parseOperand(text)
		if err != nil {
			return operands, err
		}
		operands = append(operands, o)
	}
	return operands, nil
}

func parseOperand(text string) (USDTOperand, error) {
	unknown := fmt.Errorf("%w: %q", ErrOperand, text)
	parts := usdtSize.FindStringSubmatch(text)
	if parts == nil {
		return USDTOperand{}, unknown
	}
	size, _ := strconv.Atoi(parts[1]) // the expression lets no others through
	o := USDTOperand{Size: size, Register: -1}
	number, register := "", ""
	if m := usdtConstant.FindStringSubmatch(parts[2]); m != nil {
		number = m[1]
	} else if m := usdtRegister.FindStringSubmatch(parts[2]); m != nil {
		register = m[1]
	} else if m := usdtMemory.FindStringSubmatch(parts[2]); m != nil {
		number, register, o.Memory = m[1], m[2], true
	} else {
		return USDTOperand{}, unknown
	}
	if register != "" {
		var ok bool
		if o.Register, ok = registerNumber(register); !ok {
			return USDTOperand{}, unknown
		}
	}
	if number != "" {
		var err error
		if o.Value, err = strconv.ParseInt(number, 10, 64); err != nil {
			return USDTOperand{}, unknown
		}
	}
	return o, nil
}
