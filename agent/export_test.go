package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"stageprof/agent/calibrate"
	"stageprof/agent/elfsym"
	"stageprof/agent/gil"
	"stageprof/agent/probe"
	"stageprof/bpf"
)

// Monotonic is the clock of everything that the kernel side notes.
var Monotonic = monotonic

// SetPeekedUntil makes the kernel side believe in a snapshot of that moment.
func (s *Session) SetPeekedUntil(moment uint64) error { return s.objects.PeekedUntil.Set(moment) }

// Advance returns the Config with another stretch of time whose budget may be spent
// in advance.
func (c Config) Advance(d time.Duration) Config {
	c.advance = d
	return c
}

// FilterOfThreads returns the Config for a kernel whose filter by process compares
// threads, as calibration would notice.
func (c Config) FilterOfThreads() Config {
	c.costs = &calibrations{measure: func(ctx context.Context, mechanism probe.Mechanism, filter bool, classes []elfsym.Class) (calibrate.Result, error) {
		if filter {
			return nil, calibrate.ErrProcessFilter
		}
		return calibrate.Run(ctx, mechanism, filter, classes)
	}}
	return c
}

// CalibrationTries is how often a calibration is tried.
const CalibrationTries = calibrationTries

// CalibratesLater returns the Config for a machine that fails to calibrate so many times.
func (c Config) CalibratesLater(failures int) Config {
	// The calibrations' mutex guards failures.
	c.costs = &calibrations{measure: func(ctx context.Context, mechanism probe.Mechanism, filter bool, classes []elfsym.Class) (calibrate.Result, error) {
		if failures > 0 {
			failures--
			return nil, errors.New("it takes too long")
		}
		return calibrate.Run(ctx, mechanism, filter, classes)
	}}
	return c
}

// Python is what is known of the target's interpreter now.
func (s *Session) Python() gil.Plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.plan.Python
}

// BreakDriverEntry makes the kernel refuse to probe any further driver's entries.
func (s *Session) BreakDriverEntry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects.DriverEntry = s.objects.OnNew // of a type that can't be put there
}

// Sandboxed tells whether the kernel side has seen a seccomp filter.
func (s *Session) Sandboxed() (bool, error) {
	var sandboxed uint32
	err := s.objects.Sandboxed.Get(&sandboxed)
	return sandboxed != 0, err
}

// BreakMarkerHit makes the kernel refuse to probe markers, until they are mended.
func (s *Session) BreakMarkerHit() (mend func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	program := s.objects.MarkerHit
	s.objects.MarkerHit = s.objects.OnNew // of a type that can't be put there
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.objects.MarkerHit = program
	}
}

// noThread is a serial number that no thread gets.
const noThread = 1 << 31

// FillDebts leaves no room for further rows of debts, until it is emptied.
func (s *Session) FillDebts() (empty func() error, err error) {
	return fill(s.objects.Debts, func(i uint32) bpf.ProbeDebtKey { return bpf.ProbeDebtKey{Thread: noThread + i} }, bpf.ProbeDebtRow{})
}

// FillCalls does the same for rows of calls.
func (s *Session) FillCalls() (empty func() error, err error) {
	return fill(s.objects.Calls, func(i uint32) bpf.ProbeCallKey { return bpf.ProbeCallKey{Thread: noThread + i} }, bpf.ProbeCallRow{})
}

func fill[K, V any](m *ebpf.Map, key func(i uint32) K, row V) (empty func() error, err error) {
	var n uint32
	for {
		k := key(n)
		err := m.Update(&k, &row, ebpf.UpdateNoExist)
		if errors.Is(err, unix.E2BIG) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("filling %v: %w", m, err)
		}
		n++
	}
	return func() error {
		for i := range n {
			k := key(i)
			if err := m.Delete(&k); err != nil {
				return fmt.Errorf("emptying %v: %w", m, err)
			}
		}
		return nil
	}, nil
}

// ForgetWait takes away what the kernel side remembers of the wait in which a
// process's first thread is.
func (s *Session) ForgetWait(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	return errors.Join(s.objects.DebtWaits.Delete(uint32(fd)), unix.Close(fd))
}

// HaveAnnouncements returns nil if the kernel shows announced markers.
var HaveAnnouncements = haveAnnouncements

// BlindToSwitches keeps the kernel side from seeing threads being switched and woken,
// until that is undone.
func (s *Session) BlindToSwitches() (undo func() error, err error) {
	return s.scheduledBy()
}

// SeeOnlyWakeups keeps the kernel side from seeing threads being switched, until that
// is undone.
func (s *Session) SeeOnlyWakeups() (undo func() error, err error) {
	return s.scheduledBy(s.objects.OnWakeup)
}

// BlindToThreads keeps the kernel side from seeing threads begin and end, until that
// is undone.
func (s *Session) BlindToThreads() (undo func() error, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	attach := func(programs ...*ebpf.Program) error {
		return errors.Join(s.kernel.Close(), attachTracepoints(&s.kernel, programs...), s.attachAnnouncements())
	}
	return func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		return attach(s.objects.OnNew, s.objects.OnRename, s.objects.OnExit, s.objects.OnExec)
	}, attach(s.objects.OnRename, s.objects.OnExec)
}

// scheduledBy leaves of the scheduler's programs only some, until that is undone.
func (s *Session) scheduledBy(programs ...*ebpf.Program) (undo func() error, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		return errors.Join(s.scheduler.Close(), attachTracepoints(&s.scheduler, s.objects.OnSwitch, s.objects.OnWakeup))
	}, errors.Join(s.scheduler.Close(), attachTracepoints(&s.scheduler, programs...))
}
