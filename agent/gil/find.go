package gil

import (
	"debug/elf"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"stageprof/agent/elfsym"
	"stageprof/agent/target"
)

const page = 4096

// largestSymbolTable bounds the .symtab of a program that is searched for an interpreter which it
// contains without exporting its symbols, in bytes.
const largestSymbolTable = 64 << 20

// kind tells what a file that looks like Python contains.
type kind uint8

const (
	noPython    kind = iota
	cpython          // defines _PyRuntime
	oldCPython       // CPython 3.6 or older, Python 2
	otherPython      // PyPy
)

// interpreter is one mapped copy of a file that contains Python.
type interpreter struct {
	kind    kind
	path    string
	file    *elfsym.File
	bias    uint64 // address in the target minus address in the file
	runtime uint64 // address of _PyRuntime in the target, for cpython
	size    uint64 // of _PyRuntime in bytes
	threads
}

// read returns the interpreter's _PyRuntime, whose layout must be known.
func (in interpreter) read(mem reader, d description) pyRuntime {
	return pyRuntime{mem, in.runtime, *d.layout, in.threads}
}

// threads is how the C library of a process keeps its threads.
type threads struct {
	*machine
	glibc     bool
	selfBelow uint64 // pthread_self() is so many bytes below the thread pointer
	selfErr   error  // why that is not known
}

// finder looks through the files that a process has mapped; they stay open until close.
type finder struct {
	process Process
	opened  []*target.File
	// unreadable holds what went wrong with files that are called python.
	unreadable []error
}

func (f *finder) close() error {
	var errs []error
	for _, file := range f.opened {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}

// interpreters returns every copy of Python in the process.
func (f *finder) interpreters(mappings []target.Mapping) []interpreter {
	var found []interpreter
	var library *target.Mapping // glibc's
	for _, mapped := range groupByFile(mappings) {
		path := mapped.code[0].Path
		base := filepath.Base(path)
		if base == "libc.so.6" || strings.HasPrefix(base, "libc-2.") { // up to 2.33
			library = &mapped.code[0]
		}
		in, err := f.inspect(mapped)
		if err != nil && strings.Contains(base, "python") {
			f.unreadable = append(f.unreadable, fmt.Errorf("reading %q: %w", path, err))
		}
		found = append(found, in...)
	}
	for i := range found {
		found[i].threads = f.threads(found[i].file.Machine(), library)
	}
	return found
}

// threads returns how threads are kept in a process that has glibc mapped, or no such library.
func (f *finder) threads(processor elf.Machine, library *target.Mapping) threads {
	t := threads{machine: machineOf(processor), glibc: library != nil}
	switch {
	case t.selfIsPointer:
	case library == nil:
		t.selfErr = errors.New("what pthread_self returns is known of glibc only, which is not mapped")
	default:
		var err error
		if t.selfBelow, err = f.self(*library); err != nil {
			t.selfErr = fmt.Errorf("finding out what pthread_self of %q returns: %w", library.Path, err)
		}
	}
	return t
}

// self finds out how far below the thread pointer pthread_self's result is.
func (f *finder) self(library target.Mapping) (below uint64, err error) {
	opened, err := f.process.OpenMapped(library)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	file, err := elfsym.Open(opened, opened.Size())
	if err != nil {
		return 0, err
	}
	symbol, err := file.Lookup("pthread_self")
	if err != nil {
		return 0, err
	}
	code, err := readCode(file, symbol)
	if err != nil {
		return 0, err
	}
	return decodeSelf(code)
}

// mappedFile holds the mappings of one file that has code in memory.
type mappedFile struct{ code, data []target.Mapping }

// groupByFile collects the mappings of each file that has code in memory.
func groupByFile(mappings []target.Mapping) []mappedFile {
	type identity struct{ dev, inode uint64 }
	index := make(map[identity]int)
	var groups []mappedFile
	for _, m := range mappings {
		if m.Inode == 0 || strings.HasPrefix(m.Path, "/dev/") {
			continue
		}
		id := identity{m.Dev, m.Inode}
		i, known := index[id]
		if !known {
			i = len(groups)
			index[id] = i
			groups = append(groups, mappedFile{})
		}
		if m.Exec {
			groups[i].code = append(groups[i].code, m)
		}
		if !m.Exec || m.Write {
			groups[i].data = append(groups[i].data, m)
		}
	}
	return slices.DeleteFunc(groups, func(g mappedFile) bool { return len(g.code) == 0 })
}

// inspect returns the copies of Python that the mappings of one file make.
func (f *finder) inspect(mapped mappedFile) ([]interpreter, error) {
	opened, err := f.process.OpenMapped(mapped.code[0])
	if err != nil {
		return nil, err
	}
	file, err := elfsym.Open(opened, opened.Size())
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	what, runtime, err := identify(file)
	if what == noPython {
		return nil, errors.Join(err, opened.Close())
	}
	f.opened = append(f.opened, opened)
	var copies []interpreter
	for _, bias := range biases(file, mapped) {
		in := interpreter{kind: what, path: mapped.code[0].Path, file: file, bias: bias}
		if what == cpython {
			in.runtime, in.size = runtime.Value+bias, runtime.Size
		}
		copies = append(copies, in)
	}
	return copies, nil
}

// biases returns, for each copy of the file in memory, the difference between addresses there and in
// the file. A copy has its code and its data at one distance. Code alone is none: libffi, which some
// builds of Python contain, maps a page of its code once more for the functions that ctypes makes. Nor
// is data alone: a page of the file may be mapped once as code and once as data.
func biases(file *elfsym.File, mapped mappedFile) []uint64 {
	data := distances(file, elf.PF_W, mapped.data)
	return slices.DeleteFunc(distances(file, elf.PF_X, mapped.code), func(bias uint64) bool {
		return !slices.Contains(data, bias)
	})
}

// distances returns those at which the mappings put the file's segments that have a flag.
func distances(file *elfsym.File, flag elf.ProgFlag, mapped []target.Mapping) []uint64 {
	var all []uint64
	for _, m := range mapped {
		for _, s := range file.Segments() {
			if s.Type != elf.PT_LOAD || s.Flags&flag == 0 {
				continue
			}
			if first := s.Offset &^ (page - 1); m.Offset < first || m.Offset >= s.Offset+s.Filesz {
				continue
			}
			bias := m.Start - (s.Vaddr - s.Offset + m.Offset)
			if !slices.Contains(all, bias) {
				all = append(all, bias)
			}
		}
	}
	return all
}

// identify tells whether a file contains Python and, for CPython since 3.7, where _PyRuntime is.
func identify(file *elfsym.File) (kind, elfsym.Symbol, error) {
	runtime, err := lookUp(file, "_PyRuntime")
	if err == nil {
		return cpython, runtime, nil
	}
	if section, ok := file.Section(".PyRuntime"); ok { // 3.10 and newer; it holds nothing else
		return cpython, elfsym.Symbol{Value: section.Addr, Size: section.Size}, nil
	}
	if _, err := file.Lookup("pypy_main_startup"); err == nil {
		return otherPython, elfsym.Symbol{}, nil
	}
	if _, err := file.Lookup("Py_GetVersion"); err == nil {
		return oldCPython, elfsym.Symbol{}, nil
	}
	if errors.Is(err, elfsym.ErrNoSymbol) {
		err = nil
	}
	return noPython, elfsym.Symbol{}, err
}

// lookUp finds an exported symbol or, in a program, any symbol that is not stripped: a program may
// contain an interpreter that it does not export.
func lookUp(file *elfsym.File, name string) (elfsym.Symbol, error) {
	symbol, err := file.Lookup(name)
	if err == nil || !isProgram(file) {
		return symbol, err
	}
	symbols, staticErr := file.StaticSymbols(func(n string) bool { return n == name }, largestSymbolTable)
	if staticErr != nil || len(symbols) == 0 {
		return elfsym.Symbol{}, err
	}
	return symbols[0], nil
}

// isProgram reports whether the file is started rather than loaded. A static program that can be put
// anywhere names no loader; it differs from a library in that it neither has a name nor needs others.
func isProgram(file *elfsym.File) bool {
	if file.Type() == elf.ET_EXEC {
		return true
	}
	for _, s := range file.Segments() {
		if s.Type == elf.PT_INTERP {
			return true
		}
	}
	needed, err := file.Needed()
	return err == nil && len(needed) == 0 && file.Soname() == ""
}
