// Package docs keeps the documents true: tests that they name exist.
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// testFunctions returns the names of all tests and fuzz targets, by the folder
// that they are in, whatever build tags they need.
func testFunctions(t *testing.T) map[string][]string {
	t.Helper()
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	found := map[string][]string{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (path == filepath.Join("..", "build") || path == filepath.Join("..", ".git")) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		folder := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../")
		for _, m := range function.FindAllSubmatch(text, -1) {
			found[folder] = append(found[folder], string(m[1]))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// The table of cases names every test of a case, in the right place, and no other.
func TestCasesAreListed(t *testing.T) {
	text, err := os.ReadFile("cases.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^\| (C\d\d) \|.* \| ([^|]*) \|$`)
	name := regexp.MustCompile("`(TestCase(C\\d\\d)\\w*)`")
	var listed, cases []string
	for _, row := range line.FindAllStringSubmatch(string(text), -1) {
		id := row[1]
		cases = append(cases, id)
		for place := range strings.SplitSeq(row[2], "; ") {
			folder, tests, _ := strings.Cut(place, ": ")
			for _, m := range name.FindAllStringSubmatch(tests, -1) {
				if m[2] != id {
					t.Errorf("%s is listed as a test of %s", m[1], id)
				}
				listed = append(listed, folder+": "+m[1])
			}
		}
	}
	for i := range 29 {
		if id := fmt.Sprintf("C%02d", i+1); !slices.Contains(cases, id) {
			t.Errorf("%s is not in the table", id)
		}
	}
	var existing []string
	for folder, tests := range testFunctions(t) {
		for _, test := range tests {
			if strings.HasPrefix(test, "TestCaseC") {
				existing = append(existing, folder+": "+test)
			}
		}
	}
	for _, test := range existing {
		if !slices.Contains(listed, test) {
			t.Errorf("cases.md does not list %s", test)
		}
	}
	for _, test := range listed {
		if !slices.Contains(existing, test) {
			t.Errorf("cases.md lists %s, which does not exist", test)
		}
	}
}

// A document that names a test names one that exists.
func TestNamedTestsExist(t *testing.T) {
	existing := map[string]bool{}
	for _, tests := range testFunctions(t) {
		for _, test := range tests {
			existing[test] = true
		}
	}
	documents, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w+)`")
	for _, path := range documents {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			if !existing[m[1]] {
				t.Errorf("%s names %s, which does not exist", path, m[1])
			}
		}
	}
}

// goFiles calls a function with every Go file that is no test, but those that only
// tests import.
func goFiles(t *testing.T, each func(path string, text []byte)) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains([]string{"build", ".git", "sim"}, entry.Name()) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil {
			each(filepath.ToSlash(path), text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The only program that is ever started is this one: to calibrate, and to go on with
// fewer capabilities.
func TestNoOtherPrograms(t *testing.T) {
	starts := regexp.MustCompile(`exec\.(?:Command\w*\(|Cmd\{)[^\n]*|os\.StartProcess\([^\n]*|` +
		`(?:syscall|unix)\.(?:Exec|ForkExec|StartProcess)\([^\n]*|SYS_(?:EXECVE|FORK|VFORK|CLONE)\w*`)
	found := 0
	goFiles(t, func(path string, text []byte) {
		for _, call := range starts.FindAll(text, -1) {
			found++
			known := slices.Contains([]string{"calibrate", "capability", "keeper"}, filepath.Base(filepath.Dir(path)))
			if !known || !strings.Contains(string(call), `"/proc/self/exe"`) {
				t.Errorf("%s: %s", path, call)
			}
		}
	})
	if found == 0 {
		t.Error("not even the calibration's child was found: the test shows nothing")
	}
}

// The BPF programs use no helper that acts on a process.
func TestHelpersOfPrograms(t *testing.T) {
	sources, err := filepath.Glob("../bpf/*.[ch]")
	if err != nil || len(sources) == 0 {
		t.Fatalf("%d sources, %v", len(sources), err)
	}
	acts := regexp.MustCompile(`bpf_(probe_write_user|send_signal\w*|override_return|copy_to_user\w*|sys_\w+)\s*\(`)
	for _, path := range sources {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if call := acts.Find(text); call != nil {
			t.Errorf("%s: %s", path, call)
		}
	}
}

// Every module that go.mod names is listed with its licence, and no other.
func TestDependenciesAreListed(t *testing.T) {
	read := func(path, pattern string) (names []string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
		return names
	}
	required := read("../go.mod", `(?m)^\t(\S+) v\S+`)
	listed := read("../LICENSES/dependencies.md", `(?m)^\| (\S+\.\S+) \| [^|]+ \|`)
	for _, name := range required {
		if !slices.Contains(listed, name) {
			t.Errorf("LICENSES/dependencies.md does not list %s and its licence", name)
		}
	}
	for _, name := range listed {
		if !slices.Contains(required, name) {
			t.Errorf("LICENSES/dependencies.md lists %s, which go.mod does not name", name)
		}
	}
}
