package agent

import (
	"fmt"
	"slices"
	"testing"

	"stageprof/agent/target"
	"stageprof/sim/simtest"
)

// Files that are gone make room for new ones, those with probes stay, and what
// finds no room is told of.
func TestImagesMakeRoom(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "idle"))
	process, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer process.Close()
	mappings, err := process.Mappings()
	if err != nil {
		t.Fatal(err)
	}
	program := mappings[slices.IndexFunc(mappings, func(m target.Mapping) bool { return m.Exec && m.Path == process.Exe() })]

	// Each mapping is of a file of its own, all with the same contents.
	im := newImages(process)
	defer im.close()
	im.room = 2
	im.open = func(target.Mapping) (*target.File, error) { return process.OpenMapped(program) }
	file := func(number uint64) target.Mapping {
		return target.Mapping{Start: number << 20, End: number<<20 + 4096, Exec: true, Inode: number, Path: fmt.Sprint(number)}
	}
	expect := func(what string, full bool, want ...string) {
		t.Helper()
		var paths []string
		for _, f := range im.opened() {
			paths = append(paths, f.path)
		}
		var held []string
		for key := range im.files {
			held = append(held, key.path)
		}
		slices.Sort(held)
		if !slices.Equal(paths, want) || !slices.Equal(held, want) || im.full != full {
			t.Errorf("%s: %v are open, %v held, full %t, want %v", what, paths, held, im.full, want)
		}
	}
	for _, step := range []struct {
		what   string
		mapped []target.Mapping
		full   bool
		want   []string
	}{
		{"there is room", []target.Mapping{file(1), file(2)}, false, []string{"1", "2"}},
		{"gone, but nobody needs the room", []target.Mapping{file(1)}, false, []string{"1", "2"}},
		{"the room of one that is gone", []target.Mapping{file(1), file(3)}, false, []string{"1", "3"}},
		{"one too many", []target.Mapping{file(1), file(3), file(4)}, true, []string{"1", "3"}},
		{"still", []target.Mapping{file(1), file(3), file(4)}, true, []string{"1", "3"}},
		{"it gets the room of another one", []target.Mapping{file(1), file(4)}, false, []string{"1", "4"}},
		{"the other one is back where it was", []target.Mapping{file(1), file(3)}, false, []string{"1", "3"}},
	} {
		if err := im.take(step.mapped); err != nil {
			t.Errorf("%s: %v", step.what, err)
		}
		expect(step.what, step.full, step.want...)
	}
	im.opened()[0].probed = true
	if err := im.take([]target.Mapping{file(5)}); err != nil {
		t.Error(err)
	}
	expect("one with probes is gone", false, "1", "5")
}

func TestWarningsAreBounded(t *testing.T) {
	var s Session
	for range 2 {
		for i := range mostWarnings + 5 {
			s.warnOnce(fmt.Sprint("warning ", i))
		}
	}
	if len(s.warnings) != mostWarnings+1 || s.warnings[mostWarnings-1] != "warning 99" {
		t.Errorf("%d warnings, the last one is %q", len(s.warnings), s.warnings[len(s.warnings)-1])
	}
}
