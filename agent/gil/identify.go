package gil

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"path/filepath"
)

// largestData bounds the writable memory that is searched for the version.
const largestData = 16 << 20

// description is what is known of an interpreter besides where it is.
type description struct {
	version      version
	known        bool // whether version says anything
	freeThreaded bool
	layout       *layout // nil when the version's is not known
	initialised  bool    // it has an interpreter state; needs the layout
}

// mayStart reports whether more will be known of the interpreter once it has started.
func (d description) mayStart() bool {
	return !d.known || d.layout != nil && !d.initialised
}

// describe finds out an interpreter's version and layout. The version is taken from, in this order:
// the exported Py_Version (3.11), the table of debug offsets (3.13), what Py_GetVersion left in
// memory, the file's name.
func describe(mem reader, in interpreter) (description, error) {
	var d description
	if in.kind == otherPython {
		return d, nil
	}
	table, hasTable, err := readDebugTable(mem, in)
	if err != nil {
		return d, err
	}
	d.version, d.known = exportedVersion(in)
	if hasTable {
		if d.known && d.version.minor != table.version.minor {
			return d, fmt.Errorf("it is Python %s by one account and %s by another", d.version, table.version)
		}
		d.version, d.known = table.version, true
	}
	if !d.known {
		d.version, d.known = rememberedVersion(mem, in)
	}
	if !d.known {
		d.version, d.known = versionFromFileName(filepath.Base(in.path))
	}
	if hasTable {
		d.freeThreaded, d.layout = table.freeThreaded, table.layout
	} else if l, ok := in.layout(d.version.minor); ok && d.version.major == 3 && in.kind == cpython {
		d.layout = &l
	}
	if d.layout != nil {
		interp, err := in.read(mem, d).mainInterpreter()
		d.initialised = err == nil && interp != 0
	}
	return d, nil
}

func readDebugTable(mem reader, in interpreter) (debugTable, bool, error) {
	if in.kind != cpython {
		return debugTable{}, false, nil
	}
	b := make([]byte, debugTableSize)
	if err := mem.ReadMemory(in.runtime, b); err != nil {
		return debugTable{}, false, err
	}
	return parseDebugTable(b)
}

func exportedVersion(in interpreter) (version, bool) {
	symbol, err := lookUp(in.file, "Py_Version")
	if err != nil {
		return version{}, false
	}
	var b [8]byte
	if err := in.file.ReadAtVaddr(symbol.Value, b[:]); err != nil {
		return version{}, false
	}
	return versionFromHex(binary.LittleEndian.Uint64(b[:]))
}

// rememberedVersion searches the interpreter's own variables for the text that Py_GetVersion composes
// when Python starts.
func rememberedVersion(mem reader, in interpreter) (version, bool) {
	const step = 64 << 10
	budget := uint64(largestData)
	for _, s := range in.file.Segments() {
		if s.Type != elf.PT_LOAD || s.Flags&elf.PF_W == 0 {
			continue
		}
		size := min(s.Memsz, budget)
		budget -= size
		for at := uint64(0); at < size; at += step {
			b := make([]byte, min(size-at, step+bannerLength))
			if mem.ReadMemory(in.bias+s.Vaddr+at, b) != nil {
				continue
			}
			if v, ok := versionIn(b); ok {
				return v, true
			}
		}
	}
	return version{}, false
}

// versionIn looks for the text in memory; it is cheap where there is no text.
func versionIn(b []byte) (version, bool) {
	if !bytes.Contains(b, []byte(") \n[")) && !bytes.Contains(b, []byte(") [")) {
		return version{}, false
	}
	return versionFromBanner(b)
}
