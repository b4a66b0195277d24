package gil

import "errors"

// getterSize bounds the code that is decoded: the functions looked at load one variable and return
// it, some after a check, in at most 56 bytes in the builds seen.
const getterSize = 96

// decoder follows the code of a function that returns a thread-local variable, loaded at link-time
// address pc, and says how it reaches the variable. It follows the straight path only, up to the first
// return or test of the result.
type decoder func(code []byte, pc uint64) (access, error)

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

// dereference says what the eight bytes are that a register points to.
func dereference(at content) content {
	switch at.kind {
	case pointer:
		return content{kind: variable, access: at.access}
	case address: // a slot of the global offset table
		return content{kind: offset, access: access{anchor: fromGOT, slot: at.addr}}
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
