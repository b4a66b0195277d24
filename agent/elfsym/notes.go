package elfsym

import (
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

const (
	maxNoteBytes = 1 << 20 // of one segment or section
	maxNotes     = 10000
	noteGNUBuild = 3 // NT_GNU_BUILD_ID
	maxBuildID   = 64
)

// Note is one entry of a note segment or section.
type Note struct {
	Owner string
	Type  uint32
	Desc  []byte
}

// Notes returns the notes in the file's PT_NOTE segments.
func (f *File) Notes() ([]Note, error) {
	var out []Note
	for _, s := range f.segs {
		if s.Type != elf.PT_NOTE {
			continue
		}
		notes, err := f.readNotes(s.Offset, s.Filesz, s.Align)
		if err != nil {
			return nil, err
		}
		if out = append(out, notes...); len(out) > maxNotes {
			return nil, badELF("more than %d notes", maxNotes)
		}
	}
	return out, nil
}

// SectionNotes returns the notes in the section of that name, such as ".note.stapsdt", which
// no segment needs to cover; none if there is no such section.
func (f *File) SectionNotes(name string) ([]Note, error) {
	s, ok := f.Section(name)
	if !ok || s.Type != elf.SHT_NOTE {
		return nil, nil
	}
	return f.readNotes(s.Offset, s.Size, s.Align)
}

func (f *File) readNotes(off, size, align uint64) ([]Note, error) {
	if size > maxNoteBytes {
		return nil, fmt.Errorf("%w: %d bytes of notes", ErrTooLarge, size)
	}
	b := make([]byte, size)
	if err := f.r.read(off, b); err != nil {
		return nil, err
	}
	if align != 8 {
		align = 4
	}
	return parseNotes(b, align)
}

func parseNotes(b []byte, align uint64) ([]Note, error) {
	const header = 12
	var out []Note
	up := func(n uint64) uint64 { return (n + align - 1) &^ (align - 1) }
	for len(b) >= header {
		le := binary.LittleEndian
		nameLen, descLen := uint64(le.Uint32(b)), uint64(le.Uint32(b[4:]))
		descAt := up(header + nameLen)
		end := descAt + descLen
		if end > uint64(len(b)) || len(out) == maxNotes {
			return nil, badELF("note %d lies outside its table", len(out))
		}
		name := b[header : header+nameLen]
		if n := len(name); n > 0 && name[n-1] == 0 {
			name = name[:n-1]
		}
		out = append(out, Note{string(name), le.Uint32(b[8:]), b[descAt:end:end]})
		b = b[min(up(end), uint64(len(b))):]
	}
	return out, nil
}

// BuildID returns the linker's build id in lower-case hex, "" if the file has none.
func (f *File) BuildID() string { return f.buildID() }

func (f *File) readBuildID() string {
	notes, _ := f.Notes()
	if id := findBuildID(notes); id != "" {
		return id
	}
	notes, _ = f.SectionNotes(".note.gnu.build-id")
	return findBuildID(notes)
}

func findBuildID(notes []Note) string {
	for _, n := range notes {
		if n.Owner == "GNU" && n.Type == noteGNUBuild && len(n.Desc) > 0 && len(n.Desc) <= maxBuildID {
			return hex.EncodeToString(n.Desc)
		}
	}
	return ""
}
