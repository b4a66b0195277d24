package sim_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"stageprof/sim/simtest"
)

type variant struct {
	name  string
	file  string // "" is libcuda.so.1
	entry []byte // nil: the real driver's
	has   []string
	lacks []string
}

func (v variant) path() string {
	file := v.file
	if file == "" {
		file = "libcuda.so.1"
	}
	return filepath.Join("sim", "variants", v.name, file)
}

var variants = []variant{
	{name: "plain", has: []string{"cuLaunchKernel", "cuMemAlloc"}, lacks: []string{"cuLaunchKernel_ptsz", "cuMemAlloc_v2"}},
	{name: "ex-ptsz", has: []string{"cuLaunchKernelEx", "cuLaunchKernel_ptsz"}, lacks: []string{"cuLaunchKernel"}},
	{name: "versioned", has: []string{"cuMemAlloc_v2", "cuLaunchKernel"}, lacks: []string{"cuMemAlloc", "cuLaunchKernel_ptsz"}},
	{name: "push-rbp", entry: []byte{0x55}},
	{name: "endbr64-push", entry: []byte{0xf3, 0x0f, 0x1e, 0xfa, 0x55}},
	{name: "push-rbx", entry: []byte{0x53}},
	{name: "nop5", entry: []byte{0x0f, 0x1f, 0x44, 0x00, 0x00}},
	{name: "stripped", has: []string{"cuLaunchKernel"}},
	{name: "decoy", has: []string{"cuLaunchKernel"}},
	{name: "vendor", file: "libvendor.so", has: []string{"cuLaunchKernel"}},
}

// library is what these tests read of a driver.
type library struct {
	text    []byte
	start   uint64
	symbols map[string]elf.Symbol
}

func openLibrary(t *testing.T, path string) library {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatalf("opening %q: %v", path, err)
	}
	defer f.Close()
	text := f.Section(".text")
	code, err := text.Data()
	if err != nil {
		t.Fatalf("reading the code of %q: %v", path, err)
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatalf("reading the symbols of %q: %v", path, err)
	}
	l := library{text: code, start: text.Addr, symbols: map[string]elf.Symbol{}}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			l.symbols[s.Name] = s
		}
	}
	return l
}

// code returns the n bytes at an address.
func (l library) code(address uint64, n int) []byte {
	at := address - l.start
	return l.text[at:][:n]
}

func (l library) exports() []string {
	var names []string
	for name := range l.symbols {
		if !strings.HasPrefix(name, "simcuda_") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func table(t *testing.T, name string) [][]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("driver", name))
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for line := range strings.Lines(string(data)) {
		if !strings.HasPrefix(line, "#") {
			rows = append(rows, strings.Fields(line))
		}
	}
	return rows
}

func TestExportsAreTheTables(t *testing.T) {
	l := openLibrary(t, simtest.Driver(t))
	var want []string
	for _, row := range table(t, "exports.txt") {
		want = append(want, row[0])
	}
	if !slices.IsSorted(want) {
		t.Error("exports.txt is not sorted")
	}
	if got := l.exports(); !slices.Equal(got, want) {
		t.Errorf("the library exports %d names, exports.txt has %d", len(got), len(want))
	}
	for _, row := range table(t, "procs.txt") {
		if _, found := slices.BinarySearch(want, row[2]); !found {
			t.Errorf("procs.txt names %q, which exports.txt lacks", row[2])
		}
	}
	for _, control := range []string{"simcuda_tag", "simcuda_reset_truth", "simcuda_write_truth",
		"simcuda_set_hook", "simcuda_set_kernel_ns", "simcuda_entry"} {
		if _, ok := l.symbols[control]; !ok {
			t.Errorf("no %s", control)
		}
	}
}

// Every export of the real driver starts with
//
//	81 3d disp32 00 ba 1c 32   cmpl $0x321cba00, disp(%rip)
//	74 xx                      je
//	ff 25 disp32               jmp *disp(%rip), or first the extension of a 16-bit argument: 0f b7 xx
//
// and all compare the same word.
func TestEntriesHaveTheRealShape(t *testing.T) {
	for _, path := range []string{"sim/libcuda.so.1", "sim/variants/stripped/libcuda.so.1",
		"sim/variants/vendor/libvendor.so", "sim/variants/plain/libcuda.so.1"} {
		l := openLibrary(t, simtest.Build(t, path))
		words := map[uint64]bool{}
		for _, name := range l.exports() {
			address := l.symbols[name].Value
			code := l.code(address, 18)
			extended := strings.HasPrefix(name, "cuMemsetD16") || strings.HasPrefix(name, "cuMemsetD2D16")
			jump := []byte{0xff, 0x25}
			if extended {
				jump = []byte{0x0f, 0xb7}
			}
			if !bytes.Equal(code[:2], []byte{0x81, 0x3d}) || !bytes.Equal(code[6:10], []byte{0x00, 0xba, 0x1c, 0x32}) ||
				code[10] != 0x74 || !bytes.Equal(code[12:14], jump) {
				t.Errorf("%s: %s starts with % x", path, name, code)
			}
			words[address+10+uint64(int32(binary.LittleEndian.Uint32(code[2:])))] = true
		}
		if len(words) != 1 {
			t.Errorf("%s: the entries compare %d words, want one", path, len(words))
		}
	}
}

func TestVariants(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			l := openLibrary(t, simtest.Build(t, v.path()))
			for _, name := range v.has {
				if _, ok := l.symbols[name]; !ok {
					t.Errorf("no %s", name)
				}
			}
			for _, name := range v.lacks {
				if _, ok := l.symbols[name]; ok {
					t.Errorf("there is a %s", name)
				}
			}
			for _, name := range l.exports() {
				if code := l.code(l.symbols[name].Value, len(v.entry)); !bytes.Equal(code, v.entry) {
					t.Errorf("%s starts with % x, want % x", name, code, v.entry)
				}
			}
		})
	}
}
