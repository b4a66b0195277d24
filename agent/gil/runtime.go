package gil

import (
	"errors"
	"fmt"
)

// The lists are as long as the target likes; these many links are followed.
const (
	maxInterpreters = 256
	maxThreads      = 1024
)

// attempts bounds how often a list that changed while it was read is read anew.
const attempts = 4

// pyRuntime is the interpreter's _PyRuntime in the target's memory.
type pyRuntime struct {
	mem    reader
	addr   uint64
	layout layout
	threads
}

var errLists = errors.New("its lists of interpreters and thread states are not as CPython's")

// mainInterpreter returns the first interpreter made: it ends the list, which grows at its head.
// 0 means that none is made yet.
func (r pyRuntime) mainInterpreter() (uint64, error) {
	next, err := word(r.mem, r.addr+r.layout.firstInterpreter)
	var interp uint64
	for n := 0; err == nil && next != 0; n++ {
		if n == maxInterpreters {
			return 0, errLists
		}
		interp = next
		next, err = word(r.mem, interp+r.layout.nextInterpreter)
	}
	return interp, err
}

// mainLock returns the main interpreter's lock, 3.12 and newer.
func (r pyRuntime) mainLock() (uint64, error) {
	interp, err := r.mainInterpreter()
	if err != nil {
		return 0, err
	}
	if interp == 0 {
		return 0, errLists
	}
	lock, err := word(r.mem, interp+r.layout.gil)
	if err == nil && lock == 0 {
		err = errLists
	}
	return lock, err
}

// threadPointers returns the thread pointers noted in an interpreter's thread states, newest first. It
// leaves out those of threads that ended without giving their state back.
func (r pyRuntime) threadPointers(interp uint64) ([]uint64, error) {
	var pointers []uint64
	ts, err := word(r.mem, interp+r.layout.firstThread)
	for n := 0; err == nil && ts != 0 && n < maxThreads; n++ {
		tp, err := r.threadPointer(ts, interp)
		if err != nil {
			return nil, err
		}
		if r.isThreadPointer(r.mem, tp) {
			pointers = append(pointers, tp)
		}
		if ts, err = word(r.mem, ts+r.layout.nextThread); err != nil {
			return nil, err
		}
	}
	return pointers, err
}

func (r pyRuntime) threadPointer(ts, interp uint64) (uint64, error) {
	owner, err := word(r.mem, ts+r.layout.interpreter)
	if err != nil {
		return 0, err
	}
	if owner != interp {
		return 0, errLists
	}
	return r.owner(ts)
}

// owner returns the thread pointer of the thread that a thread state is noted to be of.
func (r pyRuntime) owner(ts uint64) (uint64, error) {
	self, err := word(r.mem, ts+r.layout.threadID)
	return self + r.selfBelow, err
}

// check makes sure that the layout fits this process: a build with other options, or something that
// only calls itself _PyRuntime, would otherwise give wrong answers silently. Before the interpreter
// is initialised there is nothing to check.
func (r pyRuntime) check() error {
	return retry(func() error {
		interp, err := r.mainInterpreter()
		if err != nil || interp == 0 {
			return err
		}
		pointers, err := r.threadPointers(interp)
		if err == nil && len(pointers) == 0 {
			err = errLists
		}
		if err != nil {
			return err
		}
		return r.checkCurrent()
	})
}

// checkCurrent checks the pointer to the current thread state: NULL, or what it leads to names a
// thread.
func (r pyRuntime) checkCurrent() error {
	ts, err := word(r.mem, r.addr+r.layout.current)
	if err != nil || ts == 0 {
		return err
	}
	tp, err := r.owner(ts)
	if err == nil && !r.isThreadPointer(r.mem, tp) {
		err = errLists
	}
	return err
}

// retry gives the target's other threads time to finish what they change.
func retry(read func() error) error {
	var err error
	for range attempts {
		if err = read(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("reading %d times: %w", attempts, err)
}
