package agent

import (
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"sort"

	"stageprof/agent/elfsym"
	"stageprof/agent/target"
	"stageprof/recording"
)

// images are the files that the target has mapped executable, held open so that
// addresses can still be named when the target is gone.
type images struct {
	process *target.Process
	spans   []mapped // sorted by start
	files   map[fileKey]*openImage
	open    func(target.Mapping) (*target.File, error)
	room    int  // for files
	full    bool // there was no room for one that is mapped
}

type fileKey struct {
	dev, inode uint64
	path       string
}

// mapped is one executable mapping.
type mapped struct {
	target.Mapping
	file   *openImage // nil for anonymous memory and files that can't be opened
	noRoom bool       // … or that found no room, or lost it
}

type openImage struct {
	path      string
	file      *target.File
	elf       *elfsym.File
	probed    bool // there are probes on it
	noEngine  bool // known to have no autograd engine to probe
	noSources bool // known to have no further stage source to probe
	noPairs   bool // … no further pair of static probes

	noCatch       bool // known to have no further place where exceptions are caught
	noFunctions   bool // known to have no further function to follow
	noAllocations bool // known to have no further tracing point of an allocator
}

// maxImages bounds the descriptors held: a training process maps some hundred
// libraries at a time.
const maxImages = 2048

func newImages(process *target.Process) *images {
	return &images{process: process, files: map[fileKey]*openImage{}, open: process.OpenMapped, room: maxImages}
}

// refresh takes up what is mapped now and keeps what was mapped before, while
// there is room.
func (im *images) refresh() error {
	mappings, err := im.process.Mappings()
	if err != nil {
		return err
	}
	return im.take(slices.DeleteFunc(mappings, func(m target.Mapping) bool { return !m.Exec }))
}

func (im *images) take(mappings []target.Mapping) error {
	err := im.makeRoom(mappings)
	im.full = false
	for _, m := range mappings {
		im.insert(m)
	}
	return err
}

// makeRoom lets go of files that are no longer mapped, if all of what is mapped
// would not fit beside them. A file with probes is kept: if it is mapped again,
// the probes are still on it.
func (im *images) makeRoom(mappings []target.Mapping) error {
	present := map[fileKey]bool{}
	missing := 0
	for _, m := range mappings {
		key := keyOf(m)
		if _, known := im.files[key]; m.Inode != 0 && !known && !present[key] {
			missing++
		}
		present[key] = true
	}
	if len(im.files)+missing <= im.room {
		return nil
	}
	var errs []error
	gone := map[*openImage]bool{}
	for key, file := range im.files {
		if present[key] || file != nil && file.probed {
			continue
		}
		delete(im.files, key)
		if file != nil {
			gone[file] = true
			errs = append(errs, file.file.Close())
		}
	}
	for i := range im.spans {
		if gone[im.spans[i].file] {
			im.spans[i].file, im.spans[i].noRoom = nil, true // it may be mapped again
		}
	}
	return errors.Join(errs...)
}

// pythonFile matches files that are called as interpreters are.
var pythonFile = regexp.MustCompile(`^(lib)?python[23]\b`)

// pythons counts the files that may be interpreters, by their names.
func (im *images) pythons() int {
	n := 0
	for key := range im.files {
		if pythonFile.MatchString(filepath.Base(key.path)) {
			n++
		}
	}
	return n
}

func keyOf(m target.Mapping) fileKey { return fileKey{m.Dev, m.Inode, m.Path} }

// insert adds a mapping in place of those that it overlaps.
func (im *images) insert(m target.Mapping) {
	first := sort.Search(len(im.spans), func(i int) bool { return im.spans[i].End > m.Start })
	last := first
	for last < len(im.spans) && im.spans[last].Start < m.End {
		last++
	}
	if last == first+1 && im.spans[first].Mapping == m && !im.spans[first].noRoom {
		return
	}
	added := mapped{Mapping: m}
	if known, ok := im.files[keyOf(m)]; ok {
		added.file = known
	} else if added.noRoom = m.Inode != 0 && len(im.files) >= im.room; added.noRoom {
		im.full = true
	} else {
		added.file = im.add(m)
	}
	im.spans = slices.Replace(im.spans, first, last, added)
}

// add opens a file that is mapped for the first time.
func (im *images) add(m target.Mapping) *openImage {
	if m.Inode == 0 {
		return nil
	}
	key := keyOf(m)
	im.files[key] = nil
	file, err := im.open(m)
	if err != nil {
		return nil // its frames stay module + offset
	}
	elf, err := elfsym.Open(file, file.Size())
	if err != nil {
		_ = file.Close()
		return nil
	}
	im.files[key] = &openImage{path: m.Path, file: file, elf: elf}
	return im.files[key]
}

// opened lists the files that could be opened, in order of address.
func (im *images) opened() []*openImage {
	var files []*openImage
	for _, m := range im.spans {
		if m.file != nil && !slices.Contains(files, m.file) {
			files = append(files, m.file)
		}
	}
	return files
}

// mappings returns the executable mappings of a file.
func (im *images) mappings(file *openImage) []target.Mapping {
	var mappings []target.Mapping
	for _, m := range im.spans {
		if m.file == file {
			mappings = append(mappings, m.Mapping)
		}
	}
	return mappings
}

// find returns the mapping of an address, nil if there is none.
func (im *images) find(address uint64) *mapped {
	i := sort.Search(len(im.spans), func(i int) bool { return im.spans[i].End > address })
	if i == len(im.spans) || address < im.spans[i].Start {
		return nil
	}
	return &im.spans[i]
}

func (im *images) close() error {
	var errs []error
	for _, f := range im.files {
		if f != nil {
			errs = append(errs, f.file.Close())
		}
	}
	im.files = nil
	return errors.Join(errs...)
}

// moduleTable collects the modules of a Recording.
type moduleTable struct {
	images  *images
	modules []recording.Module
	ids     map[uint64]int // by start address
}

// unmapped is the module of addresses that belong to no known mapping.
const unmapped = "//unmapped"

func newModuleTable(im *images, exe string) *moduleTable {
	t := &moduleTable{images: im, ids: map[uint64]int{}}
	i := slices.IndexFunc(im.spans, func(m mapped) bool { return m.Path == exe })
	if i < 0 {
		t.modules = append(t.modules, recording.Module{Path: exe})
		return t
	}
	t.module(&im.spans[i])
	return t
}

// module returns the id of a mapping's module, adding it if need be.
func (t *moduleTable) module(m *mapped) int {
	start, row := uint64(0), recording.Module{Path: unmapped}
	if m != nil {
		start = m.Start
		row = recording.Module{Path: m.Path, Start: m.Start, Limit: m.End, Offset: m.Offset}
		if m.Path == "" {
			row.Path = "//anon"
		}
		if m.file != nil {
			row.BuildID = m.file.elf.BuildID()
		}
	}
	if id, ok := t.ids[start]; ok {
		return id
	}
	row.ID = len(t.modules)
	t.ids[start] = row.ID
	t.modules = append(t.modules, row)
	return row.ID
}

// frame resolves a return address as far as it can be. The call instruction
// lies before it, maybe at the end of another function.
func (t *moduleTable) frame(returnAddress uint64) recording.Frame {
	m := t.images.find(returnAddress - 1)
	f := recording.Frame{Address: returnAddress, Module: t.module(m), Offset: returnAddress}
	if m == nil {
		return f
	}
	f.Offset = returnAddress - m.Start + m.Offset
	if m.file == nil {
		return f
	}
	name, start, err := m.file.elf.Function(f.Offset - 1)
	if err != nil {
		return f
	}
	if vaddr, err := m.file.elf.Vaddr(f.Offset - 1); err == nil {
		f.Function, f.Offset = name, vaddr+1-start
	}
	return f
}
