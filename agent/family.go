package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"stageprof/agent/keeper"
	"stageprof/agent/target"
	"stageprof/recording"
)

// Family is what was recorded of a process and its descendants.
type Family struct {
	Recordings []*recording.Recording // by rank, start of the window and pid
	// Missed names processes with a driver that were not recorded, and why.
	Missed []string
}

// MaxMembers bounds the processes that are recorded at once.
const MaxMembers = 64

// RecordFamily records a process and its descendants, each of them that has
// mapped a CUDA driver or maps one until the recording ends. Each one has a
// Session of its own, and with it a window of its own; with a Budget, windows and
// an account of its own. The recording ends like Record's, or when no process of the
// family is left.
//
// Config.Ready is called when those have a window, or under a Budget had their first
// one, that had the driver when it was called, Progress with their sums, and recorded,
// instead of Config.Recorded, once, when all Recordings are complete: probes may be
// still on.
func RecordFamily(ctx context.Context, config Config, recorded func(*Family) error) error {
	if err := config.Validate(); err != nil {
		return err
	}
	if err := checkFeatures(config.PID); err != nil {
		return err
	}
	root, err := target.Open(config.PID)
	if err != nil {
		return err
	}
	f := newFamilyOf(config, root)
	defer f.forget()
	return f.record(ctx, recorded)
}

type family struct {
	config Config // of each of its members
	shared *membership
	below  func(pids ...int) ([]target.Descendant, error)

	kin map[int]*relative // by pid, those that live

	began time.Time // when the first were live; zero: not yet

	recorded, closed sync.WaitGroup // of members

	mu      sync.Mutex // guards what follows, and the members' results
	members []*member  // in the order in which they were found, but for those that are only counted
	missed  []string
	counted counted
}

// counted are processes that came and went while the others were recorded, and that
// nothing can be told of one by one: there may be thousands.
type counted struct {
	idle  int      // that were recorded, see isIdle
	brief int      // that ended before their windows opened
	more  int      // further ones that were missed
	calls Progress // of all these
}

// maxMissed bounds the processes that are named because they were missed.
const maxMissed = 100

// relative is a living process of the family.
type relative struct {
	target.Descendant
	process *target.Process
	member  *member // latest one; nil: it has had no driver yet
}

// member is the recording of one process, until that is over.
type member struct {
	user     User
	started  uint64        // with its pid, the incarnation
	late     bool          // found after the recording had begun
	found    time.Time     // when
	attached chan struct{} // closed when its first window is open, or never will be

	progress  Progress
	recording *recording.Recording
	err       error // why there is none
}

func newFamilyOf(config Config, root *target.Process) *family {
	shared := newMembership(config.Duration)
	config.family, config.costs = shared, cmp.Or(config.costs, &calibrations{})
	f := &family{config: config, shared: shared, below: target.Descendants}
	self := target.Descendant{PID: root.PID(), StartTicks: root.StartTicks()}
	f.kin = map[int]*relative{root.PID(): {Descendant: self, process: root}}
	return f
}

func (f *family) record(ctx context.Context, recorded func(*Family) error) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer f.closed.Wait()
	defer stop() // before that, also on an error
	if err := f.open(ctx); err != nil {
		return err
	}
	done := keeper.Use() // it lives from one member to the next
	defer func() { err = errors.Join(err, done()) }()
	f.watch(ctx)
	f.recorded.Wait()
	result := f.result()
	if len(result.Recordings) == 0 {
		return f.failure()
	}
	err = recorded(result)
	f.report(StateDetaching)
	return err
}

// open starts the Sessions of those that have the driver now, and returns when
// their windows are open.
func (f *family) open(ctx context.Context) error {
	for {
		if err := f.look(ctx); err != nil {
			return err
		}
		opened, err := f.awaitFirst(ctx)
		if err != nil {
			return err
		}
		if opened {
			break
		}
		if err := f.waitForMember(ctx); err != nil {
			return err
		}
	}
	f.begin()
	if f.config.Ready == nil {
		return nil
	}
	if err := f.config.Ready(); err != nil {
		return fmt.Errorf("saying that the probes are live: %w", err)
	}
	return nil
}

// awaitFirst returns when the windows of all that have the driver are open, and whether
// there is one.
func (f *family) awaitFirst(ctx context.Context) (bool, error) {
	f.mu.Lock()
	first := slices.Clone(f.members)
	f.mu.Unlock()
	for _, m := range first {
		<-m.attached
	}
	if len(first) > 0 && ctx.Err() != nil {
		return false, interrupted(ctx)
	}
	if slices.ContainsFunc(first, func(m *member) bool { return f.errorOf(m) == nil }) {
		return true, nil
	}
	return false, f.failure()
}

// begin takes the recording's duration from now on.
func (f *family) begin() {
	f.began = time.Now()
	if f.config.Duration > 0 {
		until := f.began.Add(f.config.Duration)
		f.shared.until.Store(&until)
	}
}

func (f *family) waitForMember(ctx context.Context) error {
	if len(f.kin) == 0 {
		return fmt.Errorf("%w, nor has a descendant of it, and all have exited", ErrNoDriver)
	}
	if !f.config.Wait {
		return fmt.Errorf("%w, nor has a descendant of it: process %d; --wait waits for one", ErrNoDriver, f.config.PID)
	}
	f.report(StateWaiting)
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w: waiting for it was interrupted", ErrNoDriver)
	case <-time.After(lookInterval):
		return nil
	}
}

// watch follows the family until the recording is over.
func (f *family) watch(ctx context.Context) {
	var over <-chan time.Time
	if f.config.Duration > 0 {
		timer := time.NewTimer(f.config.Duration)
		defer timer.Stop()
		over = timer.C
	}
	next := time.NewTimer(lookInterval)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-over:
			close(f.shared.over)
			return
		case <-next.C:
		}
		began := time.Now()
		if err := f.look(ctx); err != nil { // those that are known are recorded all the same
			f.missOnce(fmt.Sprintf("any that came later: %v", err))
		}
		next.Reset(untilNextLook(time.Since(began)))
		if len(f.kin) == 0 {
			return
		}
		f.report(f.state())
	}
}

// mostLookInterval bounds how late a process is found.
const mostLookInterval = 5 * time.Second

// untilNextLook spaces the looks, each of which reads something of every process of the
// machine, so that they take a hundredth of the time, if that is not too late.
func untilNextLook(took time.Duration) time.Duration {
	return min(max(lookInterval, 100*took), mostLookInterval)
}

// look finds new relatives, and starts Sessions of those that have a driver now.
func (f *family) look(ctx context.Context) error {
	var roots []int
	for pid, r := range f.kin {
		if r.exited() {
			delete(f.kin, pid)
			r.process.Close() // of files that were only read
			continue
		}
		roots = append(roots, pid)
	}
	slices.Sort(roots)
	below, err := f.below(roots...)
	if err != nil {
		return err
	}
	for _, d := range below {
		p, err := target.Open(d.PID)
		if err != nil {
			continue // it has ended, or may not be looked at
		}
		if p.StartTicks() != d.StartTicks {
			p.Close() // of files that were only read: another one has its pid now
			continue
		}
		f.kin[d.PID] = &relative{Descendant: d, process: p}
	}
	for _, r := range f.candidates() {
		f.join(ctx, r)
	}
	return nil
}

func (r *relative) exited() bool {
	select {
	case <-r.process.Exited():
		return true
	default:
		return false
	}
}

// candidates are those that have a driver and no Session, forked copies last: of
// these many never call it.
func (f *family) candidates() (found []*relative) {
	for _, r := range f.kin {
		if r.wants() {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b *relative) int {
		return cmp.Or(compareBool(a.Copy, b.Copy), cmp.Compare(a.StartTicks, b.StartTicks), cmp.Compare(a.PID, b.PID))
	})
	return found
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// wants reports whether the process has a driver that no Session was opened for.
// Another program is another target.
func (r *relative) wants() bool {
	if execed, err := r.process.Execed(); err != nil {
		return false
	} else if execed {
		next, err := target.Open(r.PID)
		if err != nil {
			return false
		}
		r.process.Close()
		r.process, r.member, r.Copy = next, nil, false
	}
	if r.member != nil {
		return false
	}
	drivers, err := r.process.Drivers()
	return err == nil && len(drivers) > 0
}

// join starts a Session of a process.
func (f *family) join(ctx context.Context, r *relative) {
	m := &member{
		user: newUser(r.process, r.Descendant), started: r.StartTicks, late: !f.began.IsZero(), found: time.Now(), attached: make(chan struct{}),
	}
	r.member = m
	f.mu.Lock()
	f.members = append(f.members, m)
	f.mu.Unlock()
	if f.running() > MaxMembers {
		f.miss(m, fmt.Errorf("%d processes are recorded already", MaxMembers))
		close(m.attached)
		return
	}
	f.recorded.Add(1)
	f.closed.Go(func() { f.follow(ctx, m) })
}

// running is the number of members whose windows are open, or will be.
func (f *family) running() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		if m.recording == nil && m.err == nil {
			n++
		}
	}
	return n
}

// follow records one process.
func (f *family) follow(ctx context.Context, m *member) {
	of, err := f.attach(ctx, m)
	close(m.attached)
	if err != nil {
		f.recorded.Done()
		return
	}
	r, err := of.Wait(ctx)
	if r != nil && m.late {
		r.Warnings = append(r.Warnings, m.lateness(r, f.began))
	}
	if err == nil && m.isIdle(r) {
		f.countIdle(m)
	} else {
		f.keep(m, r)
	}
	if err != nil {
		f.miss(m, err)
	}
	f.config.Log.Debug("the recording of a process ended", "pid", m.user.PID)
	f.recorded.Done()
	if err := of.Close(); err != nil {
		f.config.Log.Warn("the probes did not come off cleanly", "pid", m.user.PID, "reason", err)
	}
}

func (f *family) attach(ctx context.Context, m *member) (recorder, error) {
	c := f.config
	c.PID, c.started, c.Duration, c.Wait = m.user.PID, m.started, 0, false
	c.Ready, c.Recorded = nil, nil
	c.Progress = func(p Progress) {
		f.mu.Lock()
		defer f.mu.Unlock()
		m.progress = p
	}
	of, err := openRecorder(ctx, c)
	if err != nil {
		f.missEarly(m, err)
		return nil, err
	}
	f.config.Log.Info("recording a process", "process", m.user)
	return of, nil
}

// lateness says from when on a process was recorded that came later than others.
func (m *member) lateness(r *recording.Recording, began time.Time) string {
	return fmt.Sprintf("the process was found to have the CUDA driver %v after the recording began, and is recorded from %v on: what it called before was not seen",
		m.found.Sub(began).Round(time.Millisecond), r.Window.Start.Sub(began).Round(time.Millisecond))
}

// isIdle tells whether all that there is to say of a process is that it was there: a
// forked copy that was found late, and went without a call or a stage since. Of one that
// was in no window for a while nobody knows.
func (m *member) isIdle(r *recording.Recording) bool {
	if r.Budget != nil && r.Budget.Elapsed > r.Window.Duration {
		return false
	}
	staged := slices.ContainsFunc(r.Stages, func(s recording.Stage) bool { return len(r.Paths[s.Path].Names) > 0 })
	return m.late && m.user.Copy && r.Window.End == recording.EndExit && r.Seen != nil && r.Seen.Calls == 0 && !staged
}

// saysEnded tells whether an error says that a process has ended which was there before:
// its number may be a thread's by now.
func saysEnded(err error) bool {
	return slices.ContainsFunc([]error{
		target.ErrTargetExited, target.ErrNoProcess, target.ErrZombie, target.ErrThread, target.ErrKernelThread, target.ErrSelf,
	}, func(ended error) bool { return errors.Is(err, ended) })
}

// isGone tells whether the process has ended.
func (m *member) isGone() bool {
	p, err := target.Open(m.user.PID)
	if err != nil {
		return saysEnded(err)
	}
	defer p.Close() // of files that were only read
	return p.StartTicks() != m.started
}

// count forgets a process but for its being one of many. The mutex is held.
func (f *family) count(m *member, among *int) {
	*among++
	f.counted.calls.Calls += m.progress.Calls
	f.counted.calls.Lost += m.progress.Lost
	f.members = slices.DeleteFunc(f.members, func(other *member) bool { return other == m })
}

func (f *family) countIdle(m *member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count(m, &f.counted.idle)
}

func (f *family) keep(m *member, r *recording.Recording) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m.recording = r
}

// missEarly is miss for a process whose window could not be opened: if it has ended, and
// others were there before or may come, that is why.
func (f *family) missEarly(m *member, err error) {
	one := m.late || f.config.Wait
	if !one || !saysEnded(err) && !m.isGone() {
		f.miss(m, err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	m.err = err
	f.count(m, &f.counted.brief)
}

func (f *family) miss(m *member, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m.late && m.recording == nil && len(f.missed) >= maxMissed {
		f.count(m, &f.counted.more)
		return
	}
	m.err = err
	f.missed = append(f.missed, fmt.Sprintf("%v: %v", m.user, err))
}

// missOnce says of what is not known as a process that it was missed.
func (f *family) missOnce(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Contains(f.missed, text) {
		f.missed = append(f.missed, text)
	}
}

func (f *family) errorOf(m *member) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return m.err
}

// texts say how many processes are only counted.
func (c *counted) texts() (texts []string) {
	for _, of := range []struct {
		n    int
		what string
	}{
		{c.idle, "forked processes that were found late, and then made no driver call and were in no stage until they ended"},
		{c.brief, "processes that ended before their windows were open"},
		{c.more, "further processes"},
	} {
		if of.n > 0 {
			texts = append(texts, fmt.Sprintf("%s: %d", of.what, of.n))
		}
	}
	return texts
}

// failure is why nothing was recorded.
func (f *family) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, m := range f.members {
		if m.err != nil {
			errs = append(errs, fmt.Errorf("process %v: %w", m.user, m.err))
		}
	}
	return errors.Join(errs...)
}

func (f *family) result() *Family {
	f.mu.Lock()
	defer f.mu.Unlock()
	result := &Family{Missed: append(slices.Clone(f.missed), f.counted.texts()...)}
	for _, m := range f.members {
		if m.recording != nil {
			result.Recordings = append(result.Recordings, m.recording)
		}
	}
	slices.SortStableFunc(result.Recordings, func(a, b *recording.Recording) int {
		return cmp.Or(cmp.Compare(a.Target.Rank, b.Target.Rank),
			cmp.Compare(a.Window.StartNS, b.Window.StartNS), cmp.Compare(a.Target.PID, b.Target.PID))
	})
	return result
}

// state is recording if any member is recorded now, else what another is at.
func (f *family) state() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	state := ""
	for _, m := range f.members {
		switch {
		case m.recording != nil || m.err != nil: // it is recorded no longer
		case m.progress.State == StateRecording:
			return StateRecording
		default:
			state = cmp.Or(state, m.progress.State)
		}
	}
	return cmp.Or(state, StateRecording)
}

// report tells what all members together have seen.
func (f *family) report(state string) {
	if f.config.Progress == nil {
		return
	}
	sum := Progress{State: state}
	if !f.began.IsZero() {
		sum.Elapsed = time.Since(f.began)
	}
	f.mu.Lock()
	sum.Calls, sum.Lost = f.counted.calls.Calls, f.counted.calls.Lost
	for _, m := range f.members {
		sum.Calls += m.progress.Calls
		sum.Lost += m.progress.Lost
	}
	f.mu.Unlock()
	f.config.Progress(sum)
}

// forget lets go of the processes.
func (f *family) forget() {
	for _, r := range f.kin {
		r.process.Close() // of files that were only read
	}
}
