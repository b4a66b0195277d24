package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"stageprof/agent/gil"
	"stageprof/agent/target"
	"stageprof/bpf"
	"stageprof/recording"
)

const (
	// tick is how often the session looks at what the kernel side has noticed.
	tick = 100 * time.Millisecond
	// lookInterval is how often it looks at the target's mappings unasked: when
	// no loader tells of new libraries.
	lookInterval = 500 * time.Millisecond
	// progressInterval is how often it reports.
	progressInterval = 500 * time.Millisecond
)

// watch lets the window pass and says what ended it. Meanwhile it attaches to
// drivers and marker libraries that the target loads.
func (s *Session) watch(ctx context.Context) (recording.WindowEnd, error) {
	end, err := s.wait(ctx)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Another program may have taken over, and even ended, since the last tick.
	if execed, err := s.execed(); err != nil || execed {
		return recording.EndExec, err
	}
	return end, nil
}

func (s *Session) wait(ctx context.Context) (recording.WindowEnd, error) {
	var over <-chan time.Time
	if s.config.Duration > 0 {
		timer := time.NewTimer(s.config.Duration)
		defer timer.Stop()
		over = timer.C
	}
	var cost <-chan time.Time
	if s.meter != nil {
		cost = time.After(leastWindow)
	}
	ticker := time.NewTicker(tick)
	defer ticker.Stop()

	w := watcher{Session: s, lastLook: time.Now(), lastReport: time.Now()}
	for {
		select {
		case <-ctx.Done():
			return recording.EndInterrupt, nil
		case <-over:
			return recording.EndDuration, nil
		case <-s.config.family.ended():
			return recording.EndDuration, nil
		case <-s.process.Exited():
			return recording.EndExit, nil
		case <-cost:
			next, err := s.lookAtCost()
			if err != nil || next == 0 {
				return recording.EndBudget, err
			}
			cost = time.After(next)
			continue
		case <-ticker.C:
		}
		if end, err := w.tick(); err != nil || end != "" {
			return end, err
		}
	}
}

type watcher struct {
	*Session
	loaderEvents uint32
	lastLook     time.Time
	lastReport   time.Time
	lastRetired  time.Time
	begun        uint32 // threads until then
}

func (w *watcher) tick() (recording.WindowEnd, error) {
	end, err := w.look()
	if err != nil || end != "" || time.Since(w.lastReport) < progressInterval {
		return end, err
	}
	w.lastReport = time.Now()
	return "", w.progress()
}

// look takes what the kernel side has noticed since the last tick.
func (w *watcher) look() (recording.WindowEnd, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if execed, err := w.execed(); err != nil || execed {
		return recording.EndExec, err
	}
	if err := errors.Join(w.spans.read(), w.samples.read(), w.timeline.read()); err != nil {
		return "", err
	}
	if err := errors.Join(w.yieldToFilter(), w.probeUngated(), w.lookForLibraries()); err != nil {
		w.warnOfNew(err)
	}
	if err := w.lookForChildren(); err != nil {
		w.warnOnce(err.Error())
	}
	if err := w.retireIfDue(); err != nil {
		w.warnOnce(err.Error()) // the rows are still in one of both places
	}
	return "", nil
}

// warnOfNew says that something new can't be probed, unless the target is gone.
func (s *Session) warnOfNew(err error) {
	if !errors.Is(err, target.ErrTargetExited) {
		s.warnOnce("what the process has loaded can't all be probed: " + err.Error())
	}
}

// execed tells whether the target now runs another program.
func (s *Session) execed() (bool, error) {
	var end uint32
	if err := s.objects.TargetEnded.Get(&end); err != nil {
		return false, fmt.Errorf("reading the target's state: %w", err)
	}
	return bpf.ProbeTargetEnd(end) == bpf.ProbeTargetEndTARGET_EXECED, nil
}

// lookForLibraries reads the target's mappings only when its loader has been at
// work, or now and then if there is no loader to tell.
func (w *watcher) lookForLibraries() error {
	var events uint32
	if err := w.objects.LoaderEvents.Get(&events); err != nil {
		return fmt.Errorf("reading the loader's state: %w", err)
	}
	due := (!w.loaderHooked || w.again) && time.Since(w.lastLook) >= lookInterval
	if events == w.loaderEvents && !due {
		return nil
	}
	w.loaderEvents, w.lastLook = events, time.Now()
	return w.attachNew()
}

// attachNew attaches to what has been mapped since the last look. Calls made
// before that were not seen: the Recording says so. Each part is tried, whatever
// becomes of the others.
func (s *Session) attachNew() error {
	s.again = false
	err := errors.Join(
		s.rememberImages(),
		s.attachAutograd(),
		s.attachSources(),
		s.attachCatches(),
		s.attachFunctions(),
		s.attachPairs(),
		s.attachAllocations(),
		s.attachNewMarkers(),
		s.attachNewDrivers(),
		s.detectLatePython(),
	)
	s.again = s.again || err != nil
	return err
}

func (s *Session) attachNewMarkers() error {
	if !slices.Contains(s.config.StagesFrom, SourceMarkers) {
		return nil
	}
	libraries, err := s.process.MarkerLibs()
	errs := []error{err}
	for _, library := range libraries {
		errs = append(errs, s.attachMarkerLib(library))
	}
	return errors.Join(errs...)
}

func (s *Session) attachNewDrivers() error {
	drivers, err := s.process.Drivers()
	errs := []error{err}
	for _, d := range drivers {
		if !s.drivers[imageOf(d.Image)] {
			errs = append(errs, s.attachLateDriver(d))
		}
	}
	return errors.Join(errs...)
}

func (s *Session) attachLateDriver(d target.Driver) error {
	planned, err := planDriver(d, s.plan.Selector)
	if err != nil {
		s.drivers[imageOf(d.Image)] = true // it will not get better
		return err
	}
	if err := s.attachDriver(planned); err != nil {
		return s.giveUp(d, err)
	}
	if len(planned.Sites) == 0 {
		return nil
	}
	s.plan.Drivers = append(s.plan.Drivers, planned)
	if !s.startWall.IsZero() {
		s.warnOnce(fmt.Sprintf("%q was loaded during the recording and is probed from %v after the window's start on",
			d.Path, time.Since(s.startWall).Round(time.Millisecond)))
	}
	return nil
}

// driverTries is how often a driver that came late is tried to be probed, at one
// look after the other.
const driverTries = 3

// giveUp returns err, which kept a driver from being probed, once that has been
// tried often enough. Until then it is left to the next look.
func (s *Session) giveUp(d target.Driver, err error) error {
	if errors.Is(err, target.ErrTargetExited) {
		return err
	}
	driver := imageOf(d.Image)
	if s.lateTries[driver]++; s.lateTries[driver] < driverTries {
		s.again = true
		return nil
	}
	s.drivers[driver] = true
	return fmt.Errorf("the driver %q is left out: %w", d.Path, err)
}

// detectLatePython looks for an interpreter again when there may be another than
// at the last time, or more may be known of it: it was loaded, it has started.
func (s *Session) detectLatePython() error {
	mapped := s.names.pythons()
	if s.plan.Python.Method != gil.None && !s.plan.Python.Provisional && mapped == s.pythons {
		return nil
	}
	plan, err := gil.Detect(s.process)
	if err != nil {
		return err
	}
	s.pythons = mapped
	s.again = s.again || plan.Provisional // no loader tells when it starts
	if plan == s.plan.Python {
		return nil
	}
	s.plan.Python = plan
	if plan.Method == gil.Unknown {
		s.warnOnce("whether calls hold Python's lock is not known from here on: " + plan.Reason)
	}
	return s.setPython()
}

func (s *Session) progress() error {
	t, err := readTally(s.objects.Counters)
	if err != nil {
		return err
	}
	s.report(Progress{Elapsed: time.Since(s.startWall), Calls: t.entered(), Lost: t.lostCalls(), State: StateRecording})
	return nil
}
