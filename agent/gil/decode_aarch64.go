package gil

import (
	"encoding/binary"
	"errors"
	"fmt"
)

var errNotSelf = errors.New("code that does not return a place below the thread pointer")

// decodeAArch64 is a [decoder].
func decodeAArch64(code []byte, pc uint64) (access, error) {
	c, err := followAArch64(code, pc)
	if err != nil {
		return access{}, err
	}
	// Between the thread pointer and the variables lies what the C library keeps of the thread.
	if c.kind != variable || c.access.anchor == fromThreadPointer && c.access.disp < threadHead {
		return access{}, errNotGetter
	}
	return c.access, nil
}

// decodeSelf follows the code of pthread_self and says how far below the thread pointer the address is
// that it returns, in bytes.
func decodeSelf(code []byte) (uint64, error) {
	c, err := followAArch64(code, 0)
	self := c.kind == pointer && c.access.anchor == fromThreadPointer
	if err != nil || !self || c.access.disp > 0 || c.access.disp < -largestSelf {
		return 0, errNotSelf
	}
	return uint64(-c.access.disp), nil
}

// followAArch64 follows code of AArch64 up to the first return or comparison with NULL, and says what is
// known of what is returned or compared.
func followAArch64(code []byte, pc uint64) (content, error) {
	var regs registersAArch64
	for ; len(code) >= 4; code, pc = code[4:], pc+4 {
		insn := word32(binary.LittleEndian.Uint32(code))
		if register, ok := insn.ends(); ok {
			return regs.get(register), nil
		}
		if err := regs.step(insn, pc); err != nil {
			return content{}, err
		}
	}
	return content{}, errNotGetter
}

// word32 is an instruction. Its fields are those of the architecture's manual: Rd, Rn and Rm are numbers
// of registers, 31 is the stack pointer or zero, as the instruction has it.
type word32 uint32

func (w word32) is(mask, value uint32) bool { return uint32(w)&mask == value }

func (w word32) bits(low, count uint) uint64 { return uint64(w) >> low & (1<<count - 1) }

func (w word32) rd() uint64 { return w.bits(0, 5) }
func (w word32) rn() uint64 { return w.bits(5, 5) }
func (w word32) rm() uint64 { return w.bits(16, 5) }

// ends reports whether the result is complete, and in which register it is.
func (w word32) ends() (register uint64, ok bool) {
	switch {
	case w.is(0xffffffff, 0xd65f03c0), // ret
		w.is(0xfffffbff, 0xd65f0bff): // retaa, retab
		return 0, true
	case w.is(0xfe000000, 0xb4000000): // cbz Xt, cbnz Xt
		return w.rd(), true
	case w.is(0xfffffc1f, 0xf100001f): // cmp Xn, #0
		return w.rn(), true
	}
	return 0, false
}

// page is what adrp at pc leads to.
func (w word32) page(pc uint64) uint64 {
	pages := int64(w.bits(5, 19)<<2|w.bits(29, 2)) << 43 >> 31 // 21 bits with a sign, of 4 KiB each
	return pc&^0xfff + uint64(pages)
}

// immediate is the number that add and sub have in them.
func (w word32) immediate() uint64 { return w.bits(10, 12) << (12 * w.bits(22, 1)) }

// registersAArch64 holds what is known of X0 ... X30.
type registersAArch64 [31]content

func (r *registersAArch64) get(register uint64) content {
	if register >= uint64(len(r)) {
		return content{}
	}
	return r[register]
}

func (r *registersAArch64) set(register uint64, c content) {
	if register < uint64(len(r)) {
		r[register] = c
	}
}

// step follows the instruction at link-time address pc. All of them are of 64 bits.
func (r *registersAArch64) step(w word32, pc uint64) error {
	number := func(n uint64) content { return content{kind: address, addr: n} }
	switch {
	case w.is(0xfffff01f, 0xd503201f), // nop, bti, paciasp, autiasp
		w.is(0xffffebff, 0xdac103fe), // pacia, autia of the return address
		w.is(0xfe4003e0, 0xa80003e0), // stp to the stack
		w.is(0xffe00fe0, 0xf8000fe0), // str Xt, [sp, #imm]!
		w.is(0xffc003e0, 0xf90003e0): // str Xt, [sp, #imm]
	case w.is(0xfe4003e0, 0xa84003e0): // ldp from the stack
		r.set(w.rd(), content{})
		r.set(w.bits(10, 5), content{})
	case w.is(0xffe00fe0, 0xf84007e0): // ldr Xt, [sp], #imm
		r.set(w.rd(), content{})
	case w.is(0xffffffe0, 0xd53bd040): // mrs Xd, tpidr_el0
		r.set(w.rd(), content{kind: pointer})
	case w.is(0x9f000000, 0x90000000): // adrp
		r.set(w.rd(), number(w.page(pc)))
	case w.is(0xff800000, 0x91000000): // add Xd, Xn, #imm
		r.set(w.rd(), add(r.get(w.rn()), number(w.immediate())))
	case w.is(0xff800000, 0xd1000000): // sub Xd, Xn, #imm
		r.set(w.rd(), add(r.get(w.rn()), number(-w.immediate())))
	case w.is(0xffe0fc00, 0x8b000000): // add Xd, Xn, Xm
		r.set(w.rd(), add(r.get(w.rn()), r.get(w.rm())))
	case w.is(0xffe0ffe0, 0xaa0003e0): // mov Xd, Xm
		r.set(w.rd(), r.get(w.rm()))
	case w.is(0xff800000, 0xd2800000): // movz
		r.set(w.rd(), number(w.bits(5, 16)<<w.half()))
	case w.is(0xff800000, 0xf2800000): // movk
		r.set(w.rd(), r.get(w.rd()).withBits(w.bits(5, 16), w.half()))
	case w.is(0xffc00000, 0xf9400000): // ldr Xt, [Xn, #imm]
		r.set(w.rd(), dereference(add(r.get(w.rn()), number(8*w.bits(10, 12)))))
	case w.is(0xffe0fc00, 0xf8606800): // ldr Xt, [Xn, Xm]
		r.set(w.rd(), dereference(add(r.get(w.rn()), r.get(w.rm()))))
	default:
		return r.call(w)
	}
	return nil
}

// half is where the 16 bits go that movz and movk have in them.
func (w word32) half() uint64 { return 16 * w.bits(21, 2) }

// withBits replaces sixteen bits of a number.
func (c content) withBits(value, at uint64) content {
	if c.kind != address {
		return content{}
	}
	return content{kind: address, addr: c.addr&^(0xffff<<at) | value<<at}
}

// call follows the two calls that a getter may make: __tls_get_addr with the address of a slot pair in
// X0, and a TLS descriptor's function, which is loaded from the pair that X0 points to and leaves the
// other registers alone.
func (r *registersAArch64) call(w word32) error {
	pair := r.get(0)
	descriptor := content{kind: offset, access: access{anchor: fromGOT, slot: pair.addr}}
	switch {
	case pair.kind == address && w.is(0xfffffc1f, 0xd63f0000) && r.get(w.rn()) == descriptor: // blr
		r.set(0, content{kind: offset, access: access{anchor: fromDescriptor, slot: pair.addr}})
		r.set(30, content{})
	case pair.kind == address && w.is(0xfc000000, 0x94000000): // bl
		*r = registersAArch64{}
		r.set(0, content{kind: pointer, access: access{anchor: fromModule, slot: pair.addr}})
	default:
		return fmt.Errorf("%w: the instruction %#08x", errNotGetter, uint32(w))
	}
	return nil
}
