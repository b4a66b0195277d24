package elfsym

import (
	"debug/elf"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// systemFiles returns the distinct shared libraries and interpreters of this machine.
func systemFiles(t *testing.T) []string {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	var out []string
	for _, pattern := range []string{
		"/lib/x86_64-linux-gnu/*.so*", "/usr/lib64/*.so*", "/usr/bin/python3*",
		filepath.Join(home, ".pyenv/versions/*/lib/libpython3*.so*"),
		filepath.Join(home, ".pyenv/versions/*/bin/python3.*"),
	} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			real, err := filepath.EvalSymlinks(name)
			if err == nil && !seen[real] {
				seen[real] = true
				out = append(out, real)
			}
		}
	}
	return out
}

// Every symbol of every system library must be what the standard library, which reads whole
// tables of files that it trusts, says it is.
func TestAgreesWithDebugELF(t *testing.T) {
	files, symbols := 0, 0
	for _, path := range systemFiles(t) {
		theirs, err := elf.Open(path)
		if err != nil {
			continue // linker scripts and the like
		}
		ours := open(t, path)
		symbols += compareDynamic(t, path, ours, theirs)
		symbols += compareStatic(t, path, ours, theirs)
		compareSections(t, path, ours, theirs)
		files++
		theirs.Close()
	}
	t.Logf("%d files, %d symbols", files, symbols)
	if files < 20 || symbols < 10000 {
		t.Errorf("compared %d files with %d symbols: too few to mean anything", files, symbols)
	}
}

// comparableSymbol is what both readers know of a symbol.
type comparableSymbol struct {
	name, version       string
	value, size, offset uint64
	typ                 elf.SymType
	local, hidden       bool
}

func fromOurs(s Symbol) comparableSymbol {
	return comparableSymbol{s.Name, s.Version, s.Value, s.Size, s.Offset, s.Type, s.Local, s.Hidden}
}

func fromTheirs(f *elf.File, s elf.Symbol) comparableSymbol {
	c := comparableSymbol{
		name: s.Name, value: s.Value, size: s.Size, typ: elf.ST_TYPE(s.Info),
		local: elf.ST_BIND(s.Info) == elf.STB_LOCAL,
	}
	if s.HasVersion {
		c.hidden = s.VersionIndex.IsHidden()
		// A copy of an imported variable carries the version that is imported.
		if s.VersionIndex.Index() > 1 && s.Library == "" {
			c.version = s.Version
		}
	}
	if c.typ == elf.STT_TLS || s.Section == elf.SHN_ABS {
		return c
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && s.Value >= p.Vaddr && s.Value-p.Vaddr < p.Filesz {
			c.offset = s.Value - p.Vaddr + p.Off
		}
	}
	return c
}

// isDefinition tells what this package counts as a symbol.
func isDefinition(s elf.Symbol) bool {
	switch elf.ST_TYPE(s.Info) {
	case elf.STT_SECTION, elf.STT_FILE:
		return false
	}
	return s.Section != elf.SHN_UNDEF && s.Name != ""
}

func compareDynamic(t *testing.T, path string, ours *File, theirs *elf.File) int {
	t.Helper()
	all, err := theirs.DynamicSymbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		t.Fatalf("%s: %v", path, err)
	}
	var want []comparableSymbol
	byName := make(map[string][]comparableSymbol)
	for _, s := range all {
		if isDefinition(s) {
			c := fromTheirs(theirs, s)
			want = append(want, c)
			byName[s.Name] = append(byName[s.Name], c)
		}
	}
	got, err := ours.DynamicSymbols(nil)
	if err != nil {
		t.Errorf("%s: %v", path, err)
	}
	compareLists(t, path+": DynamicSymbols", got, want)
	for name, want := range byName {
		got, err := ours.LookupAll(name)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		compareSets(t, path+": LookupAll", got, want)
	}
	for _, s := range all {
		if s.Section == elf.SHN_UNDEF && byName[s.Name] == nil {
			if got, err := ours.Lookup(s.Name); !errors.Is(err, ErrNoSymbol) {
				t.Errorf("%s: Lookup of the import %q = %+v, %v", path, s.Name, got, err)
			}
		}
	}
	return len(want)
}

func compareStatic(t *testing.T, path string, ours *File, theirs *elf.File) int {
	t.Helper()
	all, err := theirs.Symbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		t.Fatalf("%s: %v", path, err)
	}
	var want []comparableSymbol
	for _, s := range all {
		if isDefinition(s) {
			c := fromTheirs(theirs, s)
			c.version, c.hidden = "", false
			want = append(want, c)
		}
	}
	got, err := ours.StaticSymbols(nil, 1<<30)
	if err != nil {
		t.Errorf("%s: %v", path, err)
	}
	compareLists(t, path+": StaticSymbols", got, want)
	return len(want)
}

func compareLists(t *testing.T, what string, got []Symbol, want []comparableSymbol) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d symbols, want %d", what, len(got), len(want))
		return
	}
	for i, s := range got {
		if fromOurs(s) != want[i] {
			t.Errorf("%s: symbol %d = %+v, want %+v", what, i, fromOurs(s), want[i])
			return
		}
	}
}

// compareSets ignores the order, which in a hash chain may differ from the table's.
func compareSets(t *testing.T, what string, got []Symbol, want []comparableSymbol) {
	t.Helper()
	count := make(map[comparableSymbol]int)
	for _, c := range want {
		count[c]++
	}
	for _, s := range got {
		count[fromOurs(s)]--
	}
	for c, n := range count {
		if n != 0 {
			t.Errorf("%s(%q): found %d times too few: %+v", what, c.name, n, c)
		}
	}
}

func compareSections(t *testing.T, path string, ours *File, theirs *elf.File) {
	t.Helper()
	got, err := ours.Sections()
	if err != nil || len(got) != len(theirs.Sections) {
		t.Errorf("%s: %d sections, %v, want %d", path, len(got), err, len(theirs.Sections))
		return
	}
	for i, s := range got {
		w := theirs.Sections[i]
		if s.Name != w.Name || s.Type != w.Type || s.Flags != w.Flags || s.Addr != w.Addr || s.Offset != w.Offset || s.Size != w.FileSize {
			t.Errorf("%s: section %d = %+v, want %+v", path, i, s, w.SectionHeader)
		}
	}
	if note := theirs.Section(".note.gnu.build-id"); note != nil {
		want, err := io.ReadAll(note.Open())
		if err != nil || len(want) < 16 {
			t.Fatalf("%s: build id note: %v", path, err)
		}
		if got := ours.BuildID(); got != hexOf(want[16:]) {
			t.Errorf("%s: build id %q, want %x", path, got, want[16:])
		}
	}
	names, err := theirs.DynString(elf.DT_SONAME)
	if err == nil && len(names) == 1 && ours.Soname() != names[0] {
		t.Errorf("%s: Soname() = %q, want %q", path, ours.Soname(), names[0])
	}
	needed, err := theirs.ImportedLibraries()
	if got, ourErr := ours.Needed(); err == nil && (ourErr != nil || len(got) != len(needed)) {
		t.Errorf("%s: Needed() = %q, %v, want %q", path, got, ourErr, needed)
	}
}
