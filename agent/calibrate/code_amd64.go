package calibrate

import "stageprof/agent/elfsym"

// callLoop calls the function at address n times.
//
//go:noescape
func callLoop(address uintptr, n int)

// stub is a function to measure on, with the probe at entry + skip.
type stub struct {
	class elfsym.Class
	code  []byte
	skip  uint64
}

// stubs has one function of each class: the entry instruction, mov $3,%eax, ret.
var stubs = []stub{
	{elfsym.Jump, []byte{
		0x81, 0x3d, 0xf6, 0x0f, 0x00, 0x00, 0x00, 0xba, 0x1c, 0x32, // cmpl $0x321cba00, data page
		0x74, 0x00, // je to the next instruction
		0xb8, 3, 0, 0, 0, 0xc3,
	}, 10},
	{elfsym.Push, []byte{0x55, 0x48, 0x89, 0xe5, 0xb8, 3, 0, 0, 0, 0x5d, 0xc3}, 0},
	{elfsym.Nop, []byte{0x90, 0xb8, 3, 0, 0, 0, 0xc3}, 0},
	{elfsym.Stepped, []byte{0x48, 0x83, 0xec, 0x08, 0x48, 0x83, 0xc4, 0x08, 0xb8, 3, 0, 0, 0, 0xc3}, 0},
}

// functionStub is a function to follow, with its exit behind so many bytes.
type functionStub struct {
	code []byte
	exit uint64
}

const (
	returning = iota
	jumping
)

// functionStubs has a function for each way to end: push %rbp, pop %rbp, and
// ret, or a jump to one.
var functionStubs = []functionStub{
	returning: {[]byte{0x55, 0x5d, 0xc3}, 2},
	jumping:   {[]byte{0x55, 0x5d, 0xe9, 0, 0, 0, 0, 0xc3}, 2},
}
