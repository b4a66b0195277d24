package target

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"stageprof/agent/elfsym"
)

// Bounds on the .symtab that is searched for a driver linked in without being exported. It
// takes reading all names: fast for most files, a second for the largest of PyTorch's, in which
// nobody hides a driver. Programs, where a driver may well be linked in, are searched up to the
// larger bound.
const (
	maxStaticBytes  = 512 << 20
	maxLibraryBytes = 32 << 20
)

// Image is an ELF file that the target has mapped and may execute. File and ELF belong to the
// [Process] and are closed with it.
type Image struct {
	File     *File
	ELF      *elfsym.File
	Path     string // in the target's namespace
	Deleted  bool   // the path has been removed or replaced since
	BuildID  string // lower-case hex, "" if none
	Mappings []Mapping
	Biases   []uint64 // what the loader added to vaddrs, one for each time it is loaded

	roles map[role]verdict
}

// Driver is an image that defines the CUDA driver API.
type Driver struct {
	Image
	Version string // such as "535.261.03", by the file's name; "" if that does not tell
	Static  bool   // linked in without being exported: its symbols are in .symtab only
}

// Skipped is a mapped file that could not be examined.
type Skipped struct {
	Path string
	Err  error
}

// imageKey tells mapped files apart. Inode numbers are reused once a file is gone, hence the
// address.
type imageKey struct {
	fileID
	path  string
	start uint64
}

// role is what an image is examined for.
type role int

const (
	driverRole role = iota
	markerRole
)

// verdict is whether an image has a role, and how.
type verdict struct{ has, static bool }

// Drivers returns every mapped file that defines the driver API, whatever its name and however
// many there are: libcuda.so.1, a copy elsewhere, a copy inside another library or inside the
// executable. Files that only import it are not drivers. Files that could not be examined are
// in [Process.Skipped]. Repeated calls examine only what is newly mapped.
func (p *Process) Drivers() ([]Driver, error) {
	var out []Driver
	err := p.scan(driverRole, func(im *Image, v verdict) {
		out = append(out, Driver{Image: *im, Version: driverVersion(im.Path), Static: v.static})
	})
	return out, err
}

// MarkerLibs returns every mapped file that exports the marker probe point
// stageprof_mark_begin, in the manner of [Process.Drivers].
func (p *Process) MarkerLibs() ([]Image, error) {
	var out []Image
	err := p.scan(markerRole, func(im *Image, _ verdict) { out = append(out, *im) })
	return out, err
}

// Skipped returns the mapped files that the last call of Drivers or MarkerLibs could not examine.
func (p *Process) Skipped() []Skipped {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.skipped)
}

// Symbols returns the driver API functions that the driver defines, by name pattern cu + capital
// letter: exported ones or, for a static driver, those in .symtab.
func (d *Driver) Symbols() ([]elfsym.Symbol, error) {
	if d.Static {
		return d.ELF.StaticSymbols(isDriverName, maxStaticBytes)
	}
	return d.ELF.DynamicSymbols(isDriverName)
}

func isDriverName(name string) bool {
	return len(name) > 2 && name[:2] == "cu" && name[2] >= 'A' && name[2] <= 'Z'
}

var versionedName = regexp.MustCompile(`^libcuda\.so\.([0-9]+\.[0-9]+(?:\.[0-9]+)?)$`)

func driverVersion(file string) string {
	if m := versionedName.FindStringSubmatch(path.Base(file)); m != nil {
		return m[1]
	}
	return ""
}

// scan calls found for each image that has the role, in order of address.
func (p *Process) scan(r role, found func(*Image, verdict)) error {
	ms, err := p.Mappings()
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.skipped = nil
	current := make(map[imageKey]*Image)
	for _, group := range groupFiles(ms) {
		key := imageKey{group[0].id(), group[0].Path, group[0].Start}
		im := p.images[key]
		if im == nil {
			im = &Image{Path: group[0].Path, roles: make(map[role]verdict)}
		}
		im.Mappings, im.Deleted = group, group[0].Deleted
		current[key] = im
		v, err := p.examine(im, r)
		if err != nil {
			p.skipped = append(p.skipped, Skipped{im.Path, err})
			continue
		}
		if v.has {
			found(im, v)
		}
	}
	p.forget(current)
	return nil
}

// forget drops the images that are no longer mapped, except those that somebody may hold.
func (p *Process) forget(current map[imageKey]*Image) {
	for key, im := range p.images {
		if _, mapped := current[key]; !mapped && im.File != nil {
			current[key] = im
		}
	}
	p.images = current
}

// groupFiles returns the mappings of each file that has an executable one, by first address.
func groupFiles(ms []Mapping) [][]Mapping {
	byFile := make(map[fileID][]Mapping)
	executable := make(map[fileID]bool)
	for _, m := range ms {
		if m.Inode == 0 || !strings.HasPrefix(m.Path, "/") {
			continue
		}
		byFile[m.id()] = append(byFile[m.id()], m)
		executable[m.id()] = executable[m.id()] || m.Exec
	}
	var out [][]Mapping
	for id, group := range byFile {
		if executable[id] {
			out = append(out, group)
		}
	}
	slices.SortFunc(out, func(a, b []Mapping) int { return cmp.Compare(a[0].Start, b[0].Start) })
	return out
}

// examine finds out whether the image has the role. The file stays open if it has any.
func (p *Process) examine(im *Image, r role) (verdict, error) {
	if v, known := im.roles[r]; known {
		if im.File != nil {
			im.Biases = biases(im.ELF, im.Mappings)
		}
		return v, nil
	}
	f, e := im.File, im.ELF
	if f == nil {
		var err error
		if f, e, err = p.openImage(im.Mappings); err != nil {
			return verdict{}, err
		}
		if e == nil { // not an ELF file, hence neither driver nor marker library
			im.roles[driverRole], im.roles[markerRole] = verdict{}, verdict{}
			return verdict{}, nil
		}
	}
	v, err := classify(e, r)
	if err == nil {
		im.roles[r] = v
	}
	switch {
	case err == nil && v.has:
		im.File, im.ELF, im.BuildID, im.Biases = f, e, e.BuildID(), biases(e, im.Mappings)
	case im.File == nil:
		err = errors.Join(err, f.Close())
	}
	return v, err
}

// openImage opens the file behind the mappings; the ELF file is nil if it is of another kind.
func (p *Process) openImage(ms []Mapping) (*File, *elfsym.File, error) {
	f, err := p.openAny(ms)
	if err != nil {
		return nil, nil, err
	}
	e, err := elfsym.Open(f, f.Size())
	if errors.Is(err, elfsym.ErrNotELF) {
		return nil, nil, f.Close()
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("reading %q: %w", ms[0].Path, err), f.Close())
	}
	return f, e, nil
}

// openAny opens the file through any of its mappings, read-only ones first: where it takes a
// comparison of content to recognise the file, they are the ones that nobody has written to.
func (p *Process) openAny(ms []Mapping) (f *File, err error) {
	ordered := slices.Clone(ms)
	slices.SortStableFunc(ordered, func(a, b Mapping) int { return cmp.Compare(writability(a), writability(b)) })
	for _, m := range ordered {
		if f, err = p.OpenMapped(m); err == nil || errors.Is(err, ErrTargetExited) || errors.Is(err, ErrClosed) {
			break
		}
	}
	return f, err
}

func writability(m Mapping) int {
	switch {
	case m.Write || !m.Read:
		return 2
	case m.Exec:
		return 1
	}
	return 0
}

// biases returns where the file is loaded. dlmopen and dlopen of a copy load one file twice.
func biases(e *elfsym.File, ms []Mapping) []uint64 {
	var out []uint64
	for _, m := range ms {
		if !m.Exec {
			continue
		}
		if b, ok := e.Bias(m.Start, m.Offset); ok && !slices.Contains(out, b) {
			out = append(out, b)
		}
	}
	return out
}

// A driver has cuInit and at least one way to launch or to get at further functions.
var driverEntries = []string{
	"cuLaunchKernel", "cuLaunchKernel_ptsz", "cuLaunchKernelEx", "cuLaunchKernelEx_ptsz",
	"cuGetProcAddress", "cuGetProcAddress_v2",
}

func classify(e *elfsym.File, r role) (verdict, error) {
	if r == markerRole {
		has, err := exports(e, "stageprof_mark_begin")
		return verdict{has: has}, err
	}
	inits, err := exports(e, "cuInit")
	if err != nil {
		return verdict{}, err
	}
	if inits {
		for _, name := range driverEntries {
			if has, err := exports(e, name); err != nil || has {
				return verdict{has: has}, err
			}
		}
	}
	static, err := definesStatically(e)
	return verdict{has: static, static: static}, err
}

func exports(e *elfsym.File, name string) (bool, error) {
	s, err := e.Lookup(name)
	if errors.Is(err, elfsym.ErrNoSymbol) {
		return false, nil
	}
	return err == nil && s.Func, err
}

// definesStatically looks for a driver in .symtab. Most files are ruled out by one pass over
// their names, and stripped ones at once.
func definesStatically(e *elfsym.File) (bool, error) {
	limit := int64(maxLibraryBytes)
	if isProgram(e) {
		limit = maxStaticBytes
	}
	named, err := e.HasStaticName("cuInit", limit)
	if errors.Is(err, elfsym.ErrTooLarge) && !isProgram(e) {
		return false, nil
	}
	if err != nil || !named {
		return false, err
	}
	found := make(map[string]bool)
	symbols, err := e.StaticSymbols(isDriverName, maxStaticBytes)
	if err != nil {
		return false, err
	}
	for _, s := range symbols {
		found[s.Name] = found[s.Name] || s.Func
	}
	return found["cuInit"] && slices.ContainsFunc(driverEntries, func(n string) bool { return found[n] }), nil
}

// isProgram tells programs, also position-independent ones, from libraries.
func isProgram(e *elfsym.File) bool {
	return e.Type() == elf.ET_EXEC ||
		slices.ContainsFunc(e.Segments(), func(s elfsym.Segment) bool { return s.Type == elf.PT_INTERP })
}

func (im *Image) close() error {
	if im.File == nil {
		return nil
	}
	return im.File.Close()
}
