package serve

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"stageprof/correlate"
	"stageprof/export"
	"stageprof/pprofout"
)

// store is a receiver that keeps what it is sent.
type store struct {
	mu     sync.Mutex
	pushes []export.Push
}

func (s *store) Push(_ context.Context, p export.Push) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pushes = append(s.pushes, p)
	return nil
}

func (s *store) received() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pushes)
}

// calls sums the calls of all, those that were lost apart.
func (s *store) calls() (returned, lost int64) {
	for _, p := range s.pushes {
		for _, sample := range p.Profile.Sample {
			if strings.HasPrefix(sample.Location[0].Line[0].Function.Name, "stageprof lost") {
				lost += sample.Value[0]
			} else {
				returned += sample.Value[0]
			}
		}
	}
	return returned, lost
}

// exporting sends intervals to a receiver.
func exporting(r export.Receiver, grace time.Duration) *Export {
	return &Export{
		Every: time.Millisecond,
		Push: func(l *correlate.Ledger) (export.Push, error) {
			p, err := pprofout.Profile(l, pprofout.Options{})
			return export.Push{Profile: p, Service: "test"}, err
		},
		Sender: export.NewSender(export.SenderConfig{
			Receiver: r, Backoff: export.Backoff{First: time.Millisecond, Max: time.Millisecond}, Try: time.Hour,
			Grace: grace, Room: 1_000_000, Log: slog.New(slog.DiscardHandler),
		}),
	}
}

// Intervals have no gap: over targets that end, and up to the server's end, they
// sum to all calls. A call that runs between two is not lost.
func TestIntervalsSumToTheWhole(t *testing.T) {
	sessions, received := make(chan *fakeSession), &store{}
	r := start(t, Config{Follow: true, Export: exporting(received, time.Hour), Open: func(ctx context.Context) (Session, error) {
		select {
		case s := <-sessions:
			return s, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}})
	const targets, steps = 3, 5
	for pid := range targets {
		s := newFake(pid + 1)
		sessions <- s
		r.await(s, true)
		for range steps {
			s.step(2)
			n := received.received()
			r.eventually("the next interval", func() bool { return received.received() > n })
		}
		s.step(1) // in the last interval
		if pid < targets-1 {
			close(s.ended)
			r.await(s, false)
		}
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
	returned, lost := received.calls()
	if want := int64(targets * (2*steps + 1)); returned != want || lost != 0 {
		t.Errorf("%d calls were sent and %d as lost, want %d and none", returned, lost, want)
	}
	if c := r.config.Export.Sender.Counts(); c.Sent != c.Added || c.Sent != uint64(len(received.pushes)) || c.Sent < targets*(steps+1) {
		t.Errorf("%+v, and %d have arrived", c, len(received.pushes))
	}
}

// An interval that can't be read is a part of the next one.
func TestIntervalsAfterABrokenReading(t *testing.T) {
	received := &store{}
	r, session := serving(t, Config{Export: exporting(received, time.Hour)})
	broken := func(err error) {
		session.mu.Lock()
		defer session.mu.Unlock()
		session.broken = err
	}
	session.step(1)
	r.eventually("an interval", func() bool { return received.received() > 0 })
	broken(errors.New("the kernel went away"))
	session.step(2)
	looks := session.looked()
	r.eventually("a broken reading", func() bool { return session.looked() > looks })
	broken(nil)
	session.step(4)
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if returned, _ := received.calls(); returned != 7 {
		t.Errorf("%d calls were sent, want 7", returned)
	}
}

// logged keeps what is logged.
type logged struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// miss makes the session lose ends of spans.
func (f *fakeSession) miss(n uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.missed += n
}

// losses sums what the profiles say of ends that were missed.
func (s *store) losses(t *testing.T) (sum int) {
	t.Helper()
	said := regexp.MustCompile(`missed_stage_end[^0-9]*(\d+)|(\d+)[^0-9]*missed_stage_end`)
	for _, p := range s.pushes {
		for _, comment := range p.Profile.Comments {
			if m := said.FindStringSubmatch(comment); m != nil {
				n, err := strconv.Atoi(m[1] + m[2])
				if err != nil {
					t.Fatal(err)
				}
				sum += n
			}
		}
	}
	return sum
}

// Losses of an interval without a call are told with the next one, and those of the
// last one in the log: a profile without a sample is not sent.
func TestIntervalsWithLossesOnly(t *testing.T) {
	received, said := &store{}, &logged{}
	r, session := serving(t, Config{Export: exporting(received, time.Hour), Log: slog.New(slog.NewTextHandler(said, nil))})
	pause := func() { // an interval's end at least
		looks := session.looked()
		r.eventually("a look", func() bool { return session.looked() > looks+1 })
	}
	session.miss(3)
	pause()
	session.step(1)
	r.eventually("an interval", func() bool { return received.received() == 1 })
	session.miss(4)
	pause()
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if len(received.pushes) != 1 || received.losses(t) != 2+3 {
		t.Errorf("%d profiles with %d losses were sent, want one with 5", len(received.pushes), received.losses(t))
	}
	const want = `the last interval had losses and no calls: it is not sent" lost="4 spans: missed_stage_end"`
	if text := said.text(); !strings.Contains(text, want) {
		t.Errorf("the log does not say %q:\n%s", want, text)
	}
}

// What becomes of an interval that no profile can be made of.
func TestIntervalsWithoutAProfile(t *testing.T) {
	received, said := &store{}, &logged{}
	to := exporting(received, time.Hour)
	broken := errors.New("too large")
	to.Push = func(*correlate.Ledger) (export.Push, error) { return export.Push{}, broken }
	r, session := serving(t, Config{Export: to, Log: slog.New(slog.NewTextHandler(said, nil))})
	session.step(1)
	r.eventually("a complaint", func() bool {
		return strings.Contains(said.text(), `no profile was made of an interval; the next one has it" error="too large"`)
	})
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if text := said.text(); !strings.Contains(text, `no profile was made of the last interval: it is not sent" error="too large"`) {
		t.Errorf("nothing is said of the last interval:\n%s", text)
	}
}

// hangs is a receiver that does not answer.
type hangs struct{ entered chan struct{} }

func (h hangs) Push(ctx context.Context, _ export.Push) error {
	h.entered <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

// A receiver that hangs holds up neither answers nor the end.
func TestServerWithAReceiverThatHangs(t *testing.T) {
	h := hangs{make(chan struct{}, 1)}
	r, session := serving(t, Config{Export: exporting(h, time.Millisecond)})
	session.step(1)
	<-h.entered
	session.step(2)
	r.eventually("a queue", func() bool { return r.metrics()["stageprof_export_profiles_waiting"] >= 2 })
	const calls = `stageprof_driver_calls_total{attribution="own",gil="free",stage="step",symbol="cuLaunchKernel"}`
	if got := r.metrics()[calls]; got != 3 {
		t.Errorf("%v calls, want 3", got)
	}
	a := r.get("/metrics")
	if problems, err := promlint.New(strings.NewReader(a.body)).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v, %v", problems, err)
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if c := r.config.Export.Sender.Counts(); c.Dropped != c.Added || c.Dropped < 2 || c.Waiting != 0 {
		t.Errorf("counts %+v, want all dropped", c)
	}
}

func TestExportMetrics(t *testing.T) {
	received := &store{}
	r, session := serving(t, Config{Export: exporting(received, time.Hour)})
	session.step(1)
	r.eventually("a delivery", func() bool { return r.metrics()[`stageprof_export_profiles_total{result="sent"}`] > 0 })
	m := r.metrics()
	for metric, want := range map[string]float64{
		`stageprof_export_profiles_total{result="refused"}`: 0, `stageprof_export_profiles_total{result="dropped"}`: 0,
		"stageprof_export_failures_total": 0,
	} {
		if got, ok := m[metric]; !ok || got != want {
			t.Errorf("%s is %v (%v), want %v", metric, got, ok, want)
		}
	}
	if m["stageprof_export_last_sent_timestamp_seconds"] == 0 {
		t.Error("when something was sent last is not told")
	}
}

// The server is ready when it records, or waits; not before.
func TestReady(t *testing.T) {
	absent := errors.Join(ErrNoTarget, errors.New("nobody matches"))
	for name, c := range map[string]struct {
		err    error
		follow bool
		want   bool
	}{
		"recording":        {nil, false, true},
		"absent, followed": {absent, true, true},
		"absent":           {absent, false, false},
		"broken":           {errors.New("no permission"), false, false},
		"broken, followed": {errors.New("no permission"), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			ready := make(chan struct{})
			r := start(t, Config{Follow: c.follow, Ready: sync.OnceFunc(func() { close(ready) }), Open: func(context.Context) (Session, error) {
				if c.err != nil {
					return nil, c.err
				}
				return newFake(1), nil
			}})
			if c.want {
				<-ready
				return
			}
			<-r.done
			select {
			case <-ready:
				t.Error("it said that it is ready")
			default:
			}
		})
	}
}
