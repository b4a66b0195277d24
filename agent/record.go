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

// recorder records one process: in one window, as a Session does, or in as many as a
// budget allows for. Its first window is open.
type recorder interface {
	// Wait returns what was seen until the recording is over.
	Wait(context.Context) (*recording.Recording, error)
	Close() error
}

func openRecorder(ctx context.Context, config Config) (recorder, error) {
	if config.Budget > 0 {
		return openWindows(ctx, config)
	}
	return Open(ctx, config)
}

// Record attaches to the target, records until the duration is over, the
// context is done or the target's program ends, and returns what was seen.
//
// An end by the context or by the target is a success: the Recording says what
// closed its window. Before the window has opened they are errors.
func Record(ctx context.Context, config Config) (*recording.Recording, error) {
	of, err := openRecorder(ctx, config)
	if err != nil {
		return nil, err
	}
	r, err := record(ctx, config, of)
	return r, errors.Join(err, of.Close())
}

func record(ctx context.Context, config Config, of recorder) (*recording.Recording, error) {
	began := time.Now()
	if config.Ready != nil {
		if err := config.Ready(); err != nil {
			return nil, fmt.Errorf("saying that the probes are live: %w", err)
		}
	}
	r, err := of.Wait(ctx)
	if r != nil && config.Recorded != nil {
		err = errors.Join(err, config.Recorded(r))
	}
	if config.Progress != nil {
		config.Progress(Progress{Elapsed: time.Since(began), State: StateDetaching})
	}
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
