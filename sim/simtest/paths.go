package simtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// Root returns the top folder of the repository.
func Root(t testing.TB) string {
	t.Helper()
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		t.Fatal("simtest: the binary carries no source paths")
	}
	root := filepath.Dir(filepath.Dir(filepath.Dir(file)))
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatalf("simtest: looking for the repository of %q: %v", file, err)
	}
	return root
}

// Build returns the absolute path of a product below build/, such as "sim/libcuda.so.1" or "libstageprof.so". The
// test fails if it does not exist. The environment's STAGEPROF_BUILD replaces build/.
func Build(t testing.TB, product string) string {
	t.Helper()
	build := os.Getenv("STAGEPROF_BUILD")
	if build == "" {
		build = filepath.Join(Root(t), "build")
	}
	path := filepath.Join(build, product)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("simtest: %v; run `make all` (or `make -C sim`, `make -C marker`) first", err)
	}
	return path
}

// Driver returns the path of the simulated driver.
func Driver(t testing.TB) string {
	t.Helper()
	return Build(t, "sim/libcuda.so.1")
}

// Variant returns the path of a driver with other exports or entries (sim/README.md, "Variants").
func Variant(t testing.TB, name string) string {
	t.Helper()
	return Build(t, filepath.Join("sim", "variants", name, "libcuda.so.1"))
}

// Markers returns the path of the marker library.
func Markers(t testing.TB) string {
	t.Helper()
	return Build(t, "libstageprof.so")
}

// Python314 returns the path of a CPython 3.14 that the marker package, in Build(t, "python"), has an extension for. It
// is downloaded if this machine has none.
func Python314(t testing.TB) string {
	t.Helper()
	getPython.Do(func() { python, pythonErr = runScript(filepath.Join(Root(t), "scripts", "python314.sh")) })
	if pythonErr != nil {
		t.Fatalf("simtest: getting a CPython 3.14: %v", pythonErr)
	}
	return python
}

var (
	getPython sync.Once
	python    string
	pythonErr error
)

// runScript returns what a script prints.
func runScript(path string) (string, error) {
	out, err := exec.Command(path).Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		err = fmt.Errorf("%w\n%s", err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}
