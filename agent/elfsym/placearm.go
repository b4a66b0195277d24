package elfsym

import "encoding/binary"

// classARM64 tells how the kernel executes the first instruction: it simulates nops, branches and
// addresses relative to the program counter, and single-steps what a prologue usually begins with.
// Some kernels step nops, too: what a class costs is measured where it runs.
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
		insn&0x1f000000 == 0x10000000: // adr, adrp
		return Jump
	}
	return Stepped
}

// loadsLiteral tells whether the first instruction loads what lies at a place relative to it: ldr,
// ldrsw or prfm of a literal. Under a probe kernels have done that as if the place were their own
// (CVE-2024-50099); newer ones refuse the probe.
func loadsLiteral(code []byte) bool {
	return len(code) >= 4 && binary.LittleEndian.Uint32(code)&0x3b000000 == 0x18000000
}
