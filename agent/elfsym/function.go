package elfsym

import (
	"debug/elf"
	"fmt"
	"slices"
)

// maxCached bounds the answers that Function remembers.
const maxCached = 1 << 16

// function is the answer for one offset; name is "" if there is none.
type function struct {
	name  string
	start uint64 // vaddr
}

// candidate is the best symbol seen so far for one address.
type candidate struct {
	raw    rawSymbol
	table  symbolTable
	exists bool
}

// Function returns the function that a position in the file belongs to and the vaddr at which
// it starts: the nearest symbol at or below it in .dynsym or .symtab, if the position lies
// within that symbol's size or the size is unknown. The error wraps [ErrNoSymbol] if there is
// none. Answers are remembered; ask for many with [File.Functions].
func (f *File) Function(off uint64) (name string, start uint64, err error) {
	if err := f.Functions([]uint64{off}); err != nil {
		return "", 0, err
	}
	f.mu.Lock()
	fn := f.functions[off]
	f.mu.Unlock()
	if fn.name == "" {
		return "", 0, fmt.Errorf("%w: at offset %#x", ErrNoSymbol, off)
	}
	return fn.name, fn.start, nil
}

// Functions finds the functions of many offsets in one pass over the symbols and remembers
// them for [File.Function]. It holds no more than one piece of a table in memory.
func (f *File) Functions(offsets []uint64) error {
	addrs, unknown := f.unanswered(offsets)
	if len(unknown) == 0 {
		return nil
	}
	defer f.r.drop()
	best := make([]candidate, len(addrs))
	tables, err := f.tables()
	if err != nil {
		return err
	}
	for _, t := range tables {
		if err := t.each(func(_ uint64, raw rawSymbol) error {
			offer(addrs, best, candidate{raw, t, true})
			return nil
		}); err != nil {
			return err
		}
	}
	// Each slot holds the best start since the previous address; carry them upwards.
	for i := 1; i < len(best); i++ {
		if !best[i].exists {
			best[i] = best[i-1]
		}
	}
	return f.remember(unknown, addrs, best)
}

// unanswered returns the sorted vaddrs to look for and, by offset, the vaddr of each.
func (f *File) unanswered(offsets []uint64) (addrs []uint64, unknown map[uint64]uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	unknown = make(map[uint64]uint64)
	for _, off := range offsets {
		if _, ok := f.functions[off]; ok {
			continue
		}
		if v, err := f.Vaddr(off); err == nil {
			unknown[off] = v
			addrs = append(addrs, v)
		}
	}
	slices.Sort(addrs)
	return slices.Compact(addrs), unknown
}

// tables returns the symbol tables that the file has.
func (f *File) tables() ([]symbolTable, error) {
	var out []symbolTable
	d, err := f.dynamic()
	if err != nil {
		return nil, err
	}
	if d != nil {
		t, err := d.wholeTable()
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	t, ok, err := f.staticTable()
	if err != nil {
		return nil, err
	}
	if ok {
		out = append(out, t)
	}
	return out, nil
}

// offer puts a function symbol into the slot of the first address at or above its start.
func offer(addrs []uint64, best []candidate, c candidate) {
	if !namesCode(c.raw) {
		return
	}
	i, _ := slices.BinarySearch(addrs, c.raw.value)
	if i < len(addrs) && (!best[i].exists || better(c.raw, best[i].raw)) {
		best[i] = c
	}
}

// namesCode tells whether a symbol may be the name of a function. Local labels without type and
// size are not: on arm64 every change between code and data has one.
func namesCode(s rawSymbol) bool {
	if !s.defined() || s.name == 0 || elf.SectionIndex(s.shndx) == elf.SHN_ABS {
		return false
	}
	switch s.typ() {
	case elf.STT_FUNC, elf.STT_GNU_IFUNC:
		return true
	case elf.STT_NOTYPE:
		return s.size != 0 || elf.ST_BIND(s.info) != elf.STB_LOCAL
	}
	return false
}

// better orders symbols for one address: the nearer start, then a typed one, then a global
// one, then the larger.
func better(a, b rawSymbol) bool {
	if a.value != b.value {
		return a.value > b.value
	}
	if fa, fb := a.typ() != elf.STT_NOTYPE, b.typ() != elf.STT_NOTYPE; fa != fb {
		return fa
	}
	if la, lb := elf.ST_BIND(a.info) == elf.STB_LOCAL, elf.ST_BIND(b.info) == elf.STB_LOCAL; la != lb {
		return lb
	}
	return a.size > b.size
}

func (f *File) remember(unknown map[uint64]uint64, addrs []uint64, best []candidate) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.functions)+len(unknown) > maxCached {
		clear(f.functions)
	}
	for off, v := range unknown {
		i, _ := slices.BinarySearch(addrs, v)
		fn, err := f.answer(best[i], v)
		if err != nil {
			return err
		}
		f.functions[off] = fn
	}
	return nil
}

// answer turns the nearest symbol into a function if it reaches the address.
func (f *File) answer(c candidate, v uint64) (function, error) {
	if !c.exists || c.raw.size != 0 && v-c.raw.value >= c.raw.size || !f.executable(c.raw.value) {
		return function{}, nil
	}
	name, err := c.table.strings.at(uint64(c.raw.name), maxName)
	return function{name, c.raw.value}, err
}
