package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"stageprof/agent/elfsym"
	"stageprof/agent/probe"
	"stageprof/agent/target"
)

// A marker is seen by a probe on its point, which costs the target a trap, or, for
// half of that, because the library announces it: by a system call that the kernel
// does not know, and has a tracepoint for. The library does so while its gate is
// open: while there is a probe at a place that the target never reaches.
//
// A seccomp filter may end a thread for such a call. So a target with a filter is
// probed, and if one appears later the gate is closed.

// announcedTracepoint is what an announcement passes; Linux 6.13 and newer have it,
// but from 7.0 on they can skip the program there (skipped.go).
const announcedTracepoint = "task_prctl_unknown"

// haveAnnouncements returns nil if the kernel shows announcements to programs.
func haveAnnouncements() error {
	if skips, err := kernelSkips(); skips || err != nil {
		return cmp.Or(err, ebpf.ErrNotSupported)
	}
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return err
	}
	var tracepoint *btf.Typedef
	err = kernel.TypeByName("btf_trace_"+announcedTracepoint, &tracepoint)
	if errors.Is(err, btf.ErrNotFound) {
		return ebpf.ErrNotSupported
	}
	return err
}

// prepareAnnouncements decides whether the target's markers can be announced.
func (s *Session) prepareAnnouncements(spec *ebpf.CollectionSpec) (err error) {
	if !slices.Contains(s.config.StagesFrom, SourceMarkers) {
		return nil
	}
	if s.announcing, err = s.mayAnnounce(); err != nil {
		return err
	}
	if err := spec.Variables["announcing"].Set(s.announcing); err != nil {
		return fmt.Errorf("switching announcements: %w", err)
	}
	return nil
}

func (s *Session) mayAnnounce() (bool, error) {
	if haveAnnouncements() != nil {
		return false, nil
	}
	threads, err := s.process.Threads()
	if err != nil {
		return false, err
	}
	for _, t := range threads {
		if t.Seccomp > 0 {
			return false, nil
		}
	}
	return true, nil
}

// gatedLibrary is a marker library that announces its markers.
type gatedLibrary struct {
	image target.Image
	gate  io.Closer
}

// attachAnnouncements makes the kernel pass announcements on, before the first gate
// is opened.
func (s *Session) attachAnnouncements() error {
	if !s.announcing {
		return nil
	}
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: announcedTracepoint, Program: s.objects.MarkerAnnounced})
	if err != nil {
		return fmt.Errorf("attaching to the tracepoint %q: %w", announcedTracepoint, err)
	}
	s.kernel.Add(l)
	return nil
}

// followMarkers makes a marker library's markers reach the programs.
func (s *Session) followMarkers(library target.Image) error {
	if !s.announcing {
		return s.probeMarkers(library)
	}
	point, err := gatePoint(library.ELF)
	if errors.Is(err, elfsym.ErrNoSymbol) { // not on every architecture
		return s.probeMarkers(library)
	}
	if err != nil {
		return fmt.Errorf("looking for the gate of %q: %w", library.Path, err)
	}
	gate, err := s.attach(attacher.Entry, library.File, library.Mappings, s.objects.GateHolder, []probe.Point{point})
	if err != nil {
		return err
	}
	s.gates = append(s.gates, gatedLibrary{image: library, gate: gate})
	return nil
}

func gatePoint(file *elfsym.File) (probe.Point, error) {
	point, err := file.Lookup("stageprof_gate_point")
	if err != nil {
		return probe.Point{}, err
	}
	gate, err := file.Lookup("stageprof_gate")
	if err != nil {
		return probe.Point{}, err
	}
	semaphore, err := file.FileOffset(gate.Value)
	return probe.Point{Offset: point.Offset, Semaphore: semaphore}, err
}

func (s *Session) probeMarkers(library target.Image) error {
	points, err := markerPoints(library)
	if err != nil {
		return err
	}
	l, err := s.attach(attacher.Entry, library.File, library.Mappings, s.objects.MarkerHit, points)
	if err == nil {
		s.probes.Add(l)
	}
	return err
}

// leaveGates lets the gates be closed with the probes.
func (s *Session) leaveGates() {
	for _, g := range s.gates {
		s.probes.Add(g.gate)
	}
	s.gates = nil
}

// yieldToFilter goes over to probes once a thread of the target has a seccomp
// filter. The markers in between are missed; the stack of stages is right again
// with a thread's next one.
func (s *Session) yieldToFilter() error {
	if !s.announcing {
		return nil
	}
	var sandboxed uint32
	if err := s.objects.Sandboxed.Get(&sandboxed); err != nil {
		return fmt.Errorf("reading whether the target has a seccomp filter: %w", err)
	}
	if sandboxed == 0 {
		return nil
	}
	s.announcing = false
	var errs []error
	for _, g := range s.gates {
		errs = append(errs, g.gate.Close())
		s.ungated = append(s.ungated, g.image)
	}
	s.gates = nil
	s.warnOnce("a thread has set up a seccomp filter: markers take a probe from here on, and those of a moment were missed")
	return errors.Join(errs...)
}

// probeUngated probes the markers of libraries whose gate was closed. Those that
// can't be are tried again at the next look.
func (s *Session) probeUngated() error {
	var errs []error
	s.ungated = slices.DeleteFunc(s.ungated, func(library target.Image) bool {
		err := s.probeMarkers(library)
		if err != nil {
			errs = append(errs, fmt.Errorf("stages of the marker library %q are not seen for a while: %w", library.Path, err))
		}
		return err == nil
	})
	return errors.Join(errs...)
}
