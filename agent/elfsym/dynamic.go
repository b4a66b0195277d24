package elfsym

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math/bits"
)

const (
	maxDynamic  = 64 << 10 // bytes of the dynamic segment
	maxChain    = 1 << 16  // symbols looked at in one hash chain
	maxNeeded   = 4096
	maxVersions = 4096
)

// dynamic is what the dynamic segment says, with vaddrs translated to positions in the file.
// A position of 0 means that the entry is absent: the ELF header is there.
type dynamic struct {
	f       *File
	symbols symbolTable // count is 0: only a hash table or a section knows it
	gnuHash uint64
	hash    uint64
	versym  uint64
	verdef  uint64
	verdefs uint64
	needed  []uint64
	soname  uint64
}

// readDynamic returns nil if the file has no dynamic segment.
func (f *File) readDynamic() (*dynamic, error) {
	for _, s := range f.segs {
		if s.Type == elf.PT_DYNAMIC {
			return f.parseDynamic(s)
		}
	}
	return nil, nil
}

func (f *File) parseDynamic(s Segment) (*dynamic, error) {
	if s.Filesz > maxDynamic {
		return nil, badELF("dynamic segment of %d bytes", s.Filesz)
	}
	b := make([]byte, s.Filesz)
	if err := f.r.read(s.Offset, b); err != nil {
		return nil, err
	}
	d := &dynamic{f: f}
	d.symbols.r, d.symbols.strings.r = f.r, f.r
	positions := map[elf.DynTag]*uint64{
		elf.DT_SYMTAB:   &d.symbols.off,
		elf.DT_STRTAB:   &d.symbols.strings.off,
		elf.DT_GNU_HASH: &d.gnuHash,
		elf.DT_HASH:     &d.hash,
		elf.DT_VERSYM:   &d.versym,
		elf.DT_VERDEF:   &d.verdef,
	}
	for ; len(b) >= 16; b = b[16:] {
		tag, value := elf.DynTag(binary.LittleEndian.Uint64(b)), binary.LittleEndian.Uint64(b[8:])
		if tag == elf.DT_NULL {
			break
		}
		if p := positions[tag]; p != nil {
			off, err := f.FileOffset(value)
			if err != nil {
				return nil, badELF("%v: %v", tag, err)
			}
			*p = off
			continue
		}
		switch tag {
		case elf.DT_STRSZ:
			d.symbols.strings.size = value
		case elf.DT_VERDEFNUM:
			d.verdefs = min(value, maxVersions)
		case elf.DT_SONAME:
			d.soname = value
		case elf.DT_NEEDED:
			if len(d.needed) < maxNeeded {
				d.needed = append(d.needed, value)
			}
		case elf.DT_SYMENT:
			if value != rawSymbolSize {
				return nil, badELF("dynamic symbols of %d bytes", value)
			}
		}
	}
	if t := d.symbols.strings; !f.r.holds(t.off, t.size) {
		return nil, badELF("dynamic strings lie outside the file")
	}
	return d, nil
}

// Soname returns the name the library gives itself, "" if none.
func (f *File) Soname() string {
	d, err := f.dynamic()
	if err != nil || d == nil || d.soname == 0 {
		return ""
	}
	name, _ := d.symbols.strings.at(d.soname, maxName)
	return name
}

// Needed returns the names of the libraries that the file asks the loader for.
func (f *File) Needed() ([]string, error) {
	d, err := f.dynamic()
	if err != nil || d == nil {
		return nil, err
	}
	names := make([]string, 0, len(d.needed))
	for _, off := range d.needed {
		name, err := d.symbols.strings.at(off, maxName)
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// Lookup returns the exported symbol (.dynsym) of that name, its default version if there are
// several, or an error wrapping [ErrNoSymbol]. Imports are not definitions.
func (f *File) Lookup(name string) (Symbol, error) {
	all, err := f.LookupAll(name)
	if err != nil {
		return Symbol{}, err
	}
	for _, s := range all {
		if !s.Hidden {
			return s, nil
		}
	}
	return all[0], nil
}

// LookupAll returns every version of the exported symbol of that name, at least one, or an
// error wrapping [ErrNoSymbol]. It reads a few pages through the hash table.
func (f *File) LookupAll(name string) ([]Symbol, error) {
	d, err := f.dynamic()
	if err != nil {
		return nil, err
	}
	var out []Symbol
	if d != nil && d.symbols.off != 0 && name != "" {
		err = d.find(name, func(i uint64, raw rawSymbol) {
			s := f.symbol(raw, name)
			f.setVersion(i, &s)
			out = append(out, s)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("looking %q up: %w", name, err)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: %q", ErrNoSymbol, name)
	}
	return out, nil
}

// find calls found for each defined symbol of that name.
func (d *dynamic) find(name string, found func(i uint64, s rawSymbol)) error {
	switch {
	case d.gnuHash != 0:
		return d.findGNU(name, found)
	case d.hash != 0:
		return d.findSysV(name, found)
	}
	t, err := d.wholeTable()
	if err != nil {
		return err
	}
	return t.each(func(i uint64, _ rawSymbol) error { return d.visit(i, name, found) })
}

// visit calls found if symbol i is defined and has the name.
func (d *dynamic) visit(i uint64, name string, found func(i uint64, s rawSymbol)) error {
	s, err := d.symbols.at(i)
	if err != nil {
		return err
	}
	if !s.defined() {
		return nil
	}
	same, err := d.symbols.strings.equal(uint64(s.name), name)
	if same {
		found(i, s)
	}
	return err
}

// gnuTable is the header of a DT_GNU_HASH table and where its parts lie in the file.
type gnuTable struct {
	buckets, first, bloomWords, shift uint64
	bloomOff, bucketOff, chainOff     uint64
}

func (d *dynamic) gnuTable() (gnuTable, error) {
	var b [16]byte
	if err := d.f.r.read(d.gnuHash, b[:]); err != nil {
		return gnuTable{}, err
	}
	word := func(i int) uint64 { return uint64(binary.LittleEndian.Uint32(b[4*i:])) }
	t := gnuTable{buckets: word(0), first: word(1), bloomWords: word(2), shift: word(3)}
	t.bloomOff = d.gnuHash + 16
	t.bucketOff = t.bloomOff + 8*t.bloomWords // 32-bit counts: no overflow
	t.chainOff = t.bucketOff + 4*t.buckets
	if t.buckets == 0 || bits.OnesCount64(t.bloomWords) != 1 || !d.f.r.holds(d.gnuHash, t.chainOff-d.gnuHash) {
		return gnuTable{}, badELF("symbol hash table is impossible")
	}
	return t, nil
}

func (d *dynamic) findGNU(name string, found func(i uint64, s rawSymbol)) error {
	t, err := d.gnuTable()
	if err != nil {
		return err
	}
	h := uint64(gnuHash(name))
	bloom, err := d.f.r.u64(t.bloomOff + 8*(h/64&(t.bloomWords-1)))
	if err != nil {
		return err
	}
	if bloom>>(h%64)&(bloom>>(h>>(t.shift%64)%64))&1 == 0 {
		return nil
	}
	bucket, err := d.f.r.u32(t.bucketOff + 4*(h%t.buckets))
	if err != nil || bucket == 0 {
		return err
	}
	if uint64(bucket) < t.first {
		return badELF("hash bucket points below the hashed symbols")
	}
	for i, steps := uint64(bucket), 0; ; i, steps = i+1, steps+1 {
		if steps == maxChain {
			return badELF("hash chain does not end within %d symbols", maxChain)
		}
		link, err := d.f.r.u32(t.chainOff + 4*(i-t.first))
		if err != nil {
			return err
		}
		if uint64(link)|1 == h|1 {
			if err := d.visit(i, name, found); err != nil {
				return err
			}
		}
		if link&1 != 0 {
			return nil
		}
	}
}

func (d *dynamic) findSysV(name string, found func(i uint64, s rawSymbol)) error {
	var b [8]byte
	if err := d.f.r.read(d.hash, b[:]); err != nil {
		return err
	}
	buckets := uint64(binary.LittleEndian.Uint32(b[:]))
	chains := uint64(binary.LittleEndian.Uint32(b[4:]))
	if buckets == 0 {
		return badELF("symbol hash table without buckets")
	}
	bucketOff, chainOff := d.hash+8, d.hash+8+4*buckets
	i, err := d.f.r.u32(bucketOff + 4*(uint64(sysvHash(name))%buckets))
	for steps := 0; err == nil && i != 0; steps++ {
		if steps == maxChain || uint64(i) >= chains {
			return badELF("hash chain does not end")
		}
		if err := d.visit(uint64(i), name, found); err != nil {
			return err
		}
		i, err = d.f.r.u32(chainOff + 4*uint64(i))
	}
	return err
}

// wholeTable returns the dynamic symbols with their count, which only the hash tables or,
// failing them, the section headers tell.
func (d *dynamic) wholeTable() (symbolTable, error) {
	t := d.symbols
	if t.off == 0 {
		return symbolTable{r: d.f.r}, nil
	}
	var err error
	switch {
	case d.hash != 0:
		var n uint32
		n, err = d.f.r.u32(d.hash + 4)
		t.count = uint64(n)
	case d.gnuHash != 0:
		t.count, err = d.countGNU()
	default:
		var fromSection symbolTable
		fromSection, _, err = d.f.sectionTable(elf.SHT_DYNSYM)
		t.count = fromSection.count
	}
	if err != nil {
		return symbolTable{}, err
	}
	return t, t.check()
}

// countGNU finds the last hashed symbol: the end of the chain of the highest bucket.
func (d *dynamic) countGNU() (uint64, error) {
	t, err := d.gnuTable()
	if err != nil {
		return 0, err
	}
	last, err := d.maxBucket(t)
	if err != nil {
		return 0, err
	}
	if last == 0 {
		return t.first, nil
	}
	if last < t.first {
		return 0, badELF("hash bucket points below the hashed symbols")
	}
	for steps := 0; steps < maxChain; steps++ {
		link, err := d.f.r.u32(t.chainOff + 4*(last-t.first))
		if err != nil {
			return 0, err
		}
		last++
		if link&1 != 0 {
			return last, nil
		}
	}
	return 0, badELF("hash chain does not end within %d symbols", maxChain)
}

func (d *dynamic) maxBucket(t gnuTable) (uint64, error) {
	if t.buckets > maxSymbols {
		return 0, fmt.Errorf("%w: %d hash buckets", ErrTooLarge, t.buckets)
	}
	var highest uint32
	buf := make([]byte, min(4*t.buckets, 64<<10))
	for pos := uint64(0); pos < 4*t.buckets; {
		b := buf[:min(uint64(len(buf)), 4*t.buckets-pos)]
		if err := d.f.r.read(t.bucketOff+pos, b); err != nil {
			return 0, err
		}
		pos += uint64(len(b))
		for ; len(b) >= 4; b = b[4:] {
			highest = max(highest, binary.LittleEndian.Uint32(b))
		}
	}
	return uint64(highest), nil
}

func gnuHash(name string) uint32 {
	h := uint32(5381)
	for i := range len(name) {
		h = h*33 + uint32(name[i])
	}
	return h
}

func sysvHash(name string) uint32 {
	h := uint32(0)
	for i := range len(name) {
		h = h<<4 + uint32(name[i])
		h ^= h >> 24 & 0xf0
		h &= 0x0fffffff
	}
	return h
}

// setVersion fills in the version of dynamic symbol i. A file whose version tables can not be
// read still has usable symbols, so trouble leaves the symbol unversioned.
func (f *File) setVersion(i uint64, s *Symbol) {
	const hidden = 0x8000
	d, err := f.dynamic()
	if err != nil || d == nil || d.versym == 0 {
		return
	}
	v, err := f.r.u16(d.versym + 2*i)
	if err != nil {
		return
	}
	s.Hidden = v&hidden != 0
	names, _ := f.versions()
	s.Version = names[v&^hidden]
}

// readVersions returns the names of the versions that the file defines, by index. Index 1, the
// file itself, is not a version.
func (f *File) readVersions() (map[uint16]string, error) {
	d, err := f.dynamic()
	if err != nil || d == nil || d.verdef == 0 {
		return nil, err
	}
	names := make(map[uint16]string)
	pos := d.verdef
	for range d.verdefs {
		var b [20]byte
		if err := f.r.read(pos, b[:]); err != nil {
			return names, err
		}
		le := binary.LittleEndian
		index, aux, next := le.Uint16(b[4:]), le.Uint32(b[12:]), le.Uint32(b[16:])
		name, err := f.r.u32(pos + uint64(aux))
		if err != nil {
			return names, err
		}
		if index > 1 {
			if names[index], err = d.symbols.strings.at(uint64(name), maxName); err != nil {
				return names, err
			}
		}
		if next == 0 {
			break
		}
		pos += uint64(next)
	}
	return names, nil
}
