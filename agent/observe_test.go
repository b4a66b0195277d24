package agent_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"stageprof/agent/elfsym"
	"stageprof/agent/target"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// losses is a Recording's losses by reason.
func losses(r *recording.Recording) map[string]uint64 {
	counts := map[string]uint64{}
	for _, l := range r.Losses {
		counts[l.Reason] = l.Count
	}
	return counts
}

// lostCalls is how many calls were seen and not accounted.
func lostCalls(r *recording.Recording) uint64 {
	var n uint64
	for _, l := range r.Losses {
		if l.Kind == "calls" {
			n += l.Count
		}
	}
	return n
}

// expectAccounted fails unless every call that was seen is in a row or a loss.
func expectAccounted(t *testing.T, r *recording.Recording) {
	t.Helper()
	reported, lost := counts(r).Total().Calls, lostCalls(r)
	if r.Seen.Calls != reported+lost || losses(r)["unaccounted"] > 0 {
		t.Errorf("%d calls seen, %d reported and %d lost: %v", r.Seen.Calls, reported, lost, losses(r))
	}
}

// expectNoLosses allows for the samples of a target that ended before their
// Python code was read: the totals do not depend on them.
func expectNoLosses(t *testing.T, r *recording.Recording) {
	t.Helper()
	expectAccounted(t, r)
	for _, l := range r.Losses {
		if l.Kind != "samples" || r.Window.End != recording.EndExit {
			t.Errorf("losses: %+v", r.Losses)
		}
	}
}

// codeSize is how much of a function is looked at to find a probe in it.
const codeSize = 16

// awaitProbe waits until a function of a mapped library has a probe in its
// first instructions: the target's copy then differs from the file.
func awaitProbe(t *testing.T, pid int, library, symbol string) {
	t.Helper()
	original, address := code(t, pid, library, symbol)
	simtest.Eventually(t, fmt.Sprintf("a probe on %s in %q", symbol, library), func() bool {
		return !bytes.Equal(original, memory(t, pid, address))
	})
}

// awaitMarkers waits until the markers of the mapped library are followed.
func awaitMarkers(t *testing.T, pid int) {
	t.Helper()
	simtest.Eventually(t, "the markers are followed", func() bool { return isFollowed(t, pid) })
}

func isFollowed(t *testing.T, pid int) bool {
	t.Helper()
	return gate(t, pid) != 0 || markersProbed(t, pid)
}

// markersProbed tells whether there are probes on the marker library's points.
func markersProbed(t *testing.T, pid int) bool {
	t.Helper()
	return probed(t, pid, simtest.Markers(t), "stageprof_mark_begin") && probed(t, pid, simtest.Markers(t), "stageprof_mark_end")
}

// gate returns what the kernel has written into the marker library's gate.
func gate(t *testing.T, pid int) uint16 {
	t.Helper()
	_, address := mapped(t, pid, simtest.Markers(t), "stageprof_gate", func(m target.Mapping) bool { return m.Write })
	return binary.NativeEndian.Uint16(memory(t, pid, address))
}

// probed tells whether a function of a mapped library has a probe now.
func probed(t *testing.T, pid int, library, symbol string) bool {
	t.Helper()
	original, address := code(t, pid, library, symbol)
	return !bytes.Equal(original, memory(t, pid, address))
}

// code returns a function's first bytes in its file, and its address in a
// process.
func code(t *testing.T, pid int, library, symbol string) ([]byte, uint64) {
	t.Helper()
	return mapped(t, pid, library, symbol, func(m target.Mapping) bool { return m.Exec })
}

// mapped does the same for what is in mappings of some kind.
func mapped(t *testing.T, pid int, library, symbol string, kind func(target.Mapping) bool) ([]byte, uint64) {
	t.Helper()
	file, err := os.Open(library)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	elf, err := elfsym.Open(file, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	s, err := elf.Lookup(symbol)
	if err != nil {
		t.Fatal(err)
	}
	original := make([]byte, codeSize)
	if _, err := file.ReadAt(original, int64(s.Offset)); err != nil {
		t.Fatal(err)
	}
	for _, m := range mappings(t, pid) {
		if kind(m) && m.Path == library && m.Offset <= s.Offset && s.Offset < m.Offset+(m.End-m.Start) {
			return original, m.Start + s.Offset - m.Offset
		}
	}
	t.Fatalf("process %d has not mapped %s of %q", pid, symbol, library)
	return nil, 0
}

func mappings(t *testing.T, pid int) []target.Mapping {
	t.Helper()
	process, err := target.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer process.Close()
	m, err := process.Mappings()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func memory(t *testing.T, pid int, address uint64) []byte {
	t.Helper()
	file, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	b := make([]byte, codeSize)
	if _, err := file.ReadAt(b, int64(address)); err != nil {
		t.Fatal(err)
	}
	return b
}
