package gil

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// DebugSupport says where the main thread of a running CPython, 3.14 or newer, takes the request to
// execute a script (PEP 768). Addresses are the target's.
type DebugSupport struct {
	Version string // "3.14.10"
	Path    string // of the interpreter's file, as the target maps it

	Enabled     uint64 // of 4 bytes, 1 while requests are allowed
	EvalBreaker uint64 // of 8 bytes; its lowest ones make the main thread look for requests
	Pending     uint64 // of 4 bytes, 1 while a request waits
	ScriptPath  uint64 // of the script's path, which a zero byte ends
	PathSize    int    // of that buffer in bytes
}

// ErrNoDebugSupport is wrapped by errors that say why a process takes no requests.
var ErrNoDebugSupport = errors.New("it executes no scripts on request")

// debugSupportFields are where the table of debug offsets holds what PEP 768 needs, in bytes.
type debugSupportFields struct{ mainThread, support int }

// A later version's table is laid out in another way; each has to be looked up.
var debugSupportFieldsOf = map[int]debugSupportFields{
	14: {mainThread: 80, support: 712},
}

// debugSupportSize covers the six 8-byte fields from support on.
const debugSupportSize = 6 * 8

// largestScriptPath bounds what is believed of the buffer's size: it has 512 bytes in 3.14.
const largestScriptPath = 64 << 10

// FindDebugSupport finds where to put a request for the interpreter that a process runs. mem must be
// the same process's memory.
func FindDebugSupport(p Process, mem interface {
	ReadMemory(addr uint64, b []byte) error
}) (DebugSupport, error) {
	mappings, err := p.Mappings()
	if err != nil {
		return DebugSupport{}, err
	}
	f := finder{process: p}
	found := f.interpreters(mappings)
	s, err := debugSupport(mem, found, f.unreadable)
	return s, errors.Join(err, f.close())
}

func debugSupport(mem reader, found []interpreter, unreadable []error) (DebugSupport, error) {
	if len(found) == 0 {
		if len(unreadable) > 0 {
			return DebugSupport{}, join(unreadable)
		}
		return DebugSupport{}, fmt.Errorf("%w: there is no Python in it", ErrNoDebugSupport)
	}
	in, d, _, err := choose(mem, found)
	if err != nil {
		return DebugSupport{}, fmt.Errorf("%w: %w", ErrNoDebugSupport, err)
	}
	fields, err := supportFields(in, d)
	if err != nil {
		return DebugSupport{}, fmt.Errorf("%w: %w", ErrNoDebugSupport, err)
	}
	s, err := in.read(mem, d).debugSupport(fields)
	s.Version, s.Path = d.version.String(), in.path
	return s, err
}

// supportFields refuses interpreters for which a request would be unsafe or unheard.
func supportFields(in interpreter, d description) (debugSupportFields, error) {
	switch {
	case in.kind == otherPython:
		return debugSupportFields{}, errors.New("this is PyPy")
	case !d.known:
		return debugSupportFields{}, errors.New("the version of this Python can't be told")
	case in.selfErr != nil:
		return debugSupportFields{}, in.selfErr
	case d.version.before(3, 14):
		return debugSupportFields{}, fmt.Errorf("this is Python %s, and only 3.14 and newer do", d.version)
	}
	fields, ok := debugSupportFieldsOf[d.version.minor]
	switch {
	case !ok || d.layout == nil:
		return fields, fmt.Errorf("how Python %s takes them is not known", d.version)
	case d.freeThreaded:
		// Its threads' flags are set once, not again with each taking of the lock, so one that
		// another thread sets while they are written would be lost for good.
		return fields, errors.New("a free-threaded Python can't be asked without stopping it")
	case !d.initialised:
		return fields, errors.New("this Python has not started yet")
	}
	return fields, nil
}

// debugSupport reads where the main thread of the main interpreter takes requests.
func (r pyRuntime) debugSupport(fields debugSupportFields) (DebugSupport, error) {
	var s DebugSupport
	err := retry(func() error {
		interp, err := r.mainInterpreter()
		if err == nil && interp == 0 {
			err = errLists
		}
		if err == nil {
			s, err = r.debugSupportOf(interp, fields)
		}
		return err
	})
	return s, err
}

func (r pyRuntime) debugSupportOf(interp uint64, fields debugSupportFields) (DebugSupport, error) {
	mainThread, err := word(r.mem, r.addr+uint64(fields.mainThread))
	if err != nil {
		return DebugSupport{}, err
	}
	offsets, err := readSupportOffsets(r.mem, r.addr+uint64(fields.support))
	if err != nil || mainThread > largestOffset {
		return DebugSupport{}, errors.Join(err, offsetError(mainThread))
	}
	ts, err := word(r.mem, interp+mainThread)
	if err != nil {
		return DebugSupport{}, err
	}
	if ts == 0 {
		return DebugSupport{}, fmt.Errorf("%w: its main thread runs no Python (any more)", ErrNoDebugSupport)
	}
	tp, err := r.threadPointer(ts, interp)
	if err == nil && !r.isThreadPointer(r.mem, tp) {
		err = errLists
	}
	return DebugSupport{
		Enabled:     interp + offsets.enabled,
		EvalBreaker: ts + offsets.evalBreaker,
		Pending:     ts + offsets.support + offsets.pending,
		ScriptPath:  ts + offsets.support + offsets.path,
		PathSize:    int(offsets.pathSize),
	}, err
}

// supportOffsets are bytes from the thread state (evalBreaker, support), from the interpreter state
// (enabled), and from support in the thread state (pending, path).
type supportOffsets struct{ evalBreaker, support, enabled, pending, path, pathSize uint64 }

func readSupportOffsets(mem reader, addr uint64) (supportOffsets, error) {
	b := make([]byte, debugSupportSize)
	if err := mem.ReadMemory(addr, b); err != nil {
		return supportOffsets{}, err
	}
	field := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	o := supportOffsets{field(0), field(1), field(2), field(3), field(4), field(5)}
	for i := range debugSupportSize / 8 {
		if err := offsetError(field(i)); err != nil {
			return supportOffsets{}, err
		}
	}
	// All of it has to lie apart in the thread state, in the order in which it was declared there:
	// this is what gets written.
	if o.evalBreaker+8 > o.support || o.pending+4 > o.path || o.pathSize < 2 || o.pathSize > largestScriptPath {
		return supportOffsets{}, fmt.Errorf("its debug offsets for requests are %v", o)
	}
	return o, nil
}

func offsetError(offset uint64) error {
	if offset > largestOffset {
		return fmt.Errorf("its debug offsets hold %#x", offset)
	}
	return nil
}
