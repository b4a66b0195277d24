package export

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// scripted is a receiver that acts as a function says, and keeps what arrived.
type scripted struct {
	act     func(ctx context.Context, p Push) error
	arrived []string
}

func (r *scripted) Push(ctx context.Context, p Push) error {
	err := r.act(ctx, p)
	if err == nil {
		r.arrived = append(r.arrived, p.Service)
	}
	return err
}

const grace = 10 * time.Second

// sending is a sender that runs on fake time.
type sending struct {
	*Sender
	*scripted
	log  *strings.Builder
	stop context.CancelFunc
	done chan struct{}
}

func startSender(t *testing.T, act func(context.Context, Push) error) *sending {
	t.Helper()
	s := &sending{scripted: &scripted{act: act}, log: &strings.Builder{}, done: make(chan struct{})}
	s.Sender = NewSender(SenderConfig{
		Receiver: s.scripted, Backoff: Backoff{First: time.Second, Max: time.Minute}, Try: 30 * time.Second, Grace: grace, Room: 3,
		Log: slog.New(slog.NewTextHandler(s.log, nil)),
	})
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	go func() {
		defer close(s.done)
		s.Run(ctx)
	}()
	return s
}

func (s *sending) add(names ...string) {
	for _, name := range names {
		s.Add(Push{Service: name})
	}
}

// end closes the sender and waits for it.
func (s *sending) end() {
	s.stop()
	s.Close()
	<-s.done
}

func (s *sending) check(t *testing.T, want Counts, arrived ...string) {
	t.Helper()
	got := s.Counts()
	if (got.Sent > 0) == got.LastSent.IsZero() {
		t.Errorf("%d were sent, the last at %v", got.Sent, got.LastSent)
	}
	got.LastSent = time.Time{}
	if got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
	if !slices.Equal(s.arrived, arrived) {
		t.Errorf("%q arrived, want %q", s.arrived, arrived)
	}
}

func works(context.Context, Push) error { return nil }

// hangs never answers.
func hangs(ctx context.Context, _ Push) error {
	<-ctx.Done()
	return &temporary{error: ctx.Err()}
}

func TestSenderDeliversInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startSender(t, works)
		s.add("a", "b")
		synctest.Wait()
		s.check(t, Counts{Added: 2, Sent: 2}, "a", "b")
		s.add("c", "d", "e")
		s.end()
		s.check(t, Counts{Added: 5, Sent: 5}, "a", "b", "c", "d", "e")
		if strings.Contains(s.log.String(), "WARN") {
			t.Errorf("it warns:\n%s", s.log)
		}
	})
}

// Of a receiver that is away, the latest profiles are kept; they arrive when it
// is back. It is warned once.
func TestSenderKeepsTheLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := time.Now().Add(10 * time.Minute)
		s := startSender(t, func(context.Context, Push) error {
			if time.Now().Before(back) {
				return &temporary{error: errors.New("connection refused")}
			}
			return nil
		})
		for _, name := range strings.Split("abcde", "") {
			s.add(name)
			time.Sleep(time.Minute)
		}
		if c := s.Counts(); c.Dropped != 2 || c.Waiting != 3 || c.Failures < 10 {
			t.Errorf("counts %+v, want two dropped, three waiting", c)
		}
		time.Sleep(10 * time.Minute)
		failures := s.Counts().Failures
		s.check(t, Counts{Added: 5, Sent: 3, Dropped: 2, Failures: failures}, "c", "d", "e")
		s.end()
		if n := strings.Count(s.log.String(), "connection refused"); n != 1 {
			t.Errorf("the trouble is told %d times:\n%s", n, s.log)
		}
		for _, want := range []string{"delivered again", "sent=3 refused=0 dropped=2"} {
			if !strings.Contains(s.log.String(), want) {
				t.Errorf("the log lacks %q:\n%s", want, s.log)
			}
		}
	})
}

// What is refused for good makes place for the next.
func TestSenderGoesOnAfterARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startSender(t, func(_ context.Context, p Push) error {
			if p.Service == "b" {
				return errors.New("400 Bad Request")
			}
			return nil
		})
		s.add("a", "b", "c")
		s.end()
		s.check(t, Counts{Added: 3, Sent: 2, Refused: 1, Failures: 1}, "a", "c")
		if !strings.Contains(s.log.String(), "400 Bad Request") {
			t.Errorf("the refusal is not told:\n%s", s.log)
		}
	})
}

// A try that hangs is given up for another.
func TestSenderTriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		s := startSender(t, func(ctx context.Context, p Push) error {
			if tries++; tries == 1 {
				return hangs(ctx, p)
			}
			return nil
		})
		s.add("a")
		time.Sleep(time.Minute)
		s.check(t, Counts{Added: 1, Sent: 1, Failures: 1}, "a")
		s.end()
	})
}

// At the end what waits has the grace, which begins when nothing more comes.
func TestSenderEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startSender(t, hangs)
		s.add("a", "b")
		s.stop()
		time.Sleep(3 * grace) // the last profile is still being made
		s.add("c")
		synctest.Wait()
		begin := time.Now()
		s.end()
		if took := time.Since(begin); took != grace {
			t.Errorf("the end took %v, want %v", took, grace)
		}
		s.check(t, Counts{Added: 3, Dropped: 3, Failures: s.Counts().Failures})
	})
	synctest.Test(t, func(t *testing.T) {
		s := startSender(t, hangs)
		begin := time.Now()
		s.end()
		if took := time.Since(begin); took != 0 {
			t.Errorf("nothing waited, and the end took %v", took)
		}
	})
	synctest.Test(t, func(t *testing.T) { // the target has ended, the server goes on
		back := time.Now().Add(5 * time.Minute)
		s := startSender(t, func(context.Context, Push) error {
			if time.Now().Before(back) {
				return &temporary{error: errors.New("connection refused")}
			}
			return nil
		})
		s.add("a", "b")
		s.Close()
		<-s.done
		s.stop()
		s.check(t, Counts{Added: 2, Sent: 2, Failures: s.Counts().Failures}, "a", "b")
	})
}
