package elfsym

import (
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

func hexOf(b []byte) string { return hex.EncodeToString(b) }

// countingReader counts what is read from a file.
type countingReader struct {
	io.ReaderAt
	bytes int
}

func (c *countingReader) ReadAt(b []byte, off int64) (int, error) {
	c.bytes += len(b)
	return c.ReaderAt.ReadAt(b, off)
}

// buildLarge makes a library with n exported functions named function_0000000… .
func buildLarge(t testing.TB, n int) string {
	var s strings.Builder
	for i := range n {
		name := fmt.Sprintf("function_%07d", i)
		fmt.Fprintf(&s, ".globl %s\n.type %s,@function\n%s: push %%rbp\nret\n.size %s,2\n", name, name, name, name)
	}
	s.WriteString(".section .note.GNU-stack,\"\",@progbits\n")
	return build(t, "large.S", s.String(), "-shared", "-nostdlib")
}

func TestLookupReadsFewPages(t *testing.T) {
	path := buildLarge(t, 100_000)
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	r := &countingReader{ReaderAt: file}
	f, err := Open(r, st.Size())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Lookup("function_0056789"); err != nil {
		t.Fatal(err)
	}
	const pages = 16
	if r.bytes > pages*blockSize {
		t.Errorf("one lookup read %d bytes of %d, want at most %d pages", r.bytes, st.Size(), pages)
	}
	before := r.bytes
	if _, err := f.Lookup("function_0056789_"); err == nil {
		t.Error("found a function that is not there")
	}
	if r.bytes-before > pages*blockSize {
		t.Errorf("looking for an absent name read %d bytes", r.bytes-before)
	}
}

func TestFunctionsInOnePass(t *testing.T) {
	f := open(t, buildLarge(t, 20_000))
	first, err := f.Lookup("function_0000000")
	if err != nil {
		t.Fatal(err)
	}
	var offsets []uint64
	for i := range uint64(5000) {
		offsets = append(offsets, first.Offset+8*i+1) // in the middle of every fourth function
	}
	if err := f.Functions(offsets); err != nil {
		t.Fatal(err)
	}
	for i, off := range offsets {
		want := fmt.Sprintf("function_%07d", 4*i)
		if got, _, err := f.Function(off); got != want || err != nil {
			t.Fatalf("Function(%#x) = %q, %v, want %q", off, got, err, want)
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	f := open(b, buildLarge(b, 100_000))
	for i := 0; b.Loop(); i++ {
		if _, err := f.Lookup(fmt.Sprintf("function_%07d", i*7919%100_000)); err != nil {
			b.Fatal(err)
		}
	}
}
