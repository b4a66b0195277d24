package gil

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

// getterCodeX86 is x86-64 code of functions that return a thread-local variable, loaded at 0x1000: from
// distributors' and own builds of CPython, and what gcc and clang make of the other ways.
var getterCodeX86 = []struct {
	name string
	code string
	want access
}{
	{"local exec, CET", "f30f1efa 64488b0425e8ffffff c3", access{disp: -24}},
	{"local exec, checked", "f30f1efa 64488b0425e0ffffff 4885c0 0f842333e8ff c3", access{disp: -32}},
	{"local exec, the rest elsewhere (BOLT)", "64488b0425f8ffffff 4885c0 0f8402a12c00 c3", access{disp: -8}},
	{"local exec through a register", "64488b042500000000 488d80f0ffffff 488b00 c3", access{disp: -16}},
	{"local exec through another register", "55 4889e5 64488b0c2500000000 488b81f8ffffff 5d c3", access{disp: -8}},
	{"local exec, negative index", "48c7c1e8ffffff 64488b01 c3", access{disp: -24}},
	{"initial exec", "488b05f90f0000 64488b00 c3", access{anchor: fromGOT, slot: 0x2000}},
	{"initial exec, sum", "64488b042500000000 480305f00f0000 488b4008 c3", access{anchor: fromGOT, slot: 0x2000, disp: 8}},
	{"initial exec, other order", "488b05f90f0000 6448030425 00000000 488b00 c3", access{anchor: fromGOT, slot: 0x2000}},
	{"general dynamic", "4883ec08 66488d3df40f0000 666648e8bc22e3ff 488b00 4883c408 c3",
		access{anchor: fromModule, slot: 0x2000}},
	{"general dynamic without PLT", "50 66488d3df70f0000 6648ff1500100000 488b00 59 c3",
		access{anchor: fromModule, slot: 0x2000}},
	{"local dynamic", "50 488d3df80f0000 e803ece5ff 488b8008000000 59 c3",
		access{anchor: fromModule, slot: 0x2000, disp: 8}},
	{"local dynamic, frame pointer", "f30f1efa 55 4889e5 488d3df10f0000 e85c53d0ff 5d 488b8008000000 c3",
		access{anchor: fromModule, slot: 0x2000, disp: 8}},
	{"local dynamic, checked", "f30f1efa 55 4889e5 488d3df10f0000 e89108ccff 488b8008000000 4885c0 7402 5d c3",
		access{anchor: fromModule, slot: 0x2000, disp: 8}},
	{"descriptor", "4883ec08 488d05f50f0000 ff10 64488b00 4883c408 c3",
		access{anchor: fromDescriptor, slot: 0x2000}},
	{"descriptor, sum", "488d05f90f0000 ff10 6448030425 00000000 488b4010 c3",
		access{anchor: fromDescriptor, slot: 0x2000, disp: 16}},
	{"leave", "55 4889e5 64488b0425e8ffffff c9 c3", access{disp: -24}},
}

func machineCode(t testing.TB, text string) []byte {
	t.Helper()
	code, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return code
}

func TestDecodeX86(t *testing.T) {
	for _, tc := range getterCodeX86 {
		t.Run(tc.name, func(t *testing.T) {
			got, err := decodeX86(machineCode(t, tc.code), 0x1000)
			if err != nil || got != tc.want {
				t.Fatalf("got %v, %v; want %v", got, err, tc.want)
			}
		})
	}
}

// otherCodeX86 returns something else, or does more than is followed.
var otherCodeX86 = []struct{ name, code string }{
	{"empty", ""},
	{"cut off", "64488b04"},
	{"no end", "90 90 90"},
	{"constant", "31c0 c3"},
	{"global", "488b05f90f0000 c3"},
	{"member of what a variable points to", "64488b0425e8ffffff 488b4010 c3"},
	{"canary", "64488b042528000000 c3"},
	{"half of it", "648b0425e8ffffff c3"},
	{"overwritten", "64488b0425e8ffffff 31c0 c3"},
	{"partly overwritten", "64488b0425e8ffffff b001 c3"},
	{"overwritten by a call", "64488b0425e8ffffff 488d3df80f0000 e803ece5ff c3"},
	{"call without an argument", "e803ece5ff 488b00 c3"},
	{"call through another register", "488d05f90f0000 ff11 64488b00 c3"},
	{"scaled index", "64488b042500000000 48c7c1f8ffffff 488b04c8 c3"},
	{"another segment", "65488b0425e8ffffff c3"},
	{"jump", "eb00 64488b0425e8ffffff c3"},
	{"two thread pointers", "64488b042500000000 6448030425 00000000 488b00 c3"},
}

func TestDecodeX86Refuses(t *testing.T) {
	for _, tc := range otherCodeX86 {
		t.Run(tc.name, func(t *testing.T) {
			if got, err := decodeX86(machineCode(t, tc.code), 0x1000); err == nil {
				t.Fatalf("got %v", got)
			} else if tc.name != "cut off" && !errors.Is(err, errNotGetter) {
				t.Fatalf("got the error %v", err)
			}
		})
	}
}

func FuzzDecodeX86(f *testing.F) {
	for _, tc := range getterCodeX86 {
		f.Add(machineCode(f, tc.code), uint64(0x1000))
	}
	for _, tc := range otherCodeX86 {
		f.Add(machineCode(f, tc.code), ^uint64(0))
	}
	f.Fuzz(func(t *testing.T, code []byte, pc uint64) {
		got, err := decodeX86(code, pc)
		if err != nil && got != (access{}) {
			t.Fatalf("%v beside the error %v", got, err)
		}
		if err == nil && got.anchor == fromThreadPointer && (got.disp >= 0 || got.slot != 0) {
			t.Fatalf("impossible access %v", got)
		}
	})
}
