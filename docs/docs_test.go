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
