package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"stageprof/agent/probe"
	"stageprof/recording"
)

// Record attaches to the target, records until the duration is over, the
// context is done or the target's program ends, and returns what was seen.
//
// An end by the context or by the target is a success: the Recording says what
// closed its window. Before the window has opened they are errors.
func Record(ctx context.Context, config Config) (*recording.Recording, error) {
	if config.Budget > 0 {
		return recordWithin(ctx, config)
	}
	s, err := Open(ctx, config)
	if err != nil {
		return nil, err
	}
	r, err := s.record(ctx)
	return r, errors.Join(err, s.Close())
}

func (s *Session) record(ctx context.Context) (*recording.Recording, error) {
	if s.config.Ready != nil {
		if err := s.config.Ready(); err != nil {
			return nil, fmt.Errorf("saying that the probes are live: %w", err)
		}
	}
	r, err := s.Wait(ctx)
	if r != nil && s.config.Recorded != nil {
		err = errors.Join(err, s.config.Recorded(r))
	}
	s.report(Progress{Elapsed: time.Since(s.startWall), State: "taking the probes off"})
	return r, err
}

// checkSeccomp refuses a target that a return probe could get killed: from
// Linux 6.11 on return probes make a system call on the target's behalf, which
// seccomp filters let through from 6.14 on.
func (s *Session) checkSeccomp() error {
	const filter = 2
	if s.process.Seccomp() == filter && probe.ReleaseAtLeast(6, 11) && !probe.ReleaseAtLeast(6, 14) {
		return fmt.Errorf("%w: this kernel makes a system call at each return probe, and the filter of process %d may kill it for that; Linux 6.14 and newer are safe",
			ErrSeccomp, s.config.PID)
	}
	return nil
}

// monotonic is the kernel side's clock.
func monotonic() uint64 {
	var ts unix.Timespec
	// Fails only for clocks that do not exist.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return uint64(ts.Nano())
}
