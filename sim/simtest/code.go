package simtest

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
)

// CodeOf returns the code of a file that a process has mapped, as it is in the process: with the breakpoints in it.
func CodeOf(t testing.TB, pid int, path string) []byte {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d/", pid)
	maps, err := os.Open(proc + "maps")
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	memory, err := os.Open(proc + "mem")
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	var code []byte
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		var start, end uint64
		var permissions string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &start, &end, &permissions); err != nil {
			t.Fatal(err)
		}
		if permissions[2] != 'x' || !strings.HasSuffix(lines.Text(), " "+path) {
			continue
		}
		b := make([]byte, end-start)
		if _, err := memory.ReadAt(b, int64(start)); err != nil {
			t.Fatal(err)
		}
		code = append(code, b...)
	}
	if len(code) == 0 {
		t.Fatalf("process %d has no code of %q", pid, path)
	}
	return code
}
