//go:build amd64

package gil

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"stageprof/agent/target"
)

// Every way in which compilers reach a thread-local variable, in libraries present at program start and
// in those loaded late.
func TestThreadLocalModels(t *testing.T) {
	late := build(t, "imitate", "gcc", "-O2", "-o", "OUT", "imitate.c", "-pthread", "-ldl")
	crowd := tlsLibraries(t, 24)
	for _, flags := range []string{
		"gcc -O0", "gcc -O2", "gcc -O2 -fno-plt", "gcc -O2 -fno-omit-frame-pointer -fcf-protection",
		"gcc -O2 -mtls-dialect=gnu2", "gcc -O0 -mtls-dialect=gnu2", "gcc -O2 -ftls-model=local-dynamic",
		"gcc -O2 -ftls-model=initial-exec", "gcc -O0 -ftls-model=initial-exec",
		"clang -O0", "clang -O2", "clang -O2 -ftls-model=initial-exec",
	} {
		tool, rest, _ := strings.Cut(flags, " ")
		compile := func(out string, args ...string) string {
			args = append(append(strings.Fields(rest), "-fPIC", "-o", "OUT"), args...)
			return build(t, out, tool, args...)
		}
		t.Run(flags, func(t *testing.T) {
			library := compile("imitation.so", "-shared", "imitation.c")
			folder := filepath.Dir(library)
			early := compile("early", "-DLINKED", "imitate.c", library, "-Wl,-rpath,"+folder, "-pthread", "-ldl")
			for _, run := range []struct {
				name string
				path string
				args []string
			}{
				{"early", early, []string{"4"}},
				{"late", late, []string{"4", library}},
				{"in a crowd", late, append([]string{"4", library}, crowd...)},
				{"with early ones", early, append([]string{"4", crowd[0]}, crowd...)},
			} {
				t.Run(run.name, func(t *testing.T) {
					w := startWorkers(t, run.path, nil, run.args...)
					plan := detect(t, w.process)
					if plan.Method != ThreadLocal || plan.Version != "3.12.1" || plan.Path != library {
						t.Fatalf("the plan is %+v", plan)
					}
					w.checkTurns(t, plan)
				})
			}
		})
	}
}

// The variable of a program itself.
func TestThreadLocalModelsOfPrograms(t *testing.T) {
	for _, flags := range []string{
		"gcc -O2 -no-pie", "gcc -O2 -pie -fPIE", "gcc -O0 -pie -fPIE", "gcc -O2 -static", "gcc -O2 -static-pie -fPIE",
		"gcc -O2 -pie -fPIC", "gcc -O2 -pie -fPIC -mtls-dialect=gnu2", "clang -O2 -pie -fPIC", "clang -O0 -no-pie",
	} {
		t.Run(flags, func(t *testing.T) {
			tool, rest, _ := strings.Cut(flags, " ")
			args := append(strings.Fields(rest), "-DLINKED", "-o", "OUT", "imitate.c", "imitation.c", "-pthread")
			if !strings.Contains(rest, "-static") {
				args = append(args, "-Wl,-export-dynamic", "-ldl")
			}
			w := startWorkers(t, build(t, "program", tool, args...), nil, "4")
			plan := detect(t, w.process)
			if plan.Method != ThreadLocal || plan.Version != "3.12.1" || plan.TLSModule != 0 {
				t.Fatalf("the plan is %+v", plan)
			}
			w.checkTurns(t, plan)
		})
	}
}

// In a free-threaded build no thread holds a lock that is off.
func TestThreadLocalFreeThreaded(t *testing.T) {
	for _, minor := range []string{"13", "14", "15"} {
		program := build(t, "program", "gcc", "-DLINKED", "-DFREE_THREADED="+minor, "-o", "OUT",
			"imitate.c", "imitation.c", "-pthread", "-Wl,-export-dynamic", "-ldl")
		w := startWorkers(t, program, []string{"IMITATION_GIL=1"}, "4")
		plan := detect(t, w.process)
		if plan.Method != ThreadLocal || plan.Version != "3."+minor+".0" || !plan.FreeThreaded {
			t.Fatalf("the plan for 3.%s is %+v", minor, plan)
		}
		w.checkTurns(t, plan)
		startWorkers(t, program, nil, "4").checkDisabled(t)
	}
}

func TestBroken(t *testing.T) {
	holder := build(t, "hold", "gcc", "-O2", "-o", "OUT", "hold.c", "-ldl")
	for _, tc := range []struct {
		macro  string
		name   string
		method Method
		reason string
	}{
		{"GARBAGE", "libwhatever.so", Unknown, "version of this Python can't be told"},
		{"GARBAGE", "libpython3.8.so.1.0", Unknown, "memory"},
		{"GARBAGE", "libpython3.11.so.1.0", Unknown, "memory"},
		{"GARBAGE", "libpython3.12.so.1.0", Unknown, "exports no function"},
		{"GARBAGE", "libpython3.7.so.1.0", Unknown, "older than 3.8"},
		{"SHORT", "libpython3.10.so.1.0", Unknown, "too few"},
		{"ENDLESS", "libpython3.9.so.1.0", Unknown, errLists.Error()},
		{"COOKIE", "libpython3.13.so.1.0", Unknown, "debug offsets"},
		{"ANACHRONISM", "libpython3.11.so.1.0", Unknown, "debug offsets name version"},
		{"CONTRADICTION", "libpython3.11.so.1.0", Unknown, "3.11.0 by one account and 3.32.0 by another"},
		{"FREE_THREADED", "libpython3.13t.so.1.0", Unknown, "not started"},
		{"CODE", "libpython3.12.so.1.0", Unknown, errNotGetter.Error()},
		{"TEXT", "libpython3.12.so.1.0", Unknown, "decoding"},
		{"OLD", "libpython2.so.1.0", Unknown, "version of this Python can't be told"},
		{"INNOCENT", "libpython3.12.so.1.0", None, ""},
	} {
		t.Run(tc.macro+" "+tc.name, func(t *testing.T) {
			library := build(t, tc.name, "gcc", "-shared", "-fPIC", "-O2", "-D"+tc.macro, "-o", "OUT", "broken.c")
			plan := startHolder(t, holder, library)
			if plan.Method != tc.method || !strings.Contains(plan.Reason, tc.reason) ||
				strings.Contains(plan.Reason, "\n") {
				t.Fatalf("the plan is %+v, want %v because of %q", plan, tc.method, tc.reason)
			}
			if want := (Plan{
				Method: plan.Method, Version: plan.Version, Path: plan.Path, Reason: plan.Reason,
				FreeThreaded: plan.FreeThreaded, Provisional: plan.Provisional,
			}); plan != want {
				t.Fatalf("the plan %+v holds addresses", plan)
			}
		})
	}
}

// Files that are mapped as code and are no ELF files matter only if they are called python.
func TestNotELF(t *testing.T) {
	holder := build(t, "hold", "gcc", "-O2", "-o", "OUT", "hold.c", "-ldl")
	for name, want := range map[string]Method{"libpython3.12.so.1.0": Unknown, "data": None} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, bytes.Repeat([]byte("no ELF"), 1000), 0o644); err != nil {
			t.Fatal(err)
		}
		if plan := startHolder(t, holder, path); plan.Method != want || (want == Unknown) != strings.Contains(plan.Reason, path) {
			t.Errorf("with %q the plan is %+v", name, plan)
		}
	}
}

func TestNoPython(t *testing.T) {
	holder := build(t, "hold", "gcc", "-O2", "-o", "OUT", "hold.c", "-ldl")
	if plan := startHolder(t, holder); plan != (Plan{}) || plan.Method != None {
		t.Fatalf("the plan is %+v", plan)
	}
}

// Two libraries define what Python defines: the plan is for the one that runs, if one does.
func TestSeveral(t *testing.T) {
	holder := build(t, "hold", "gcc", "-O2", "-o", "OUT", "hold.c", "-ldl")
	first := build(t, "libpython3.12.so.1.0", "gcc", "-shared", "-fPIC", "-o", "OUT", "imitation.c")
	second := build(t, "libpython3.12.so.2.0", "gcc", "-shared", "-fPIC", "-o", "OUT", "imitation.c")
	plan := startHolder(t, holder, first, second)
	if plan.Method != Unknown || !strings.Contains(plan.Reason, "2 interpreters are mapped") {
		t.Fatalf("the plan is %+v", plan)
	}
}

// unreadableProcess is a process whose memory can't be read.
type unreadableProcess struct{ Process }

func (unreadableProcess) ReadMemory(uint64, []byte) error { return errUnmapped }

// mappingsOf is a process with other mappings.
type mappingsOf struct {
	Process
	change func([]target.Mapping) ([]target.Mapping, error)
}

func (p mappingsOf) Mappings() ([]target.Mapping, error) {
	mappings, err := p.Process.Mappings()
	if err != nil {
		return nil, err
	}
	return p.change(mappings)
}

func TestUnreadable(t *testing.T) {
	program := build(t, "program", "gcc", "-DLINKED", "-o", "OUT", "imitate.c", "imitation.c", "-pthread", "-Wl,-export-dynamic", "-ldl")
	w := startWorkers(t, program, nil, "4")
	plan := detect(t, unreadableProcess{w.process})
	if plan.Method != Unknown || plan.Path != program || !strings.Contains(plan.Reason, errUnmapped.Error()) {
		t.Fatalf("without memory the plan is %+v", plan)
	}
	none := func([]target.Mapping) ([]target.Mapping, error) { return nil, errUnmapped }
	if _, err := Detect(mappingsOf{w.process, none}); !errors.Is(err, errUnmapped) {
		t.Fatalf("without mappings the error is %v", err)
	}
}

// A page of the interpreter's code that is mapped once more is not another interpreter.
func TestCodeMappedAgain(t *testing.T) {
	late := build(t, "imitate", "gcc", "-O2", "-o", "OUT", "imitate.c", "-pthread", "-ldl")
	library := build(t, "imitation.so", "gcc", "-O2", "-shared", "-fPIC", "-o", "OUT", "imitation.c")
	w := startWorkers(t, late, nil, "4", library)
	want := detect(t, w.process)
	if want.Method != ThreadLocal {
		t.Fatalf("the plan is %+v", want)
	}
	for _, first := range []uint64{page, 1 << 46} {
		again := func(all []target.Mapping) ([]target.Mapping, error) {
			i := slices.IndexFunc(all, func(m target.Mapping) bool { return m.Exec && m.Path == library })
			code := all[i]
			code.Start, code.End = first, first+page
			if first < all[0].Start {
				return append([]target.Mapping{code}, all...), nil
			}
			return append(all, code), nil
		}
		if plan := detect(t, mappingsOf{w.process, again}); plan != want {
			t.Errorf("with a page at %#x the plan is %+v, want %+v", first, plan, want)
		}
	}
}

// The vector of blocks is laid out as glibc does.
func TestOnlyGlibcHasTheVector(t *testing.T) {
	late := build(t, "imitate", "gcc", "-O2", "-o", "OUT", "imitate.c", "-pthread", "-ldl")
	w := startWorkers(t, late, nil, "4", build(t, "imitation.so", "gcc", "-O2", "-shared", "-fPIC", "-o", "OUT", "imitation.c"))
	if plan := detect(t, w.process); plan.Method != ThreadLocal || plan.TLSModule == 0 {
		t.Fatalf("with glibc the plan is %+v", plan)
	}
	plan := detect(t, mappingsOf{w.process, func(all []target.Mapping) ([]target.Mapping, error) {
		return slices.DeleteFunc(all, func(m target.Mapping) bool {
			return strings.HasPrefix(filepath.Base(m.Path), "libc")
		}), nil
	}})
	if plan.Method != Unknown || !strings.Contains(plan.Reason, "glibc") {
		t.Fatalf("without glibc the plan is %+v", plan)
	}
}
