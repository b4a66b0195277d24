package elfsym

import "encoding/binary"

// classARM64 tells how the kernel executes the first instruction: it simulates nops and what is
// relative to the program counter, or branches, and single-steps what a prologue usually begins
// with. Linux before 6.12 steps nops, too: what a class costs is measured where it runs.
func classARM64(code []byte) Class {
	if len(code) < 4 {
		return Stepped
	}
	insn := binary.LittleEndian.Uint32(code)
	switch {
	case insn == 0xd503201f: // nop
		return Nop
	case insn&0x7c000000 == 0x14000000, // b, bl
		insn&0xff000010 == 0x54000000, // b.cond
		insn&0x7e000000 == 0x34000000, // cbz, cbnz
		insn&0x7e000000 == 0x36000000, // tbz, tbnz
		insn&0xff9ffc1f == 0xd61f0000, // br, blr, ret
		insn&0x1f000000 == 0x10000000, // adr, adrp
		insn&0xbf000000 == 0x18000000: // ldr of a literal
		return Jump
	}
	return Stepped
}
