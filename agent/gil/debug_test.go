package gil

import (
	"encoding/binary"
	"strings"
	"testing"
)

// fakeDebuggable is a running CPython 3.14 whose table of debug offsets is that of table(), apart
// from what it says about requests.
func fakeDebuggable() (fakeMemory, pyRuntime) {
	b := table(0x030e0af0)
	parsed, _, _ := parseDebugTable(b)
	l := *parsed.layout
	mem := fakeMemory{
		runtimeAddr + l.firstInterpreter: interpAddr,
		interpAddr + l.nextInterpreter:   0,
		interpAddr + 96:                  threadAddr, // its main thread
		threadAddr + l.interpreter:       interpAddr,
		threadAddr + l.threadID:          tpAddr,
		tpAddr:                           tpAddr,
	}
	mem[runtimeAddr+80] = 96
	for i, offset := range []uint64{24, 304, 4456, 0, 4, 512} {
		mem[runtimeAddr+712+uint64(8*i)] = offset
	}
	return mem, pyRuntime{mem, runtimeAddr, l, onX86}
}

func TestDebugSupport(t *testing.T) {
	_, r := fakeDebuggable()
	got, err := r.debugSupport(debugSupportFieldsOf[14])
	want := DebugSupport{
		Enabled: interpAddr + 4456, EvalBreaker: threadAddr + 24,
		Pending: threadAddr + 304, ScriptPath: threadAddr + 308, PathSize: 512,
	}
	if err != nil || got != want {
		t.Fatalf("got %+v, %v", got, err)
	}
}

// Nothing is written where the interpreter's structures are not as they should be.
func TestDebugSupportThatIsNotBelieved(t *testing.T) {
	for name, change := range map[string]func(fakeMemory){
		"no interpreter":         func(m fakeMemory) { m[runtimeAddr+40] = 0 },
		"no main thread":         func(m fakeMemory) { m[interpAddr+96] = 0 },
		"another's main thread":  func(m fakeMemory) { m[threadAddr+200] = 1 },
		"main thread has ended":  func(m fakeMemory) { m[tpAddr] = 0 },
		"wild main thread":       func(m fakeMemory) { m[interpAddr+96] = 0x4141414141414141 },
		"wild offset of thread":  func(m fakeMemory) { m[runtimeAddr+80] = 1 << 40 },
		"wild offset of enabled": func(m fakeMemory) { m[runtimeAddr+728] = 1 << 40 },
		"overlap with flags":     func(m fakeMemory) { m[runtimeAddr+720] = 24 },
		"path on the flag":       func(m fakeMemory) { m[runtimeAddr+744] = 0 },
		"no buffer":              func(m fakeMemory) { m[runtimeAddr+752] = 1 },
		"a large buffer":         func(m fakeMemory) { m[runtimeAddr+752] = 1 << 20 },
		"no table":               func(m fakeMemory) { delete(m, runtimeAddr+712) },
	} {
		t.Run(name, func(t *testing.T) {
			mem, r := fakeDebuggable()
			change(mem)
			if got, err := r.debugSupport(debugSupportFieldsOf[14]); err == nil {
				t.Errorf("it is believed: %+v", got)
			}
		})
	}
}

func TestDebugSupportRefused(t *testing.T) {
	in := interpreter{kind: cpython}
	known := func(minor int) description {
		return description{version: version{major: 3, minor: minor}, known: true, layout: &layout{}, initialised: true}
	}
	free := known(14)
	free.freeThreaded = true
	early := known(14)
	early.initialised = false
	for want, try := range map[string]struct {
		in interpreter
		d  description
	}{
		"only 3.14 and newer": {in, known(13)},
		"3.99.0 takes them":   {in, known(99)},
		"free-threaded":       {in, free},
		"not started":         {in, early},
		"can't be told":       {in, description{}},
		"PyPy":                {interpreter{kind: otherPython}, known(14)},
	} {
		if _, err := supportFields(try.in, try.d); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q in it", err, want)
		}
	}
	if _, err := supportFields(in, known(14)); err != nil {
		t.Errorf("3.14 is refused: %v", err)
	}
}

func FuzzSupportOffsets(f *testing.F) {
	b := make([]byte, debugSupportSize)
	for i, offset := range []uint64{24, 304, 4456, 0, 4, 512} {
		binary.LittleEndian.PutUint64(b[8*i:], offset)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		mem := fakeMemory{}
		for i := 0; i+8 <= len(b); i += 8 {
			mem[uint64(i)] = binary.LittleEndian.Uint64(b[i:])
		}
		o, err := readSupportOffsets(mem, 0)
		if err == nil && (o.pathSize > largestScriptPath || o.support+o.path+o.pathSize > 3*largestOffset) {
			t.Errorf("%v is believed", o)
		}
	})
}
