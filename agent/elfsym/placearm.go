package elfsym

import "encoding/binary"

// classARM64 tells how the kernel executes the first instruction: it simulates nops and
// relative branches, and single-steps what a prologue usually begins with.
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
		insn&0x7e000000 == 0x36000000: // tbz, tbnz
		return Jump
	}
	return Stepped
}
