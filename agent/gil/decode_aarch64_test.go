package gil

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// getterCodeAArch64 is code of functions that return a thread-local variable, loaded at 0x1000: from
// distributors' and own builds of CPython, and what gcc and clang make of the other ways. Instructions
// are numbers, as disassemblers print them.
var getterCodeAArch64 = []struct {
	name string
	code string
	want access
}{
	// mrs x0, tpidr_el0; add x0, x0, #0, lsl #12; add x0, x0, #0x18; ldr x0, [x0]; ret
	{"local exec", "d53bd040 91400000 91006000 f9400000 d65f03c0", access{disp: 24}},
	// bti c; mrs x0, tpidr_el0; nop; add x0, x0, #0x18; ldr x0, [x0]; cbz x0, ...; ret
	{"local exec, checked", "d503245f d53bd040 d503201f 91006000 f9400000 b4000040 d65f03c0", access{disp: 24}},
	// mrs x8, tpidr_el0; add x8, x8, #1, lsl #12; add x8, x8, #0x18; ldr x0, [x8, #8]; ret
	{"local exec, far", "d53bd048 91400508 91006108 f9400500 d65f03c0", access{disp: 4096 + 24 + 8}},
	// movz x1, #1, lsl #16; movk x1, #0x18; mrs x0, tpidr_el0; ldr x0, [x1, x0]; ret
	{"local exec, 32 bits", "d2a00021 f2800301 d53bd040 f8606820 d65f03c0", access{disp: 0x10018}},
	// stp x29, x30, [sp, #-16]!; mov x29, sp; movz x0, #0, lsl #16; movk x0, #0x28; nop; nop;
	// mrs x8, tpidr_el0; ldr x0, [x8, x0]; ldp x29, x30, [sp], #16; ret
	{"local exec, relaxed by the linker",
		"a9bf7bfd 910003fd d2a00000 f2800500 d503201f d503201f d53bd048 f8606900 a8c17bfd d65f03c0",
		access{disp: 40}},
	// adrp x0, 0x1f000; ldr x0, [x0, #4024]; mrs x1, tpidr_el0; ldr x0, [x1, x0]; ret
	{"initial exec", "f00000e0 f947dc00 d53bd041 f8606820 d65f03c0", access{anchor: fromGOT, slot: 0x20fb8}},
	// mrs x1, tpidr_el0; adrp x0, 0x1f000; ldr x0, [x0, #4032]; add x0, x1, x0; ldr x0, [x0]; ret
	{"initial exec, sum", "d53bd041 f00000e0 f947e000 8b000020 f9400000 d65f03c0", access{anchor: fromGOT, slot: 0x20fc0}},
	// adrp x8, ...; ldr x8, [x8, #4024]; mrs x9, tpidr_el0; add x9, x9, x8; ldr x0, [x9, #8]; ret
	{"initial exec, member", "f00000e8 f947dd08 d53bd049 8b080129 f9400520 d65f03c0",
		access{anchor: fromGOT, slot: 0x20fb8, disp: 8}},
	// stp x29, x30, [sp, #-16]!; mov x29, sp; adrp x0, ...; add x0, x0, #4008; bl __tls_get_addr; nop;
	// ldr x0, [x0]; ldp x29, x30, [sp], #16; ret
	{"general dynamic", "a9bf7bfd 910003fd f00000e0 913ea000 97ffffb8 d503201f f9400000 a8c17bfd d65f03c0",
		access{anchor: fromModule, slot: 0x20fa8}},
	// stp x29, x30, [sp, #-16]!; mov x29, sp; adrp x0, ...; ldr x1, [x0, #32]; add x0, x0, #32; blr x1;
	// mrs x1, tpidr_el0; add x0, x1, x0; ldr x0, [x0]; ldp x29, x30, [sp], #16; ret
	{"descriptor, sum",
		"a9bf7bfd 910003fd 90000100 f9401001 91008000 d63f0020 d53bd041 8b000020 f9400000 a8c17bfd d65f03c0",
		access{anchor: fromDescriptor, slot: 0x21020}},
	// paciasp; mrs x1, tpidr_el0; stp x29, x30, [sp, #-16]!; mov x29, sp; adrp x0, ...; ldr x2, [x0, #200];
	// add x0, x0, #200; blr x2; ldr x0, [x1, x0]; ldp x29, x30, [sp], #16; autiasp; ret
	{"descriptor, signed return address",
		"d503233f d53bd041 a9bf7bfd 910003fd 90000100 f9406402 91032000 d63f0040 f8606820 a8c17bfd d50323bf d65f03c0",
		access{anchor: fromDescriptor, slot: 0x210c8}},
	// bti c; mrs x1, tpidr_el0; paciasp; str x30, [sp, #-16]!; adrp x0, ...; ldr x2, [x0, #32];
	// add x0, x0, #32; blr x2; ldr x0, [x1, x0]; cbnz x0, ...; ldr x30, [sp], #16; retaa
	{"descriptor, no frame",
		"d503245f d53bd041 d503233f f81f0ffe 90000100 f9401002 91008000 d63f0040 f8606820 b5000040 f84107fe d65f0bff",
		access{anchor: fromDescriptor, slot: 0x21020}},
	// pacia x30, sp; then as before, but x19 is saved and tested
	{"descriptor, other register",
		"dac103fe a9bf7bfd f9000bf3 90000100 f9401002 91008000 d63f0040 d53bd041 f8606833 f100027f 54000040 d65f0bff",
		access{anchor: fromDescriptor, slot: 0x21020}},
	// adrp x0, ...; ldr x1, [x0, #16]; add x0, x0, #16; blr x1; add x8, x0, #0, lsl #12;
	// mrs x9, tpidr_el0; add x8, x8, #8; ldr x10, [x9, x8]; mov x0, x10; ret
	{"descriptor of the block",
		"90000100 f9400801 91004000 d63f0020 91400008 d53bd049 91002108 f868692a aa0a03e0 d65f03c0",
		access{anchor: fromDescriptor, slot: 0x21010, disp: 8}},
}

// otherCodeAArch64 returns something else, or does more than is followed.
var otherCodeAArch64 = []struct{ name, code string }{
	{"empty", ""},
	{"no end", "d503201f d503201f"},
	{"constant", "d2800000 d65f03c0"},
	{"argument", "d65f03c0"},
	{"global", "f00000e0 f947dc00 d65f03c0"},
	{"thread pointer", "d53bd040 d65f03c0"},
	{"address of the variable", "d53bd040 91006000 d65f03c0"},
	{"vector of blocks", "d53bd040 f9400000 d65f03c0"},
	{"below the thread pointer", "d53bd040 d1006000 f9400000 d65f03c0"},
	{"member of what a variable points to", "d53bd040 f9400c00 f9400800 d65f03c0"},
	{"half of it", "d53bd040 b9401800 d65f03c0"},
	{"overwritten", "d53bd040 f9400c00 d2800000 d65f03c0"},
	{"saved and restored", "d53bd040 f9400c00 f90007e0 f94007e0 d65f03c0"},
	{"another is tested", "d53bd041 f9400c20 b4000042 d65f03c0"},
	{"overwritten by a pop", "d53bd040 f9400c00 f84107e0 d65f03c0"},
	{"overwritten by two", "d53bd040 f9400c00 a8c103e1 d65f03c0"},
	{"number without its other half", "d53bd041 f2800300 f8606820 d65f03c0"},
	{"store elsewhere", "d53bd040 f9000040 f9400c00 d65f03c0"},
	{"scaled index", "d53bd041 d2800300 f8607820 d65f03c0"},
	{"two thread pointers", "d53bd040 d53bd041 f8606820 d65f03c0"},
	{"call without an argument", "97ffffb8 f9400000 d65f03c0"},
	{"call of a descriptor's other function", "90000100 f9401401 91008000 d63f0020 d53bd041 f8606820 d65f03c0"},
	{"call of something else", "90000100 f9401001 91008000 d63f0040 d53bd041 f8606820 d65f03c0"},
	{"tail call", "14000010"},
	{"jump", "54000040 d53bd040 f9400c00 d65f03c0"},
	{"returns elsewhere", "d53bd040 f9400c00 d65f0020"},
}

// instructions puts numbers, as disassemblers print them, where the processor looks for them.
func instructions(t testing.TB, text string) []byte {
	t.Helper()
	var code []byte
	for field := range strings.FieldsSeq(text) {
		var number uint32
		if _, err := fmt.Sscanf(field, "%x", &number); err != nil {
			t.Fatal(err)
		}
		code = binary.LittleEndian.AppendUint32(code, number)
	}
	return code
}

func TestDecodeAArch64(t *testing.T) {
	for _, tc := range getterCodeAArch64 {
		t.Run(tc.name, func(t *testing.T) {
			got, err := decodeAArch64(instructions(t, tc.code), 0x1000)
			if err != nil || got != tc.want {
				t.Fatalf("got %v, %v; want %v", got, err, tc.want)
			}
		})
	}
}

func TestDecodeAArch64Refuses(t *testing.T) {
	for _, tc := range otherCodeAArch64 {
		t.Run(tc.name, func(t *testing.T) {
			if got, err := decodeAArch64(instructions(t, tc.code), 0x1000); !errors.Is(err, errNotGetter) {
				t.Fatalf("got %v, %v", got, err)
			}
		})
	}
	if got, err := decodeAArch64(instructions(t, getterCodeAArch64[0].code)[:18], 0x1000); !errors.Is(err, errNotGetter) {
		t.Fatalf("code that is cut off gives %v, %v", got, err)
	}
}

// The addresses of pages are relative to the instruction's own, in both directions.
func TestPage(t *testing.T) {
	for insn, want := range map[uint32]uint64{
		0x90000000: 0x41000, 0xb0000000: 0x42000, 0x90000100: 0x61000, 0xf0ffffe0: 0x40000, 0x90ffffe0: 0x3d000,
	} {
		if got := word32(insn).page(0x41ffc); got != want {
			t.Errorf("%#x leads to %#x, want %#x", insn, got, want)
		}
	}
}

func TestDecodeSelf(t *testing.T) {
	for _, tc := range []struct {
		name, code string
		want       uint64
	}{
		// mrs x0, tpidr_el0; sub x0, x0, #0x700; ret
		{"glibc 2.31", "d53bd040 d11c0000 d65f03c0", 0x700},
		// bti c; mrs x0, tpidr_el0; sub x0, x0, #0x720; ret
		{"glibc 2.43", "d503245f d53bd040 d11c8000 d65f03c0", 0x720},
		// mrs x1, tpidr_el0; sub x1, x1, #1, lsl #12; sub x0, x1, #0x10; ret
		{"in two steps", "d53bd041 d1400421 d1004020 d65f03c0", 0x1010},
		{"the thread pointer", "d53bd040 d65f03c0", 0},
	} {
		if got, err := decodeSelf(instructions(t, tc.code)); err != nil || got != tc.want {
			t.Errorf("%s: got %#x, %v; want %#x", tc.name, got, err, tc.want)
		}
	}
	for name, code := range map[string]string{
		"nothing":         "",
		"a variable":      "d53bd040 f9400c00 d65f03c0",
		"above":           "d53bd040 91006000 d65f03c0",
		"a number":        "d2800000 d65f03c0",
		"far":             "d53bd040 d1600000 d65f03c0",
		"by initial exec": "f00000e0 f947dc00 d53bd041 8b000020 d65f03c0",
		"another's":       "14000010",
	} {
		if got, err := decodeSelf(instructions(t, code)); !errors.Is(err, errNotSelf) {
			t.Errorf("%s: got %#x, %v", name, got, err)
		}
	}
}

func FuzzDecodeAArch64(f *testing.F) {
	for _, tc := range getterCodeAArch64 {
		f.Add(instructions(f, tc.code), uint64(0x1000))
	}
	for _, tc := range otherCodeAArch64 {
		f.Add(instructions(f, tc.code), ^uint64(0))
	}
	f.Fuzz(func(t *testing.T, code []byte, pc uint64) {
		got, err := decodeAArch64(code, pc)
		if err != nil && got != (access{}) {
			t.Fatalf("%v beside the error %v", got, err)
		}
		if err == nil && got.anchor == fromThreadPointer && (got.disp < threadHead || got.slot != 0) {
			t.Fatalf("impossible access %v", got)
		}
		if below, err := decodeSelf(code); below > largestSelf || err != nil && below != 0 {
			t.Fatalf("impossible distance %#x, %v", below, err)
		}
	})
}
