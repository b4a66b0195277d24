package elfsym

import (
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/arch/x86/x86asm"
)

var (
	newKernel = Kernel{LongNops: true}
	oldKernel = Kernel{LongNops: false}
)

// code turns hex with spaces into bytes.
func code(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPlace(t *testing.T) {
	const (
		endbr = "f3 0f 1e fa "
		nops  = " 90 90 90 90"
		cmpl  = "81 3d 10 20 30 00 00 ba 1c 32 " // cmpl $0x321cba00,0x302010(%rip)
		ret   = " c3"
	)
	entry := Placement{}
	for _, tc := range []struct {
		name, code string
		kernel     Kernel
		want       Placement
	}{
		{"driver entry", cmpl + "74 06 ff 25 00 00 00 00", newKernel, Placement{10, Jump}},
		{"driver entry on an old kernel", cmpl + "74 06 ff 25 00 00 00 00", oldKernel, Placement{10, Jump}},
		{"driver entry that extends an argument", cmpl + "74 09 0f b7 f6 ff 25 00 00 00 00", newKernel, Placement{10, Jump}},
		{"driver entry cut before the branch", cmpl + "74", newKernel, entry},

		{"push", "55 48 89 e5 5d c3", newKernel, Placement{0, Push}},
		{"push of a high register", "41 57 41 5f c3", newKernel, Placement{0, Push}},
		{"push after endbr64", endbr + "55 5d c3", newKernel, Placement{4, Push}},
		{"push of a high register after endbr64", endbr + "41 56 41 5e c3", newKernel, Placement{4, Push}},
		{"push with a useless prefix", "48 55 5d c3", newKernel, entry},
		{"push of memory", "ff 37 5f c3", newKernel, entry},
		{"push of a constant", "6a 01 58 c3", newKernel, entry},

		{"nop5", "0f 1f 44 00 00 c3", newKernel, Placement{5, Stepped}},
		{"nop5 and push", "0f 1f 44 00 00 55 c3", newKernel, Placement{5, Push}},
		{"nop5 on an old kernel", "0f 1f 44 00 00 c3", oldKernel, Placement{5, Stepped}},
		{"nop5 and nop on an old kernel", "0f 1f 44 00 00 90 c3", oldKernel, Placement{5, Nop}},
		{"nop", "90 c3", oldKernel, Placement{0, Nop}},
		{"two-byte nop", "66 90 c3", oldKernel, Placement{0, Nop}},
		{"nop3", "0f 1f 00 c3", newKernel, Placement{0, Nop}},
		{"nop6", "66 0f 1f 44 00 00 c3", newKernel, Placement{0, Nop}},
		{"nop7", "0f 1f 80 00 00 00 00 c3", newKernel, Placement{0, Nop}},
		{"nop8", "0f 1f 84 00 00 00 00 00 c3", newKernel, Placement{0, Nop}},
		{"nop9, which is stepped", "66 0f 1f 84 00 00 00 00 00 c3", newKernel, entry},
		{"nop5 of another encoding", "0f 1f 44 20 00 55 c3", newKernel, Placement{5, Push}},
		{"nop with a segment prefix", "2e 66 0f 1f 84 00 00 00 00 00 55 c3", newKernel, Placement{10, Push}},
		{"cut nop5", "0f 1f 44 00", newKernel, entry},
		{"pause", "f3 90 90 c3", newKernel, entry},
		{"exchange that looks like a nop", "41 90 90 c3", newKernel, entry},

		{"near jump", "e9 00 01 00 00", newKernel, Placement{0, Jump}},
		{"short jump", "eb 10", newKernel, Placement{0, Jump}},
		{"call", endbr + "e8 00 01 00 00 c3", newKernel, Placement{4, Jump}},
		{"near conditional jump", "48 85 c0 0f 84 00 01 00 00", newKernel, Placement{3, Jump}},
		{"conditional jump with a 16-bit prefix", "66 74 10 c3", newKernel, entry},
		{"indirect jump", "ff e0", newKernel, entry},
		{"indirect jump through a slot", endbr + "ff 25 00 00 00 00", newKernel, entry},
		{"indirect call", endbr + "ff d0 90 c3", newKernel, entry},
		{"return", "c3" + nops, newKernel, entry},
		{"return after endbr64", endbr + "c3" + nops, newKernel, entry},
		{"loop instruction", "e2 10" + nops, newKernel, entry},
		{"trap", "0f 0b" + nops, newKernel, entry},
		{"breakpoint", "cc" + nops, newKernel, entry},

		{"scratch registers may change", "31 c0 49 89 fa 4d 31 db 85 ff 74 10", newKernel, Placement{10, Jump}},
		{"thread pointer may be read", "64 48 8b 04 25 28 00 00 00 74 10", newKernel, Placement{9, Jump}},
		{"address of a global", "48 8d 05 00 10 00 00 48 83 38 00 74 10", newKernel, Placement{11, Jump}},
		{"byte of a flag", "80 3d 00 10 00 00 00 75 10", newKernel, Placement{7, Jump}},
		{"global may be written", "c7 05 00 10 00 00 01 00 00 00 90", newKernel, Placement{10, Nop}},
		{"red zone may be written", "48 89 44 24 f8 90", newKernel, Placement{5, Nop}},
		{"return address may not", "48 89 04 24 90", newKernel, entry},
		{"nor in part", "48 89 44 24 fc 90", newKernel, entry},
		{"nor arguments on the stack", "48 89 44 24 08 90", newKernel, entry},
		{"nor the stack by index", "48 89 44 04 f8 90", newKernel, entry},
		{"nor memory anywhere", "48 89 07 90", newKernel, entry},

		{"first argument changes", "31 ff eb 10", newKernel, entry},
		{"first argument is extended", "89 ff eb 10", newKernel, entry},
		{"part of the second changes", "40 b6 01 eb 10", newKernel, entry},
		{"third", "31 d2 eb 10", newKernel, entry},
		{"fourth, high byte", "b5 01 eb 10", newKernel, entry},
		{"fifth", "4d 31 c0 eb 10", newKernel, entry},
		{"sixth", "4d 31 c9 eb 10", newKernel, entry},
		{"third by sign extension", "48 99 eb 10", newKernel, entry},
		{"third by multiplication", "48 f7 e0 eb 10", newKernel, entry},
		{"third by the time stamp", "0f 31 eb 10", newKernel, entry},
		{"exchange", "48 87 f8 eb 10", newKernel, entry},
		{"string store", "f3 48 ab eb 10", newKernel, entry},
		{"system call", "0f 05 eb 10", newKernel, entry},
		{"atomic", "f0 ff 05 00 10 00 00 eb 10", newKernel, entry},
		{"frame pointer changes", "48 89 e5 eb 10", newKernel, entry},
		{"stack pointer changes", "48 83 ec 08 eb 10", newKernel, entry},
		{"stack pointer changes by address", "48 8d 64 24 f8 eb 10", newKernel, entry},
		{"pop", "58 50 c3", newKernel, entry},
		{"enter", "c8 10 00 00 90", newKernel, entry},
		{"vector instruction", "c5 f8 77 90", newKernel, entry},

		{"loop behind the entry", endbr + "31 c0 80 3c 07 00 74 06 48 83 c0 01 eb f4" + ret, newKernel, entry},
		{"loop to the site", "31 c0 74 06 48 ff c0 eb f9" + ret, newKernel, entry},
		{"loop to the entry", "85 ff 74 03 48 eb f9" + ret, newKernel, Placement{2, Jump}},
		{"loop behind the site", endbr + "55 31 c0 48 ff c0 eb fb" + ret, newKernel, Placement{4, Push}},
		{"near jump back", endbr + "55 31 c0 e9 f8 ff ff ff" + ret, newKernel, entry},
		{"near conditional jump back", endbr + "55 31 c0 0f 85 f7 ff ff ff" + ret, newKernel, entry},
		{"jump back behind a vector instruction", endbr + "55 c5 f8 77 eb f8" + ret, newKernel, entry},
		{"jump back with a hint", endbr + "55 31 c0 3e 75 fa" + ret, newKernel, entry},
		{"call of the site", endbr + "55 e8 fa ff ff ff" + ret, newKernel, entry},

		{"site within the window", strings.Repeat("31 c0 ", 31) + "90", newKernel, Placement{62, Nop}},
		{"site behind the window", strings.Repeat("31 c0 ", 32) + "90", newKernel, entry},
		{"nothing but harmless code", "31 c0 31 c0", newKernel, entry},
		{"no code", "", newKernel, entry},
		{"rubbish", "06 07 90", newKernel, entry},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Place(elf.EM_X86_64, code(t, tc.code), tc.kernel); got != tc.want {
				t.Errorf("Place(%s) = +%d %v, want +%d %v", tc.code, got.Skip, got.Class, tc.want.Skip, tc.want.Class)
			}
		})
	}
}

func TestPlaceOtherMachines(t *testing.T) {
	for _, tc := range []struct {
		name, code string
		machine    elf.Machine
		want       Class
	}{
		{"nop", "1f 20 03 d5", elf.EM_AARCH64, Nop},
		{"b", "10 00 00 14", elf.EM_AARCH64, Jump},
		{"bl", "10 00 00 94", elf.EM_AARCH64, Jump},
		{"b.eq", "80 00 00 54", elf.EM_AARCH64, Jump},
		{"cbz", "80 00 00 b4", elf.EM_AARCH64, Jump},
		{"tbnz", "80 00 08 37", elf.EM_AARCH64, Jump},
		{"br", "00 02 1f d6", elf.EM_AARCH64, Jump},
		{"ret", "c0 03 5f d6", elf.EM_AARCH64, Jump},
		{"adrp", "10 00 00 90", elf.EM_AARCH64, Jump},
		{"ldr", "01 00 40 f9", elf.EM_AARCH64, Stepped},
		{"stp", "fd 7b bf a9", elf.EM_AARCH64, Stepped},
		{"bti c", "5f 24 03 d5", elf.EM_AARCH64, Stepped},
		{"cut", "1f 20 03", elf.EM_AARCH64, Stepped},
		{"unknown machine", "90 90", elf.EM_RISCV, Stepped},
	} {
		if got := Place(tc.machine, code(t, tc.code), newKernel); got != (Placement{0, tc.want}) {
			t.Errorf("%s: Place = +%d %v, want the entry, %v", tc.name, got.Skip, got.Class, tc.want)
		}
	}
}

func TestClassNames(t *testing.T) {
	for class, want := range map[Class]string{Nop: "nop", Push: "push", Jump: "jump", Stepped: "stepped", 9: "class 9"} {
		if got := class.String(); got != want {
			t.Errorf("Class(%d) = %q, want %q", uint8(class), got, want)
		}
	}
}

// placed is a library whose functions disturb or do not disturb each other.
const placed = `
	.text
	.globl outer, inner, marker
	.type outer, @function
	.type inner, @function
	.type marker, @function
outer:	endbr64
inner:	push %rbp
	pop %rbp
	ret
	.size outer, . - outer
	.size inner, . - inner
marker:	endbr64
	push %rbp
	pop %rbp
	ret
	.section .note.GNU-stack,"",@progbits
`

func TestPlaceInFile(t *testing.T) {
	f := open(t, build(t, "placed.S", placed, "-shared", "-nostdlib"))
	var symbols []Symbol
	for _, name := range []string{"outer", "inner", "marker"} {
		s, err := f.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		symbols = append(symbols, s)
	}
	if got, err := f.Place(symbols[0], newKernel); err != nil || got != (Placement{4, Push}) {
		t.Errorf("Place(outer) alone = %v, %v", got, err)
	}
	got, err := f.PlaceAll(symbols, newKernel)
	if err != nil {
		t.Fatal(err)
	}
	want := []Placement{{0, Stepped}, {0, Push}, {4, Push}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("PlaceAll = %v, want %v", got, want)
	}
	zoo := open(t, buildZoo(t))
	for _, name := range []string{"chooser", "object"} {
		s, err := zoo.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if p, err := zoo.Place(s, newKernel); !errors.Is(err, ErrNotProbeable) {
			t.Errorf("Place(%q) = %v, %v, want ErrNotProbeable", name, p, err)
		}
	}
}

func FuzzPlace(f *testing.F) {
	for _, s := range []string{
		"f30f1efa554889e5", "813d1020300000ba1c327406ff2500000000", "0f1f440000c3", "4883ec08e800000000",
		"31c0803c07007406", "c5f877ebf8", "662e0f1f840000000000", "48894424f890",
	} {
		f.Add(code(f, s), true)
		f.Add(code(f, s), false)
	}
	f.Fuzz(func(t *testing.T, b []byte, longNops bool) {
		k := Kernel{LongNops: longNops}
		p := Place(elf.EM_X86_64, b, k)
		if p.Skip == 0 {
			return
		}
		if p.Skip >= maxSkip || p.Skip >= uint64(len(b)) {
			t.Fatalf("skip %d of %d bytes", p.Skip, len(b))
		}
		if p.Class == Stepped {
			if p.Skip != uint64(behindNop5(b)) {
				t.Fatalf("stepped at +%d, want it right behind the nops", p.Skip)
			}
			return
		}
		if class, ok := emulated(b[p.Skip:], k); !ok || class != p.Class {
			t.Fatalf("class %v at +%d, want %v", class, p.Skip, p.Class)
		}
		checkPath(t, b, p.Skip)
	})
}

// checkPath decodes from the entry and fails unless the instructions lead to the site without
// a branch and, by another criterion than the one under test, without touching the stack
// pointer or an argument register as their operand.
func checkPath(t *testing.T, b []byte, site uint64) {
	t.Helper()
	pos := 0
	for uint64(pos) < site {
		if n := decodedLength(b[pos:]); strings.HasPrefix(string(b[pos:]), string(endbr64)) {
			pos += n
			continue
		}
		inst, err := x86asm.Decode(b[pos:], x86Mode)
		if err != nil {
			t.Fatalf("undecodable instruction at +%d before the site +%d", pos, site)
		}
		text := x86asm.GNUSyntax(inst, 0, nil)
		switch op := inst.Op.String(); {
		case op == "CMP", op == "TEST", op == "BT", op == "NOP":
		case op[0] == 'J', op == "CALL", op == "RET", op == "PUSH", op == "POP", op == "SYSCALL":
			t.Fatalf("%q at +%d before the site +%d", text, pos, site)
		default:
			if writesArgument(text) {
				t.Fatalf("%q at +%d before the site +%d changes what the probe reads", text, pos, site)
			}
		}
		pos += inst.Len
	}
	if uint64(pos) != site {
		t.Fatalf("the site +%d lies inside an instruction that ends at +%d", site, pos)
	}
}

// writesArgument looks at the last operand in GNU syntax, which is the destination.
func writesArgument(text string) bool {
	operand := text[strings.LastIndexAny(text, ", ")+1:]
	for _, r := range []string{
		"%rsp", "%esp", "%sp", "%spl", "%rbp", "%ebp", "%bp", "%bpl", "%rdi", "%edi", "%di", "%dil", "%rsi", "%esi", "%si", "%sil",
		"%rdx", "%edx", "%dx", "%dl", "%dh", "%rcx", "%ecx", "%cx", "%cl", "%ch",
		"%r8", "%r8d", "%r8w", "%r8b", "%r9", "%r9d", "%r9w", "%r9b",
	} {
		if operand == r {
			return true
		}
	}
	return false
}

func TestLoadsLiteral(t *testing.T) {
	for instruction, want := range map[string]bool{
		"40 00 00 58": true,  // ldr x0, literal
		"40 00 00 18": true,  // ldr w0, literal
		"40 00 00 98": true,  // ldrsw x0, literal
		"40 00 00 d8": true,  // prfm literal
		"40 00 00 1c": true,  // ldr s0, literal
		"40 00 00 9c": true,  // ldr q0, literal
		"01 00 40 f9": false, // ldr x1, [x0]
		"10 00 00 90": false, // adrp
		"fd 7b bf a9": false, // stp
		"10 00 00 14": false, // b
		"40 00":       false,
	} {
		if got := loadsLiteral(code(t, instruction)); got != want {
			t.Errorf("%s: %v, want %v", instruction, got, want)
		}
	}
}
