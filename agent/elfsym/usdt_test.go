package elfsym

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// usdtSource is a library with a probe as sys/sdt.h makes it, on some nop.
func usdtSource(nop, arguments string, semaphore bool) string {
	sem := "0"
	if semaphore {
		sem = "counter"
	}
	return fmt.Sprintf(`
	.section .stapsdt.base, "aG", "progbits", .stapsdt.base, comdat
	.weak _.stapsdt.base
	.hidden _.stapsdt.base
_.stapsdt.base: .space 1
	.section .probes, "aw", "progbits"
	.balign 2
counter: .2byte 0
	.text
	.globl function
	.type function, @function
function: push %%rbp
1:	%s
	pop %%rbp
	ret
	.section .note.stapsdt, "", "note"
	.balign 4
	.4byte 3f-2f, 5f-4f, 3
2:	.asciz "stapsdt"
3:	.balign 4
4:	.8byte 1b, _.stapsdt.base, %s
	.asciz "provider"
	.asciz "name"
	.asciz "%s"
5:	.balign 4
`, nop, sem, arguments)
}

func TestUSDT(t *testing.T) {
	for _, semaphore := range []bool{false, true} {
		f := open(t, build(t, "probes.S", usdtSource("nop", "8@%rdi -4@$3", semaphore), "-shared", "-nostdlib"))
		probes, err := f.USDT()
		if err != nil || len(probes) != 1 {
			t.Fatalf("%d probes: %v", len(probes), err)
		}
		p := probes[0]
		if p.Provider != "provider" || p.Name != "name" || p.Arguments != "8@%rdi -4@$3" || (p.Semaphore != 0) != semaphore {
			t.Errorf("got %+v", p)
		}
		function, err := f.Lookup("function")
		if err != nil {
			t.Fatal(err)
		}
		if offset, err := f.USDTPlace(p); err != nil || offset != function.Offset+1 {
			t.Errorf("the probe is at %#x of a function at %#x: %v", offset, function.Offset, err)
		}
		if section, ok := f.Section(".probes"); semaphore && (!ok || p.Semaphore != section.Offset) {
			t.Errorf("the semaphore is at %#x, its section at %#x", p.Semaphore, section.Offset)
		}
	}
}

func TestUSDTOnOtherCode(t *testing.T) {
	for _, code := range []string{"nopl 0(%rax,%rax,1)", "nopl (%rax)", "call function", "int3"} {
		f := open(t, build(t, "probes.S", usdtSource(code, "", false), "-shared", "-nostdlib"))
		probes, err := f.USDT()
		if err != nil || len(probes) != 1 {
			t.Fatalf("%s: %d probes: %v", code, len(probes), err)
		}
		if _, err := f.USDTPlace(probes[0]); !errors.Is(err, ErrNotProbeable) {
			t.Errorf("%s: %v", code, err)
		}
	}
}

func TestUSDTOperands(t *testing.T) {
	tests := map[string][]USDTOperand{
		"":                             nil,
		"8@%rdi":                       {{Size: 8, Register: 7}},
		"-8@%rax -1@%dl":               {{Size: -8}, {Size: -1, Register: 2}},
		"8@-104(%rbp)":                 {{Size: 8, Register: 5, Memory: true, Value: -104}},
		"8@(%r12)":                     {{Size: 8, Register: 12, Memory: true}},
		"4@$-7 8@16(%rsp)":             {{Size: 4, Register: -1, Value: -7}, {Size: 8, Register: 4, Memory: true, Value: 16}},
		"4@%r9d 2@%r10w":               {{Size: 4, Register: 9}, {Size: 2, Register: 10}},
		"1@%r15b 8@%r8":                {{Size: 1, Register: 15}, {Size: 8, Register: 8}},
		"8@%rsi 4@%edx":                {{Size: 8, Register: 6}, {Size: 4, Register: 2}},
		"8@%r1":                        nil,
		"%rdi":                         nil,
		"8@(%rax,%rbx,4)":              nil,
		"8@name(%rip)":                 nil,
		"3@%rax":                       nil,
		"8@$":                          nil,
		"8@x1":                         nil,
		"8@99999999999999999999(%rax)": nil,
	}
	for text, want := range tests {
		got, err := USDTProbe{Arguments: text}.Operands()
		if diff := cmp.Diff(want, got); diff != "" || (err != nil) != (want == nil && text != "") {
			t.Errorf("%q: %v\n%s", text, err, diff)
		}
		if err != nil && !errors.Is(err, ErrOperand) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Notes are the target's bytes, and may be anything.
func FuzzUSDT(f *testing.F) {
	e := open(f, build(f, "probes.S", usdtSource("nop", "8@%rdi", true), "-shared", "-nostdlib"))
	f.Add([]byte(strings.Repeat("\x01", 24) + "a\x00b\x008@%rdi\x00"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, desc []byte) {
		p, ok := e.usdt(desc)
		if !ok {
			return
		}
		if p.Provider == "" || p.Name == "" {
			t.Errorf("%q has the probe %+v", desc, p)
		}
		_, _ = p.Operands()
		_, _ = e.USDTPlace(p)
	})
}
