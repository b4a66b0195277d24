package gil

import (
	"bytes"
	"errors"
	"fmt"

	"golang.org/x/arch/x86/x86asm"
)

// getterSize bounds the code that is decoded: the functions looked at load one variable and return
// it, some after a check, in at most 46 bytes in the builds seen.
const getterSize = 96

var errNotGetter = errors.New("code that does not return a thread-local variable")

// content is what a register is known to hold.
type content struct {
	kind   contentKind
	addr   uint64 // kind address
	access access // the other kinds
}

type contentKind uint8

const (
	anything contentKind = iota
	address              // a link-time address
	offset               // access, as a number of bytes from the thread pointer
	pointer              // access, as a pointer to the variable
	variable             // the eight bytes that access leads to
)

var endbr64 = []byte{0xf3, 0x0f, 0x1e, 0xfa} // not known to x86asm

// decodeGetter follows the x86-64 code of a function that returns a thread-local variable, loaded at
// link-time address pc, and says how it reaches the variable. It follows the straight path only, up
// to the first return or test of the result.
func decodeGetter(code []byte, pc uint64) (access, error) {
	if len(code) > getterSize {
		code = code[:getterSize]
	}
	var regs registers
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
		if endsGetter(inst) {
			return regs.result()
		}
		if err := regs.step(inst, pc); err != nil {
			return access{}, err
		}
	}
	return access{}, errNotGetter
}

// endsGetter reports whether the result is complete: it is returned, or compared with NULL.
func endsGetter(inst x86asm.Inst) bool {
	switch inst.Op {
	case x86asm.RET:
		return true
	case x86asm.TEST, x86asm.CMP:
		return inst.Args[0] == x86asm.RAX
	}
	return false
}

// registers holds what is known of RAX ... R15.
type registers [16]content

// result is the variable in the return register. Variables lie below the thread pointer: what is above
// is the C library's, such as the stack protector's canary.
func (r *registers) result() (access, error) {
	rax := r.get(x86asm.RAX)
	if rax.kind != variable || rax.access.anchor == fromThreadPointer && rax.access.disp >= 0 {
		return access{}, errNotGetter
	}
	return rax.access, nil
}

func (r *registers) get(reg x86asm.Reg) content {
	if reg < x86asm.RAX || reg > x86asm.R15 {
		return content{}
	}
	return r[reg-x86asm.RAX]
}

// set notes what an instruction puts into a register; a write to a part of it makes it unknown.
func (r *registers) set(arg x86asm.Arg, c content) {
	reg, ok := arg.(x86asm.Reg)
	switch {
	case !ok: // memory: the getters store nothing that they use again
	case reg >= x86asm.RAX && reg <= x86asm.R15:
		r[reg-x86asm.RAX] = c
	case reg >= x86asm.EAX && reg <= x86asm.R15L:
		r[reg-x86asm.EAX] = content{}
	default:
		*r = registers{}
	}
}

// step follows one instruction; next is the link-time address of the one after it.
func (r *registers) step(inst x86asm.Inst, next uint64) error {
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
func (r *registers) load(arg x86asm.Arg, next uint64) content {
	switch arg := arg.(type) {
	case x86asm.Reg:
		return r.get(arg)
	case x86asm.Imm:
		return content{kind: address, addr: uint64(arg)}
	case x86asm.Mem:
		return dereference(r.point(arg, next))
	}
	return content{}
}

func dereference(at content) content {
	switch at.kind {
	case pointer:
		if at.access == (access{}) { // fs:0 holds the thread pointer itself
			return at
		}
		return content{kind: variable, access: at.access}
	case address: // a slot of the global offset table
		return content{kind: offset, access: access{anchor: fromGOT, slot: at.addr}}
	}
	return content{}
}

// point says what a memory operand's address is.
func (r *registers) point(mem x86asm.Mem, next uint64) content {
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

// add says what a sum is: numbers add up, and the thread pointer plus an offset is a pointer.
func add(a, b content) content {
	if a.kind == address {
		a, b = b, a
	}
	switch {
	case a.kind == address && b.kind == address:
		return content{kind: address, addr: a.addr + b.addr}
	case (a.kind == pointer || a.kind == offset) && b.kind == address:
		a.access = a.access.plus(int64(b.addr))
		return a
	case a.kind == pointer && b.kind == offset:
		return addOffset(a, b)
	case a.kind == offset && b.kind == pointer:
		return addOffset(b, a)
	}
	return content{}
}

func addOffset(base, off content) content {
	if base.access.anchor != fromThreadPointer {
		return content{}
	}
	return content{kind: pointer, access: off.access.plus(base.access.disp)}
}

// call follows the two calls that a getter may make: __tls_get_addr with the address of a slot pair as
// its argument, and a TLS descriptor's function, which is called through the pair that RAX points to
// and leaves the other registers alone.
func (r *registers) call(target x86asm.Arg) error {
	rax, rdi := r.get(x86asm.RAX), r.get(x86asm.RDI)
	mem, indirect := target.(x86asm.Mem)
	switch {
	case indirect && rax.kind == address && mem == (x86asm.Mem{Base: x86asm.RAX}):
		r.set(x86asm.RAX, content{kind: offset, access: access{anchor: fromDescriptor, slot: rax.addr}})
	case rdi.kind == address && (!indirect || mem.Base == x86asm.RIP):
		*r = registers{}
		r.set(x86asm.RAX, content{kind: pointer, access: access{anchor: fromModule, slot: rdi.addr}})
	default:
		return fmt.Errorf("%w: an unknown call", errNotGetter)
	}
	return nil
}
