package elfsym

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
)

// hashStyles are the ways in which a file may index its symbols.
var hashStyles = map[string][]string{
	"gnu":  {"-Wl,--hash-style=gnu"},
	"sysv": {"-Wl,--hash-style=sysv"},
	"both": {"-Wl,--hash-style=both"},
}

func TestLookupKinds(t *testing.T) {
	for style, flags := range hashStyles {
		t.Run(style, func(t *testing.T) {
			checkZoo(t, open(t, buildZoo(t, flags...)))
		})
	}
}

// Some linkers place code far from its position in the file, as patchelf does with data.
func TestLookupWhereAddressesDifferFromPositions(t *testing.T) {
	f := open(t, buildZoo(t, "-Wl,-Ttext=0x200000", "-Wl,-z,max-page-size=0x1000"))
	checkZoo(t, f)
	s, err := f.Lookup("typed")
	if err != nil {
		t.Fatal(err)
	}
	if s.Value == s.Offset {
		t.Fatalf("the file's code is loaded at its position %#x: this test shows nothing", s.Offset)
	}
}

// A file without any hash table is read through its section headers.
func TestLookupWithoutHashTable(t *testing.T) {
	b, err := os.ReadFile(buildZoo(t, "-Wl,--hash-style=gnu"))
	if err != nil {
		t.Fatal(err)
	}
	replaceDynamicTag(t, b, elf.DT_GNU_HASH, 0x6ffffff7)
	f, err := openBytes(b)
	if err != nil {
		t.Fatal(err)
	}
	checkZoo(t, f)
}

// replaceDynamicTag changes the tag of an entry of the dynamic segment.
func replaceDynamicTag(t *testing.T, b []byte, from, to elf.DynTag) {
	t.Helper()
	f, err := openBytes(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range f.Segments() {
		if s.Type != elf.PT_DYNAMIC {
			continue
		}
		for off := s.Offset; off < s.Offset+s.Filesz; off += 16 {
			if elf.DynTag(binary.LittleEndian.Uint64(b[off:])) == from {
				binary.LittleEndian.PutUint64(b[off:], uint64(to))
				return
			}
		}
	}
	t.Fatalf("no %v to replace", from)
}

func checkZoo(t *testing.T, f *File) {
	t.Helper()
	for _, tc := range []struct {
		name      string
		typ       elf.SymType
		size      uint64
		isFunc    bool
		probeable bool
		version   string
		bytes     string // at Offset; "" if there are none in the file
	}{
		{"typed", elf.STT_FUNC, 3, true, true, "ZOO_1", "\x55\x5d\xc3"},
		{"untyped", elf.STT_NOTYPE, 2, true, true, "ZOO_1", "\x90\xc3"},
		{"sizeless", elf.STT_FUNC, 0, true, true, "ZOO_1", "\xc3"},
		{"alias_one", elf.STT_FUNC, 6, true, true, "ZOO_1", "\x0f\x1f\x44\x00\x00\xc3"},
		{"versioned", elf.STT_FUNC, 2, true, true, "ZOO_2", "\x90\xc3"},
		{"chooser", elf.STT_GNU_IFUNC, 8, false, false, "ZOO_1", "\x48\x8d\x05"},
		{"object", elf.STT_OBJECT, 8, false, false, "ZOO_1", "\x88\x77\x66\x55\x44\x33\x22\x11"},
		{"zeroed", elf.STT_OBJECT, 16, false, false, "ZOO_1", ""},
		{"per_thread", elf.STT_TLS, 8, false, false, "ZOO_1", ""},
		{"exported_abs", elf.STT_NOTYPE, 0, false, false, "ZOO_1", ""},
	} {
		s, err := f.Lookup(tc.name)
		if err != nil {
			t.Errorf("Lookup(%q): %v", tc.name, err)
			continue
		}
		if s.Name != tc.name || s.Type != tc.typ || s.Size != tc.size || s.Func != tc.isFunc || s.Version != tc.version ||
			s.Hidden || s.Local || s.Weak {
			t.Errorf("Lookup(%q) = %+v, want %+v", tc.name, s, tc)
		}
		if err := s.Probeable(); (err == nil) != tc.probeable || err != nil && !errors.Is(err, ErrNotProbeable) {
			t.Errorf("%q: Probeable() = %v, want probeable %v", tc.name, err, tc.probeable)
		}
		if got := bytesAt(t, f, s.Offset, len(tc.bytes)); got != tc.bytes || s.Offset != 0 && tc.bytes == "" {
			t.Errorf("%q: bytes at offset %#x = %x, want %x", tc.name, s.Offset, got, tc.bytes)
		}
	}
	if s, err := f.Lookup("per_thread"); err != nil || s.Value != 8 {
		t.Errorf("offset in the thread's block = %d, %v, want 8", s.Value, err)
	}
	for _, name := range []string{"private", "absent", "", "type", "typedx", "ZOO_1x"} {
		if s, err := f.Lookup(name); !errors.Is(err, ErrNoSymbol) {
			t.Errorf("Lookup(%q) = %+v, %v, want ErrNoSymbol", name, s, err)
		}
	}
	checkZooVersions(t, f)
	if got := f.BuildID(); got != "0123456789abcdef" {
		t.Errorf("BuildID() = %q", got)
	}
	if got := f.Soname(); got != "libzoo.so.1" {
		t.Errorf("Soname() = %q", got)
	}
}

func checkZooVersions(t *testing.T, f *File) {
	t.Helper()
	all, err := f.LookupAll("versioned")
	if err != nil {
		t.Error(err)
	}
	var got []string
	for _, s := range all {
		mark := "default"
		if s.Hidden {
			mark = "hidden"
		}
		got = append(got, s.Version+" "+mark)
	}
	slices.Sort(got)
	if want := []string{"ZOO_1 hidden", "ZOO_2 default"}; !slices.Equal(got, want) {
		t.Errorf("versions of %q: %q, want %q", "versioned", got, want)
	}
}

func bytesAt(t *testing.T, f *File, off uint64, n int) string {
	t.Helper()
	b := make([]byte, n)
	if _, err := f.ReadAt(b, int64(off)); err != nil && n > 0 {
		t.Errorf("reading at %#x: %v", off, err)
	}
	return string(b)
}

func TestImportIsNoDefinition(t *testing.T) {
	f := open(t, build(t, "user.c", `extern int imported(void); int exported(void) { return imported(); }`,
		"-shared", "-fPIC", "-nostdlib"))
	if s, err := f.Lookup("imported"); !errors.Is(err, ErrNoSymbol) {
		t.Errorf("Lookup of an import = %+v, %v, want ErrNoSymbol", s, err)
	}
	if _, err := f.Lookup("exported"); err != nil {
		t.Error(err)
	}
}

func TestAliases(t *testing.T) {
	f := open(t, buildZoo(t))
	all, err := f.DynamicSymbols(func(name string) bool { return name != "versioned" && !strings.HasPrefix(name, "_") })
	if err != nil {
		t.Fatal(err)
	}
	var shared [][]string
	for _, a := range Aliases(all) {
		if len(a.Symbols) > 1 {
			var names []string
			for _, s := range a.Symbols {
				names = append(names, s.Name)
			}
			slices.Sort(names)
			shared = append(shared, names)
		}
	}
	if len(shared) != 1 || !slices.Equal(shared[0], []string{"alias_one", "alias_two"}) {
		t.Errorf("aliases = %q", shared)
	}
}

func TestStaticSymbols(t *testing.T) {
	f := open(t, buildZoo(t))
	isPrivate := func(name string) bool { return name == "private" }
	got, err := f.StaticSymbols(isPrivate, 1<<20)
	if err != nil || len(got) != 1 {
		t.Fatalf("StaticSymbols = %+v, %v", got, err)
	}
	if s := got[0]; !s.Local || !s.Func || s.Size != 2 || bytesAt(t, f, s.Offset, 2) != "\xcc\xc3" {
		t.Errorf("private = %+v", s)
	}
	if _, err := f.StaticSymbols(isPrivate, 100); !errors.Is(err, ErrTooLarge) {
		t.Errorf("with a limit of 100 bytes: %v, want ErrTooLarge", err)
	}
	for name, want := range map[string]bool{"private": true, "ivate": true, "privat": false} {
		if has, err := f.HasStaticName(name, 1<<20); has != want || err != nil {
			t.Errorf("HasStaticName(%q) = %v, %v, want %v", name, has, err, want)
		}
	}
	stripped := open(t, buildZoo(t, "-s"))
	if got, err := stripped.StaticSymbols(nil, 1<<20); len(got) != 0 || err != nil {
		t.Errorf("symbols of a stripped file: %+v, %v", got, err)
	}
}

func TestFunction(t *testing.T) {
	f := open(t, buildZoo(t))
	typed, err := f.Lookup("typed")
	if err != nil {
		t.Fatal(err)
	}
	private, err := f.StaticSymbols(func(n string) bool { return n == "private" }, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	object, err := f.Lookup("object")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		off   uint64
		name  string
		start uint64
	}{
		{typed.Offset, "typed", typed.Value},
		{typed.Offset + 2, "typed", typed.Value},
		{typed.Offset + 3, "untyped", typed.Value + 3},
		{typed.Offset + 5, "sizeless", typed.Value + 5},
		{private[0].Offset + 1, "private", private[0].Value},
		{object.Offset, "", 0},
		{0, "", 0},
		{1 << 62, "", 0},
	} {
		name, start, err := f.Function(tc.off)
		if name != tc.name || start != tc.start || (err != nil) != (tc.name == "") {
			t.Errorf("Function(%#x) = %q, %#x, %v, want %q, %#x", tc.off, name, start, err, tc.name, tc.start)
		}
		if err != nil && !errors.Is(err, ErrNoSymbol) {
			t.Errorf("Function(%#x): %v, want ErrNoSymbol", tc.off, err)
		}
	}
}

func TestBias(t *testing.T) {
	f := open(t, buildZoo(t, "-Wl,-Ttext=0x200000", "-Wl,-z,max-page-size=0x1000"))
	const bias = 0x7f0000000000
	for _, s := range f.Segments() {
		if s.Type != elf.PT_LOAD || s.Filesz == 0 {
			continue
		}
		const page = 0xfff
		got, ok := f.Bias(bias+s.Vaddr&^page, s.Offset&^page)
		if !ok || got != bias {
			t.Errorf("Bias by the segment at %#x = %#x, %v, want %#x", s.Vaddr, got, ok, uint64(bias))
		}
	}
	if got, ok := f.Bias(bias, 1<<40); ok {
		t.Errorf("Bias by a mapping behind the end of the file = %#x", got)
	}
}

func TestReadAtVaddr(t *testing.T) {
	f := open(t, buildZoo(t))
	s, err := f.Lookup("object")
	if err != nil {
		t.Fatal(err)
	}
	var b [8]byte
	if err := f.ReadAtVaddr(s.Value, b[:]); err != nil || binary.LittleEndian.Uint64(b[:]) != 0x1122334455667788 {
		t.Errorf("ReadAtVaddr = %x, %v", b, err)
	}
	z, err := f.Lookup("zeroed")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.ReadAtVaddr(z.Value+8, b[:]); !errors.Is(err, ErrNoBytes) {
		t.Errorf("ReadAtVaddr in .bss: %v, want ErrNoBytes", err)
	}
	if v, err := f.Vaddr(s.Offset); err != nil || v != s.Value {
		t.Errorf("Vaddr(%#x) = %#x, %v, want %#x", s.Offset, v, err, s.Value)
	}
}
