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

// functionStub is a function to follow, with its exit behind so many bytes.
type functionStub struct {
	code []byte
	exit uint64
}

// The functions to follow, by how they end.
const (
	returning = iota
	jumping
)
