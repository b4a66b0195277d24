package gil

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
)

const (
	runtimeAddr = 0x100000
	interpAddr  = 0x200000
	threadAddr  = 0x300000
	tpAddr      = 0x400000
	dtvAddr     = 0x500000
)

var (
	onX86 = threads{machine: machines[elf.EM_X86_64], glibc: true}
	onARM = threads{machine: machines[elf.EM_AARCH64], glibc: true, selfBelow: 0x740}
)

// fakeRuntime is CPython 3.8 with one interpreter and two threads, of which the first holds the lock.
func fakeRuntime() fakeMemory {
	l := layouts[8]
	return fakeMemory{
		runtimeAddr + l.firstInterpreter:    interpAddr,
		runtimeAddr + l.current:             threadAddr,
		interpAddr + l.nextInterpreter:      0,
		interpAddr + l.firstThread:          threadAddr,
		threadAddr + l.nextThread:           threadAddr + 0x1000,
		threadAddr + l.interpreter:          interpAddr,
		threadAddr + l.threadID:             tpAddr,
		threadAddr + 0x1000 + l.nextThread:  0,
		threadAddr + 0x1000 + l.interpreter: interpAddr,
		threadAddr + 0x1000 + l.threadID:    tpAddr + 0x1000,
		tpAddr:                              tpAddr,
		tpAddr + 0x1000:                     tpAddr + 0x1000,
	}
}

func TestRuntimeCheck(t *testing.T) {
	l := layouts[8]
	for _, tc := range []struct {
		name   string
		change func(fakeMemory)
		want   error
	}{
		{"as CPython's", func(fakeMemory) {}, nil},
		{"released", func(m fakeMemory) { m[runtimeAddr+l.current] = 0 }, nil},
		{"a thread ended", func(m fakeMemory) { delete(m, tpAddr+0x1000) }, nil},
		{"not initialised", func(m fakeMemory) { m[runtimeAddr+l.firstInterpreter] = 0 }, nil},
		{"endless interpreters", func(m fakeMemory) { m[interpAddr+l.nextInterpreter] = interpAddr }, errLists},
		{"endless threads", func(m fakeMemory) { m[threadAddr+0x1000+l.nextThread] = threadAddr }, nil},
		{"another's thread", func(m fakeMemory) { m[threadAddr+l.interpreter] = 1 }, errLists},
		{"no thread pointers", func(m fakeMemory) { m[tpAddr], m[tpAddr+0x1000] = 0, 0 }, errLists},
		{"no threads", func(m fakeMemory) { m[interpAddr+l.firstThread] = 0 }, errLists},
		{"wild holder", func(m fakeMemory) { m[runtimeAddr+l.current] = interpAddr }, errUnmapped},
		{"holder that is no thread", func(m fakeMemory) {
			m[runtimeAddr+l.current] = interpAddr
			m[interpAddr+l.threadID] = 7
		}, errLists},
		{"wild interpreter", func(m fakeMemory) { m[runtimeAddr+l.firstInterpreter] = 0x4141414141414141 }, errUnmapped},
		{"wild thread", func(m fakeMemory) { m[interpAddr+l.firstThread] = 0x4141414141414141 }, errUnmapped},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mem := fakeRuntime()
			tc.change(mem)
			if err := (pyRuntime{mem, runtimeAddr, l, onX86}).check(); !errors.Is(err, tc.want) {
				t.Fatalf("got the error %v, want %v", err, tc.want)
			}
		})
	}
}

// On arm64 a thread state names its thread by an address below the thread pointer, where the vector of
// TLS blocks is.
func TestRuntimeCheckOnARM(t *testing.T) {
	l, _ := onARM.layout(8)
	if l.current != layouts[8].current+16 {
		t.Fatalf("the layout is %+v", l)
	}
	for _, tc := range []struct {
		name   string
		change func(fakeMemory)
		want   error
	}{
		{"as CPython's", func(fakeMemory) {}, nil},
		{"wild holder", func(m fakeMemory) { m[runtimeAddr+l.current] = interpAddr }, errUnmapped},
		{"no vector", func(m fakeMemory) { m[tpAddr], m[tpAddr+0x1000] = 0, 0 }, errLists},
		{"empty vector", func(m fakeMemory) { m[dtvAddr-16], m[dtvAddr+0x1000-16] = 0, 0 }, errLists},
		{"endless vector", func(m fakeMemory) { m[dtvAddr-16], m[dtvAddr+0x1000-16] = 1<<40, 1<<40 }, errLists},
		{"text", func(m fakeMemory) { m[dtvAddr], m[dtvAddr+0x1000] = 1<<60, 1<<60 }, errLists},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mem := fakeRuntime()
			mem[runtimeAddr+l.current] = threadAddr
			for _, n := range []uint64{0, 0x1000} {
				mem[threadAddr+n+l.threadID] = tpAddr + n - onARM.selfBelow
				onARM.vector(mem, tpAddr+n, dtvAddr+n, 2, 0x80)
			}
			tc.change(mem)
			r := pyRuntime{mem, runtimeAddr, l, onARM}
			if err := r.check(); !errors.Is(err, tc.want) {
				t.Fatalf("got the error %v, want %v", err, tc.want)
			}
			if got := threadPointers(r); tc.want == nil && !slices.Equal(got, []uint64{tpAddr, tpAddr + 0x1000}) {
				t.Fatalf("the thread pointers are %#x", got)
			}
		})
	}
}

func TestMainInterpreterIsTheOldest(t *testing.T) {
	mem := fakeRuntime()
	mem[runtimeAddr+layouts[8].firstInterpreter] = interpAddr + 0x8000
	mem[interpAddr+0x8000+layouts[8].nextInterpreter] = interpAddr
	got, err := pyRuntime{mem, runtimeAddr, layouts[8], onX86}.mainInterpreter()
	if err != nil || got != interpAddr {
		t.Fatalf("got %#x, %v", got, err)
	}
}

// A target changes its lists while they are read.
func TestRetry(t *testing.T) {
	calls := 0
	err := retry(func() error {
		if calls++; calls < attempts {
			return errLists
		}
		return nil
	})
	if err != nil || calls != attempts {
		t.Fatalf("%d calls, error %v", calls, err)
	}
}

// table is a debug table of the given version whose field at position p holds p.
func table(version uint64) []byte {
	b := make([]byte, debugTableSize)
	for p := 0; p < len(b); p += 8 {
		binary.LittleEndian.PutUint64(b[p:], uint64(p))
	}
	copy(b, debugCookie)
	binary.LittleEndian.PutUint64(b[8:], version)
	return b
}

func TestParseDebugTable(t *testing.T) {
	got, ok, err := parseDebugTable(table(0x030e0af0))
	want := layout{
		firstInterpreter: 40, nextInterpreter: 64, firstThread: 72, gil: 120, enabled: 136,
		nextThread: 192, interpreter: 200, threadID: 216,
	}
	if err != nil || !ok || got.version.String() != "3.14.10" || !got.freeThreaded || *got.layout != want {
		t.Fatalf("got %+v, %v, %v", got, ok, err)
	}
	if got, ok, err := parseDebugTable(table(0x03200000 | 0xf0)); err != nil || !ok || got.layout != nil {
		t.Fatalf("a table of the future gives %+v, %v, %v", got, ok, err)
	}
	if _, ok, err := parseDebugTable(make([]byte, debugTableSize)); ok || err != nil {
		t.Fatalf("no table gives %v, %v", ok, err)
	}
	if _, ok, err := parseDebugTable([]byte(debugCookie)); ok || err != nil {
		t.Fatalf("half a table gives %v, %v", ok, err)
	}
	for _, version := range []uint64{7, 0x030c01f0} {
		if _, _, err := parseDebugTable(table(version)); err == nil {
			t.Fatalf("a table of version %#x is no error", version)
		}
	}
	bad := table(0x030d00f0)
	binary.LittleEndian.PutUint64(bad[192:], 1<<40)
	if _, _, err := parseDebugTable(bad); err == nil {
		t.Fatal("an offset of 1 TiB is no error")
	}
}

func FuzzDebugTable(f *testing.F) {
	for _, version := range []uint64{0x030d00f0, 0x030e0af0, 0x030f02f0, 0x032000f0, 0} {
		f.Add(table(version))
	}
	f.Add([]byte(debugCookie))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, ok, err := parseDebugTable(b)
		if err == nil && ok && got.layout != nil && got.layout.check() != nil {
			t.Fatalf("%x gives the layout %+v", b, got.layout)
		}
	})
}

func TestLockWords(t *testing.T) {
	const lock = 0x500000
	newer := layout{firstInterpreter: 40, gil: 16}
	memory := fakeMemory{runtimeAddr + 40: interpAddr, interpAddr: 0, interpAddr + 16: lock}
	without := fakeMemory{runtimeAddr + 40: interpAddr, interpAddr: 0, interpAddr + 16: 0}
	notStarted := fakeMemory{runtimeAddr + 40: 0}
	older := layouts[11]
	for _, tc := range []struct {
		name       string
		mem        fakeMemory
		d          description
		start, end uint64
	}{
		{"in _PyRuntime", fakeMemory{}, description{layout: &older}, runtimeAddr + 360 + 32, runtimeAddr + 360 + 208},
		{"apart", memory, description{layout: &newer}, lock + 32, lock + 208},
		{"free-threaded", memory, description{layout: &newer, freeThreaded: true}, lock + 40, lock + 216},
		{"no lock", without, description{layout: &newer}, 0, 0},
		{"not started", notStarted, description{layout: &newer}, 0, 0},
		{"unreadable", fakeMemory{}, description{layout: &newer}, 0, 0},
		{"unknown version", memory, description{}, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, on := range []threads{onX86, onARM} {
				want := tc.end
				if want != 0 && on.above {
					want += 2 * 8 // of both mutexes
				}
				start, end := lockWords(tc.mem, interpreter{runtime: runtimeAddr, threads: on}, tc.d)
				if start != tc.start || end != want {
					t.Fatalf("got [%#x, %#x), want [%#x, %#x)", start, end, tc.start, want)
				}
			}
		})
	}
}
