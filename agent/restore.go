package agent

import (
	"bytes"
	"io"
	"time"

	"stageprof/agent/probe"
	"stageprof/agent/target"
)

// attached is a link, and what it has changed in the target.
type attached struct {
	io.Closer
	change *change
	by     *Session
}

func (a attached) Close() error {
	err := a.Closer.Close()
	if !a.change.awaitUndone(undonePatience) {
		a.by.config.Log.Debug("a probe is not seen to be off; somebody else may have one there", "address", a.change.address)
	}
	return err
}

// change is what probes change at the last of their points, in the target's memory. The
// kernel goes through the points in their order, also when it takes them off.
type change struct {
	process *target.Process
	address uint64
	before  []byte // the code, or a semaphore
}

const (
	instruction   = 4 // bytes that a breakpoint changes, or fewer
	semaphoreSize = 2
)

// changeOf returns what a probe on points will change, nil if that can't be told, as when
// somebody else has a probe there already.
func (s *Session) changeOf(file *target.File, mappings []target.Mapping, points []probe.Point) *change {
	if len(points) == 0 {
		return nil
	}
	last := points[len(points)-1]
	if address, ok := addressOf(mappings, last.Semaphore, isWritable); ok && last.Semaphore != 0 {
		before := make([]byte, semaphoreSize) // as many as trace it now
		if s.process.ReadMemory(address, before) != nil {
			return nil
		}
		return s.note(address, before)
	}
	address, ok := addressOf(mappings, last.Offset, isExecutable)
	before := make([]byte, instruction)
	if _, err := file.ReadAt(before, int64(last.Offset)); err != nil || !ok {
		return nil
	}
	return s.note(address, before)
}

func isWritable(m target.Mapping) bool   { return m.Write }
func isExecutable(m target.Mapping) bool { return m.Exec }

// note keeps what was at an address before any probe of this session, nil if it is
// something else already.
func (s *Session) note(address uint64, before []byte) *change {
	if known, ok := s.changes[address]; ok {
		return known
	}
	now := make([]byte, len(before))
	if s.process.ReadMemory(address, now) == nil && bytes.Equal(now, before) {
		s.changes[address] = &change{process: s.process, address: address, before: before}
	} else {
		s.changes[address] = nil
	}
	return s.changes[address]
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

// undonePatience is a multiple of the tens of milliseconds that a worker of the kernel's takes.
const (
	undonePatience = 500 * time.Millisecond
	undonePoll     = time.Millisecond
)

// awaitUndone returns whether what was there before is there again. What is mapped no longer,
// or another program's, is not changed any more either.
func (c *change) awaitUndone(patience time.Duration) bool {
	now := make([]byte, len(c.before))
	for end := time.Now().Add(patience); ; time.Sleep(undonePoll) {
		if c.process.ReadMemory(c.address, now) != nil || bytes.Equal(now, c.before) {
			return true
		}
		if execed, err := c.process.Execed(); err != nil || execed {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}
