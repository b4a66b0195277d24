package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"stageprof/agent/calibrate"
	"stageprof/agent/match"
	"stageprof/agent/probe"
	"stageprof/agent/target"
	"stageprof/bpf"
	"stageprof/recording"

	"github.com/cilium/ebpf/link"
)

// Session is one recording in progress. Its steps are in the order of their
// files: session.go, load.go, attach.go, watch.go, snapshot.go, drain.go.
//
// Its methods may be called by several goroutines at once, but Wait by one.
type Session struct {
	mu     sync.Mutex // guards everything below but the config
	final  *recording.Recording
	closed bool

	config    Config
	meter     *meter // nil: there is no budget
	process   *target.Process
	plan      *Plan
	mechanism probe.Mechanism
	objects   bpf.ProbeObjects

	only       int // process whose calls reach the programs, 0: any that maps the file
	attacher   attacher
	keeperDone func() error // nil: none was asked for

	stageMatch  *match.Table // which stages are wanted, nil: all
	pythonMatch *match.Table // which Python functions are stages, nil: none

	probes    probe.Links // on the target: driver, markers, loader
	kernel    probe.Links // tracepoints of threads that come and go
	scheduler probe.Links // tracepoints of threads that are switched
	iterate   *link.Iter  // dump_threads
	peeking   *link.Iter  // peek_threads

	symbols     []probedSymbol
	markerLibs  int // probed marker libraries
	rangePoints int // probed functions of stage sources beside the markers
	functions   []followed

	allocationPoints int // probed tracing points of PyTorch's allocator

	registries   []*registry
	midStage     map[uint32]slot // by thread id: what was open when the probes went in
	drivers      map[image]bool  // that are probed, or can't be
	lateTries    map[image]int   // of drivers that came late: how often they could not be probed
	again        bool            // the last look at what is new was not complete
	markers      map[image]bool  // marker libraries that are probed, or can't be
	announcing   bool            // markers that are announced are followed
	gates        []gatedLibrary  // that are held open
	skips        bool            // the kernel skips programs on tracepoints
	ungated      []target.Image  // marker libraries to be probed, since their gate is closed
	pythons      int             // files that may be interpreters, when one was last looked for
	loaderHooked bool            // the target's loader tells of new libraries
	spans        *spanReader
	samples      *sampleReader   // of Python stacks
	timeline     *timelineReader // nil when none is asked for
	stacksReason string          // why there are none, if they were asked for
	retired      retired
	latest       latest
	names        *images            // the target's mapped files, for the addresses of callers
	changes      map[uint64]*change // by address: what probes have changed in the target

	children children // that are not recorded

	pairsFound       map[probePair]bool // pairs of static probes that are probed
	functionPatterns []functionPattern
	settled          map[functionPattern]bool // that name a function of the target, or were complained of

	costs        calibrate.Result
	functionCost calibrate.FunctionCost // 0 when no function is followed, or it was not measured
	calibration  string                 // how the costs were measured, or why not
	warnings     []string

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

// Open attaches to the target. The window is open when it returns, and ends in
// Wait, which has to be called for libraries that the target loads to be seen.
// Close must be called in the end. On error nothing stays attached.
//
// Of the config's functions, Ready and Recorded are Record's.
func Open(ctx context.Context, config Config) (*Session, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if config.Budget > 0 && config.meter == nil {
		return nil, fmt.Errorf("%w: a budget is for Record and RecordFamily", ErrUsage)
	}
	if err := checkFeatures(config.PID); err != nil {
		return nil, err
	}
	leave, err := config.family.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	s := &Session{
		config: config, meter: config.meter, drivers: map[image]bool{}, markers: map[image]bool{}, changes: map[uint64]*change{}, midStage: map[uint32]slot{},
		lateTries: map[image]int{}, settled: map[functionPattern]bool{}, pairsFound: map[probePair]bool{},
		retired: newRetired(config.Live),
	}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Session) open(ctx context.Context) (err error) {
	if s.functionPatterns, err = s.config.functionPatterns(); err != nil {
		return err
	}
	if s.mechanism, err = probe.Choose(s.config.Mechanism); err != nil {
		return err
	}
	if err = s.config.checkBudget(s.mechanism); err != nil {
		return err
	}
	if s.process, err = target.Open(s.config.PID); err != nil {
		return err
	}
	if started := s.config.started; started != 0 && s.process.StartTicks() != started {
		return fmt.Errorf("%w: another one has its pid now", target.ErrTargetExited)
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
	s.chooseAttacher()
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
			return interrupted(ctx)
		}
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func interrupted(ctx context.Context) error {
	return fmt.Errorf("%w: %w", ErrInterrupted, context.Cause(ctx))
}

// makePlan looks at the target, once a driver is there.
func (s *Session) makePlan(ctx context.Context) (err error) {
	for {
		if err := s.followExec(); err != nil {
			return err
		}
		if s.plan, err = newPlan(s.process, s.config.Probes, s.config.leftOut); err != nil {
			return err
		}
		if len(s.plan.Drivers) > 0 {
			break
		}
		if !s.config.Wait {
			return s.plan.NoDriver
		}
		if err := s.waitForDriver(ctx); err != nil {
			return err
		}
	}
	if s.plan.sites() == 0 {
		return fmt.Errorf("%w: %s", ErrNoSymbols, s.plan.Selector)
	}
	for _, text := range s.plan.degradations(s.process) {
		s.warnOnce(text)
	}
	return nil
}

// followExec takes the target's present program for the one to record: a process
// that has just been started may still be a shell that is about to execute it.
func (s *Session) followExec() error {
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
func (s *Session) waitForDriver(ctx context.Context) error {
	s.report(Progress{State: StateWaiting})
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w: waiting for it was interrupted", ErrNoDriver)
	case <-s.process.Exited():
		return fmt.Errorf("%w, and has exited", ErrNoDriver)
	case <-time.After(lookInterval):
		return nil
	}
}

func (s *Session) report(p Progress) {
	if s.config.Progress != nil {
		s.config.Progress(p)
	}
}

// Wait lets the window pass and returns what was seen in it. It ends when the
// duration is over, the context is done or the target's program ends; the
// Recording says which. The probes are then off, unless they are perf events,
// which Close removes.
func (s *Session) Wait(ctx context.Context) (*recording.Recording, error) {
	end, err := s.watch(ctx)
	if err != nil { // what was seen up to here counts all the same
		end = recording.EndInterrupt
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, finishErr := s.finish(end)
	s.final = r
	return r, errors.Join(err, finishErr)
}

// Close takes off whatever is attached and lets go of the target. It must not be
// called while Wait runs.
func (s *Session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.leaveGates()
	err := errors.Join(s.probes.Close(), s.scheduler.Close(), s.kernel.Close())
	if s.keeperDone != nil {
		err = errors.Join(err, s.keeperDone())
		s.keeperDone = nil
	}
	for _, iterate := range []**link.Iter{&s.iterate, &s.peeking} {
		if *iterate != nil {
			err = errors.Join(err, (*iterate).Close())
			*iterate = nil
		}
	}
	if s.spans != nil {
		err = errors.Join(err, s.spans.close())
		s.spans = nil
	}
	if s.samples != nil {
		err = errors.Join(err, s.samples.close())
		s.samples = nil
	}
	err = errors.Join(err, s.timeline.close())
	s.timeline = nil
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
