package gil

import (
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// python is an interpreter on this machine, by its own account.
type python struct {
	Path           string
	Implementation string
	Version        string // "3.12.1"
	Major, Minor   int
	FreeThreaded   bool
	Prefix         string
	Executable     string   // the program that Path starts
	Library        string   // the shared libpython, "" if there is none that loads here
	Shared         bool     // Path uses it
	Foreign        bool     // Path has another C library than this machine
	Config         string   // folder with the static library and its parts, "" if it has none
	Link           []string // flags to link the static library
}

const describePython = `
import json, os, platform, sys, sysconfig
var = lambda name: sysconfig.get_config_var(name) or ""
folders = [var("LIBDIR"), os.path.join(sys.prefix, "lib")]  # a relocatable build names the one it was built for
libraries = [p for p in (os.path.join(f, var("INSTSONAME")) for f in folders) if ".so" in p and os.path.exists(p)]
foreign = os.path.basename(os.path.realpath("/proc/self/exe")).startswith("ld-")
print(json.dumps({
    "Implementation": platform.python_implementation(),
    "Version": "%d.%d.%d" % sys.version_info[:3],
    "Major": sys.version_info[0],
    "Minor": sys.version_info[1],
    "FreeThreaded": bool(var("Py_GIL_DISABLED")),
    "Prefix": sys.prefix,
    "Foreign": foreign,
    "Library": libraries[0] if libraries and not foreign else "",
    "Executable": os.path.realpath("/proc/self/exe"),
    "Shared": "libpython" in open("/proc/self/maps").read(),
    "Config": var("LIBPL") if os.path.exists(os.path.join(var("LIBPL"), var("LIBRARY"))) else "",
    "Link": (var("LIBS") + " " + var("SYSLIBS") + " -lm -lpthread -ldl -lutil").split(),
}))
`

// pythons returns every Python that is installed where installers put it, and those whose paths
// STAGEPROF_TEST_PYTHONS lists, separated by colons.
func pythons(t *testing.T) []python {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	paths := filepath.SplitList(os.Getenv("STAGEPROF_TEST_PYTHONS"))
	for _, pattern := range []string{
		filepath.Join(home, ".pyenv/versions/*/bin/python"), "/usr/bin/python3.*", "/usr/local/bin/python3.*",
	} {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, matches...)
	}
	var found []python
	for _, path := range paths {
		if strings.HasSuffix(path, "-config") {
			continue
		}
		out, err := exec.Command(path, "-c", describePython).Output()
		if err != nil {
			t.Fatalf("%q does not describe itself: %v", path, err)
		}
		py := python{Path: path}
		if err := json.Unmarshal(out, &py); err != nil {
			t.Fatalf("%q describes itself as %q: %v", path, out, err)
		}
		found = append(found, py)
	}
	if len(found) == 0 {
		t.Fatal("no Python is installed")
	}
	return found
}

// planned reports whether a plan can be made for the interpreter.
func (py python) planned() bool {
	return py.Implementation == "CPython" && py.Major == 3 && py.Minor >= 8
}

// eachPython runs a test for each interpreter for which a plan can be made.
func eachPython(t *testing.T, test func(t *testing.T, py python)) {
	for _, py := range pythons(t) {
		if py.planned() {
			t.Run(py.Path, func(t *testing.T) { test(t, py) })
		}
	}
}

// start runs testdata/workers.py with the interpreter at a path.
func (py python) start(t *testing.T, path string, environ ...string) *workers {
	t.Helper()
	return startScript(t, path, environ)
}

func startScript(t *testing.T, path string, environ []string, libraries ...string) *workers {
	t.Helper()
	script, err := filepath.Abs("testdata/workers.py")
	if err != nil {
		t.Fatal(err)
	}
	w := startWorkers(t, path, environ, append([]string{script, "4"}, libraries...)...)
	w.elsewhere = w.tids[workerCount:]
	w.tids, w.tps = w.tids[:workerCount], w.tps[:workerCount]
	return w
}

// expect checks what the plan says of the interpreter, the file's name apart.
func (py python) expect(t *testing.T, plan Plan) {
	t.Helper()
	method := ThreadLocal
	if py.Minor < 12 {
		method = CurrentThreadState
	}
	if plan.Method != method || plan.FreeThreaded != py.FreeThreaded || plan.Reason != "" ||
		!strings.HasPrefix(plan.Version, py.Version) {
		t.Fatalf("the plan for %s is %+v", py.Version, plan)
	}
}

func TestInstalled(t *testing.T) {
	eachPython(t, func(t *testing.T, py python) {
		w := py.start(t, py.Path, "PYTHON_GIL=1")
		plan := detect(t, w.process)
		py.expect(t, plan)
		if plan.Provisional {
			t.Errorf("the plan of a running Python is provisional: %+v", plan)
		}
		w.checkTurns(t, plan)
		w.checkWaiting(t, plan)
	})
}

func TestNotPlanned(t *testing.T) {
	for _, py := range pythons(t) {
		if py.planned() {
			continue
		}
		t.Run(py.Path, func(t *testing.T) {
			plan := startHolder(t, py.Path, "-c", "import sys; print(1); sys.stdout.flush(); sys.stdin.read()")
			want, version := "older than 3.8", py.Version
			if py.Implementation == "PyPy" {
				want, version = "PyPy", ""
			}
			if plan.Method != Unknown || plan.Version != version || !strings.Contains(plan.Reason, want) {
				t.Fatalf("the plan for %s %s is %+v", py.Implementation, py.Version, plan)
			}
		})
	}
}

// An interpreter that is loaded and not started can't tell as much.
func TestNotStarted(t *testing.T) {
	holder := build(t, "hold", "gcc", "-O2", "-o", "OUT", "hold.c", "-ldl")
	eachPython(t, func(t *testing.T, py python) {
		if py.Library == "" {
			return
		}
		plan := startHolder(t, holder, py.Library)
		version := py.Version
		if py.Minor < 11 {
			version = fmt.Sprintf("3.%d", py.Minor)
		}
		method := ThreadLocal
		switch {
		case py.FreeThreaded:
			method = Unknown
		case py.Minor < 12:
			method = CurrentThreadState
		}
		if plan.Method != method || plan.Version != version || (plan.Reason != "") != (method == Unknown) ||
			(plan.LockStart != 0) != (py.Minor < 12) || !plan.Provisional {
			t.Fatalf("the plan for %s is %+v", py.Version, plan)
		}
	})
}

// A process may have other copies of Python in memory than the one that runs.
func TestOtherCopies(t *testing.T) {
	all := pythons(t)
	eachPython(t, func(t *testing.T, py python) {
		tried := 0
		for _, other := range all {
			if other.Library == "" || other.Library == py.Library && py.Shared || tried == 2 {
				continue
			}
			tried++
			w := startScript(t, py.Path, []string{"PYTHON_GIL=1"}, other.Library)
			plan := detect(t, w.process)
			py.expect(t, plan)
			if plan.Path == other.Library {
				t.Fatalf("the plan is for %q, which does not run", plan.Path)
			}
			w.checkTurns(t, plan)
			w.checkWaiting(t, plan)
		}
	})
}

// A stripped file has no .symtab. What is installed stripped was TestInstalled's.
func TestStripped(t *testing.T) {
	eachPython(t, func(t *testing.T, py python) {
		file := py.Library
		if !py.Shared {
			file = py.Executable
		}
		if py.Foreign || !hasSymbols(t, file) {
			return
		}
		stripped := build(t, filepath.Base(file), "strip", "--strip-all", "-o", "OUT", file)
		if hasSymbols(t, stripped) {
			t.Fatalf("strip left symbols in %q", stripped)
		}
		path, environ := py.Path, "LD_PRELOAD="+stripped
		if !py.Shared {
			path, environ = stripped, "PYTHONHOME="+py.Prefix
		}
		w := py.start(t, path, environ, "PYTHON_GIL=1")
		plan := detect(t, w.process)
		py.expect(t, plan)
		if plan.Path != stripped {
			t.Fatalf("%q is not the stripped file", plan.Path)
		}
		w.checkTurns(t, plan)
		w.checkWaiting(t, plan)
	})
}

func hasSymbols(t *testing.T, path string) bool {
	t.Helper()
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	return file.Section(".symtab") != nil
}

// Static executables are linked here where the installed one is shared; the name does not give the
// version away.
func TestStatic(t *testing.T) {
	eachPython(t, func(t *testing.T, py python) {
		if !py.Shared || py.Foreign || py.Config == "" {
			return // TestInstalled and TestStripped had a static one
		}
		static := py.linkStatic(t, "interpreter", "-Wl,-export-dynamic", filepath.Join(py.Config, "python.o"))
		stripped := build(t, "interpreter", "strip", "--strip-all", "-o", "OUT", static)
		for _, path := range []string{static, stripped} {
			w := py.start(t, path, "PYTHONHOME="+py.Prefix, "PYTHON_GIL=1")
			plan := detect(t, w.process)
			py.expect(t, plan)
			if plan.Path != path || plan.TLSModule != 0 {
				t.Fatalf("the plan for a static %s is %+v", py.Version, plan)
			}
			w.checkTurns(t, plan)
			w.checkWaiting(t, plan)
		}
	})
}

// linkStatic links objects or sources with the static library.
func (py python) linkStatic(t *testing.T, name string, args ...string) string {
	t.Helper()
	libraries, err := filepath.Glob(filepath.Join(py.Config, "libpython3*.a"))
	if err != nil || len(libraries) != 1 {
		t.Fatalf("static libraries in %q: %q (%v)", py.Config, libraries, err)
	}
	args = append([]string{"-o", "OUT"}, args...)
	args = append(args, "-Wl,--whole-archive", libraries[0], "-Wl,--no-whole-archive")
	return build(t, name, "gcc", append(args, py.Link...)...)
}

// In a free-threaded build the lock is off unless it is asked for. Few machines have one installed:
// TestThreadLocalFreeThreaded imitates it.
func TestFreeThreaded(t *testing.T) {
	eachPython(t, func(t *testing.T, py python) {
		if py.FreeThreaded {
			py.start(t, py.Path, "PYTHON_GIL=0").checkDisabled(t)
		}
	})
}

// A C program loads libpython late, after its threads were made and after so many other libraries with
// thread-local variables that old threads' vectors are too short.
func TestLoadedLate(t *testing.T) {
	libraries := tlsLibraries(t, 24)
	eachPython(t, func(t *testing.T, py python) {
		if py.Library == "" {
			return
		}
		embed := build(t, "embed", "gcc", "-o", "OUT", "embed.c", "-pthread", "-ldl")
		for _, mode := range []string{"main", "sub"} {
			args := append([]string{"4", mode, py.Library}, libraries...)
			w := startWorkers(t, embed, []string{"PYTHONHOME=" + py.Prefix, "PYTHON_GIL=1"}, args...)
			plan := detect(t, w.process)
			py.expect(t, plan)
			if py.Minor >= 12 && plan.TLSModule <= uint64(len(libraries)) {
				t.Fatalf("the variable's module is %d", plan.TLSModule)
			}
			w.checkTurns(t, plan)
			if mode == "main" || py.Minor < 12 {
				w.checkWaiting(t, plan)
			}
		}
	})
}

// A program may contain Python without exporting its symbols. They are found in .symtab; in a stripped
// file, from 3.10 on, only _PyRuntime is found, by its section.
func TestNotExported(t *testing.T) {
	eachPython(t, func(t *testing.T, py python) {
		if !py.Shared || py.Foreign || py.Config == "" {
			return
		}
		environ := []string{"PYTHONHOME=" + py.Prefix, "PYTHON_GIL=1"}
		program := py.linkStatic(t, "program", "-DLINKED", "embed.c")
		for _, mode := range []string{"main", "sub"} {
			w := startWorkers(t, program, environ, "4", mode)
			plan := detect(t, w.process)
			py.expect(t, plan)
			w.checkTurns(t, plan)
			if mode == "sub" && py.Minor >= 12 {
				w.checkTogether(t, plan)
			} else {
				w.checkWaiting(t, plan)
			}
		}
		stripped := build(t, "program", "strip", "--strip-all", "-o", "OUT", program)
		w := startWorkers(t, stripped, environ, "4", "main")
		plan := detect(t, w.process)
		switch {
		case py.Minor < 10:
			if plan != (Plan{Method: None}) {
				t.Fatalf("the plan for %s without any symbol is %+v", py.Version, plan)
			}
		case py.Minor >= 12:
			if plan.Method != Unknown || plan.Reason == "" || !strings.HasPrefix(plan.Version, py.Version) {
				t.Fatalf("the plan for %s without any symbol is %+v", py.Version, plan)
			}
		default:
			py.expect(t, plan)
			w.checkTurns(t, plan)
		}
	})
}

// tlsLibraries makes shared libraries that have thread-local variables.
func tlsLibraries(t *testing.T, count int) []string {
	t.Helper()
	first := build(t, "tls.so", "gcc", "-shared", "-fPIC", "-o", "OUT", "tls.c")
	content, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	var copies []string
	for i := range count {
		path := fmt.Sprintf("%s.%d", first, i)
		if err := os.WriteFile(path, content, 0o755); err != nil {
			t.Fatal(err)
		}
		copies = append(copies, path)
	}
	return copies
}
