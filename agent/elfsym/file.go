package elfsym

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"sync"
)

const (
	headerSize  = 64
	segmentSize = 56
	sectionSize = 64
	maxSegments = 4096
	maxSections = 1 << 16
	maxSectName = 256
)

// File is an ELF file. Its methods may be called from several goroutines. It does not own the
// reader it was opened with.
type File struct {
	r       *reader
	machine elf.Machine
	typ     elf.Type
	segs    []Segment
	shoff   uint64
	shnum   uint64
	shstr   uint64

	sections func() ([]Section, error)
	dynamic  func() (*dynamic, error)
	versions func() (map[uint16]string, error)
	buildID  func() string

	mu        sync.Mutex
	functions map[uint64]function // answers of Function, by offset
}

// Segment is a program header.
type Segment struct {
	Type   elf.ProgType
	Flags  elf.ProgFlag
	Offset uint64 // position in the file
	Vaddr  uint64
	Filesz uint64 // bytes
	Memsz  uint64 // bytes
	Align  uint64 // bytes
}

// Section is a section header.
type Section struct {
	Name   string // cut at 255 bytes; "" if unreadable
	Type   elf.SectionType
	Flags  elf.SectionFlag
	Addr   uint64 // vaddr
	Offset uint64 // position in the file
	Size   uint64 // bytes
	Link   uint32
	Align  uint64
}

// Open reads the header and the segments of an ELF file of the given size in bytes. Everything
// else is read when it is asked for. It returns an error wrapping [ErrNotELF] or [ErrBadELF],
// or the reader's own.
func Open(r io.ReaderAt, size int64) (*File, error) {
	if size < headerSize {
		return nil, fmt.Errorf("%w: %d bytes long", ErrNotELF, size)
	}
	f := &File{r: newReader(r, uint64(size)), functions: make(map[uint64]function)}
	var h [headerSize]byte
	if err := f.r.read(0, h[:]); err != nil {
		return nil, err
	}
	if string(h[:4]) != elf.ELFMAG || elf.Class(h[elf.EI_CLASS]) != elf.ELFCLASS64 ||
		elf.Data(h[elf.EI_DATA]) != elf.ELFDATA2LSB {
		return nil, ErrNotELF
	}
	le := binary.LittleEndian
	f.typ = elf.Type(le.Uint16(h[16:]))
	f.machine = elf.Machine(le.Uint16(h[18:]))
	f.shoff = le.Uint64(h[40:])
	f.shnum = uint64(le.Uint16(h[60:]))
	f.shstr = uint64(le.Uint16(h[62:]))
	if entry := le.Uint16(h[58:]); entry != sectionSize {
		f.shoff = 0 // no section table that we could read
	}
	phnum := uint64(le.Uint16(h[56:]))
	if entry := le.Uint16(h[54:]); phnum > 0 && entry != segmentSize {
		return nil, badELF("program headers of %d bytes", entry)
	}
	if err := f.readSegments(le.Uint64(h[32:]), phnum); err != nil {
		return nil, err
	}
	f.sections = sync.OnceValues(f.readSections)
	f.dynamic = sync.OnceValues(f.readDynamic)
	f.versions = sync.OnceValues(f.readVersions)
	f.buildID = sync.OnceValue(f.readBuildID)
	return f, nil
}

func (f *File) readSegments(off, n uint64) error {
	if n > maxSegments {
		return badELF("%d program headers", n)
	}
	table := make([]byte, n*segmentSize)
	if err := f.r.read(off, table); err != nil {
		return err
	}
	le := binary.LittleEndian
	for b := table; len(b) > 0; b = b[segmentSize:] {
		s := Segment{
			Type:   elf.ProgType(le.Uint32(b)),
			Flags:  elf.ProgFlag(le.Uint32(b[4:])),
			Offset: le.Uint64(b[8:]),
			Vaddr:  le.Uint64(b[16:]),
			Filesz: le.Uint64(b[32:]),
			Memsz:  le.Uint64(b[40:]),
			Align:  le.Uint64(b[48:]),
		}
		if s.Type == elf.PT_LOAD && (s.Filesz > s.Memsz || s.Vaddr > math.MaxUint64-s.Memsz ||
			s.Offset > math.MaxUint64-s.Filesz) {
			return badELF("load segment at %#x is impossible", s.Vaddr)
		}
		f.segs = append(f.segs, s)
	}
	return nil
}

func (f *File) readSections() ([]Section, error) {
	if f.shoff == 0 {
		return nil, nil
	}
	n, str := f.shnum, f.shstr
	if n == 0 || str == uint64(elf.SHN_XINDEX) {
		// Large counts are kept in the first, otherwise unused entry.
		var b [sectionSize]byte
		if err := f.r.read(f.shoff, b[:]); err != nil {
			return nil, err
		}
		first := decodeSection(b[:])
		if n == 0 {
			n = first.Size
		}
		if str == uint64(elf.SHN_XINDEX) {
			str = uint64(first.Link)
		}
	}
	if n > maxSections {
		return nil, badELF("%d sections", n)
	}
	table := make([]byte, min(n*sectionSize, f.r.size))
	if err := f.r.read(f.shoff, table); err != nil {
		return nil, err
	}
	sections := make([]Section, 0, n)
	nameOffsets := make([]uint32, 0, n)
	for b := table; len(b) >= sectionSize; b = b[sectionSize:] {
		sections = append(sections, decodeSection(b))
		nameOffsets = append(nameOffsets, binary.LittleEndian.Uint32(b))
	}
	if str < uint64(len(sections)) && sections[str].Type != elf.SHT_NOBITS {
		names := stringTable{f.r, sections[str].Offset, sections[str].Size}
		for i := range sections {
			// A nameless section is still usable by its type.
			sections[i].Name, _ = names.at(uint64(nameOffsets[i]), maxSectName)
		}
	}
	return sections, nil
}

func decodeSection(b []byte) Section {
	le := binary.LittleEndian
	return Section{
		Type:   elf.SectionType(le.Uint32(b[4:])),
		Flags:  elf.SectionFlag(le.Uint64(b[8:])),
		Addr:   le.Uint64(b[16:]),
		Offset: le.Uint64(b[24:]),
		Size:   le.Uint64(b[32:]),
		Link:   le.Uint32(b[40:]),
		Align:  le.Uint64(b[48:]),
	}
}

// Machine returns the instruction set, such as [elf.EM_X86_64].
func (f *File) Machine() elf.Machine { return f.machine }

// Type returns the kind of file: [elf.ET_EXEC], [elf.ET_DYN], …
func (f *File) Type() elf.Type { return f.typ }

// Size returns the file's size in bytes.
func (f *File) Size() int64 { return int64(f.r.size) }

// Segments returns the program headers. The caller must not change them.
func (f *File) Segments() []Segment { return f.segs }

// Sections returns the section headers, none if the file was stripped of them.
// The caller must not change them.
func (f *File) Sections() ([]Section, error) { return f.sections() }

// Section returns the first section of that name; ok is false if there is none.
func (f *File) Section(name string) (s Section, ok bool) {
	sections, _ := f.sections()
	for _, s := range sections {
		if s.Name == name {
			return s, true
		}
	}
	return Section{}, false
}

// FileOffset translates a vaddr into the position in the file that is loaded there. Where
// segments overlap, the executable one wins, since that is where probes go. It returns
// [ErrNoBytes] for addresses with no bytes in the file, such as those in .bss.
func (f *File) FileOffset(vaddr uint64) (uint64, error) {
	s := f.loaded(func(s *Segment) bool { return vaddr-s.Vaddr < s.Filesz && vaddr >= s.Vaddr })
	if s == nil {
		return 0, fmt.Errorf("vaddr %#x: %w", vaddr, ErrNoBytes)
	}
	return vaddr - s.Vaddr + s.Offset, nil
}

// Vaddr translates a position in the file into the vaddr at which it is loaded, the
// executable one if it is loaded more than once. It returns [ErrNoBytes] if it is not loaded.
func (f *File) Vaddr(off uint64) (uint64, error) {
	s := f.loaded(func(s *Segment) bool { return off-s.Offset < s.Filesz && off >= s.Offset })
	if s == nil {
		return 0, fmt.Errorf("offset %#x: %w", off, ErrNoBytes)
	}
	return off - s.Offset + s.Vaddr, nil
}

// loaded returns the load segment that satisfies in, preferring executable ones.
func (f *File) loaded(in func(*Segment) bool) *Segment {
	var found *Segment
	for i := range f.segs {
		s := &f.segs[i]
		if s.Type != elf.PT_LOAD || !in(s) {
			continue
		}
		if s.Flags&elf.PF_X != 0 {
			return s
		}
		if found == nil {
			found = s
		}
	}
	return found
}

// Bias returns what the loader added to every vaddr, given one mapping of this file: the
// address it starts at and its offset in the file. ok is false if no load segment explains
// such a mapping. Address in the target = vaddr + bias, also for .bss.
func (f *File) Bias(start, offset uint64) (bias uint64, ok bool) {
	const page = 4096 // the smallest; larger pages keep the congruence that is used here
	for _, s := range f.segs {
		if s.Type != elf.PT_LOAD || s.Filesz == 0 {
			continue
		}
		first := s.Offset &^ (page - 1)
		if offset >= first && offset < s.Offset+s.Filesz {
			return start - (s.Vaddr - s.Offset + offset), true
		}
	}
	return 0, false
}

// ReadAtVaddr fills b with what the file holds for the vaddr; it returns [ErrNoBytes] unless
// all of it lies in one segment.
func (f *File) ReadAtVaddr(vaddr uint64, b []byte) error {
	n := uint64(len(b))
	s := f.loaded(func(s *Segment) bool {
		return vaddr >= s.Vaddr && vaddr-s.Vaddr <= s.Filesz && n <= s.Filesz-(vaddr-s.Vaddr)
	})
	if s == nil {
		return fmt.Errorf("%d bytes at vaddr %#x: %w", n, vaddr, ErrNoBytes)
	}
	return f.r.read(vaddr-s.Vaddr+s.Offset, b)
}

// ReadAt reads from the file itself; it implements [io.ReaderAt].
func (f *File) ReadAt(b []byte, off int64) (int, error) {
	return f.r.r.ReadAt(b, off)
}

// executable reports whether the vaddr lies in an executable load segment.
func (f *File) executable(vaddr uint64) bool {
	s := f.loaded(func(s *Segment) bool { return vaddr >= s.Vaddr && vaddr-s.Vaddr < s.Filesz })
	return s != nil && s.Flags&elf.PF_X != 0
}
