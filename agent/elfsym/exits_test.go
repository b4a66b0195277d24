package elfsym

import (
	"debug/elf"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// exitAt is an exit of a function whose code begins at 0x1000.
func exitAt(at uint64, kind ExitKind, number uint8, class Class, target uint64) exit {
	return exit{Exit: Exit{Offset: at, Kind: kind, Number: number, Class: class}, target: target}
}

// tailCallAt is one to where the code goes with its stack frame taken down.
func tailCallAt(at uint64, class Class, target uint64) exit {
	e := exitAt(at, Always, 0, class, target)
	e.down = true
	return e
}

func TestExits(t *testing.T) {
	const entry = 0x1000
	for _, tc := range []struct {
		name, code string
		want       []exit
	}{
		{"return", "55 5d c3", []exit{exitAt(2, Always, 0, Stepped, 0)}},
		{"returns of all kinds", "55 c3 f3 c3 c2 08 00 f2 c3", []exit{
			exitAt(1, Always, 0, Stepped, 0), exitAt(2, Always, 0, Stepped, 0),
			exitAt(4, Always, 0, Stepped, 0), exitAt(7, Always, 0, Stepped, 0)}},
		{"never", "55 0f 0b", nil},
		{"ends with a call", "55 e8 00 00 00 00", nil},
		{"jump away", "55 5d e9 f9 0f 00 00", []exit{tailCallAt(2, Jump, 0x2000)}},
		{"jump away with a prefix", "55 5d f2 e9 f8 0f 00 00", []exit{tailCallAt(2, Stepped, 0x2000)}},
		{"short jump away", "55 5d eb 10", []exit{tailCallAt(2, Jump, 0x1014)}},
		{"jump inside", "55 eb 01 90 5d c3", []exit{exitAt(5, Always, 0, Stepped, 0)}},
		{"jump inside, back", "55 90 eb fd", nil},
		{"conditional jumps away", "55 74 40 0f 8f 00 01 00 00 5d c3", []exit{
			exitAt(1, If, 4, Jump, 0x1043), exitAt(3, If, 0xf, Jump, 0x1109), exitAt(10, Always, 0, Stepped, 0)}},
		{"conditional jump inside", "55 74 01 90 c3", []exit{exitAt(4, Always, 0, Stepped, 0)}},
		{"jump through a slot", "55 5d ff 25 00 10 00 00", []exit{exitAt(2, Always, 0, Stepped, 0)}},
		{"jump through an object", "55 5d ff 60 10", []exit{exitAt(2, Always, 0, Stepped, 0)}},
		{"jump away with the frame standing", "55 e9 fa 0f 00 00", []exit{exitAt(1, Always, 0, Jump, 0x2000)}},
		{"jump away after taking arguments off", "55 6a 01 e8 00 00 00 00 48 83 c4 08 e9 ef 0f 00 00",
			[]exit{exitAt(12, Always, 0, Jump, 0x2000)}},
		{"jump away with no frame", "85 ff 75 05 e9 f7 0f 00 00 e9 f2 0f 00 00",
			[]exit{tailCallAt(4, Jump, 0x2000), tailCallAt(9, Jump, 0x2000)}},
		{"jump away behind another end", "55 74 02 5d c3 5d e9 f5 0f 00 00",
			[]exit{exitAt(4, Always, 0, Stepped, 0), tailCallAt(6, Jump, 0x2000)}},
		{"jump through a table", "55 5d ff 24 c5 00 20 00 00",
			[]exit{{Exit: Exit{Offset: 2}, target: 0x2000, table: true}}},
		{"jump through a table, not tracked", "55 5d 3e ff 24 c2", nil},
		{"jump to a register", "55 5d ff e0", []exit{exitAt(2, ByRegister, 0, Stepped, 0)}},
		{"jump to a high register", "55 5d 41 ff e3", []exit{exitAt(2, ByRegister, 11, Stepped, 0)}},
		{"jump to a register, not tracked", "55 5d 3e ff e0", nil},
		// movslq (%rdx,%rdi,4),%rax; add %rdx,%rax; jmp *%rax
		{"switch", "55 48 63 04 ba 48 01 d0 ff e0", nil},
		{"switch, the sum in the other register", "55 48 63 04 ba 48 01 c2 ff e2", nil},
		{"no switch: the register is loaded again", "55 48 63 04 ba 48 01 d0 48 89 f8 ff e0",
			[]exit{exitAt(11, ByRegister, 0, Stepped, 0)}},
		{"vector instructions", "55 c5 f8 77 c5 fc 58 44 24 08 c4 e3 7d 06 c1 31 62 f1 7c 48 58 c1 5d c3",
			[]exit{exitAt(23, Always, 0, Stepped, 0)}},
		{"padding behind", "55 5d c3 66 90 0f 1f 00", []exit{exitAt(2, Always, 0, Stepped, 0)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := exitsX86([]part{{vaddr: entry, code: code(t, tc.code)}})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(exit{})); diff != "" {
				t.Errorf("exits (-want +got):\n%s", diff)
			}
		})
	}
}

// The part that is split off belongs to the function: jumps between the two are
// no exits, and it has exits of its own.
func TestExitsOfTwoParts(t *testing.T) {
	hot := part{vaddr: 0x1000, offset: 0x1000, code: code(t, "55 0f 84 fa 0e 00 00 5d c3")} // je 0x1f01
	cold := part{vaddr: 0x1f00, offset: 0x1f00, code: code(t, "90 e9 01 f1 ff ff")}         // jmp 0x1007
	if !jumpsTo(hot, cold) || jumpsTo(cold, cold) {
		t.Error("who jumps where is told wrong")
	}
	got, err := exitsX86([]part{hot, cold})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]exit{exitAt(0x1008, Always, 0, Stepped, 0)}, got, cmp.AllowUnexported(exit{})); diff != "" {
		t.Errorf("exits (-want +got):\n%s", diff)
	}
}

func TestExitsRefused(t *testing.T) {
	for _, tc := range []struct{ name, code, reason string }{
		{"no instruction", "55 06 5d c3", "not understood"},
		{"cut", "55 5d 48", "not understood"},
		{"cut vector instruction", "55 c5 fc", "not understood"},
		{"unknown vector instruction", "55 c4 e5 7d 06 c1 31 c3", "not understood"},
		{"into an instruction", "55 eb 01 b8 01 02 03 04 c3", "middle"},
		{"loop to the entry", "ff cf 75 fc c3", "back to its first"},
		{"runs on", "55 5d", "runs on"},
		{"runs on over padding", "55 5d 90 90", "runs on"},
		{"runs on behind a condition", "55 74 40", "runs on"},
		{"far return", "55 5d cb", "unusual"},
		{"short loop", "55 e2 fe c3", "unusual"},
		{"jump through a table at a register", "55 5d ff 24 c2", "by a table"},
		{"16-bit jump", "55 66 e9 00 00 00 00 c3", "unusual"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := exitsX86([]part{{vaddr: 0x1000, code: code(t, tc.code)}})
			if !errors.Is(err, ErrNoBody) || !strings.Contains(err.Error(), tc.reason) {
				t.Errorf("exits %v, error %v; want one with %q", got, err, tc.reason)
			}
		})
	}
}

// Every function of the C library that is not refused has its exits where
// returns and jumps are.
func TestBodiesOfRealFile(t *testing.T) {
	f := openFile(t, libc(t))
	symbols, err := f.DynamicSymbols(nil)
	if err != nil {
		t.Fatal(err)
	}
	understood, of := 0, 0
	for _, s := range symbols {
		if s.Type != elf.STT_FUNC || s.Size == 0 || s.Probeable() != nil {
			continue
		}
		of++
		if body, err := f.Body(s, nil, newKernel); err == nil {
			understood++
			expectExitCode(t, f, s, body)
		}
	}
	if 10*understood < 9*of {
		t.Errorf("%d of %d functions understood", understood, of)
	}
}

func expectExitCode(t *testing.T, f *File, s Symbol, body Body) {
	t.Helper()
	for _, e := range body.Exits {
		if e.Offset == s.Offset+body.Entry.Skip {
			t.Errorf("%s: the entry's probe is on an exit, at %#x", s.Name, e.Offset)
		}
		var b [2]byte
		if _, err := f.ReadAt(b[:], int64(e.Offset)); err != nil {
			t.Fatal(err)
		}
		opcodes := []byte{0xc2, 0xc3, 0xe9, 0xeb, 0xff, 0x41, 0x0f, 0xf2, 0xf3, 0x3e}
		if !slices.Contains(opcodes, b[0]) && b[0]&0xf0 != 0x70 {
			t.Errorf("%s: exit at %#x is % x", s.Name, e.Offset, b)
		}
	}
}

func libc(t *testing.T) string {
	t.Helper()
	for _, path := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib64/libc.so.6", "/lib64/libc.so.6"} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Fatal("no C library found")
	return ""
}

func openFile(t *testing.T, path string) *File {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	f, err := Open(file, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// FuzzExits: whatever the bytes are, exits lie inside the code, in order, and
// where instructions begin that can leave.
func FuzzExits(f *testing.F) {
	for _, s := range []string{
		"55 5d c3", "55 74 40 5d c3", "55 5d ff e0", "55 48 63 04 ba 48 01 d0 ff e0", "c5 f8 77 c3",
		"62 f1 7c 48 58 c1 c3", "f3 0f 1e fa 55 5d e9 00 01 00 00", "66 66 48 e8 00 00 00 00 c3",
	} {
		f.Add(code(f, s), uint16(0))
		f.Add(code(f, s), uint16(2))
	}
	f.Fuzz(func(t *testing.T, b []byte, split uint16) {
		at := min(int(split), len(b))
		parts := []part{{vaddr: 0x1000, offset: 0x400, code: b[:at]}, {vaddr: 0x9000, offset: 0x8400, code: b[at:]}}
		jumpsTo(parts[0], parts[1])
		exits, err := exitsX86(parts)
		if err != nil {
			if !errors.Is(err, ErrNoBody) {
				t.Errorf("error %v", err)
			}
			return
		}
		last := uint64(0)
		for _, e := range exits {
			if e.Offset <= last && last > 0 {
				t.Errorf("exits out of order: %v", exits)
			}
			last = e.Offset
			if e.Offset-0x400 >= uint64(at) && e.Offset-0x8400 >= uint64(len(b)-at) {
				t.Errorf("exit at %#x lies outside", e.Offset)
			}
			if e.target != 0 && !e.table && (parts[0].holds(e.target) || parts[1].holds(e.target)) {
				t.Errorf("exit at %#x goes inside", e.Offset)
			}
		}
	})
}

// A table of places within the function is told from one of functions by what
// is in it; of one at a register nothing is known.
func TestTables(t *testing.T) {
	for _, tc := range []struct {
		name, source string
		flags        []string
		exits        int // 0: refused
	}{
		{"own", `
			void own(void);
			__asm__(".globl own\n.type own, @function\nown:\n push %rbx\n mov %rdi, %rbx\n jmp *table(,%rbx,8)\n"
				"1: nop\n2: pop %rbx\n ret\n.size own, .-own\n.section .rodata\ntable: .quad 1b, 2b\n.text\n");
			int main(void) { own(); return 0; }`, []string{"-no-pie"}, 1},
		{"of functions", `
			static long one(long x) { return x * 3; }
			static long two(long x) { return x * 5; }
			static long (*const table[])(long) = {one, two};
			long own(long i) { return table[i](i); }
			int main(int argc, char **argv) { return own(argc); }`, []string{"-no-pie", "-fno-pic", "-O2", "-fno-inline"}, 0},
		{"of functions, position-independent", `
			static long one(long x) { return x * 3; }
			static long two(long x) { return x * 5; }
			static long (*const table[])(long) = {one, two};
			long own(long i) { return table[i](i); }`, []string{"-shared", "-fPIC", "-O2", "-fno-inline"}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			body, err := bodyOf(t, open(t, build(t, "table.c", tc.source, tc.flags...)), "own")
			if tc.exits == 0 && (!errors.Is(err, ErrNoBody) || !strings.Contains(err.Error(), "table")) {
				t.Errorf("exits %v, error %v; want one of its table", body.Exits, err)
			}
			if tc.exits > 0 && (err != nil || len(body.Exits) != tc.exits) {
				t.Errorf("exits %v, error %v; want %d", body.Exits, err, tc.exits)
			}
		})
	}
}

// A jump to a split-off part that has no symbol any more is no exit; one to
// another function without a symbol, with the frame taken down, is.
func TestJumpsToWhatHasNoSymbol(t *testing.T) {
	const source = `
		.text
		.globl standing, down
		.type standing, @function
	standing:
		push %rbx
		test %edi, %edi
		jne 1f
		pop %rbx
		ret
	1:	jmp apart
		.size standing, . - standing
		.type down, @function
	down:
		push %rbx
		pop %rbx
		jmp apart
		.size down, . - down
		.section .text.unlikely, "ax"
	apart:
		pop %rbx
		ret
	`
	f := open(t, build(t, "apart.S", source, "-shared", "-nostdlib", "-s"))
	if body, err := bodyOf(t, f, "standing"); !errors.Is(err, ErrNoBody) || !strings.Contains(err.Error(), "lies apart") {
		t.Errorf("exits %v, error %v; want one of what lies apart", body.Exits, err)
	}
	if body, err := bodyOf(t, f, "down"); err != nil || len(body.Exits) != 1 {
		t.Errorf("exits %v, error %v; want the jump", body.Exits, err)
	}
}

func bodyOf(t *testing.T, f *File, name string) (Body, error) {
	t.Helper()
	s, err := f.Lookup(name)
	if err != nil {
		all, err := f.StaticSymbols(func(symbol string) bool { return symbol == name }, 1<<20)
		if err != nil || len(all) != 1 {
			t.Fatalf("%d symbols %q, error %v", len(all), name, err)
		}
		s = all[0]
	}
	return f.Body(s, nil, newKernel)
}
