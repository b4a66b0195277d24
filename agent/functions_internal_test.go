package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"stageprof/agent/elfsym"
)

func TestFunctionPatterns(t *testing.T) {
	const mangled = "_ZN3c104cuda20CUDACachingAllocator6Native22DeviceCachingAllocator9map_blockEPNS2_12_GLOBAL__N_15BlockEm"
	for _, test := range []struct {
		pattern, symbol string
		want            bool
	}{
		{"plain", "plain", true},
		{"plain", "plainer", false},
		{"plain", "plain.isra.0", true},
		{"plain", "plain.constprop.0.isra.1", true},
		{"plain", "plain.part.0", false}, // called by plain
		{"plain*", "plainer", true},
		{"*in", "plain", true},
		{"p*n", "plain", true},
		{"p*a*n", "plain", true},
		{"p*n*a*n", "plain", false},
		{"pl*lain", "plain", false},
		{"*map_block*", mangled, true},
		{"DeviceCachingAllocator::map_block", mangled, true},
		{"DeviceCachingAllocator::map_block", mangled + ".isra.0", true},
		{"Native::*::map_block", mangled, true},
		{"c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::map_block", mangled, true},
		{"CachingAllocator::map_block", mangled, false}, // no whole name
		{"DeviceCachingAllocator::map", mangled, false},
		{"::map_block", "map_block", false},
		{"(anonymous namespace)::f", "_ZN12_GLOBAL__N_11fEv", true},
	} {
		p := functionPattern{library: "l", symbol: test.pattern}
		if got := p.matches(test.symbol); got != test.want {
			t.Errorf("%q matches %q: %t", test.pattern, test.symbol, got)
		}
	}
}

func TestPatternsOfLibraries(t *testing.T) {
	for _, test := range []struct {
		library, file string
		want          bool
	}{
		{"libc10_cuda.so", "/x/torch/lib/libc10_cuda.so", true},
		{"torch/lib/libc10_cuda.so", "/x/torch/lib/libc10_cuda.so", true},
		{"/x/torch/lib/libc10_cuda.so", "/x/torch/lib/libc10_cuda.so", true},
		{"c10_cuda.so", "/x/torch/lib/libc10_cuda.so", false},
		{"libnccl.so", "/x/libnccl.so.2", true},
		{"libnccl.so.2", "/x/libnccl.so", false},
		{"trainer", "/opt/trainer", true},
		{"trainer", "/opt/trainer.old", false},
	} {
		p := functionPattern{library: test.library, symbol: "f"}
		if got := p.in(test.file); got != test.want {
			t.Errorf("%q is %q: %t", test.file, test.library, got)
		}
	}
}

// A pattern that names too many functions is refused before any of them is
// decoded, which can take long: that would tell that they are not understood.
func TestTooManyFunctions(t *testing.T) {
	var source strings.Builder
	for i := range maxMatches + 1 {
		fmt.Fprintf(&source, ".globl f%[1]d\n.type f%[1]d, @function\nf%[1]d: .byte 6, 6\n.size f%[1]d, 2\n", i)
	}
	file := assemble(t, source.String())
	s := &Session{config: Config{StageMatch: "."}, settled: map[functionPattern]bool{}}
	_, err := s.findFunctions(file, []functionPattern{{library: "many.so", symbol: "f*", role: roleRegion}})
	if err == nil || !strings.Contains(err.Error(), "name fewer") || len(s.warnings) > 0 {
		t.Errorf("error %v, warnings %q", err, s.warnings)
	}
}

// assemble makes a library of assembly.
func assemble(t *testing.T, source string) *openImage {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "many.S"), filepath.Join(dir, "many.so")
	if err := os.WriteFile(in, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := exec.Command("gcc", "-shared", "-nostdlib", "-o", out, in).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, b)
	}
	f, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	file, err := elfsym.Open(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return &openImage{path: out, elf: file}
}
