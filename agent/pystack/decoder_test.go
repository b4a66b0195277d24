package pystack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"stageprof/agent/gil"
)

// memory is a target's: pieces at their addresses; all else is unreadable.
type memory map[uint64][]byte

var errUnmapped = errors.New("unmapped")

func (m memory) ReadMemory(addr uint64, b []byte) error {
	for start, piece := range m {
		if addr >= start && addr-start <= uint64(len(piece)) && uint64(len(b)) <= uint64(len(piece))-(addr-start) {
			copy(b, piece[addr-start:])
			return nil
		}
	}
	return errUnmapped
}

func (m memory) put(addr, offset, value uint64, size int) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], value)
	copy(m[addr][offset:], b[:size])
}

const (
	codeAddr, nameAddr, fileAddr, linesAddr = 0x10000, 0x20000, 0x30000, 0x40000
	typeAddr                                = 0x50000
	nameHash                                = 0x1234567890
)

// text puts an ASCII string there.
func (m memory) text(l *TextLayout, addr uint64, text string) {
	m[addr] = make([]byte, 256)
	m.put(addr, l.Length, uint64(len(text)), 8)
	m.put(addr, l.Hash, nameHash, 8)
	m.put(addr, l.State, (1|8|16)<<l.Kind, 4)
	copy(m[addr][l.ASCII:], text)
}

// target has one code object, f in file.py, whose line 10 + n is instruction n.
func target(l *Layout) (memory, RawFrame) {
	m := memory{codeAddr: make([]byte, 512), linesAddr: make([]byte, 256)}
	m.text(&l.Text, nameAddr, "f")
	m.text(&l.Text, fileAddr, "file.py")
	table := []byte{0, 0}
	for range 20 {
		switch l.lines {
		case lnotab, ranges:
			table = append(table, instructionSize, 1)
		default:
			table = append(table, 0x80|locationNoColumn<<3, 2) // a svarint of 1
		}
	}
	if l.lines == locations {
		table = table[2:]
	}
	m.put(linesAddr, l.Bytes.Size, uint64(len(table)), 8)
	copy(m[linesAddr][l.Bytes.Data:], table)

	m.put(codeAddr, 0, 3, 8) // references
	m.put(codeAddr, l.Code.Type, typeAddr, 8)
	m.put(codeAddr, l.Code.FirstLine, 9, 4)
	m.put(codeAddr, l.Code.Filename, fileAddr, 8)
	m.put(codeAddr, l.Code.Name, nameAddr, 8)
	m.put(codeAddr, l.Code.Hashed, nameAddr, 8)
	m.put(codeAddr, l.Code.Lines, linesAddr, 8)
	if l.Code.Traceable != 0 {
		m.put(codeAddr, l.Code.Traceable, 1, 4)
	}
	raw := RawFrame{Identity: Identity{Code: codeAddr, Filename: fileAddr, Name: nameAddr, Lines: linesAddr, FirstLine: 9, Stamp: nameHash}}
	if l.Code.Version != 0 {
		m.put(codeAddr, l.Code.Version, 77, 4)
		raw.Stamp = 77
	}
	raw.Instruction = instruction(l, 5)
	return m, raw
}

func instruction(l *Layout, n uint64) uint64 {
	switch {
	case l.lines == lnotab:
		return n * instructionSize
	case l.lines == ranges:
		return n
	default:
		return codeAddr + l.Code.Bytecode + n*instructionSize
	}
}

// eachLayout runs a test for each version without a table of its own.
func eachLayout(t *testing.T, test func(t *testing.T, l *Layout)) {
	for minor, l := range layouts {
		l.CodeType = typeAddr
		t.Run(fmt.Sprintf("3.%d", minor), func(t *testing.T) { test(t, &l) })
	}
}

func TestFrame(t *testing.T) {
	eachLayout(t, func(t *testing.T, l *Layout) {
		m, raw := target(l)
		d := NewDecoder(m, *l)
		frame, ok, err := d.Frame(raw)
		if err != nil || !ok {
			t.Fatalf("ok %v, %v", ok, err)
		}
		want := 15
		if l.lines == lnotab {
			want = 14 // the first entry is of address 2
		}
		if frame.Code.Function != "f" || frame.Code.File != "file.py" || frame.Code.FirstLine != 9 || frame.Line != want {
			t.Errorf("%+v, line %d, want line %d", frame.Code, frame.Line, want)
		}
		if frame.Code.Trusted() != (l.Code.Version != 0) {
			t.Errorf("trusted at first sight: %v", frame.Code.Trusted())
		}
		d.NextRound()
		d.Confirm()
		if !frame.Code.Trusted() {
			t.Error("not trusted after it was found again")
		}
	})
}

// What became of the code object between the sample and its decoding.
func TestFrameOfAnotherCode(t *testing.T) {
	for name, change := range map[string]func(m memory, l *Layout){
		"freed":            func(m memory, l *Layout) { m.put(codeAddr, 0, 0, 8) },
		"freed, in a list": func(m memory, l *Layout) { m.put(codeAddr, 0, 0x7f0123456780, 8) },
		"another type":     func(m memory, l *Layout) { m.put(codeAddr, l.Code.Type, typeAddr+8, 8) },
		"another name":     func(m memory, l *Layout) { m.put(codeAddr, l.Code.Name, fileAddr, 8) },
		"another file":     func(m memory, l *Layout) { m.put(codeAddr, l.Code.Filename, nameAddr, 8) },
		"another table":    func(m memory, l *Layout) { m.put(codeAddr, l.Code.Lines, nameAddr, 8) },
		"another line":     func(m memory, l *Layout) { m.put(codeAddr, l.Code.FirstLine, 10, 4) },
		"another stamp": func(m memory, l *Layout) {
			if l.Code.Version != 0 {
				m.put(codeAddr, l.Code.Version, 78, 4)
			} else {
				m.put(nameAddr, l.Text.Hash, nameHash+1, 8)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachLayout(t, func(t *testing.T, l *Layout) {
				m, raw := target(l)
				change(m, l)
				if _, _, err := NewDecoder(m, *l).Frame(raw); !errors.Is(err, ErrGone) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// Behind one identity the contents change: nothing of it is trusted any more.
func TestFrameOfRemadeCode(t *testing.T) {
	eachLayout(t, func(t *testing.T, l *Layout) {
		if l.Code.Version != 0 {
			return
		}
		m, raw := target(l)
		d := NewDecoder(m, *l)
		frame, _, err := d.Frame(raw)
		if err != nil {
			t.Fatal(err)
		}
		d.NextRound()
		d.Confirm()
		m.text(&l.Text, fileAddr, "other.py")
		d.NextRound()
		d.NextRound()
		if _, _, err := d.Frame(raw); !errors.Is(err, ErrGone) || frame.Code.Trusted() {
			t.Errorf("got %v, trusted %v", err, frame.Code.Trusted())
		}
	})
}

// Two code objects at one address: neither is trusted.
func TestFrameOfSharedPlace(t *testing.T) {
	eachLayout(t, func(t *testing.T, l *Layout) {
		if l.Code.Version != 0 {
			return
		}
		m, raw := target(l)
		d := NewDecoder(m, *l)
		frame, _, err := d.Frame(raw)
		if err != nil {
			t.Fatal(err)
		}
		d.NextRound()
		d.Confirm()
		other := raw
		other.FirstLine = 100
		if _, _, err := d.Frame(other); !errors.Is(err, ErrGone) || frame.Code.Trusted() {
			t.Errorf("got %v, trusted %v", err, frame.Code.Trusted())
		}
	})
}

// Frames that Python does not show: their function is being set up.
func TestFrameBeforeItsFunction(t *testing.T) {
	eachLayout(t, func(t *testing.T, l *Layout) {
		m, raw := target(l)
		if l.Code.Traceable == 0 {
			raw.Instruction = 0xffffffff // has run no instruction
		} else {
			raw.Instruction = instruction(l, 0)
		}
		if _, ok, err := NewDecoder(m, *l).Frame(raw); ok || err != nil {
			t.Errorf("ok %v, %v", ok, err)
		}
	})
}

func TestText(t *testing.T) {
	l := layouts[12]
	l.CodeType = typeAddr
	for _, tc := range []struct {
		name, want string
		size       uint64 // bytes of a character
		ascii      bool
		length     uint64
		characters []byte
	}{
		{"ASCII", "run", 1, true, 3, []byte("run")},
		{"Latin", "größe", 1, false, 5, []byte("gr\xf6\xdfe")},
		{"two bytes", "文", 2, false, 1, []byte{0x87, 0x65}},
		{"four bytes", "🚀", 4, false, 1, []byte{0x80, 0xf6, 0x01, 0}},
		{"a byte that is no text", `caf\xe9`, 2, false, 4, []byte{'c', 0, 'a', 0, 'f', 0, 0xe9, 0xdc}},
		{"no character", `\ud800`, 2, false, 1, []byte{0, 0xd8}},
		{"beyond Unicode", `\u110000`, 4, false, 1, []byte{0, 0, 0x11, 0}},
		{"long", strings.Repeat("x", longestText) + "…", 1, true, longestText + 5, []byte(strings.Repeat("x", longestText+5))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := memory{nameAddr: make([]byte, 2048)}
			m.put(nameAddr, l.Text.Length, tc.length, 8)
			state, data := (tc.size|8)<<l.Text.Kind, l.Text.Wide
			if tc.ascii {
				state, data = (tc.size|8|16)<<l.Text.Kind, l.Text.ASCII
			}
			m.put(nameAddr, l.Text.State, state, 4)
			copy(m[nameAddr][data:], tc.characters)
			got, err := NewDecoder(m, l).text(nameAddr)
			if err != nil || got != tc.want {
				t.Errorf("got %q, want %q (%v)", got, tc.want, err)
			}
		})
	}
}

func TestTextOfOtherThings(t *testing.T) {
	l := layouts[12]
	for name, change := range map[string]func(m memory){
		"too long":       func(m memory) { m.put(nameAddr, l.Text.Length, 1<<40, 8) },
		"not compact":    func(m memory) { m.put(nameAddr, l.Text.State, 1<<l.Text.Kind, 4) },
		"size 3":         func(m memory) { m.put(nameAddr, l.Text.State, (3|8)<<l.Text.Kind, 4) },
		"wide ASCII":     func(m memory) { m.put(nameAddr, l.Text.State, (2|8|16)<<l.Text.Kind, 4) },
		"ends too early": func(m memory) { m.put(nameAddr, l.Text.Length, 1000, 8) },
		"unreadable":     func(m memory) { delete(m, nameAddr) },
	} {
		t.Run(name, func(t *testing.T) {
			m := memory{}
			m.text(&l.Text, nameAddr, "f")
			change(m)
			if got, err := NewDecoder(m, l).text(nameAddr); err == nil {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestFindSaysWhyNot(t *testing.T) {
	for _, tc := range []struct {
		plan gil.Plan
		want string
	}{
		{gil.Plan{Method: gil.None}, "no Python"},
		{gil.Plan{Method: gil.Unknown, Reason: "PyPy keeps it elsewhere"}, "PyPy keeps it elsewhere"},
		{gil.Plan{Method: gil.ThreadLocal, Version: "3.16.0"}, "layout of Python 3.16.0"},
		{gil.Plan{Method: gil.ThreadLocal, Version: "3.16.0", Runtime: 1}, "layout of Python 3.16.0"},
		{gil.Plan{Method: gil.ThreadLocal, Version: "3.13.0", Runtime: 1}, "unmapped"},
		{gil.Plan{Method: gil.ThreadLocal, Version: "three", Runtime: 1}, `version is "three"`},
	} {
		_, err := Find(memory{}, tc.plan)
		if !errors.Is(err, ErrLayout) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.plan, err, tc.want)
		}
	}
}

// bytesAt is memory of which any address holds something.
type bytesAt []byte

func (m bytesAt) ReadMemory(addr uint64, b []byte) error {
	if len(m) == 0 || addr%64 == 63 {
		return errUnmapped
	}
	for i := range b {
		b[i] = m[(addr+uint64(i))%uint64(len(m))]
	}
	return nil
}

func FuzzFrame(f *testing.F) {
	for minor, l := range layouts {
		m, raw := target(&l)
		f.Add(uint8(minor), m[codeAddr], raw.Code, raw.Name, raw.Lines, raw.Stamp, raw.FirstLine, raw.Instruction)
	}
	f.Fuzz(func(t *testing.T, minor uint8, content []byte, code, name, lines, stamp uint64, first uint32, at uint64) {
		d := NewDecoder(bytesAt(content), layouts[8+int(minor)%5])
		raw := RawFrame{Instruction: at, Identity: Identity{Code: code, Filename: name, Name: name, Lines: lines, Stamp: stamp, FirstLine: first}}
		for range 3 {
			frame, ok, err := d.Frame(raw)
			if ok && (err != nil || frame.Code == nil) {
				t.Errorf("a frame %+v with the error %v", frame, err)
			}
			d.NextRound()
			d.Confirm()
		}
	})
}

func FuzzFind(f *testing.F) {
	for minor := range debugPositionsOf {
		table := make([]byte, debugTableSize)
		binary.LittleEndian.PutUint64(table[debugVersion:], uint64(3<<24|minor<<16|0xf0))
		f.Add(table, minor)
	}
	f.Fuzz(func(t *testing.T, table []byte, minor int) {
		plan := gil.Plan{Method: gil.ThreadLocal, Version: fmt.Sprintf("3.%d.0", minor), Runtime: 64}
		l, err := Find(memory{64: table}, plan)
		if err != nil {
			return
		}
		from, to := l.CodeWords()
		if l.ThreadSize() > kernelRead || l.Frame.Size > kernelRead || from > to || to-from > kernelRead {
			t.Errorf("a layout that the kernel side can't read: %+v", l)
		}
	})
}

// Line tables go with the decoder's memory of the code objects, whoever holds
// those.
func TestForgottenTables(t *testing.T) {
	d := NewDecoder(memory{}, layouts[12])
	first := &Code{table: []byte{1}}
	d.remember(Identity{Code: 1}, first)
	for i := range uint64(mostCodes) {
		d.remember(Identity{Code: 2 + i}, &Code{table: []byte{1}})
	}
	if first.table != nil || len(d.codes) != 1 {
		t.Errorf("the table has %d bytes, %d code objects are remembered", len(first.table), len(d.codes))
	}
}
