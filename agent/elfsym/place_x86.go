package elfsym

import (
	"bytes"
	"encoding/binary"
	"slices"

	"golang.org/x/arch/x86/x86asm"
)

const x86Mode = 64

func placeX86(code []byte, k Kernel) Placement {
	site := 0
	for site < min(len(code), maxSkip) {
		if class, ok := emulated(code[site:], k); ok {
			if site > 0 && jumpsInto(code, site) {
				break
			}
			return Placement{uint64(site), class}
		}
		n := harmless(code[site:])
		if n == 0 {
			break
		}
		site += n
	}
	return Placement{Skip: uint64(behindNop5(code)), Class: Stepped}
}

// nop5 is the one instruction that must not be probed: Linux 6.18 rewrites a probe on it into a
// call to a page that fork does not pass on, so that a forked child that comes here crashes.
var nop5 = []byte{0x0f, 0x1f, 0x44, 0x00, 0x00}

// behindNop5 returns the position of the first instruction that may be probed at all.
func behindNop5(code []byte) int {
	n := 0
	for bytes.HasPrefix(code[n:], nop5) && n+len(nop5) < min(len(code), maxSkip) {
		n += len(nop5)
	}
	return n
}

// emulated tells whether the kernel emulates the instruction. The kernel looks at opcodes rather
// than at meanings and ignores most prefixes, so it emulates some forms that are not accepted
// here: no compiler emits them, and of some it gets the meaning wrong.
func emulated(code []byte, k Kernel) (Class, bool) {
	if n := nopLength(code); n > 0 && code[n-1] == 0x90 || k.LongNops && hasLongNop(code) {
		return Nop, true
	}
	has := func(n int) bool { return len(code) >= n }
	switch {
	case has(1) && code[0]&0xf8 == 0x50, has(2) && code[0] == 0x41 && code[1]&0xf8 == 0x50:
		return Push, true
	case has(2) && (code[0] == 0xeb || code[0]&0xf0 == 0x70),
		has(5) && (code[0] == 0xe9 || code[0] == 0xe8),
		has(6) && code[0] == 0x0f && code[1]&0xf0 == 0x80:
		return Jump, true
	}
	return Stepped, false
}

// longNops are the nops of more than one instruction byte that recent kernels emulate. They
// compare with these encodings; others that mean the same are stepped. nop5 is left out.
var longNops = [][]byte{
	{0x0f, 0x1f, 0x00},
	{0x0f, 0x1f, 0x40, 0x00},
	{0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00},
	{0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00},
	{0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00},
}

func hasLongNop(code []byte) bool {
	return slices.ContainsFunc(longNops, func(nop []byte) bool { return bytes.HasPrefix(code, nop) })
}

// nopLength returns the length of the nop at the start of code, 0 if there is none. Forms with
// a segment prefix are not counted: older kernels refuse probes on them.
func nopLength(code []byte) int {
	p := 0
	for p < len(code) && p < 4 && code[p] == 0x66 {
		p++
	}
	rest := code[p:]
	if len(rest) >= 1 && rest[0] == 0x90 {
		return p + 1
	}
	if len(rest) < 3 || rest[0] != 0x0f || rest[1] != 0x1f || rest[2]>>3&7 != 0 {
		return 0
	}
	n := 3
	mod, rm := rest[2]>>6, rest[2]&7
	if mod != 3 && rm == 4 {
		n++ // scale-index-base byte
	}
	switch mod {
	case 1:
		n++
	case 2:
		n += 4
	case 0:
		if rm == 5 || rm == 4 && len(rest) > 3 && rest[3]&7 == 5 {
			n += 4
		}
	}
	if n > len(rest) {
		return 0
	}
	return p + n
}

var endbr64 = []byte{0xf3, 0x0f, 0x1e, 0xfa}

// harmless returns the length of the instruction at the start of code if a probe may be placed
// behind it, else 0: it always continues with the next instruction, leaves alone what must be
// the caller's at the site, and takes no noticeable time.
func harmless(code []byte) int {
	if bytes.HasPrefix(code, endbr64) {
		return len(endbr64)
	}
	if n := nopLength(code); n > 0 {
		return n
	}
	inst, err := x86asm.Decode(code, x86Mode)
	if err != nil || inst.Len > len(code) || hasLockOrRep(inst) {
		return 0
	}
	switch inst.Op {
	case x86asm.CMP, x86asm.TEST, x86asm.BT, x86asm.NOP:
		return inst.Len // write flags at most
	case x86asm.MOV, x86asm.MOVZX, x86asm.MOVSX, x86asm.MOVSXD, x86asm.LEA,
		x86asm.ADD, x86asm.SUB, x86asm.AND, x86asm.OR, x86asm.XOR, x86asm.ADC, x86asm.SBB,
		x86asm.INC, x86asm.DEC, x86asm.NEG, x86asm.NOT, x86asm.SHL, x86asm.SHR, x86asm.SAR:
		if mayWrite(inst.Args[0], inst.MemBytes) {
			return inst.Len
		}
	}
	return 0
}

func hasLockOrRep(inst x86asm.Inst) bool {
	for _, p := range inst.Prefix {
		switch p &^ (x86asm.PrefixImplicit | x86asm.PrefixIgnored) {
		case x86asm.PrefixLOCK, x86asm.PrefixREP, x86asm.PrefixREPN:
			return true
		}
	}
	return false
}

// mayWrite tells whether an instruction before the site may write to the operand.
func mayWrite(dst x86asm.Arg, size int) bool {
	switch a := dst.(type) {
	case x86asm.Reg:
		return scratch(a)
	case x86asm.Mem:
		// Through any other register it might write to the caller's stack, where the
		// return address and further arguments are.
		return a.Segment == 0 && a.Index == 0 &&
			(a.Base == x86asm.RIP || a.Base == x86asm.RSP && a.Disp+int64(size) <= 0)
	}
	return false
}

// scratch tells whether the register is one that nobody reads at the site: not the stack or
// frame pointer and none of the argument registers.
func scratch(r x86asm.Reg) bool {
	switch r {
	case x86asm.AL, x86asm.AH, x86asm.AX, x86asm.EAX, x86asm.RAX,
		x86asm.BL, x86asm.BH, x86asm.BX, x86asm.EBX, x86asm.RBX,
		x86asm.R10B, x86asm.R10W, x86asm.R10L, x86asm.R10, x86asm.R11B, x86asm.R11W, x86asm.R11L, x86asm.R11,
		x86asm.R12B, x86asm.R12W, x86asm.R12L, x86asm.R12, x86asm.R13B, x86asm.R13W, x86asm.R13L, x86asm.R13,
		x86asm.R14B, x86asm.R14W, x86asm.R14L, x86asm.R14, x86asm.R15B, x86asm.R15W, x86asm.R15L, x86asm.R15:
		return true
	}
	return false
}

// jumpsInto tells whether an instruction in code may jump into (0, site], which would make a
// probe there count something other than calls. Where instructions can be decoded they are;
// behind the first that can not, every byte is taken for the start of a jump, so the answer
// errs towards yes.
func jumpsInto(code []byte, site int) bool {
	pos := 0
	for pos < len(code) {
		n := decodedLength(code[pos:])
		if n == 0 {
			break
		}
		if lands(code, pos, site) {
			return true
		}
		pos += n
	}
	for ; pos < len(code); pos++ {
		if lands(code, pos, site) {
			return true
		}
	}
	return false
}

// decodedLength returns the length of the instruction, 0 if it is not certain. The decoder is
// not relied on for vector instructions, whose lengths it does not always know.
func decodedLength(code []byte) int {
	if bytes.HasPrefix(code, endbr64) {
		return len(endbr64)
	}
	switch code[0] {
	case 0x62, 0xc4, 0xc5:
		return 0
	}
	inst, err := x86asm.Decode(code, x86Mode)
	if err != nil || inst.Op == 0 {
		return 0
	}
	return inst.Len
}

// lands tells whether the bytes at pos, read as a relative jump, lead into (0, site].
func lands(code []byte, pos, site int) bool {
	b := code[pos:]
	for len(b) > 0 && (b[0] == 0xf2 || b[0] == 0x3e || b[0] == 0x2e) { // bnd, branch hints
		b, pos = b[1:], pos+1
	}
	target := -1
	switch {
	case len(b) >= 2 && (b[0] == 0xeb || b[0]&0xf0 == 0x70 || b[0]&0xfc == 0xe0): // jmp, jcc, loop, jrcxz
		target = pos + 2 + int(int8(b[1]))
	case len(b) >= 5 && (b[0] == 0xe9 || b[0] == 0xe8):
		target = pos + 5 + int(int32(binary.LittleEndian.Uint32(b[1:])))
	case len(b) >= 6 && b[0] == 0x0f && b[1]&0xf0 == 0x80:
		target = pos + 6 + int(int32(binary.LittleEndian.Uint32(b[2:])))
	}
	return target > 0 && target <= site
}
