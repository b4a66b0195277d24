package agent

import (
	"io"
	"time"

	"github.com/cilium/ebpf"

	"stageprof/agent/probe"
	"stageprof/agent/target"
)

// attach puts a program on points of a file of which the target has some mappings.
// Closing the result returns when they are off, although the kernel may take them off
// by itself, a moment later (see [probe.Attacher]).
func (s *Session) attach(how attachment, file *target.File, mappings []target.Mapping, program *ebpf.Program, points []probe.Point) (io.Closer, error) {
	change := s.changeOf(mappings, points)
	l, err := how(s.attacher, file.AttachPath(), program, points)
	if err != nil || change == nil {
		return l, err
	}
	return attached{l, change}, nil
}

// attachment is a method of [probe.Attacher].
type attachment func(probe.Attacher, string, *ebpf.Program, []probe.Point) (io.Closer, error)

// attached is a link, and what it has changed in the target.
type attached struct {
	io.Closer
	change *change
}

func (a attached) Close() error {
	err := a.Closer.Close()
	a.change.awaitUndone()
	return err
}

// change is what probes change last at the last of their points, in the target's memory.
type change struct {
	process *target.Process
	address uint64
	before  [2]byte // of an instruction, or a semaphore
}

// changeOf reads what a probe on points will change, nil if that is not known.
func (s *Session) changeOf(mappings []target.Mapping, points []probe.Point) *change {
	if len(points) == 0 {
		return nil
	}
	last := points[len(points)-1]
	address, ok := addressOf(mappings, last.Semaphore, func(m target.Mapping) bool { return last.Semaphore != 0 && m.Write })
	if !ok {
		address, ok = addressOf(mappings, last.Offset, func(m target.Mapping) bool { return m.Exec })
	}
	if !ok {
		return nil
	}
	if known := s.changes[address]; known != nil {
		return known // what was there before all probes of this session
	}
	c := &change{process: s.process, address: address}
	if s.process.ReadMemory(address, c.before[:]) != nil {
		return nil
	}
	s.changes[address] = c
	return c
}

// addressOf returns the address of a place in a file by the first mapping of a kind that has it.
func addressOf(mappings []target.Mapping, offset uint64, kind func(target.Mapping) bool) (uint64, bool) {
	for _, m := range mappings {
		if kind(m) && m.Offset <= offset && offset-m.Offset < m.End-m.Start {
			return m.Start + offset - m.Offset, true
		}
	}
	return 0, false
}

// The kernel's worker begins some 20 ms after it was asked to take probes off.
const (
	undonePoll     = time.Millisecond
	undonePatience = 500 * time.Millisecond // beyond it somebody else has a probe there
)

// awaitUndone returns when what was there before is back, or the memory is another program's.
func (c *change) awaitUndone() {
	for end := time.Now().Add(undonePatience); time.Now().Before(end); time.Sleep(undonePoll) {
		now := *c
		if c.process.ReadMemory(c.address, now.before[:]) != nil || now == *c {
			return
		}
		if execed, err := c.process.Execed(); err != nil || execed {
			return
		}
	}
}
