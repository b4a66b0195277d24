package gil

import (
	"debug/elf"
	"strings"
	"testing"
)

// Of other processors nothing is guessed.
func TestOtherProcessors(t *testing.T) {
	on := (&finder{}).threads(elf.EM_RISCV, nil)
	if _, ok := on.layout(8); ok || on.known() || on.selfErr == nil {
		t.Fatalf("this is known of it: %+v", on)
	}
}

// Where threads are told by what pthread_self returns, that is needed first.
func TestSelfIsNotKnown(t *testing.T) {
	on := (&finder{}).threads(elf.EM_AARCH64, nil)
	in := interpreter{kind: cpython, runtime: runtimeAddr, size: 1 << 20, threads: on}
	d := description{version: version{major: 3, minor: 11}, known: true, layout: &layout{}}
	if err := fill(&Plan{}, fakeMemory{}, in, d); err == nil || !strings.Contains(err.Error(), "pthread_self") {
		t.Errorf("CPython 3.11 gives the error %v", err)
	}
	d.version.minor, d.initialised = 14, true
	if _, err := supportFields(in, d); err == nil || !strings.Contains(err.Error(), "pthread_self") {
		t.Errorf("a request gives the error %v", err)
	}
}

func TestMachineHolds(t *testing.T) {
	for offset, want := range map[int64][2]bool{
		-staticArea - 1: {false, false}, -staticArea: {true, false}, -8: {true, false}, 0: {false, false}, 8: {false, false},
		threadHead: {false, true}, staticArea: {false, true}, staticArea + 1: {false, false},
	} {
		if got := [2]bool{onX86.holds(offset, staticArea), onARM.holds(offset, staticArea)}; got != want {
			t.Errorf("%d: %v, want %v", offset, got, want)
		}
	}
}
