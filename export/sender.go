package export

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// SenderConfig says how a Sender delivers. Every field must be set.
type SenderConfig struct {
	Receiver Receiver
	Backoff  Backoff
	Try      time.Duration // how long one try may take
	Grace    time.Duration // how long what waits is still delivered at the end
	Room     int           // pushes that may wait, the one in delivery included
	Log      *slog.Logger
}

// Sender delivers pushes one after the other while others are made. A push is
// tried until it has arrived, the receiver refuses it for good, or there are so
// many newer ones that it has no room any more: then it is dropped.
type Sender struct {
	config SenderConfig
	more   chan struct{} // there is something to do
	closed chan struct{} // no push comes any more

	mu      sync.Mutex
	queue   []*waiting // oldest first, which is the one in delivery
	counts  Counts
	trouble bool // since the last delivery a try has failed
}

// waiting is a push in the queue.
type waiting struct {
	push   Push
	giveUp context.CancelCauseFunc // nil before its delivery
}

// Counts says what has become of the pushes. Added = Sent + Refused + Dropped +
// Waiting.
type Counts struct {
	Added, Sent, Refused, Dropped uint64
	Waiting                       int
	Failures                      uint64    // tries that did not work
	LastSent                      time.Time // zero before the first
}

// Why a push is dropped.
var (
	errNoRoom  = errors.New("newer profiles need its room")
	errGoodbye = errors.New("the time to deliver it is over")
)

// NewSender makes a sender; nothing is delivered before Run.
func NewSender(c SenderConfig) *Sender {
	return &Sender{config: c, more: make(chan struct{}, 1), closed: make(chan struct{})}
}

// Add puts a push behind the others, and never waits.
func (s *Sender) Add(p Push) {
	s.mu.Lock()
	s.counts.Added++
	s.queue = append(s.queue, &waiting{push: p})
	if len(s.queue) > s.config.Room {
		oldest := s.queue[0]
		s.queue = s.queue[1:]
		if oldest.giveUp != nil {
			oldest.giveUp(errNoRoom) // its delivery tells what became of it
		} else {
			s.dropped(errNoRoom)
		}
	}
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default: // it is told already
	}
}

// Close says that no push comes any more. It must be called once.
func (s *Sender) Close() { close(s.closed) }

// Counts are the counts up to now.
func (s *Sender) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts
	c.Waiting = int(c.Added - c.Sent - c.Refused - c.Dropped)
	return c
}

// Run delivers until the sender is closed and nothing waits. When it is closed
// and ctx is done, what waits has the grace left, and is dropped after it.
func (s *Sender) Run(ctx context.Context) {
	lasting, end := context.WithCancelCause(context.WithoutCancel(ctx))
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		s.awaitEnd(ctx, lasting)
		end(errGoodbye)
	}()
	for s.await() {
		for p := s.oldest(); p != nil; p = s.oldest() {
			s.deliver(lasting, p)
		}
	}
	end(nil)
	<-watched
	s.tellEnd()
}

// awaitEnd returns when the grace is over, or the work is done.
func (s *Sender) awaitEnd(ctx, done context.Context) {
	for _, event := range []<-chan struct{}{s.closed, ctx.Done()} {
		select {
		case <-event:
		case <-done.Done():
			return
		}
	}
	select {
	case <-time.After(s.config.Grace):
	case <-done.Done():
	}
}

// await waits until there is a push. It returns false when there comes none.
func (s *Sender) await() bool {
	select {
	case <-s.more:
		return true
	case <-s.closed:
		return s.oldest() != nil
	}
}

// oldest is the push to deliver next, nil if there is none.
func (s *Sender) oldest() *waiting {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil
	}
	return s.queue[0]
}

// deliver brings the oldest push to its end.
func (s *Sender) deliver(ctx context.Context, p *waiting) {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	if !s.begin(p, giveUp) {
		return
	}
	err := ctx.Err()
	if err == nil {
		_, err = Deliver(ctx, try{s}, p.push, s.config.Backoff)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 && s.queue[0] == p {
		s.queue = s.queue[1:]
	}
	switch {
	case err == nil:
		s.counts.Sent++
		s.counts.LastSent = time.Now()
	case ctx.Err() != nil:
		s.dropped(context.Cause(ctx))
	default:
		s.counts.Refused++
		s.config.Log.Log(ctx, level(s.counts.Refused), "a profile was refused", "error", err, "refused", s.counts.Refused)
	}
}

// begin marks a push as in delivery, unless it was dropped just now.
func (s *Sender) begin(p *waiting, giveUp context.CancelCauseFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.giveUp = giveUp
	return len(s.queue) > 0 && s.queue[0] == p
}

// dropped counts a push that is given up.
func (s *Sender) dropped(why error) {
	s.counts.Dropped++
	s.config.Log.Log(context.Background(), level(s.counts.Dropped), "a profile was dropped before it arrived", "reason", why, "dropped", s.counts.Dropped)
}

// level is how loudly the nth of its kind is told: a receiver that is away for
// days makes no line an interval.
func level(n uint64) slog.Level {
	if n&(n-1) == 0 { // 1, 2, 4, 8 …
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// try is the receiver with a limit on each try.
type try struct{ *Sender }

// Push sends a profile once.
func (t try) Push(ctx context.Context, p Push) error {
	ctx, cancel := context.WithTimeout(ctx, t.config.Try)
	defer cancel()
	err := t.config.Receiver.Push(ctx, p)
	t.tried(err)
	return err
}

// tried counts a try, and tells when trouble begins and ends.
func (s *Sender) tried(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.counts.Failures++
	}
	var again *temporary
	switch before := s.trouble; {
	case errors.As(err, &again):
		s.trouble = true
		if !before {
			s.config.Log.Warn("a profile can't be delivered now; it is tried again", "error", err)
		}
	case err == nil:
		s.trouble = false
		if before {
			s.config.Log.Info("profiles are delivered again", "dropped", s.counts.Dropped)
		}
	}
}

func (s *Sender) tellEnd() {
	c := s.Counts()
	s.config.Log.Info("the export ended", "sent", c.Sent, "refused", c.Refused, "dropped", c.Dropped)
}
