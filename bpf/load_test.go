package bpf

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

func TestLoadSelected(t *testing.T) {
	spec, err := LoadProbe()
	if err != nil {
		t.Fatal(err)
	}
	var objects ProbeObjects
	if err := LoadSelected(spec, &objects, "loader_hit", "peek_threads"); err != nil {
		t.Fatal(err)
	}
	defer objects.Close()
	if objects.LoaderHit == nil || objects.PeekThreads == nil {
		t.Error("a program that was named is not loaded")
	}
	if objects.DriverEntry != nil || objects.MarkerHit != nil {
		t.Error("a program that was not named is loaded")
	}
	if objects.Calls == nil || objects.WindowStart == nil {
		t.Error("the maps and variables are not there")
	}
}

func TestLoadSelectedUnknown(t *testing.T) {
	spec, err := LoadProbe()
	if err != nil {
		t.Fatal(err)
	}
	var objects ProbeObjects
	err = LoadSelected(spec, &objects, "loader_hit", "driver_exit")
	if err == nil || !strings.Contains(err.Error(), `"driver_exit"`) {
		t.Errorf("got %v, want an error that names the program", err)
	}
}

// Programs that this version does not fit leave no descriptor open.
func TestLoadSelectedHalfWay(t *testing.T) {
	spec, err := LoadProbe()
	if err != nil {
		t.Fatal(err)
	}
	delete(spec.Variables, "window_start")
	before := descriptors(t)
	var objects ProbeObjects
	if err := LoadSelected(spec, &objects, "loader_hit"); err == nil {
		t.Error("a variable is missing, and nobody says so")
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d open descriptors before, %d after", before, after)
	}
	if objects.Calls != nil {
		t.Error("a map is there that has been closed")
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// A program on a uprobe can be preempted by another run of it: its stack must not be
// one of the CPU. It is not if the program could make a tail call.
func TestProgramsOnUprobesHaveTheirOwnStack(t *testing.T) {
	spec, err := LoadProbe()
	if err != nil {
		t.Fatal(err)
	}
	tailCalls := func(i asm.Instruction) bool {
		return i.IsBuiltinCall() && asm.BuiltinFunc(i.Constant) == asm.FnTailCall
	}
	for name, program := range spec.Programs {
		if program.Type != ebpf.Kprobe || name == "gate_holder" || name == "loader_hit" { // these keep nothing
			continue
		}
		if !slices.ContainsFunc(program.Instructions, tailCalls) {
			t.Errorf("%s has no tail call", name)
		}
	}
}
