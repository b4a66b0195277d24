package gil

import (
	"encoding/binary"
	"fmt"
)

// layout holds the few offsets into CPython's structures that a plan, or checking it, needs: bytes
// from the start of the structure named.
type layout struct {
	// _PyRuntime
	firstInterpreter uint64 // interpreters.head
	current          uint64 // gilstate.tstate_current, up to 3.11
	lock             uint64 // ceval.gil, up to 3.11

	// interpreter state
	nextInterpreter uint64
	firstThread     uint64
	gil             uint64 // pointer to the interpreter's lock, 3.12 and newer

	// thread state
	nextThread  uint64
	interpreter uint64
	threadID    uint64

	// lock
	enabled uint64 // free-threaded builds
}

// A lock begins with what it is about; two pairs of a condition variable and a mutex follow, up to its
// end. Free-threaded builds put lockShift bytes before all that. So it is in 3.8 to 3.14.
const (
	lockWordsStart = 32
	lockShift      = 8
)

// layouts are those of the versions that do not describe themselves, by minor version, on x86-64. They
// were read from the debug information of release builds and are the same for each micro version.
// [machine.layout] is for all processors.
var layouts = map[int]layout{
	8:  {firstInterpreter: 32, current: 1368, lock: 1152, firstThread: 8, nextThread: 8, interpreter: 16, threadID: 176},
	9:  {firstInterpreter: 32, current: 568, lock: 352, firstThread: 8, nextThread: 8, interpreter: 16, threadID: 176},
	10: {firstInterpreter: 32, current: 568, lock: 352, firstThread: 8, nextThread: 8, interpreter: 16, threadID: 176},
	11: {firstInterpreter: 40, current: 576, lock: 360, firstThread: 16, nextThread: 8, interpreter: 16, threadID: 152},
	12: {firstInterpreter: 40, firstThread: 72, gil: 384, nextThread: 8, interpreter: 16, threadID: 136},
}

// debugCookie begins _PyRuntime since 3.13: a table of offsets for debuggers follows.
const debugCookie = "xdebugpy"

// debugTableSize covers all fields of that table that are read here.
const debugTableSize = 256

// debugTable is what is read of that table.
type debugTable struct {
	version      version
	freeThreaded bool
	layout       *layout // nil for versions whose table is not known
}

// debugFields are the positions in the table, in bytes, of the fields that moved between versions.
type debugFields struct{ gil, enabled, nextThread, interpreter, threadID int }

var debugFieldsOf = map[int]debugFields{
	13: {gil: 112, enabled: 128, nextThread: 168, interpreter: 176, threadID: 192},
	14: {gil: 120, enabled: 136, nextThread: 192, interpreter: 200, threadID: 216},
	15: {gil: 120, enabled: 136, nextThread: 192, interpreter: 200, threadID: 240},
}

// largestOffset bounds what is believed: _PyRuntime of 3.12, the largest, has 460 kB.
const largestOffset = 4 << 20

// parseDebugTable reads the first debugTableSize bytes of _PyRuntime. ok is false when they are no
// such table, which is no error: versions before 3.13 have none.
func parseDebugTable(b []byte) (table debugTable, ok bool, err error) {
	if len(b) < debugTableSize || string(b[:len(debugCookie)]) != debugCookie {
		return debugTable{}, false, nil
	}
	field := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	if table.version, ok = versionFromHex(field(8)); !ok || table.version.before(3, 13) {
		return debugTable{}, false, fmt.Errorf("its debug offsets name version %#x", field(8))
	}
	table.freeThreaded = field(16) != 0
	at, known := debugFieldsOf[table.version.minor]
	if !known {
		return table, true, nil
	}
	table.layout = &layout{
		firstInterpreter: field(40),
		nextInterpreter:  field(64),
		firstThread:      field(72),
		gil:              field(at.gil),
		enabled:          field(at.enabled),
		nextThread:       field(at.nextThread),
		interpreter:      field(at.interpreter),
		threadID:         field(at.threadID),
	}
	return table, true, table.layout.check()
}

func (l *layout) check() error {
	for _, offset := range []uint64{
		l.firstInterpreter, l.nextInterpreter, l.firstThread, l.gil, l.enabled,
		l.nextThread, l.interpreter, l.threadID,
	} {
		if offset > largestOffset {
			return fmt.Errorf("its debug offsets hold %#x", offset)
		}
	}
	return nil
}
