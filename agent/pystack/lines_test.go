package pystack

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// pythons returns every CPython 3.8 or newer on this machine, and those whose
// paths STAGEPROF_TEST_PYTHONS lists, with their minor versions.
func pythons(t *testing.T) map[string]int {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	paths := filepath.SplitList(os.Getenv("STAGEPROF_TEST_PYTHONS"))
	for _, pattern := range []string{filepath.Join(home, ".pyenv/versions/*/bin/python3"), "/usr/bin/python3.[0-9]*", "/usr/local/bin/python3.[0-9]*"} {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, matches...)
	}
	found := map[string]int{}
	for _, path := range paths {
		if strings.HasSuffix(path, "-config") {
			continue
		}
		out, err := exec.Command(path, "-c", "import platform, sys; print(sys.version_info[1] if platform.python_implementation() == 'CPython' and sys.version_info[0] == 3 else 0)").Output()
		if err != nil {
			t.Fatalf("%q does not tell its version: %v", path, err)
		}
		var minor int
		if err := json.Unmarshal(out, &minor); err != nil {
			t.Fatalf("%q tells the version %q: %v", path, out, err)
		}
		if minor >= 8 {
			found[path] = minor
		}
	}
	if len(found) == 0 {
		t.Fatal("there is no CPython 3.8 or newer here")
	}
	return found
}

func tableOf(minor int) lineTable {
	if l, ok := layouts[minor]; ok {
		return l.lines
	}
	return locations
}

// Every instruction of thousands of functions is on the line on which Python
// itself says that it is.
func TestLinesAsPythonSays(t *testing.T) {
	for path, minor := range pythons(t) {
		t.Run(path, func(t *testing.T) {
			out, err := exec.Command(path, "testdata/lines.py").Output()
			if err != nil {
				t.Fatal(err)
			}
			functions := 0
			lines := bufio.NewScanner(strings.NewReader(string(out)))
			lines.Buffer(nil, 1<<24)
			for lines.Scan() {
				checkFunction(t, tableOf(minor), lines.Bytes())
				functions++
			}
			if functions < 500 {
				t.Errorf("only %d functions", functions)
			}
		})
	}
}

func checkFunction(t *testing.T, form lineTable, described []byte) {
	t.Helper()
	var f struct {
		First int
		Table string
		Lines [][3]*int
	}
	if err := json.Unmarshal(described, &f); err != nil {
		t.Fatal(err)
	}
	table, err := hex.DecodeString(f.Table)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range f.Lines {
		want := noLine
		if row[2] != nil {
			want = *row[2]
		}
		for address := *row[0]; address < *row[1]; address += instructionSize {
			if got := form.line(table, f.First, uint64(address)); got != want {
				t.Fatalf("address %d of a function on line %d is on line %d, want %d (table %s)", address, f.First, got, want, f.Table)
			}
		}
	}
}

func FuzzLines(f *testing.F) {
	f.Add(uint8(lnotab), []byte{0, 1, 8, 2, 6, 0xff, 255, 0, 3, 127}, 10, uint64(12))
	f.Add(uint8(ranges), []byte{4, 0, 2, 0x80, 254, 1, 6, 0xfe}, 10, uint64(5))
	f.Add(uint8(locations), []byte{0x80, 0x00, 0xd8, 0x04, 0x0b, 0xe8, 0x41, 0x7f, 0xf0, 0x03, 0x01, 0x05, 0x05, 0xff}, 1, uint64(20))
	f.Fuzz(func(t *testing.T, form uint8, table []byte, first int, address uint64) {
		lineTable(form%3).line(table, first, address)
	})
}
