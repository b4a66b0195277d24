package probe_test

import (
	"os"
	"slices"
	"testing"

	"stageprof/agent/elfsym"
	"stageprof/agent/probe"
	"stageprof/sim/simtest"
)

func open(t *testing.T, path string) *elfsym.File {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	elf, err := elfsym.Open(file, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return elf
}

func sites(t *testing.T, path, expression string) (probe.Selector, []probe.Site) {
	t.Helper()
	selector, err := probe.ParseSelector(expression)
	if err != nil {
		t.Fatal(err)
	}
	found, err := probe.Sites(open(t, path), selector)
	if err != nil {
		t.Fatal(err)
	}
	return selector, found
}

// Every export of the driver is a site, each at an address of its own, placed
// where the kernel need not single-step.
func TestSitesOfTheDriver(t *testing.T) {
	selector, found := sites(t, simtest.Driver(t), "all")
	if absent := probe.Absent(selector, found); len(found)+len(absent) < len(probe.Known()) {
		t.Errorf("%d sites and %d absent of %d known", len(found), len(absent), len(probe.Known()))
	}
	at := map[uint64]string{}
	for _, s := range found {
		if other, ok := at[s.Offset()]; ok {
			t.Errorf("%s and %s are at one address", s.Symbol, other)
		}
		at[s.Offset()] = s.Symbol
		if s.Placement.Class == elfsym.Stepped || s.Placement.Skip == 0 {
			t.Errorf("%s: %+v", s.Symbol, s.Placement)
		}
		if s.API != probe.API(s.Symbol) || s.Group != probe.GroupOf(s.API) {
			t.Errorf("%+v", s)
		}
	}
	if !slices.IsSortedFunc(found, func(a, b probe.Site) int {
		if a.Symbol < b.Symbol {
			return -1
		}
		return 1
	}) {
		t.Error("the sites are not sorted")
	}
}

func TestSitesOfSelections(t *testing.T) {
	selector, found := sites(t, simtest.Driver(t), "cuLaunchKernel,cuMemAlloc_v2")
	var names []string
	for _, s := range found {
		names = append(names, s.Symbol)
	}
	if want := []string{"cuLaunchKernel", "cuLaunchKernel_ptsz", "cuMemAlloc_v2"}; !slices.Equal(names, want) {
		t.Errorf("sites %v, want %v", names, want)
	}
	if absent := probe.Absent(selector, found); len(absent) > 0 {
		t.Errorf("absent: %v", absent)
	}
	selector, found = sites(t, simtest.Variant(t, "versioned"), "cuLaunchKernel,cuMemAlloc")
	if absent := probe.Absent(selector, found); !slices.Equal(absent, []string{"cuLaunchKernel_ptsz", "cuMemAlloc"}) {
		t.Errorf("absent: %v", absent)
	}
}

// A driver that was linked in is found by its symbol table.
func TestSitesOfAnExecutable(t *testing.T) {
	_, found := sites(t, simtest.Build(t, "sim/testers/calls-static"), "cuLaunchKernel")
	if len(found) != 2 {
		t.Errorf("sites: %+v", found)
	}
}

func TestSitesOfAnotherLibrary(t *testing.T) {
	if _, found := sites(t, simtest.Markers(t), "all"); len(found) != 0 {
		t.Errorf("sites: %+v", found)
	}
}
