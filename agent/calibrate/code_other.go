//go:build !amd64

package calibrate

import "stageprof/agent/elfsym"

type stub struct {
	class elfsym.Class
	code  []byte
	skip  uint64
}

// stubs is empty: the machine code exists for amd64 only, so elsewhere
// durations are reported as measured.
var stubs []stub

type functionStub struct {
	code []byte
	exit uint64
}

const (
	returning = iota
	jumping
)

var functionStubs []functionStub

func callLoop(uintptr, int) {}
