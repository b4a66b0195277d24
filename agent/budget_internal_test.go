package agent

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"stageprof/agent/calibrate"
	"stageprof/agent/elfsym"
	"stageprof/agent/probe"
	"stageprof/agent/target"
	"stageprof/bpf"
	"stageprof/recording"
	"stageprof/recording/recordingtest"
	"stageprof/sim/simtest"
)

// Windows that are opened and closed as the account says keep the budget at every
// moment but for what is spent in advance, and in the end altogether.
func TestAccountKeepsTheBudget(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, duration := range []time.Duration{0, time.Second, 30 * time.Second, 10 * time.Minute} {
		for _, rate := range []float64{0.0001, 0.009, 0.011, 0.065, 0.9, 30} {
			a := account{share: 0.01, duration: duration, advance: usualAdvance}
			until := duration
			if until == 0 {
				until = 10 * time.Minute
			}
			var at, least time.Duration
			windows := 0
			for at < until {
				// One window: it costs something by being opened.
				least = time.Duration(random.Int64N(int64(time.Millisecond)))
				cost := least
				for cost < a.limit(at)-a.spent && at < until {
					at += time.Millisecond
					cost += time.Duration(rate * float64(time.Millisecond))
				}
				a.spent += cost
				windows++
				if over := a.spent - a.limit(at); over > time.Duration(rate*float64(time.Millisecond))+least {
					t.Fatalf("%v at %v: %v spent, the limit is %v", rate, at, a.spent, a.limit(at))
				}
				next, fits := a.next(2 * time.Millisecond)
				if !fits || at >= until {
					break
				}
				if next < at {
					t.Fatalf("%v: the next window is to open at %v, it is %v", rate, next, at)
				}
				at = next
				if at < until && a.spent > a.of(at) {
					t.Fatalf("%v at %v: a window opens while %v are spent of %v", rate, at, a.spent, a.of(at))
				}
			}
			if rate < a.share && windows != 1 {
				t.Errorf("%v: %d windows below the budget", rate, windows)
			}
			if rate > 2*a.share && duration > 20*time.Second && windows < 2 {
				t.Errorf("%v: one window in %v", rate, duration)
			}
			if duration > 0 && a.spent > a.of(duration)+time.Duration(rate*float64(time.Millisecond)) {
				t.Errorf("%v in %v: %v spent, the budget is %v", rate, duration, a.spent, a.of(duration))
			}
		}
	}
}

func TestAccountHasNoRoom(t *testing.T) {
	a := account{share: 0.01, duration: 30 * time.Second, spent: 299 * time.Millisecond, advance: usualAdvance}
	if at, fits := a.next(2 * time.Millisecond); fits {
		t.Errorf("a window that can't be paid for is to open at %v", at)
	}
	if at, fits := a.next(time.Millisecond); !fits || at != 29900*time.Millisecond {
		t.Errorf("a window that can be paid for is to open at %v, %v", at, fits)
	}
	a.duration = 0
	if at, fits := a.next(200 * time.Millisecond); !fits || at != 39900*time.Millisecond {
		t.Errorf("a window that costs more than the advance is to open at %v, %v", at, fits)
	}
}

func TestLeastCost(t *testing.T) {
	last := recording.Covered{Duration: 500 * time.Millisecond, CostNS: 130e6}
	c := recording.Charge{CallsNS: 90e6, StagesNS: 10e6, IdleNS: 20e6, SwitchingNS: 10e6}
	if got := leastCost(last, c); got != 40*time.Millisecond {
		t.Errorf("the shortest window costs %v, 30 ms and a tenth of 100 ms are right", got)
	}
	if got := leastCost(recording.Covered{}, recording.Charge{}); got != 0 {
		t.Errorf("a window that cost nothing will cost %v", got)
	}
}

// ^C while the probes' cost is measured is no fault of the budget's.
func TestInterruptedCalibration(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "puppet"))
	p.WaitLine("up")
	process, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer process.Close()
	ctx, interrupt := context.WithCancelCause(t.Context())
	interrupt(errors.New("^C"))
	s := Session{process: process, plan: &Plan{}, meter: &meter{}, mechanism: probe.UprobeMulti}
	if err := s.calibrate(ctx); !errors.Is(err, ErrInterrupted) || errors.Is(err, ErrBudget) {
		t.Errorf("got %v, want %v", err, ErrInterrupted)
	}
}

func TestLeaveOut(t *testing.T) {
	group := func(name string, cost uint64) recording.GroupCost {
		return recording.GroupCost{Group: name, CostNS: cost}
	}
	tests := []struct {
		name   string
		groups []recording.GroupCost
		other  uint64
		want   string // those that are left out
	}{
		{"events are enough", []recording.GroupCost{group("launch", 50), group("event", 900), group("copy", 20)}, 10, "event"},
		{"queries before events", []recording.GroupCost{group("event", 40), group("launch", 50), group("other", 60)}, 0, "other"},
		{"the dearer one of copies and memory", []recording.GroupCost{group("memory", 60), group("copy", 70), group("sync", 30)}, 0, "copy"},
		{"cheap ones are taken back", []recording.GroupCost{group("event", 5), group("other", 6), group("memory", 200), group("launch", 50)}, 0, "memory"},
		{"as far as they fit", []recording.GroupCost{group("event", 30), group("other", 30), group("memory", 200), group("launch", 50)}, 0, "other memory"},
		{"what a recording is for stays", []recording.GroupCost{group("launch", 101), group("event", 900)}, 0, ""},
		{"what is no call's cost", []recording.GroupCost{group("launch", 50), group("event", 900)}, 60, ""},
		{"all fits", []recording.GroupCost{group("launch", 50), group("event", 40)}, 10, ""},
		{"graphs are launches", []recording.GroupCost{group("graph", 500), group("memory-map", 50)}, 0, ""},
		{"no calls", nil, 10, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			some := leaveOut(test.groups, test.other, 100)
			var out []string
			total, ended := test.other, false
			for _, g := range test.groups {
				if !g.LeftOut {
					total += g.CostNS
					ended = true
				} else if out = append(out, g.Group); ended {
					t.Errorf("those that are left out do not come first: %+v", test.groups)
				}
			}
			if !some {
				out = nil
			}
			if got := strings.Join(out, " "); got != test.want || some != (test.want != "") || some && total > 100 {
				t.Errorf("%q is left out, want %q; the rest costs %d", got, test.want, total)
			}
		})
	}
}

// A trial that no other window follows is the recording, of all functions.
func TestTrialAlone(t *testing.T) {
	first := recordingtest.Pipeline()
	first.Budget = &recording.Budget{Windows: []recording.Covered{{StartNS: first.Window.StartNS, Duration: first.Window.Duration}}}
	w := windows{trial: &trial{window: first, groups: []recording.GroupCost{{Group: "event", Calls: 1, CostNS: 1, LeftOut: true}}}}
	got := w.result()
	if got == nil || w.trial != nil || got.Budget.Trial != nil || len(got.Calls) != len(first.Calls) {
		t.Errorf("the recording is %+v, with a trial %+v", got, w.trial)
	}
}

// The end of a family's recording ends a pause, and a window that was to be opened.
func TestFamilyIsOverInPause(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "puppet"))
	p.WaitLine("up")
	process, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	shared := newMembership(time.Hour)
	w := windows{
		config:  Config{PID: p.PID, Budget: 0.01, Log: slog.New(slog.DiscardHandler), family: shared},
		account: account{share: 0.01, duration: time.Hour, spent: time.Second},
		process: process, began: time.Now(),
		last: recording.Budget{Windows: []recording.Covered{{Duration: time.Second, CostNS: 1e9}}},
	}
	defer w.Close() // of files that were only read
	close(shared.over)
	if end, err := w.pause(t.Context()); end != recording.EndDuration || err != nil {
		t.Errorf("the pause ends by %q, %v", end, err)
	}
	for range cap(shared.opening) {
		shared.opening <- struct{}{} // others are attaching
	}
	if end, err := w.another(t.Context()); end != recording.EndDuration || err != nil {
		t.Errorf("the wait for another window ends by %q, %v", end, err)
	}
	if w.stopped == 0 {
		t.Error("the time between the last window and the end is missing")
	}
	if err := w.affords(nil); !errors.Is(err, errOver) {
		t.Errorf("a first window that opens after the end is refused because of %v", err)
	}
}

// Who was attached to first goes on having windows while others are attached to, however
// long that takes: the duration begins only then.
func TestFamilyHasWindowsBeforeItsDuration(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "puppet"))
	p.WaitLine("up")
	process, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	const share, duration, attaching = 0.01, time.Second, time.Minute
	spent := time.Duration(share * float64(attaching-duration)) // more than the duration's share, and paid for
	w := windows{
		config:  Config{PID: p.PID, Budget: share, Log: slog.New(slog.DiscardHandler), family: newMembership(duration)},
		account: account{share: share, spent: spent, advance: usualAdvance},
		process: process, began: time.Now().Add(-attaching),
		last: recording.Budget{Windows: []recording.Covered{{Duration: time.Second, CostNS: 1e6}}},
	}
	defer w.Close() // of files that were only read
	if left := w.allowance(); left <= 0 {
		t.Errorf("its window may cost %v", left)
	}
	if end, err := w.pause(t.Context()); end != "" || err != nil {
		t.Errorf("the pause ends by %q, %v", end, err)
	}
}

// Sessions of one family wait for each other to attach; ^C ends that.
func TestEnterInTurn(t *testing.T) {
	shared := newMembership(0)
	var leave []func()
	for range cap(shared.opening) {
		done, err := shared.enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, done)
	}
	ctx, interrupt := context.WithCancelCause(t.Context())
	interrupt(errors.New("^C"))
	if _, err := shared.enter(ctx); !errors.Is(err, ErrInterrupted) {
		t.Errorf("one more enters: %v", err)
	}
	leave[0]()
	if _, err := shared.enter(ctx); !errors.Is(err, ErrInterrupted) {
		t.Errorf("one enters after ^C: %v", err)
	}
	if _, err := shared.enter(t.Context()); err != nil {
		t.Error(err)
	}
}

// Once the recording is over nobody attaches, whose turn ever it is.
func TestNobodyEntersAfterTheEnd(t *testing.T) {
	shared := newMembership(time.Second)
	close(shared.over)
	for range 100 { // of two that are ready any is taken
		if _, err := shared.enter(t.Context()); !errors.Is(err, errOver) {
			t.Fatalf("one enters after the end: %v", err)
		}
	}
	if n := len(shared.opening); n > 0 {
		t.Errorf("%d have their turn", n)
	}
}

// What is left of the recording is a late process's whole time.
func TestLengthOfAFamily(t *testing.T) {
	began := time.Now()
	shared := newMembership(30 * time.Second)
	if got := shared.length(began.Add(-time.Minute)); got < 90*time.Second {
		t.Errorf("a minute after its first window, before all others' are open, it is %v", got)
	}
	until := began.Add(30 * time.Second)
	shared.until.Store(&until)
	for after, want := range map[time.Duration]time.Duration{
		-2 * time.Second: 32 * time.Second, 0: 30 * time.Second, 29 * time.Second: time.Second, 31 * time.Second: 1,
	} {
		if got := shared.length(began.Add(after)); got != want {
			t.Errorf("for one that began after %v it is %v, want %v", after, got, want)
		}
	}
	if got := newMembership(0).length(began); got != 0 {
		t.Errorf("without a duration it is %v", got)
	}
}

// A forked worker that made no call in the windows may have made some between them.
func TestIdleInWindowsOnly(t *testing.T) {
	m := member{late: true, user: User{Copy: true}}
	r := &recording.Recording{
		Window: recording.Window{Duration: time.Second, End: recording.EndExit}, Seen: &recording.Seen{},
		Budget: &recording.Budget{Elapsed: time.Second},
	}
	if !m.isIdle(r) {
		t.Error("one that was recorded all the time and did nothing has something to say")
	}
	r.Budget.Elapsed++
	if m.isIdle(r) {
		t.Error("of one that was not recorded all the time it is said that it did nothing")
	}
}

// What a call costs is the mean over all calls, also over those whose rows were taken out
// of the kernel side's table because their threads have ended.
func TestRepriceWithEndedThreads(t *testing.T) {
	spec, err := bpf.LoadProbe()
	if err != nil {
		t.Fatal(err)
	}
	calls, err := ebpf.NewMap(spec.Maps["calls"])
	if err != nil {
		t.Fatal(err)
	}
	defer calls.Close()
	if err := calls.Put(bpf.ProbeCallKey{Thread: 2}, bpf.ProbeCallRow{Count: 1}); err != nil {
		t.Fatal(err)
	}
	s := &Session{
		meter: &meter{}, retired: newRetired(false),
		costs:   calibrate.Result{elfsym.Stepped: {Added: 9000}, elfsym.Jump: {Added: 1000}},
		symbols: []probedSymbol{{Site: probe.Site{Placement: elfsym.Placement{Class: elfsym.Stepped}}}, {Site: probe.Site{Placement: elfsym.Placement{Class: elfsym.Jump}}}},
	}
	s.objects.Calls = calls
	s.retired.calls.add(bpf.ProbeCallKey{Thread: 1, Symbol: 1}, bpf.ProbeCallRow{Count: 3})
	if err := s.reprice(); err != nil || s.meter.perCall != 3000 {
		t.Errorf("a call costs %v ns, %v; one of 9000 and three of 1000 cost 3000 each", s.meter.perCall, err)
	}
}
