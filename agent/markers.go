package agent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"stageprof/agent/elfsym"
	"stageprof/agent/probe"
	"stageprof/agent/target"
	"stageprof/bpf"
)

// markers are the marker library's functions to probe and what they mean to the
// kernel side.
var markers = map[string]bpf.ProbeMarker{
	"stageprof_mark_begin":         bpf.ProbeMarkerMARKER_BEGIN,
	"stageprof_mark_end":           bpf.ProbeMarkerMARKER_END,
	"stageprof_mark_process_begin": bpf.ProbeMarkerMARKER_PROCESS_BEGIN,
	"stageprof_mark_process_end":   bpf.ProbeMarkerMARKER_PROCESS_END,
}

// markerPoints returns where a marker library's markers are probed.
func markerPoints(image target.Image) ([]probe.Point, error) {
	var points []probe.Point
	for name, marker := range markers {
		symbol, err := image.ELF.Lookup(name)
		if err != nil {
			return nil, fmt.Errorf("looking for %q in %q: %w", name, image.Path, err)
		}
		points = append(points, probe.Point{Offset: symbol.Offset, Cookie: uint64(marker)})
	}
	return points, nil
}

// The marker library's registry, as marker/c/stageprof.h lays it out.
const (
	registrySymbol = "stageprof_registry"
	registryMagic  = "STAGEPRF"
	registryABI    = 1
	registryHeader = 48 // up to the process's slot
	slotHeader     = 8
	slotDepth      = 64
	slotSize       = slotHeader + slotDepth*16
	maxSlots       = 4096 // as many as the library has
	maxNames       = 4096
)

var errRegistry = errors.New("unknown layout of the marker library's registry")

// registry is what a marker library knew of its threads when it was read.
type registry struct {
	address         uint64
	slots           []slot // that are in use
	process         slot   // of the stages of the whole process
	namesOverflow   uint64 // stages begun without room for their name
	threadsOverflow uint64 // stages not begun without room for their thread

	newNames, newThreads uint64 // the same since then
}

// slot is one thread's open stages.
type slot struct {
	address uint64
	tid     uint32 // in the target's own pid namespace
	open    []openStage
}

type openStage struct {
	name  string
	begin uint64 // CLOCK_MONOTONIC, ns
}

type memory interface {
	ReadMemory(address uint64, b []byte) error
}

// readRegistry reads the registry of a library that is loaded at bias. It runs
// while the target goes on: a slot's content is only good for a thread that has
// emitted no marker since.
func readRegistry(m memory, file *elfsym.File, bias uint64) (*registry, error) {
	symbol, err := file.Lookup(registrySymbol)
	if err != nil {
		return nil, fmt.Errorf("looking for %q: %w", registrySymbol, err)
	}
	address := symbol.Value + bias
	header, err := readRegistryHeader(m, address)
	if err != nil {
		return nil, err
	}
	u32 := func(at int) uint32 { return binary.NativeEndian.Uint32(header[at:]) }
	u64 := func(at int) uint64 { return binary.NativeEndian.Uint64(header[at:]) }
	used, slots := min(u32(20), u32(16)), u64(40)
	if used > maxSlots {
		return nil, errRegistry
	}
	names := nameReader{memory: m, known: map[uint64]string{}}
	process, err := names.slot(address + registryHeader)
	if err != nil {
		return nil, err
	}
	r := &registry{address: address, process: process, namesOverflow: u64(24), threadsOverflow: u64(32)}
	for i := range uint64(used) {
		s, err := names.slot(slots + i*slotSize)
		if err != nil {
			return nil, err
		}
		if s.tid != 0 {
			r.slots = append(r.slots, s)
		}
	}
	return r, nil
}

func readRegistryHeader(m memory, address uint64) ([]byte, error) {
	header := make([]byte, registryHeader)
	if err := m.ReadMemory(address, header); err != nil {
		return nil, fmt.Errorf("reading the marker registry: %w", err)
	}
	if string(header[:8]) != registryMagic || binary.NativeEndian.Uint32(header[8:]) != registryABI ||
		binary.NativeEndian.Uint32(header[12:]) != slotSize {
		return nil, errRegistry
	}
	return header, nil
}

// overflows returns how many stages the library could not name, and could not
// begin, since the registry was read. Once the target is gone, its library's
// count is the last one that was read.
func (r *registry) overflows(m memory) (names, threads uint64) {
	if header, err := readRegistryHeader(m, r.address); err == nil {
		r.newNames = binary.NativeEndian.Uint64(header[24:]) - r.namesOverflow
		r.newThreads = binary.NativeEndian.Uint64(header[32:]) - r.threadsOverflow
	}
	return r.newNames, r.newThreads
}

// nameReader reads slots. Each name is read once, and only so many of them: the
// memory is the target's, and may hold anything.
type nameReader struct {
	memory memory
	known  map[uint64]string
}

var errNames = errors.New("too many distinct names")

func (r *nameReader) slot(address uint64) (slot, error) {
	var b [slotSize]byte
	if err := r.memory.ReadMemory(address, b[:]); err != nil {
		return slot{}, fmt.Errorf("reading a thread's stages: %w", err)
	}
	s := slot{address: address, tid: binary.NativeEndian.Uint32(b[:])}
	depth := min(binary.NativeEndian.Uint32(b[4:]), slotDepth)
	for i := range depth {
		at := slotHeader + 16*i
		name, err := r.name(binary.NativeEndian.Uint64(b[at:]))
		if err != nil {
			break // the thread is moving on; its next marker tells
		}
		s.open = append(s.open, openStage{name: name, begin: binary.NativeEndian.Uint64(b[at+8:])})
	}
	return s, nil
}

func (r *nameReader) name(address uint64) (string, error) {
	if name, ok := r.known[address]; ok {
		return name, nil
	}
	if len(r.known) >= maxNames {
		return "", errNames
	}
	var b bpf.ProbeStageName
	if err := r.memory.ReadMemory(address, b.Text[:]); err != nil {
		return "", fmt.Errorf("reading a stage's name: %w", err)
	}
	r.known[address] = cText(b.Text[:])
	return r.known[address], nil
}

// cText returns a C string's text, up to its NUL.
func cText(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}
