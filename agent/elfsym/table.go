package elfsym

import (
	"bytes"
	"debug/elf"
	"fmt"
)

const (
	maxName      = 64 << 10  // bytes; C++ names of several kilobytes exist
	maxSymbols   = 8 << 20   // entries of one table
	maxNameBytes = 256 << 20 // bytes of names looked at in one listing
)

// stringTable is a range of the file that holds NUL-terminated strings.
type stringTable struct {
	r         *reader
	off, size uint64
}

// at returns the string that starts at i; it must end within limit bytes and within the table.
func (t stringTable) at(i uint64, limit int) (string, error) {
	if !t.r.holds(t.off, t.size) || i >= t.size {
		return "", badELF("string %#x lies outside its table", i)
	}
	rest := min(t.size-i, uint64(limit))
	var out []byte
	var chunk [128]byte // most names fit
	for pos := t.off + i; rest > 0; {
		b := chunk[:min(rest, uint64(len(chunk)))]
		if err := t.r.read(pos, b); err != nil {
			return "", err
		}
		if end := bytes.IndexByte(b, 0); end >= 0 {
			return string(append(out, b[:end]...)), nil
		}
		out = append(out, b...)
		pos, rest = pos+uint64(len(b)), rest-uint64(len(b))
	}
	return "", badELF("string %#x does not end within %d bytes", i, limit)
}

// equal reports whether the string that starts at i is s.
func (t stringTable) equal(i uint64, s string) (bool, error) {
	n := uint64(len(s)) + 1
	if i >= t.size || n > t.size-i {
		return false, nil
	}
	b := make([]byte, n)
	if err := t.r.read(t.off+i, b); err != nil {
		return false, err
	}
	return b[n-1] == 0 && string(b[:n-1]) == s, nil
}

// symbolTable is .dynsym or .symtab.
type symbolTable struct {
	r       *reader
	off     uint64
	count   uint64
	strings stringTable
}

func (t symbolTable) at(i uint64) (rawSymbol, error) {
	var b [rawSymbolSize]byte
	if err := t.r.read(t.off+i*rawSymbolSize, b[:]); err != nil {
		return rawSymbol{}, err
	}
	return decodeSymbol(b[:]), nil
}

// check returns an error unless the whole table lies in the file.
func (t symbolTable) check() error {
	if t.count > maxSymbols {
		return fmt.Errorf("%w: %d symbols", ErrTooLarge, t.count)
	}
	if !t.r.holds(t.off, t.count*rawSymbolSize) {
		return badELF("symbol table of %d entries lies outside the file", t.count)
	}
	return nil
}

// each calls visit for every entry, reading the table in large pieces.
func (t symbolTable) each(visit func(i uint64, s rawSymbol) error) error {
	if err := t.check(); err != nil {
		return err
	}
	const perChunk = 4096
	buf := make([]byte, min(t.count, perChunk)*rawSymbolSize)
	for i := uint64(0); i < t.count; {
		n := min(t.count-i, perChunk)
		b := buf[:n*rawSymbolSize]
		if err := t.r.read(t.off+i*rawSymbolSize, b); err != nil {
			return err
		}
		for ; len(b) > 0; b, i = b[rawSymbolSize:], i+1 {
			if err := visit(i, decodeSymbol(b)); err != nil {
				return err
			}
		}
	}
	return nil
}

// list returns the defined symbols whose names match; finish completes each of them.
func (f *File) list(t symbolTable, match func(string) bool, finish func(i uint64, s *Symbol)) ([]Symbol, error) {
	defer f.r.drop()
	var out []Symbol
	budget := maxNameBytes
	err := t.each(func(i uint64, raw rawSymbol) error {
		if !raw.defined() || raw.name == 0 {
			return nil
		}
		name, err := t.strings.at(uint64(raw.name), maxName)
		if err != nil {
			return fmt.Errorf("symbol %d: %w", i, err)
		}
		// Many symbols may share one long string, so the file's size does not bound this.
		if budget -= len(name) + 1; budget < 0 {
			return fmt.Errorf("%w: more than %d bytes of names", ErrTooLarge, maxNameBytes)
		}
		if match != nil && !match(name) {
			return nil
		}
		s := f.symbol(raw, name)
		if finish != nil {
			finish(i, &s)
		}
		out = append(out, s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// DynamicSymbols returns the symbols that the file defines and exports (.dynsym), in table
// order; every version of a versioned one. A nil match takes all.
func (f *File) DynamicSymbols(match func(name string) bool) ([]Symbol, error) {
	d, err := f.dynamic()
	if err != nil {
		return nil, err
	}
	if d == nil {
		return nil, nil
	}
	t, err := d.wholeTable()
	if err != nil {
		return nil, err
	}
	return f.list(t, match, f.setVersion)
}

// StaticSymbols returns the symbols that the file defines (.symtab), local ones too, in table
// order; none if the file is stripped. A nil match takes all. It returns [ErrTooLarge] if the
// table and its strings take more than maxBytes.
func (f *File) StaticSymbols(match func(name string) bool, maxBytes int64) ([]Symbol, error) {
	t, ok, err := f.staticTable()
	if err != nil || !ok {
		return nil, err
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	if total := t.count*rawSymbolSize + t.strings.size; maxBytes < 0 || total > uint64(maxBytes) {
		return nil, fmt.Errorf("%w: %d bytes, limit %d", ErrTooLarge, total, maxBytes)
	}
	return f.list(t, match, nil)
}

// HasStaticName reports whether .symtab's strings hold the name, as a whole or as the end of a
// longer one. It reads the strings in one pass without looking at the symbols: a cheap way to
// rule a file out before [File.StaticSymbols]. Tables above maxBytes yield [ErrTooLarge].
func (f *File) HasStaticName(name string, maxBytes int64) (bool, error) {
	t, ok, err := f.staticTable()
	if err != nil || !ok {
		return false, err
	}
	if maxBytes < 0 || t.strings.size > uint64(maxBytes) {
		return false, fmt.Errorf("%w: %d bytes of names, limit %d", ErrTooLarge, t.strings.size, maxBytes)
	}
	return t.strings.contain(name)
}

// contain searches the table for s followed by a NUL.
func (t stringTable) contain(s string) (bool, error) {
	if !t.r.holds(t.off, t.size) {
		return false, badELF("string table lies outside the file")
	}
	want := append([]byte(s), 0)
	const piece = 256 << 10
	buf := make([]byte, 0, piece+len(want))
	for pos := uint64(0); pos < t.size; {
		// The end of the last piece is kept, so that a match across the cut is found.
		keep := min(len(buf), len(want)-1)
		buf = append(buf[:0], buf[len(buf)-keep:]...)
		n := min(t.size-pos, piece)
		buf = buf[:uint64(keep)+n]
		if err := t.r.read(t.off+pos, buf[keep:]); err != nil {
			return false, err
		}
		if bytes.Contains(buf, want) {
			return true, nil
		}
		pos += n
	}
	return false, nil
}

func (f *File) staticTable() (t symbolTable, ok bool, err error) {
	return f.sectionTable(elf.SHT_SYMTAB)
}

// sectionTable finds a symbol table through the section headers.
func (f *File) sectionTable(typ elf.SectionType) (t symbolTable, ok bool, err error) {
	sections, err := f.sections()
	if err != nil {
		return t, false, err
	}
	for _, s := range sections {
		if s.Type != typ {
			continue
		}
		if uint64(s.Link) >= uint64(len(sections)) {
			return t, false, badELF("symbol table without strings")
		}
		str := sections[s.Link]
		return symbolTable{f.r, s.Offset, s.Size / rawSymbolSize, stringTable{f.r, str.Offset, str.Size}}, true, nil
	}
	return t, false, nil
}
