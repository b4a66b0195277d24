package gil

import "fmt"

// anchor says what a thread-local variable's address is counted from: the four ways in which
// compilers reach one.
type anchor uint8

const (
	fromThreadPointer anchor = iota // the offset from the thread pointer is in the code (local exec)
	fromGOT                         // the offset from the thread pointer is in a slot (initial exec)
	fromModule                      // a slot pair names module and offset (general or local dynamic)
	fromDescriptor                  // a slot pair holds a function and its argument (TLSDESC)
)

// access is how code reaches a thread-local variable: from the anchor, by way of the slot at link-time
// address slot where the anchor has one, plus disp bytes.
type access struct {
	anchor anchor
	slot   uint64
	disp   int64
}

func (a access) plus(n int64) access {
	a.disp += n
	return a
}

func (a access) String() string {
	switch a.anchor {
	case fromThreadPointer:
		return fmt.Sprintf("thread pointer%+d", a.disp)
	case fromGOT:
		return fmt.Sprintf("thread pointer+[%#x]%+d", a.slot, a.disp)
	case fromModule:
		return fmt.Sprintf("block of [%#x]%+d", a.slot, a.disp)
	case fromDescriptor:
		return fmt.Sprintf("descriptor [%#x]%+d", a.slot, a.disp)
	}
	return "invalid"
}
