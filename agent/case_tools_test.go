package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"stageprof/agent"
	"stageprof/agent/elfsym"
	"stageprof/agent/probe"
)

// Another tool's probes are on the same function, where tools put them and where
// ours stand: both count every call.
func TestCaseC25OtherToolsProbes(t *testing.T) {
	for _, mechanism := range []probe.Mechanism{probe.UprobeMulti, probe.PerfEvent} {
		t.Run(string(mechanism), func(t *testing.T) {
			driver := copyDriver(t, "libcuda.so.1")
			p := startPuppet(t, "--driver", driver)
			p.order("main start w")
			other := traceFunction(t, driver, "cuLaunchKernel")
			p.order("w launch 7")
			baseline := p.truthSoFar().Counts()
			r := record(t, agent.Config{PID: p.PID, Mechanism: mechanism, Probes: "cuLaunchKernel"})
			p.order("w begin step", "w launch 100", "w end")
			want := since(baseline, p.truthSoFar().Counts()).Only(launches)
			got := r.interrupt()
			p.order("w launch 11")
			p.end()
			expectEqual(t, got, want)
			for name, hits := range other.hits(t) {
				if hits != 7+100+11 {
					t.Errorf("%s counted %d of %d calls", name, hits, 7+100+11)
				}
			}
		})
	}
}

// tracer is the kernel's own tracing of user-space functions, as perf's is.
type tracer struct{ folder string }

const tracerGroup = "stageprof_test"

// traceFunction puts trace events on a function of a library: on its first
// instruction, on its return, and where this agent's probe stands.
func traceFunction(t *testing.T, library, symbol string) tracer {
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
	placement, err := elf.Place(s, probe.Kernel())
	if err != nil {
		t.Fatal(err)
	}
	tr := tracer{t.TempDir()}
	if err := unix.Mount("tracefs", tr.folder, "tracefs", 0, ""); err != nil {
		t.Fatalf("mounting tracefs: %v", err)
	}
	t.Cleanup(func() {
		tr.write(t, "events/"+tracerGroup+"/enable", "0")
		tr.write(t, "uprobe_events", "-:"+tracerGroup+"/")
		if err := unix.Unmount(tr.folder, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	for _, event := range []string{
		fmt.Sprintf("p:%s/entry %s:%#x", tracerGroup, library, s.Offset),
		fmt.Sprintf("r:%s/returns %s:%#x", tracerGroup, library, s.Offset),
		fmt.Sprintf("p:%s/ours %s:%#x", tracerGroup, library, s.Offset+placement.Skip),
	} {
		tr.write(t, "uprobe_events", event)
	}
	tr.write(t, "events/"+tracerGroup+"/enable", "1")
	return tr
}

func (tr tracer) write(t *testing.T, name, text string) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(tr.folder, name), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(text + "\n"); err != nil {
		t.Fatalf("writing %q to %q: %v", text, name, err)
	}
}

// hits returns how often each event came.
func (tr tracer) hits(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(tr.folder, "uprobe_profile"))
	if err != nil {
		t.Fatal(err)
	}
	hits := map[string]int{}
	for line := range strings.Lines(string(text)) { // library, event, hits
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		n, err := strconv.Atoi(fields[len(fields)-1])
		if err != nil {
			t.Fatal(err)
		}
		hits[fields[len(fields)-2]] = n
	}
	if len(hits) != 3 {
		t.Errorf("events: %q", text)
	}
	return hits
}
