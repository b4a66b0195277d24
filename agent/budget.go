package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"stageprof/agent/calibrate"
	"stageprof/agent/keeper"
	"stageprof/agent/probe"
	"stageprof/agent/target"
	"stageprof/recording"
)

// ErrBudget: the budget can't be kept, or not be told to be.
var ErrBudget = errors.New("the budget can't be kept")

// margin is the part of the budget that is aimed at: that a window is over takes
// effect a little later, and what that costs is known only then.
const margin = 0.95

// usualAdvance is how much of the future a window may spend in advance: the
// budget's share of this time. A window and the pause after it are about as long.
const usualAdvance = 10 * time.Second

// account is what a recording under a budget may cost, and has cost. Times are
// since its first window's start.
type account struct {
	share    float64
	duration time.Duration // of the recording, 0: not known
	spent    time.Duration // by windows that are over
	advance  time.Duration
}

// limit is what may have been spent by a moment, in all.
func (a *account) limit(at time.Duration) time.Duration {
	until := at + a.advance
	if a.duration > 0 {
		until = min(until, a.duration)
	}
	return a.of(until)
}

func (a *account) of(d time.Duration) time.Duration { return time.Duration(a.share * float64(d)) }

// next is when the next window may open, if one fits that costs at least so much:
// when the ones before are paid for, and as much is left in advance.
func (a *account) next(least time.Duration) (time.Duration, bool) {
	paid := time.Duration(float64(a.spent) / a.share)
	affordable := time.Duration(float64(a.spent+least)/a.share) - a.advance
	at := max(paid, affordable)
	if a.duration == 0 {
		return at, true
	}
	return at, at < a.duration && a.spent+least <= a.of(a.duration)
}

// leastCost is what the shortest window would cost, by what the latest one did.
func leastCost(last recording.Covered, c recording.Charge) time.Duration {
	apart := c.SwitchingNS + c.IdleNS // whatever its length
	whole := last.CostNS - min(apart, last.CostNS)
	length := max(last.Duration, 1)
	return time.Duration(apart) + time.Duration(float64(whole)*float64(leastWindow)/float64(length))
}

// windows records one process under a budget: a sequence of Sessions, each one exact,
// with no probe in the target between them.
type windows struct {
	config     Config
	account    account
	session    *Session        // the window that is open; nil: none is
	process    *target.Process // from the end of the first window on
	began      time.Time       // the first window's start; zero: not yet
	busy       time.Duration   // the agent's CPU time then
	keeperDone func() error    // it lives from one window to the next
	joined     recording.Joined
	calls      Progress         // of the windows that are over
	last       recording.Budget // the latest window's
	trial      *trial           // nil: nothing is left out
	stopped    time.Duration    // when the recording ended, if that was in no window
}

// openWindows opens the first window.
func openWindows(ctx context.Context, config Config) (*windows, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config.costs = cmp.Or(config.costs, &calibrations{})
	w := &windows{config: config, account: account{
		share: margin * config.Budget, advance: cmp.Or(config.advance, usualAdvance),
	}}
	if config.LeaveOut {
		w.account.advance = min(w.account.advance, trialAdvance)
	}
	s, err := w.open(ctx)
	if err != nil {
		return nil, err
	}
	w.session, w.began, w.busy = s, s.startWall, s.startCPU
	w.keeperDone = keeper.Use()
	if err := w.affords(s); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// Wait records in one window after the other until the recording is over, which ends
// like a Session's. On an error it also returns what was seen in the windows before.
func (w *windows) Wait(ctx context.Context) (*recording.Recording, error) {
	end, err := w.record(ctx)
	r := w.result()
	if r != nil {
		w.finish(r, end)
	}
	return r, err
}

// Close lets go of the target, which has no probe unless Wait was not called.
func (w *windows) Close() error {
	var err error
	if w.session != nil {
		err = w.session.Close()
		w.session = nil
	}
	if w.process != nil {
		err = errors.Join(err, w.process.Close())
		w.process = nil
	}
	if w.keeperDone != nil {
		err = errors.Join(err, w.keeperDone())
		w.keeperDone = nil
	}
	return err
}

// record lets one window pass after the other and says what ended the last one, or the
// time after it.
func (w *windows) record(ctx context.Context) (recording.WindowEnd, error) {
	for {
		for _, step := range []func(context.Context) (recording.WindowEnd, error){w.pass, w.pause, w.another} {
			if end, err := step(ctx); err != nil || end != "" {
				return end, err
			}
		}
	}
}

// elapsed is the time since the first window's start.
func (w *windows) elapsed() time.Duration { return time.Since(w.began) }

// length is how long the recording will last from the first window's start on, 0 if
// that is not known.
func (w *windows) length() time.Duration {
	if w.config.family != nil {
		return w.config.family.length(w.began)
	}
	return w.config.Duration
}

// allowance is what the open window may have cost by now.
func (w *windows) allowance() time.Duration {
	w.account.duration = w.length()
	return w.account.limit(w.elapsed()) - w.account.spent
}

// untilNext is how long it is until the next window may open, if one fits.
func (w *windows) untilNext() (time.Duration, bool) {
	w.account.duration = w.length()
	at, fits := w.account.next(leastCost(w.last.Windows[0], w.last.Cost))
	return at - w.elapsed(), fits
}

// pass lets the open window pass, and says what ended the recording with it, "" if
// nothing but the budget did.
func (w *windows) pass(ctx context.Context) (recording.WindowEnd, error) {
	s := w.session
	w.report(StateRecording)
	if w.config.Duration > 0 { // it took a while to open the window
		s.config.Duration = max(1, w.config.Duration-w.elapsed())
	}
	r, err := s.Wait(ctx)
	if w.process == nil { // the windows to come must be of the same program
		w.process, s.process = s.process, nil
	}
	w.session = nil
	err = errors.Join(err, s.Close())
	if r == nil {
		return recording.EndInterrupt, err
	}
	w.pay(r)
	if t := w.judge(s, r); t != nil {
		w.trial, w.last = t, t.without(w.last)
	} else {
		w.add(r)
	}
	w.account.advance = cmp.Or(w.config.advance, usualAdvance)
	if r.Window.End == recording.EndBudget && err == nil {
		return "", nil
	}
	return r.Window.End, err
}

// another opens the next window, or says what ended the recording meanwhile. What it
// fails of does not make the windows before untrue.
func (w *windows) another(ctx context.Context) (recording.WindowEnd, error) {
	s, err := w.open(ctx)
	switch {
	case err != nil:
		return w.unopened(err)
	case !s.process.SameProgram(w.process):
		return w.stop(recording.EndExec, s.Close())
	}
	w.session = s
	return "", nil
}

// unopened says what ended the recording when another window could not be opened.
func (w *windows) unopened(err error) (recording.WindowEnd, error) {
	switch {
	case errors.Is(err, ErrInterrupted):
		return w.stop(recording.EndInterrupt, nil)
	case errors.Is(err, errOver):
		return w.stop(recording.EndDuration, nil)
	}
	if end, goneErr := w.gone(); goneErr == nil && end != "" {
		return w.stop(end, nil)
	}
	return w.stop(recording.EndInterrupt, fmt.Errorf("opening another window: %w", err))
}

// gone says how the target's program has ended, "" if it has not.
func (w *windows) gone() (recording.WindowEnd, error) {
	switch execed, err := w.process.Execed(); {
	case errors.Is(err, target.ErrTargetExited):
		return recording.EndExit, nil
	case err != nil:
		return recording.EndInterrupt, err
	case execed:
		return recording.EndExec, nil
	}
	return "", nil
}

func (w *windows) open(ctx context.Context) (*Session, error) {
	w.report(StateAttaching)
	config := w.config
	config.leftOut = w.trial.leftOut()
	config.meter = &meter{
		limit: w.allowance,
		end:   time.Duration(w.last.Cost.SwitchingNS + w.last.Cost.IdleNS),
	}
	if w.config.Progress != nil {
		config.Progress = w.progress
	}
	if w.process != nil {
		config.Wait, config.started = false, w.process.StartTicks()
	}
	return Open(ctx, config)
}

// pay takes the cost of a window that is over into account.
func (w *windows) pay(r *recording.Recording) {
	w.last = *r.Budget
	w.account.spent += time.Duration(r.Budget.Cost.TotalNS())
}

// add adds a window that is over to the Recording.
func (w *windows) add(r *recording.Recording) {
	w.calls.Calls += r.Seen.Calls
	for _, l := range r.Losses {
		if l.Kind == "calls" {
			w.calls.Lost += l.Count
		}
	}
	w.joined.Add(r, maxSpans)
}

// stop ends the recording outside of any window.
func (w *windows) stop(end recording.WindowEnd, err error) (recording.WindowEnd, error) {
	w.stopped = w.elapsed()
	return end, err
}

// pause waits until the next window may open, or says what ended the recording.
func (w *windows) pause(ctx context.Context) (recording.WindowEnd, error) {
	var over <-chan time.Time
	if w.config.Duration > 0 {
		over = time.After(w.config.Duration - w.elapsed())
	}
	w.config.Log.Debug("between two windows", "pid", w.config.PID, "spent", w.account.spent, "elapsed", w.elapsed())
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		w.report(StatePaused)
		var next <-chan time.Time
		if wait, fits := w.untilNext(); fits { // a family learns only late how long it has
			next = time.After(wait)
		}
		var end recording.WindowEnd
		due := false
		select {
		case <-ctx.Done():
			return w.stop(recording.EndInterrupt, nil)
		case <-w.process.Exited():
			return w.stop(recording.EndExit, nil)
		case <-w.config.family.ended():
			end = recording.EndDuration
		case <-over:
			end = recording.EndDuration
		case <-next:
			due = true
		case <-ticker.C:
		}
		switch gone, err := w.gone(); {
		case err != nil || gone != "":
			return w.stop(gone, err)
		case end != "":
			return w.stop(end, nil)
		case due:
			return "", nil
		}
	}
}

// progress adds what the windows before have seen to a window's progress.
func (w *windows) progress(p Progress) {
	p.Calls += w.calls.Calls
	p.Lost += w.calls.Lost
	if !w.began.IsZero() {
		p.Elapsed = w.elapsed()
	}
	w.config.Progress(p)
}

func (w *windows) report(state string) {
	if w.config.Progress != nil {
		w.progress(Progress{State: state})
	}
}

// result is what was recorded, nil if nothing was. If the recording ended before a
// window without what was to be left out, nothing was.
func (w *windows) result() *recording.Recording {
	if w.trial != nil && w.joined.Recording() == nil {
		w.add(w.trial.window)
		w.trial = nil
	}
	r := w.joined.Recording()
	if w.trial != nil {
		w.trial.tell(r)
	}
	return r
}

// finish says of the whole recording what no window knows.
func (w *windows) finish(r *recording.Recording, end recording.WindowEnd) {
	r.Window.End = end
	r.Overhead.AgentCPU = agentCPU() - w.busy
	b := r.Budget
	b.Share = w.config.Budget
	last := b.Windows[len(b.Windows)-1]
	first := r.Window.StartNS
	if b.Trial != nil {
		first = b.Trial.StartNS
	}
	b.Elapsed = max(w.stopped, time.Duration(last.StartNS-first)+last.Duration)
	spent := time.Duration(b.Cost.TotalNS())
	if float64(spent) <= b.Share*float64(b.Elapsed) {
		return
	}
	why := "the shortest window costs that much: record for longer, or allow more"
	if end != recording.EndDuration {
		why = "the recording ended before its windows were paid for"
	}
	r.Warnings = append(r.Warnings, fmt.Sprintf("the budget of %s is exceeded, the target paid %v in %v: %s",
		percent(b.Share), spent.Round(time.Microsecond), b.Elapsed.Round(time.Millisecond), why))
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'g', 4, 64) + "%" }

// affords refuses a budget that putting the probes in and taking them off exceeds.
func (w *windows) affords(s *Session) error {
	select {
	case <-w.config.family.ended(): // nothing is left that could be paid from
		return errOver
	default:
	}
	c, err := s.charge()
	length := w.length()
	if err != nil || length == 0 {
		return err
	}
	least, may := 2*time.Duration(c.SwitchingNS), time.Duration(w.config.Budget*float64(length))
	if least > may {
		return fmt.Errorf("%w: %s of %v is %v, and to put the probes in and take them off again takes the target up to %v: record for longer, or allow more",
			ErrBudget, percent(w.config.Budget), length.Round(time.Millisecond), may.Round(time.Microsecond), least)
	}
	return nil
}

// checkBudget refuses probes that can't be taken off quickly.
func (c *Config) checkBudget(mechanism probe.Mechanism) error {
	if c.meter != nil && mechanism == probe.PerfEvent {
		return fmt.Errorf("%w: perf events come off one by one, some in a tenth of a second; it takes multi-uprobe links (Linux 6.6)", ErrBudget)
	}
	return nil
}

// checkFilter refuses probes that every process of a family would hit in the windows of
// each: that is in nobody's account.
func (c *Config) checkFilter() error {
	if c.meter != nil && c.family != nil {
		return fmt.Errorf("%w for each of several processes: %w", ErrBudget, calibrate.ErrProcessFilter)
	}
	return nil
}

func (c *Config) validateBudget() error {
	switch {
	case c.LeaveOut && c.Budget == 0:
		return fmt.Errorf("%w: functions are left out under a budget only", ErrUsage)
	case c.Budget == 0:
		return nil
	case c.Budget < 0 || c.Budget > 1 || math.IsNaN(c.Budget):
		return fmt.Errorf("%w: the budget is no share of a CPU: %v", ErrUsage, c.Budget)
	case c.Timeline > 0:
		return fmt.Errorf("%w: a timeline and a budget exclude each other: it would have gaps", ErrUsage)
	case c.Live:
		return fmt.Errorf("%w: a recording under a budget has no snapshots", ErrUsage)
	}
	return nil
}
