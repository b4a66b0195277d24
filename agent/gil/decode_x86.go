package gil

import (
	"bytes"
	"fmt"

	"golang.org/x/arch/x86/x86asm"
)

var endbr64 = []byte{0xf3, 0x0f, 0x1e, 0xfa} // not known to x86asm

// decodeX86 is a [decoder].
func decodeX86(code []byte, pc uint64) (access, error) {
	var regs registersX86
	for len(code) > 0 {
		if bytes.HasPrefix(code, endbr64) {
			code, pc = code[len(endbr64):], pc+uint64(len(endbr64))
			continue
		}
		inst, err := x86asm.Decode(code, 64)
		if err != nil {
			return access{}, fmt.Errorf("decoding at %#x: %w", pc, err)
		}
		code, pc = code[inst.Len:], pc+uint64(inst.Len)
		if endsX86(inst) {
			return regs.result()
		}
		if err := regs.step(inst, pc); err != nil {
			return access{}, err
		}
	}
	return access{}, errNotGetter
}

// endsX86 reports whether the result is complete: it is returned, or compared with NULL.
func endsX86(inst x86asm.Inst) bool {
	switch inst.Op {
	case x86asm.RET:
		return true
	case x86asm.TEST, x86asm.CMP:
		return inst.Args[0] == x86asm.RAX
	}
	return false
}

// registersX86 holds what is known of RAX ... R15.
type registersX86 [16]content

// result is the variable in the return register. Variables lie below the thread pointer: what is above
// is the C library's, such as the stack protector's canary.
func (r *registersX86) result() (access, error) {
	rax := r.get(x86asm.RAX)
	if rax.kind != variable || rax.access.anchor == fromThreadPointer && rax.access.disp >= 0 {
		return access{}, errNotGetter
	}
	return rax.access, nil
}

func (r *registersX86) get(reg x86asm.Reg) content {
	if reg < x86asm.RAX || reg > x86asm.R15 {
		return content{}
	}
	return r[reg-x86asm.RAX]
}

// set notes what an instruction puts into a register; a write to a part of it makes it unknown.
func (r *registersX86) set(arg x86asm.Arg, c content) {
	reg, ok := arg.(x86asm.Reg)
	switch {
	case !ok: // memory: the getters store nothing that they use again
	case reg >= x86asm.RAX && reg <= x86asm.R15:
		r[reg-x86asm.RAX] = c
	case reg >= x86asm.EAX && reg <= x86asm.R15L:
		r[reg-x86asm.EAX] = content{}
	default:
		*r = registersX86{}
	}
}

// step follows one instruction; next is the link-time address of the one after it.
func (r *registersX86) step(inst x86asm.Inst, next uint64) error {
	switch inst.Op {
	case x86asm.NOP, x86asm.PUSH:
	case x86asm.POP, x86asm.SUB, x86asm.XOR, x86asm.AND:
		r.set(inst.Args[0], content{})
	case x86asm.LEAVE:
		r.set(x86asm.RBP, content{})
	case x86asm.MOV:
		r.set(inst.Args[0], r.load(inst.Args[1], next))
	case x86asm.LEA:
		mem, _ := inst.Args[1].(x86asm.Mem)
		r.set(inst.Args[0], r.point(mem, next))
	case x86asm.ADD:
		r.set(inst.Args[0], add(r.load(inst.Args[0], next), r.load(inst.Args[1], next)))
	case x86asm.CALL:
		return r.call(inst.Args[0])
	default:
		return fmt.Errorf("%w: %s", errNotGetter, inst.Op)
	}
	return nil
}

// load says what reading an operand gives.
func (r *registersX86) load(arg x86asm.Arg, next uint64) content {
	switch arg := arg.(type) {
	case x86asm.Reg:
		return r.get(arg)
	case x86asm.Imm:
		return content{kind: address, addr: uint64(arg)}
	case x86asm.Mem:
		at := r.point(arg, next)
		if at == (content{kind: pointer}) { // fs:0 holds the thread pointer itself
			return at
		}
		return dereference(at)
	}
	return content{}
}

// point says what a memory operand's address is.
func (r *registersX86) point(mem x86asm.Mem, next uint64) content {
	at := content{kind: address, addr: uint64(mem.Disp)}
	if mem.Base == x86asm.RIP {
		at.addr += next
	} else if mem.Base != 0 {
		at = add(r.get(mem.Base), at)
	}
	if mem.Index != 0 {
		if mem.Scale != 1 {
			return content{}
		}
		at = add(at, r.get(mem.Index))
	}
	switch mem.Segment {
	case 0:
		return at
	case x86asm.FS:
		return add(content{kind: pointer}, at)
	}
	return content{}
}

// call follows the two calls that a getter may make: __tls_get_addr with the address of a slot pair as
// its argument, and a TLS descriptor's function, which is called through the pair that RAX points to
// and leaves the other registers alone.
func (r *registersX86) call(target x86asm.Arg) error {
	rax, rdi := r.get(x86asm.RAX), r.get(x86asm.RDI)
	mem, indirect := target.(x86asm.Mem)
	switch {
	case indirect && rax.kind == address && mem == (x86asm.Mem{Base: x86asm.RAX}):
		r.set(x86asm.RAX, content{kind: offset, access: access{anchor: fromDescriptor, slot: rax.addr}})
	case rdi.kind == address && (!indirect || mem.Base == x86asm.RIP):
		*r = registersX86{}
		r.set(x86asm.RAX, content{kind: pointer, access: access{anchor: fromModule, slot: rdi.addr}})
	default:
		return fmt.Errorf("%w: an unknown call", errNotGetter)
	}
	return nil
}
