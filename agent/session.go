package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"stageprof/agent/calibrate"
	"stageprof/agent/match"
	"stageprof/agent/probe"
	"stageprof/agent/target"
	"stageprof/bpf"

	"github.com/cilium/ebpf/link"
)

// session is one recording in progress. Its steps are in the order of their
// files: session.go, attach.go, watch.go, drain.go.
type session struct {
	config    Config
	process   *target.Process
	plan      *Plan
	mechanism probe.Mechanism
	attacher  probe.Attacher
	objects   bpf.ProbeObjects

	stageMatch *match.Table // which stages are wanted, nil: all

	probes    probe.Links // on the target: driver, markers, loader
	kernel    probe.Links // tracepoints of threads that come and go
	scheduler probe.Links // tracepoints of threads that are switched
	iterate   *link.Iter  // dump_threads

	symbols      []probedSymbol
	markerLibs   int // probed marker libraries
	rangePoints  int // probed functions of stage sources beside the markers
	functions    []followed
	registries   []*registry
	midStage     map[uint32]slot // by thread id: what was open when the probes went in
	drivers      map[image]bool  // that are probed
	markers      map[image]bool  // marker libraries that are probed, or can't be
	loaderHooked bool            // the target's loader tells of new libraries
	spans        *spanReader
	names        *images // the target's mapped files, for the addresses of callers

	functionPatterns []functionPattern
	settled          map[functionPattern]bool // that name a function of the target, or were complained of

	costs       calibrate.Result
	calibration string // how the costs were measured, or why not
	warnings    []string

	attachTime time.Duration
	startWall  time.Time
	startMono  uint64
	startCPU   time.Duration
}

// image tells apart what probes were put on.
type image struct{ dev, inode uint64 }

func imageOf(i target.Image) image { return image{i.File.Dev(), i.File.Inode()} }

// probedSymbol is a site in one mapped driver; its index is the symbol number in
// the kernel side's rows.
type probedSymbol struct {
	probe.Site
	driver target.Image
}

// open attaches everything. On error nothing stays attached.
func open(ctx context.Context, config Config) (*session, error) {
	if err := checkFeatures(); err != nil {
		return nil, err
	}
	s := &session{config: config, drivers: map[image]bool{}, markers: map[image]bool{}, midStage: map[uint32]slot{}, settled: map[functionPattern]bool{}}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *session) open(ctx context.Context) (err error) {
	if s.functionPatterns, err = s.config.functionPatterns(); err != nil {
		return err
	}
	if s.mechanism, err = probe.Choose(s.config.Mechanism); err != nil {
		return err
	}
	if s.process, err = target.Open(s.config.PID); err != nil {
		return err
	}
	if err := s.checkSeccomp(); err != nil {
		return err
	}
	if err := s.makePlan(ctx); err != nil {
		return err
	}
	begin := time.Now()
	if err := inOrder(ctx, func() error { return s.calibrate(ctx) }, s.load); err != nil {
		return err
	}
	if err := s.attachAll(ctx); err != nil {
		return err
	}
	s.attachTime = time.Since(begin)
	return nil
}

// inOrder takes steps until one fails or the context is done.
func inOrder(ctx context.Context, steps ...func() error) error {
	for _, step := range steps {
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", ErrInterrupted, context.Cause(ctx))
		}
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// makePlan looks at the target, once a driver is there.
func (s *session) makePlan(ctx context.Context) (err error) {
	for {
		if err := s.followExec(); err != nil {
			return err
		}
		if s.plan, err = newPlan(s.process, s.config.Probes); err != nil {
			return err
		}
		if len(s.plan.Drivers) > 0 {
			break
		}
		if !s.config.Wait {
			return errNoDriver(s.process)
		}
		if err := s.waitForDriver(ctx); err != nil {
			return err
		}
	}
	if s.plan.sites() == 0 {
		return fmt.Errorf("%w: %s", ErrNoSymbols, s.plan.Selector)
	}
	s.warnings = append(s.warnings, s.plan.degradations(s.process)...)
	return nil
}

// followExec takes the target's present program for the one to record: a process
// that has just been started may still be a shell that is about to execute it.
func (s *session) followExec() error {
	execed, err := s.process.Execed()
	if err != nil || !execed {
		return err
	}
	if err := s.process.Close(); err != nil {
		return err
	}
	s.process, err = target.Open(s.config.PID)
	return err
}

// waitForDriver returns after a moment, in which the driver may have come.
func (s *session) waitForDriver(ctx context.Context) error {
	s.report(Progress{State: "waiting for the CUDA driver"})
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w: waiting for it was interrupted", ErrNoDriver)
	case <-s.process.Exited():
		return fmt.Errorf("%w, and has exited", ErrNoDriver)
	case <-time.After(lookInterval):
		return nil
	}
}

func (s *session) report(p Progress) {
	if s.config.Progress != nil {
		s.config.Progress(p)
	}
}

// close takes off whatever is attached and lets go of the target.
func (s *session) close() error {
	err := errors.Join(s.probes.Close(), s.scheduler.Close(), s.kernel.Close())
	if s.iterate != nil {
		err = errors.Join(err, s.iterate.Close())
		s.iterate = nil
	}
	if s.spans != nil {
		err = errors.Join(err, s.spans.close())
		s.spans = nil
	}
	err = errors.Join(err, s.objects.Close())
	if s.names != nil {
		err = errors.Join(err, s.names.close())
		s.names = nil
	}
	if s.process != nil {
		err = errors.Join(err, s.process.Close())
		s.process = nil
	}
	return err
}
