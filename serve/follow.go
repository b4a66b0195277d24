package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"stageprof/correlate"
	"stageprof/recording"
)

// Session is a recording that goes on: an agent.Session.
type Session interface {
	// Snapshot returns what was seen so far; after Wait, what Wait returned.
	Snapshot() (*recording.Recording, error)
	// Wait returns when the target has ended or the context is done.
	Wait(context.Context) (*recording.Recording, error)
	Close() error
}

// Opener finds a target and begins to record it. An error that wraps ErrNoTarget
// says that there is none now.
type Opener func(context.Context) (Session, error)

// ErrNoTarget: there is no process to record now.
var ErrNoTarget = errors.New("no process is being recorded")

// retryInterval is how often a target is looked for. Where attaching to one fails
// again and again, each time takes it twice as long, up to longestRetry.
const (
	retryInterval = time.Second
	longestRetry  = time.Minute
)

// follower records one target after the other and keeps the sums of all.
type follower struct {
	open   Opener
	follow bool
	export *Export // nil: nowhere
	ready  func()  // may be nil
	log    *slog.Logger

	scraping   sync.Mutex // one reading of all rows at a time is enough
	readingAge time.Duration
	last       reading

	mu      sync.Mutex
	session Session // the present one, or the last one; nil before the first
	up      bool    // the session records
	targets int
	sums    sums
}

// run records until the context is done. Without follow it returns when the
// first target has ended.
func (f *follower) run(ctx context.Context) error {
	for {
		session, err := f.next(ctx)
		if err != nil || session == nil {
			return err
		}
		err = f.record(ctx, session)
		if ctx.Err() != nil || !f.follow {
			return err
		}
		if err != nil {
			f.log.Warn("the recording ended with an error", "error", err)
		}
	}
}

// next opens a target. It returns no session when the context is done. What is
// wrong with the first target is an error; later ones are tried again.
func (f *follower) next(ctx context.Context) (Session, error) {
	last, pause := "", time.Duration(0)
	for {
		session, err := f.open(ctx)
		switch {
		case ctx.Err() != nil:
			if session != nil {
				return nil, session.Close()
			}
			return nil, nil
		case err == nil:
			return session, nil
		case !f.follow || (f.targets == 0 && !errors.Is(err, ErrNoTarget)):
			return nil, err
		}
		f.tellReady()
		if text := err.Error(); text != last {
			f.log.Info("waiting for a process to record", "reason", text)
			last = text
		}
		pause = pauseAfter(err, pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// pauseAfter is how long to wait after an error, having waited so long before it.
func pauseAfter(err error, last time.Duration) time.Duration {
	if errors.Is(err, ErrNoTarget) { // looking costs little
		return retryInterval
	}
	return min(max(2*last, retryInterval), longestRetry)
}

func (f *follower) record(ctx context.Context, session Session) error {
	f.mu.Lock()
	f.session, f.up = session, true
	f.targets++
	f.mu.Unlock()
	f.tellReady()
	if r, err := session.Snapshot(); err == nil {
		f.log.Info("recording", "pid", r.Target.PID, "comm", r.Target.Comm)
	}

	final, err := f.watch(ctx, session)
	f.mu.Lock()
	f.up = false
	if final != nil {
		f.sums.add(sumsOnly(final))
	}
	f.sums.settle() // without a last Recording, what was seen of it stays
	f.mu.Unlock()
	if final != nil {
		f.log.Info("the recording ended", "pid", final.Target.PID, "reason", final.Window.End, "after", final.Window.Duration)
	}
	return errors.Join(err, session.Close())
}

func (f *follower) tellReady() {
	if f.ready != nil {
		f.ready()
	}
}

// watch waits for a session's end.
func (f *follower) watch(ctx context.Context, session Session) (*recording.Recording, error) {
	if f.export == nil {
		return session.Wait(ctx)
	}
	i := intervals{Export: *f.export, log: f.log}
	return i.watch(ctx, session)
}

// sumsOnly joins a Recording without its single spans, which would be most of the
// work.
func sumsOnly(r *recording.Recording) *correlate.Ledger {
	sums := *r
	sums.Spans = nil
	return correlate.Build(&sums)
}

// current is the session to take snapshots of, and whether it records.
func (f *follower) current() (Session, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.session, f.up
}

// snapshot returns what was seen of the present target, or of the last one, and
// whether it is still being recorded.
func (f *follower) snapshot() (*recording.Recording, bool, error) {
	session, up := f.current()
	r, err := take(session)
	return r, up, err
}

// take takes a snapshot of a session, if there is one.
func take(session Session) (*recording.Recording, error) {
	if session == nil {
		return nil, ErrNoTarget
	}
	r, err := session.Snapshot()
	if err != nil {
		return nil, fmt.Errorf("reading the recording: %w", err)
	}
	return r, nil
}

// reading is what a scrape has read.
type reading struct {
	of     Session
	at     time.Time
	ledger *correlate.Ledger
}

// mostReadingAge is how long scrapes share a reading of all rows. Each leaves its
// garbage, which would pile up if they came without a pause.
const mostReadingAge = 250 * time.Millisecond

// read reads all rows of the session, unless that was done just now. The ledger is
// nil when there is no session.
func (f *follower) read(session Session) (*correlate.Ledger, error) {
	if session != nil && f.last.of == session && time.Since(f.last.at) < f.readingAge {
		return f.last.ledger, nil
	}
	f.last = reading{}
	r, err := take(session)
	if errors.Is(err, ErrNoTarget) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f.last = reading{session, time.Now(), sumsOnly(r)}
	return f.last.ledger, nil
}

// counters brings the sums up to date and hands them to a function. The ledger is
// nil when there was no target yet.
func (f *follower) counters(each func(s *sums, l *correlate.Ledger, up bool, targets int)) error {
	f.scraping.Lock()
	defer f.scraping.Unlock()
	session, _ := f.current()
	ledger, err := f.read(session)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	// A target that has ended meanwhile is in the sums already.
	if f.up && f.session == session && ledger != nil {
		f.sums.add(ledger)
	}
	each(&f.sums, ledger, f.up, f.targets)
	return nil
}
