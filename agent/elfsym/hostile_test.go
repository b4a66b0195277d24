package elfsym

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"testing"
)

// field is a place in the ELF header or in the first entry of a table.
type field struct{ off, size uint64 }

var (
	phoff     = field{32, 8}
	shoff     = field{40, 8}
	phentsize = field{54, 2}
	phnum     = field{56, 2}
	shnum     = field{60, 2}
	shstrndx  = field{62, 2}
)

func (f field) put(b []byte, v uint64) {
	var le [8]byte
	binary.LittleEndian.PutUint64(le[:], v)
	copy(b[f.off:f.off+f.size], le[:])
}

// segmentField returns a field of the first segment of a type; off is its position in the header.
func segmentField(t *testing.T, b []byte, typ elf.ProgType, off uint64) field {
	t.Helper()
	start := binary.LittleEndian.Uint64(b[32:])
	for i := range uint64(binary.LittleEndian.Uint16(b[56:])) {
		if at := start + i*segmentSize; elf.ProgType(binary.LittleEndian.Uint32(b[at:])) == typ {
			return field{at + off, 8}
		}
	}
	t.Fatalf("no segment of type %v", typ)
	return field{}
}

// dynamicField returns the value of an entry of the dynamic segment.
func dynamicField(t *testing.T, b []byte, tag elf.DynTag) field {
	t.Helper()
	at := binary.LittleEndian.Uint64(b[segmentField(t, b, elf.PT_DYNAMIC, 8).off:])
	for ; elf.DynTag(binary.LittleEndian.Uint64(b[at:])) != tag; at += 16 {
		if binary.LittleEndian.Uint64(b[at:]) == 0 {
			t.Fatalf("no %v", tag)
		}
	}
	return field{at + 8, 8}
}

// table returns the position of what an entry of the dynamic segment points at.
func table(t *testing.T, b []byte, tag elf.DynTag) uint64 {
	t.Helper()
	f, err := openBytes(b)
	if err != nil {
		t.Fatal(err)
	}
	field := dynamicField(t, b, tag)
	off, err := f.FileOffset(binary.LittleEndian.Uint64(b[field.off:]))
	if err != nil {
		t.Fatal(err)
	}
	return off
}

// sectionField returns a field of the first section of a type.
func sectionField(t *testing.T, b []byte, typ elf.SectionType, off uint64) field {
	t.Helper()
	at := binary.LittleEndian.Uint64(b[40:])
	for elf.SectionType(binary.LittleEndian.Uint32(b[at+4:])) != typ {
		at += sectionSize
	}
	return field{at + off, 8}
}

// Every one of these files claims something impossible. What is asked must fail with the right
// error, quickly and without a large allocation.
func TestHostileFiles(t *testing.T) {
	gnu, err := os.ReadFile(buildZoo(t, "-Wl,--hash-style=gnu"))
	if err != nil {
		t.Fatal(err)
	}
	sysv, err := os.ReadFile(buildZoo(t, "-Wl,--hash-style=sysv"))
	if err != nil {
		t.Fatal(err)
	}
	openIt := func(*File) error { return nil } // the error comes from Open
	lookup := func(f *File) error { _, err := f.Lookup("typed"); return err }
	list := func(f *File) error { _, err := f.DynamicSymbols(nil); return err }
	static := func(f *File) error { _, err := f.StaticSymbols(nil, math.MaxInt64); return err }
	name := func(f *File) error { _, err := f.HasStaticName("typed", math.MaxInt64); return err }
	sections := func(f *File) error { _, err := f.Sections(); return err }
	notes := func(f *File) error { _, err := f.Notes(); return err }

	for _, tc := range []struct {
		name   string
		file   []byte
		damage func(t *testing.T, b []byte)
		ask    func(*File) error
		want   error
	}{
		{"segments behind the end", gnu, func(t *testing.T, b []byte) { phoff.put(b, math.MaxUint64-8) }, openIt, ErrBadELF},
		{"65535 segments", gnu, func(t *testing.T, b []byte) { phnum.put(b, 0xffff) }, openIt, ErrBadELF},
		{"segments of another size", gnu, func(t *testing.T, b []byte) { phentsize.put(b, 32) }, openIt, ErrBadELF},
		{"segment beyond the address space", gnu, func(t *testing.T, b []byte) {
			segmentField(t, b, elf.PT_LOAD, 16).put(b, math.MaxUint64-1)
		}, openIt, ErrBadELF},
		{"segment beyond all offsets", gnu, func(t *testing.T, b []byte) {
			segmentField(t, b, elf.PT_LOAD, 8).put(b, math.MaxUint64-1)
		}, openIt, ErrBadELF},
		{"segment with more bytes than memory", gnu, func(t *testing.T, b []byte) {
			segmentField(t, b, elf.PT_LOAD, 32).put(b, math.MaxUint64/2)
		}, openIt, ErrBadELF},

		{"sections behind the end", gnu, func(t *testing.T, b []byte) { shoff.put(b, math.MaxUint64-8) }, sections, ErrBadELF},
		{"65279 sections", gnu, func(t *testing.T, b []byte) { shnum.put(b, 0xfeff) }, sections, ErrBadELF},
		{"2^63 sections", gnu, func(t *testing.T, b []byte) {
			shnum.put(b, 0)
			sectionField(t, b, elf.SHT_NULL, 32).put(b, 1<<63)
		}, sections, ErrBadELF},
		{"names of sections in no section", gnu, func(t *testing.T, b []byte) { shstrndx.put(b, 0xfefe) }, sections, nil},

		{"dynamic segment behind the end", gnu, func(t *testing.T, b []byte) {
			segmentField(t, b, elf.PT_DYNAMIC, 8).put(b, 1<<40)
		}, lookup, ErrBadELF},
		{"dynamic segment of 2^60 bytes", gnu, func(t *testing.T, b []byte) {
			segmentField(t, b, elf.PT_DYNAMIC, 32).put(b, 1<<60)
		}, lookup, ErrBadELF},
		{"symbols at no address", gnu, func(t *testing.T, b []byte) {
			dynamicField(t, b, elf.DT_SYMTAB).put(b, 1<<50)
		}, lookup, ErrBadELF},
		{"symbols of another size", gnu, func(t *testing.T, b []byte) {
			dynamicField(t, b, elf.DT_SYMENT).put(b, 8)
		}, lookup, ErrBadELF},
		{"2^60 bytes of strings", gnu, func(t *testing.T, b []byte) {
			dynamicField(t, b, elf.DT_STRSZ).put(b, 1<<60)
		}, lookup, ErrBadELF},
		{"one byte of strings", gnu, func(t *testing.T, b []byte) {
			dynamicField(t, b, elf.DT_STRSZ).put(b, 1)
		}, lookup, ErrNoSymbol},
		{"one byte of strings, listed", gnu, func(t *testing.T, b []byte) {
			dynamicField(t, b, elf.DT_STRSZ).put(b, 1)
		}, list, ErrBadELF},

		{"no hash buckets", gnu, func(t *testing.T, b []byte) { field{table(t, b, elf.DT_GNU_HASH), 4}.put(b, 0) }, lookup, ErrBadELF},
		{"2^32 hash buckets", gnu, func(t *testing.T, b []byte) {
			field{table(t, b, elf.DT_GNU_HASH), 4}.put(b, math.MaxUint32)
		}, lookup, ErrBadELF},
		{"2^32 hash buckets, listed", gnu, func(t *testing.T, b []byte) {
			field{table(t, b, elf.DT_GNU_HASH), 4}.put(b, math.MaxUint32)
		}, list, ErrBadELF},
		{"no Bloom words", gnu, func(t *testing.T, b []byte) {
			field{table(t, b, elf.DT_GNU_HASH) + 8, 4}.put(b, 0)
		}, lookup, ErrBadELF},
		{"three Bloom words", gnu, func(t *testing.T, b []byte) {
			field{table(t, b, elf.DT_GNU_HASH) + 8, 4}.put(b, 3)
		}, lookup, ErrBadELF},
		{"hashed symbols from 2^32 on", gnu, func(t *testing.T, b []byte) {
			field{table(t, b, elf.DT_GNU_HASH) + 4, 4}.put(b, math.MaxUint32)
		}, lookup, ErrBadELF},
		{"hash chains without end", gnu, func(t *testing.T, b []byte) {
			at := table(t, b, elf.DT_GNU_HASH)
			le := binary.LittleEndian
			buckets, words := le.Uint32(b[at:]), le.Uint32(b[at+8:])
			chains := at + 16 + 8*uint64(words) + 4*uint64(buckets)
			for i := chains; i < table(t, b, elf.DT_SYMTAB); i += 4 {
				b[i] &^= 1
			}
		}, list, nil}, // the end is found in whatever follows, or not: no particular error
		{"cyclic hash chain", sysv, func(t *testing.T, b []byte) {
			at := table(t, b, elf.DT_HASH)
			buckets, chains := binary.LittleEndian.Uint32(b[at:]), binary.LittleEndian.Uint32(b[at+4:])
			for i := range uint64(buckets) {
				field{at + 8 + 4*i, 4}.put(b, 1)
			}
			for i := range uint64(chains) {
				field{at + 8 + 4*(uint64(buckets)+i), 4}.put(b, i+1)
			}
			field{at + 8 + 4*(uint64(buckets)+uint64(chains)-1), 4}.put(b, 1)
		}, func(f *File) error { _, err := f.Lookup("absent"); return err }, ErrBadELF},
		{"no hash buckets (SysV)", sysv, func(t *testing.T, b []byte) { field{table(t, b, elf.DT_HASH), 4}.put(b, 0) }, lookup, ErrBadELF},
		{"2^32 symbols", sysv, func(t *testing.T, b []byte) {
			field{table(t, b, elf.DT_HASH) + 4, 4}.put(b, math.MaxUint32)
		}, list, ErrTooLarge},
		{"8 million symbols", sysv, func(t *testing.T, b []byte) {
			field{table(t, b, elf.DT_HASH) + 4, 4}.put(b, 8_000_000)
		}, list, ErrBadELF},

		{"static symbols of 2^60 bytes", gnu, func(t *testing.T, b []byte) {
			sectionField(t, b, elf.SHT_SYMTAB, 32).put(b, 1<<60)
		}, static, ErrTooLarge},
		{"static symbols behind the end", gnu, func(t *testing.T, b []byte) {
			sectionField(t, b, elf.SHT_SYMTAB, 24).put(b, math.MaxUint64-100)
		}, static, ErrBadELF},
		{"static symbols without strings", gnu, func(t *testing.T, b []byte) {
			field{sectionField(t, b, elf.SHT_SYMTAB, 40).off, 4}.put(b, math.MaxUint32)
		}, static, ErrBadELF},
		{"static strings behind the end", gnu, func(t *testing.T, b []byte) {
			sectionField(t, b, elf.SHT_STRTAB, 24).put(b, math.MaxUint64-100)
			for at := sectionField(t, b, elf.SHT_STRTAB, 0).off + sectionSize; at+sectionSize <= uint64(len(b)); at += sectionSize {
				field{at + 24, 8}.put(b, math.MaxUint64-100)
			}
		}, name, ErrBadELF},

		{"2^60 bytes of notes", gnu, func(t *testing.T, b []byte) {
			segmentField(t, b, elf.PT_NOTE, 32).put(b, 1<<60)
		}, notes, ErrTooLarge},
		{"note with a name of 2^32 bytes", gnu, func(t *testing.T, b []byte) {
			at := binary.LittleEndian.Uint64(b[segmentField(t, b, elf.PT_NOTE, 8).off:])
			field{at, 4}.put(b, math.MaxUint32)
		}, notes, ErrBadELF},
		{"note with a content of 2^32 bytes", gnu, func(t *testing.T, b []byte) {
			at := binary.LittleEndian.Uint64(b[segmentField(t, b, elf.PT_NOTE, 8).off:])
			field{at + 4, 4}.put(b, math.MaxUint32)
		}, notes, ErrBadELF},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := slices.Clone(tc.file)
			tc.damage(t, b)
			var err error
			allocated := allocations(func() {
				var f *File
				if f, err = openBytes(b); err == nil {
					err = tc.ask(f)
				}
			})
			if tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
			if allocated > 4<<20 {
				t.Errorf("allocated %d bytes for a file of %d", allocated, len(b))
			}
		})
	}
}

// allocations returns the bytes that run allocates.
func allocations(run func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestNotELF(t *testing.T) {
	zoo, err := os.ReadFile(buildZoo(t))
	if err != nil {
		t.Fatal(err)
	}
	change := func(at int, v byte) []byte {
		b := slices.Clone(zoo)
		b[at] = v
		return b
	}
	for name, b := range map[string][]byte{
		"empty":         {},
		"header cut":    zoo[:63],
		"script":        append([]byte("#!/bin/sh\n"), make([]byte, 100)...),
		"32 bits":       change(elf.EI_CLASS, byte(elf.ELFCLASS32)),
		"big endian":    change(elf.EI_DATA, byte(elf.ELFDATA2MSB)),
		"another magic": change(1, 'e'),
	} {
		if _, err := openBytes(b); !errors.Is(err, ErrNotELF) {
			t.Errorf("%s: %v, want ErrNotELF", name, err)
		}
	}
}

// A file may shrink while it is read.
func TestShrunkFile(t *testing.T) {
	b, err := os.ReadFile(buildZoo(t))
	if err != nil {
		t.Fatal(err)
	}
	f, err := Open(bytes.NewReader(b[:len(b)/8]), int64(len(b)))
	if err == nil {
		_, err = f.StaticSymbols(nil, math.MaxInt64)
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v, want %v", err, io.ErrUnexpectedEOF)
	}
}

// Many symbols that share one long name make a small file with gigabytes of names.
func TestSharedLongNames(t *testing.T) {
	const symbols, name = 40_000, 60_000
	b := sharedNames(symbols, name)
	f, err := openBytes(b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.StaticSymbols(func(string) bool { return false }, 1<<30); !errors.Is(err, ErrTooLarge) {
		t.Errorf("error %v, want ErrTooLarge", err)
	}
}

// sharedNames makes a file with nothing but sections: nothing, .symtab, its strings.
func sharedNames(symbols, name int) []byte {
	const symtabAt = headerSize + 3*sectionSize
	strtabAt := symtabAt + symbols*rawSymbolSize
	b := make([]byte, strtabAt+name+2)
	copy(b, elf.ELFMAG)
	b[elf.EI_CLASS], b[elf.EI_DATA] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)
	le := binary.LittleEndian
	le.PutUint64(b[40:], headerSize)
	le.PutUint16(b[58:], sectionSize)
	le.PutUint16(b[60:], 3)
	section := func(i int, typ elf.SectionType, off, size, link int) {
		s := b[headerSize+i*sectionSize:]
		le.PutUint32(s[4:], uint32(typ))
		le.PutUint64(s[24:], uint64(off))
		le.PutUint64(s[32:], uint64(size))
		le.PutUint32(s[40:], uint32(link))
	}
	section(1, elf.SHT_SYMTAB, symtabAt, symbols*rawSymbolSize, 2)
	section(2, elf.SHT_STRTAB, strtabAt, name+2, 0)
	for i := range symbols {
		s := b[symtabAt+i*rawSymbolSize:]
		le.PutUint32(s, 1)
		s[4] = byte(elf.STT_FUNC)
		le.PutUint16(s[6:], 1)
	}
	for i := range name {
		b[strtabAt+1+i] = 'x'
	}
	return b
}

// askEverything calls every method that reads the file.
func askEverything(f *File) {
	f.Sections()
	f.Section(".text")
	f.BuildID()
	f.Soname()
	f.Needed()
	f.Notes()
	f.SectionNotes(".note.stapsdt")
	f.HasStaticName("typed", 1<<20)
	names := []string{"typed", "absent", "versioned"}
	all, _ := f.DynamicSymbols(nil)
	local, _ := f.StaticSymbols(nil, 1<<20)
	for _, s := range append(all, local...) {
		if len(names) < 100 {
			names = append(names, s.Name)
		}
		f.Place(s, Kernel{})
		f.Function(s.Offset)
	}
	Aliases(all)
	f.PlaceAll(slices.DeleteFunc(all, func(s Symbol) bool { return s.Probeable() != nil }), Kernel{})
	for _, name := range names {
		f.LookupAll(name)
	}
	f.Bias(0x7f0000000000, 0)
	f.ReadAtVaddr(0x1000, make([]byte, 64))
}

func FuzzOpenELF(f *testing.F) {
	for _, flags := range hashStyles {
		b, err := os.ReadFile(buildZoo(f, append(slices.Clone(flags), "-Wl,-z,noseparate-code", "-Wl,-z,max-page-size=0x1000")...))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add(sharedNames(4, 8))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := openBytes(b)
		if err != nil {
			return
		}
		askEverything(e)
		checkTranslation(t, e)
	})
}

// checkTranslation fails unless the two directions of address translation agree.
func checkTranslation(t *testing.T, e *File) {
	t.Helper()
	for _, s := range e.Segments() {
		if s.Type != elf.PT_LOAD || s.Filesz == 0 {
			continue
		}
		off, err := e.FileOffset(s.Vaddr)
		if err != nil {
			t.Fatalf("FileOffset(%#x) of a loaded address: %v", s.Vaddr, err)
		}
		if _, err := e.Vaddr(off); err != nil {
			t.Fatalf("Vaddr(%#x) of a loaded position: %v", off, err)
		}
	}
}

// Segments that overlap, in the file and in memory: each address has one place,
// and each place one address.
func TestOverlappingSegments(t *testing.T) {
	b, err := os.ReadFile(buildZoo(t))
	if err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	var loads []uint64 // positions of the headers
	for i := range uint64(le.Uint16(b[56:])) {
		if at := le.Uint64(b[32:]) + i*segmentSize; elf.ProgType(le.Uint32(b[at:])) == elf.PT_LOAD {
			loads = append(loads, at)
		}
	}
	if len(loads) < 2 {
		t.Fatalf("%d segments", len(loads))
	}
	const offset, vaddr, size = 8, 16, 32
	for _, fields := range [][]uint64{{offset}, {vaddr}, {offset, vaddr}, {vaddr, size}, {offset, vaddr, size}} {
		c := slices.Clone(b)
		for _, at := range loads[1:] { // all begin where the first one does
			for _, f := range fields {
				copy(c[at+f:at+f+8], c[loads[0]+f:])
			}
		}
		f, err := openBytes(c)
		if err != nil {
			if !errors.Is(err, ErrBadELF) {
				t.Errorf("fields %v: %v", fields, err)
			}
			continue
		}
		askEverything(f)
		checkTranslation(t, f)
	}
}

// Notes are bytes of the target's file.
func FuzzNotes(f *testing.F) {
	f.Add([]byte("\x04\x00\x00\x00\x04\x00\x00\x00\x03\x00\x00\x00GNU\x00\x01\x02\x03\x04"), false)
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\x03\x00\x00\x00"), true)
	f.Add([]byte{}, true)
	f.Fuzz(func(t *testing.T, b []byte, wide bool) {
		align := uint64(4)
		if wide {
			align = 8
		}
		notes, err := parseNotes(b, align)
		if err != nil && !errors.Is(err, ErrBadELF) {
			t.Errorf("error %v", err)
		}
		total := 0
		for _, n := range notes {
			total += len(n.Owner) + len(n.Desc)
		}
		if total > len(b) || len(notes) > maxNotes {
			t.Errorf("%d notes with %d bytes of %d", len(notes), total, len(b))
		}
		findBuildID(notes)
	})
}
