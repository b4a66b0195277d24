package elfsym

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
)

// Symbol is a defined symbol.
type Symbol struct {
	Name    string
	Version string // one that this file defines, such as GLIBC_2.14; "" if none
	Value   uint64 // vaddr; for Type STT_TLS the offset in the module's TLS block
	Size    uint64 // bytes; 0 if the file does not say
	Offset  uint64 // position in the file; 0 if it has no bytes there (.bss, TLS, absolute)
	Type    elf.SymType
	Func    bool // executable code that runs when the symbol is called
	Local   bool
	Weak    bool
	Hidden  bool // a version kept for old programs, not the default one
}

// Probeable returns nil if a probe on the symbol sees the function's calls, else the reason
// why it does not, wrapping [ErrNotProbeable].
func (s Symbol) Probeable() error {
	reason := ""
	switch {
	case s.Type == elf.STT_GNU_IFUNC:
		reason = "it is an indirect function: its code only chooses the function that runs"
	case s.Type == elf.STT_OBJECT || s.Type == elf.STT_COMMON || s.Type == elf.STT_TLS:
		reason = "it is data"
	case !s.Func || s.Offset == 0:
		reason = "it lies in no executable part of the file"
	default:
		return nil
	}
	return fmt.Errorf("%w: %q: %s", ErrNotProbeable, s.Name, reason)
}

// Alias is one position in the file and every symbol that names it, in the order given.
type Alias struct {
	Offset  uint64
	Symbols []Symbol
}

// Aliases groups symbols by their position in the file, in ascending order. A function with
// several names must be probed once, or its calls are counted once per name. Symbols without
// bytes in the file are left out.
func Aliases(symbols []Symbol) []Alias {
	sorted := slices.DeleteFunc(slices.Clone(symbols), func(s Symbol) bool { return s.Offset == 0 })
	slices.SortStableFunc(sorted, func(a, b Symbol) int { return cmp.Compare(a.Offset, b.Offset) })
	var out []Alias
	for _, s := range sorted {
		if n := len(out); n > 0 && out[n-1].Offset == s.Offset {
			out[n-1].Symbols = append(out[n-1].Symbols, s)
		} else {
			out = append(out, Alias{s.Offset, []Symbol{s}})
		}
	}
	return out
}

const rawSymbolSize = 24

// rawSymbol is one entry of a symbol table.
type rawSymbol struct {
	name  uint32
	info  uint8
	shndx uint16
	value uint64
	size  uint64
}

func decodeSymbol(b []byte) rawSymbol {
	le := binary.LittleEndian
	return rawSymbol{
		name:  le.Uint32(b),
		info:  b[4],
		shndx: le.Uint16(b[6:]),
		value: le.Uint64(b[8:]),
		size:  le.Uint64(b[16:]),
	}
}

func (s rawSymbol) typ() elf.SymType { return elf.ST_TYPE(s.info) }

// defined reports whether the symbol names something in this file, rather than something that
// it imports or a piece of bookkeeping.
func (s rawSymbol) defined() bool {
	if elf.SectionIndex(s.shndx) == elf.SHN_UNDEF {
		return false
	}
	switch s.typ() {
	case elf.STT_FUNC, elf.STT_OBJECT, elf.STT_NOTYPE, elf.STT_TLS, elf.STT_COMMON, elf.STT_GNU_IFUNC:
		return true
	}
	return false
}

// code reports whether the symbol may name instructions; hand-written functions often lack a type.
func (s rawSymbol) code() bool {
	return s.typ() == elf.STT_FUNC || s.typ() == elf.STT_NOTYPE
}

func (f *File) symbol(raw rawSymbol, name string) Symbol {
	s := Symbol{
		Name:  name,
		Value: raw.value,
		Size:  raw.size,
		Type:  raw.typ(),
		Local: elf.ST_BIND(raw.info) == elf.STB_LOCAL,
		Weak:  elf.ST_BIND(raw.info) == elf.STB_WEAK,
	}
	if s.Type == elf.STT_TLS || elf.SectionIndex(raw.shndx) == elf.SHN_ABS {
		return s
	}
	s.Func = raw.code() && f.executable(raw.value)
	if off, err := f.FileOffset(raw.value); err == nil {
		s.Offset = off
	}
	return s
}
