package agent_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"stageprof/agent"
	"stageprof/agent/probe"
	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// openings counts the windows that a recording under a budget has begun to open,
// and the pauses.
type openings struct {
	budget          float64
	windows, pauses atomic.Int32
	latest          atomic.Int64 // when a window began to open, or a pause began
	attached        atomic.Int64 // how long windows were open, and opening and closing
	paused          bool
}

func (o *openings) progress(p agent.Progress) {
	now := time.Now().UnixNano()
	switch {
	case p.State == agent.StateAttaching:
		o.windows.Add(1)
		o.latest.Store(now)
		o.paused = false
	case p.State == agent.StatePaused && !o.paused:
		o.attached.Add(now - o.latest.Load())
		o.latest.Store(now)
		o.paused = true
	}
	if p.State == agent.StatePaused {
		o.pauses.Add(1)
	}
}

// holdBefore is progress, but the n-th window opens only when the returned function has
// been called.
func (o *openings) holdBefore(t *testing.T, n int32) (progress func(agent.Progress), goOn func()) {
	held := make(chan struct{})
	goOn = sync.OnceFunc(func() { close(held) })
	t.Cleanup(goOn)
	return func(p agent.Progress) {
		o.progress(p)
		if p.State == agent.StateAttaching && o.windows.Load() == n {
			<-held
		}
	}, goOn
}

// waits tells whether fewer windows than n have begun to open.
func (o *openings) waits(r *run, n int32) bool {
	r.t.Helper()
	select {
	case got := <-r.result:
		r.t.Fatalf("the recording has ended: %v", got.err)
	default:
	}
	// One thread pays for no more than the time that the windows took, and the budget is a
	// share of the time until that is paid for.
	paid := time.Duration(float64(o.attached.Load()) / o.budget)
	if time.Since(time.Unix(0, o.latest.Load())) > paid+simtest.Patience {
		r.t.Fatalf("no further window opens; %d have", o.windows.Load())
	}
	return o.windows.Load() < n
}

// step is something that a puppet did in a stage of its own, between two moments.
type step struct {
	stage      string
	begin, end uint64
}

const (
	stepCalls = 7
	tick      = 10 * time.Millisecond // between two looks at a recording in progress
)

// Calls in a window are counted to the last one, and none of those between.
func TestBudgetWindowsAreExact(t *testing.T) {
	p := startPuppet(t)
	p.order("main begin outer")
	o := openings{budget: 0.05}
	config := agent.Config{PID: p.PID, Budget: o.budget, Progress: o.progress}.Advance(3 * time.Second)
	run := record(t, config)
	var steps []step
	for o.waits(run, 4) { // the fourth one opens: three are over
		s := step{stage: fmt.Sprint("step", len(steps)), begin: agent.Monotonic()}
		p.order("main begin "+s.stage, fmt.Sprint("main launch ", stepCalls), "main end")
		s.end = agent.Monotonic()
		steps = append(steps, s)
		p.order("main begin burst", "main launch 40000", "main end")
	}
	got := run.interrupt()
	p.order("main end")
	p.end()

	windows := got.Budget.Windows
	if len(windows) < 3 {
		t.Fatalf("%d windows: the test shows nothing", len(windows))
	}
	expectCoverage(t, got)
	expectSteps(t, got, steps)
	expectWholeWindows(t, got)
	expectPartition(t, got)
	if lost := expectAccount(t, got); lost > uint64(len(windows)) {
		t.Errorf("%d calls lost, at each window's end one can be in flight: %v", lost, got.Losses)
	}
}

// expectCoverage fails unless the windows are in order and sum to the Recording's.
func expectCoverage(t *testing.T, r *recording.Recording) {
	t.Helper()
	var covered time.Duration
	var cost, last uint64
	for i, w := range r.Budget.Windows {
		if w.StartNS < last {
			t.Errorf("window %d begins at %d, the one before ends at %d", i, w.StartNS, last)
		}
		last = w.StartNS + uint64(w.Duration)
		covered += w.Duration
		cost += w.CostNS
	}
	if covered != r.Window.Duration || r.Budget.Elapsed < covered || r.Window.StartNS != r.Budget.Windows[0].StartNS {
		t.Errorf("windows of %v in %v are said to be %v", covered, r.Budget.Elapsed, r.Window)
	}
	if trial := r.Budget.Trial; trial != nil {
		cost += trial.CostNS
	}
	if cost != r.Budget.Cost.TotalNS() {
		t.Errorf("the windows cost %d ns, all of them %d", cost, r.Budget.Cost.TotalNS())
	}
	for _, s := range r.Spans {
		in := func(w recording.Covered) bool {
			return s.BeginNS >= w.StartNS && s.BeginNS+s.WallNS <= w.StartNS+uint64(w.Duration)
		}
		if !slices.ContainsFunc(r.Budget.Windows, in) {
			t.Errorf("a span of %v lies in no window: %+v", r.Paths[s.Path].Names, s)
		}
	}
}

// expectSteps fails unless all steps inside a window were counted exactly, and none
// of those outside of all.
func expectSteps(t *testing.T, r *recording.Recording, steps []step) {
	t.Helper()
	calls, spans := map[string]uint64{}, map[string]recording.Stage{}
	for key, c := range counts(r) {
		calls[key.Tag] += c.Calls
	}
	for _, s := range r.Stages {
		spans[strings.Join(r.Paths[s.Path].Names, "/")] = s
	}
	var inside, outside int
	for _, s := range steps {
		path := "outer/" + s.stage
		switch c, span := calls[path], spans[path]; {
		case slices.ContainsFunc(r.Budget.Windows, func(w recording.Covered) bool {
			return s.begin >= w.StartNS && s.end <= w.StartNS+uint64(w.Duration)
		}):
			inside++
			if c != stepCalls || span.Count != 1 || span.PartialCount != 0 {
				t.Errorf("%s, in a window: %d calls in %d complete and %d partial spans", path, c, span.Count, span.PartialCount)
			}
		case !slices.ContainsFunc(r.Budget.Windows, func(w recording.Covered) bool {
			return s.begin < w.StartNS+uint64(w.Duration) && s.end > w.StartNS
		}):
			outside++
			if c != 0 || span.Count+span.PartialCount != 0 {
				t.Errorf("%s, in no window: %d calls in %d complete and %d partial spans", path, c, span.Count, span.PartialCount)
			}
		}
	}
	t.Logf("%d steps in the windows, %d between them", inside, outside)
	if inside == 0 || outside == 0 {
		t.Errorf("%d steps in the windows and %d between them: the test shows nothing", inside, outside)
	}
}

// expectWholeWindows fails unless the stage that was open all the time is partial in
// each window, and has lasted for exactly all of them.
func expectWholeWindows(t *testing.T, r *recording.Recording) {
	t.Helper()
	for _, s := range r.Stages {
		if !slices.Equal(r.Paths[s.Path].Names, []string{"outer"}) {
			continue
		}
		if s.Count != 0 || s.PartialCount != uint64(len(r.Budget.Windows)) || s.PartialWallNS != uint64(r.Window.Duration) {
			t.Errorf("the stage around everything has %d complete and %d partial spans of %d ns in %d windows of %v",
				s.Count, s.PartialCount, s.PartialWallNS, len(r.Budget.Windows), r.Window.Duration)
		}
		return
	}
	t.Error("the stage around everything is missing")
}

// expectAccount fails unless all calls that were seen are reported or lost.
func expectAccount(t *testing.T, r *recording.Recording) (lost uint64) {
	t.Helper()
	for _, l := range r.Losses {
		if l.Kind == "calls" {
			lost += l.Count
		}
	}
	if reported := counts(r).Total().Calls; r.Seen.Calls != reported+lost || reported == 0 {
		t.Errorf("%d calls seen, %d reported, %d lost", r.Seen.Calls, reported, lost)
	}
	return lost
}

// Loops of launches cost no more than the budget when the pauses are over.
func TestBudgetAtHighRates(t *testing.T) {
	for _, test := range []struct {
		name   string
		args   []string
		budget float64
	}{
		{"25000 calls/s", []string{"--rate", "25000"}, 0.01},
		{"as fast as it can", nil, 0.04},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := append(test.args, "--calls", "200000000", "--launches-only", "1", "--stages", "1", "--markers", simtest.Markers(t))
			p := simtest.Start(t, simtest.Tester(t, "calls", args...))
			p.WaitLine("up")
			o := openings{budget: test.budget}
			progress, goOn := o.holdBefore(t, 3) // when the two before it are paid for
			run := record(t, agent.Config{PID: p.PID, Budget: test.budget, Probes: "default", Progress: progress}.Advance(3*time.Second))
			p.Ready()
			for o.waits(run, 3) {
				time.Sleep(tick)
			}
			run.stop()
			goOn()
			got := run.finish()
			expectCoverage(t, got)
			expectAccount(t, got)
			c, ok := correlate.CoverageOf(got)
			if !ok || !c.Gaps() || len(got.Budget.Windows) != 2 {
				t.Fatalf("%+v: the budget was never used up", got.Budget)
			}
			if c.Used > test.budget || c.Used == 0 {
				t.Errorf("%.3g %% of a CPU were used, %.3g %% were allowed: %+v", 100*c.Used, 100*test.budget, got.Budget)
			}
			t.Logf("%.3g %% of a CPU used; %v of %v covered in %d windows; %+v", 100*c.Used, c.Covered, c.Elapsed, c.Windows, got.Budget.Cost)
		})
	}
}

// Where the many calls are such that say little, they are left out after a trial, and
// the others are recorded all the time: exactly.
func TestBudgetLeavesOutEvents(t *testing.T) {
	// A trial may cost a few times what it costs on a quiet machine: the probes are hit
	// for as long as they take to come off. Then there has to be enough left for another window.
	for rate, budget := range map[int]float64{50_000: 0.02, 100_000: 0.05} {
		t.Run(fmt.Sprint(rate, " calls/s"), func(t *testing.T) {
			p := startPuppet(t)
			p.order("main start q", "main begin outer")
			// Also where others want its CPU, it calls as often as that.
			if err := unix.Setpriority(unix.PRIO_PROCESS, threadID(t, p.PID, "q"), -20); err != nil {
				t.Fatal(err)
			}
			p.tell(fmt.Sprint("q poll 1000000000 ", rate))
			run := record(t, agent.Config{PID: p.PID, Probes: "default", Budget: budget, LeaveOut: true, Duration: 30 * time.Second})
			var steps []step
			for len(run.result) == 0 {
				s := step{stage: fmt.Sprint("step", len(steps)), begin: agent.Monotonic()}
				p.order("main begin "+s.stage, fmt.Sprint("main launch ", stepCalls), "main end")
				s.end = agent.Monotonic()
				steps = append(steps, s)
				time.Sleep(5 * tick) // as rarely as the budget allows for
			}
			got := run.finish()
			expectEnd(t, got, recording.EndDuration)
			expectCoverage(t, got)
			expectAccount(t, got)
			expectSteps(t, got, steps)
			expectWholeWindows(t, got)
			expectLeftOut(t, got, "event")
			c, _ := correlate.CoverageOf(got)
			if c.Used > budget || c.Used == 0 {
				t.Errorf("%.3g %% of a CPU were used: %+v", 100*c.Used, got.Budget)
			}
			t.Logf("%v of %v covered in %d windows; trial %+v", c.Covered, c.Elapsed, c.Windows, got.Budget.Trial)
		})
	}
}

// expectLeftOut fails unless the Recording says that a group was left out, and nothing
// of it.
func expectLeftOut(t *testing.T, r *recording.Recording, group string) {
	t.Helper()
	trial := r.Budget.Trial
	others := func(g recording.GroupCost) bool { return g.LeftOut && g.Group != group }
	if trial == nil || len(trial.Groups) == 0 || trial.Groups[0].Group != group || !trial.Groups[0].LeftOut || slices.ContainsFunc(trial.Groups, others) {
		t.Fatalf("the functions of the group %s were not left out: %+v: %v", group, trial, r.Budget)
	}
	if g := trial.Groups[0]; g.Calls == 0 || g.CostNS == 0 || g.CostNS > trial.CostNS || trial.StartNS+uint64(trial.Duration) > r.Window.StartNS {
		t.Errorf("the trial %+v before a window from %d", trial, r.Window.StartNS)
	}
	for _, s := range r.Symbols {
		if s.Group == group {
			t.Errorf("%s is a function of the Recording", s.Name)
		}
	}
	warning(t, r.Warnings, "left out, to keep the budget: functions of the group "+group)
}

// A recording that ends before a window without what was to be left out is of all
// functions.
func TestBudgetEndsAfterTrial(t *testing.T) {
	p := startPuppet(t)
	p.order("main start q", "main begin outer")
	p.tell("q poll 1000000000 0")
	o := openings{budget: 0.01}
	run := record(t, agent.Config{PID: p.PID, Budget: o.budget, LeaveOut: true, Progress: o.progress})
	for o.pauses.Load() == 0 {
		o.waits(run, 2)
		time.Sleep(tick)
	}
	got := run.interrupt()
	expectEnd(t, got, recording.EndInterrupt)
	expectCoverage(t, got)
	expectAccount(t, got)
	if got.Budget.Trial != nil || len(got.Budget.Windows) != 1 {
		t.Errorf("the trial is no window: %+v", got.Budget)
	}
	if !slices.ContainsFunc(got.Symbols, func(s recording.Symbol) bool { return s.Name == "cuStreamQuery" }) {
		t.Error("its calls are in no number")
	}
}

// Functions that were named are not left out.
func TestBudgetLeavesOutNothing(t *testing.T) {
	p := startPuppet(t)
	p.order("main start q")
	p.tell("q poll 1000000000 0")
	o := openings{budget: 0.05}
	run := record(t, agent.Config{PID: p.PID, Probes: "default", Budget: o.budget, Progress: o.progress}.Advance(time.Second))
	for o.waits(run, 3) {
		time.Sleep(tick)
	}
	got := run.interrupt()
	expectCoverage(t, got)
	if got.Budget.Trial != nil || len(got.Budget.Windows) < 2 || got.Seen.Calls == 0 {
		t.Errorf("%d calls seen, %+v", got.Seen.Calls, got.Budget)
	}
}

// A budget that is not used up changes nothing.
func TestBudgetNotUsedUp(t *testing.T) {
	got, p := runTester(t, agent.Config{Budget: 1}, simtest.Tester(t, "calls",
		"--threads", "2", "--calls", "20000", "--stages", "4", "--markers", simtest.Markers(t)))
	expectEqual(t, got, p.Truth().Counts())
	expectPartition(t, got)
	expectCoverage(t, got)
	if len(got.Budget.Windows) != 1 || got.Budget.Elapsed != got.Window.Duration || got.Window.End != recording.EndExit {
		t.Errorf("%+v: %v: %+v", got.Window, got.Warnings, got.Budget)
	}
}

func TestBudgetTooSmall(t *testing.T) {
	p := startPuppet(t)
	_, err := agent.Record(t.Context(), agent.Config{PID: p.PID, Budget: 1e-6, Duration: time.Second})
	if !errors.Is(err, agent.ErrBudget) || !strings.Contains(err.Error(), "0.0001% of 1s") {
		t.Errorf("a microsecond of CPU in a second is not refused: %v", err)
	}
	p.order("main launch 10")
	p.end()
}

// Without a duration a small budget is kept by a long pause; what ends before that
// says that it has cost too much.
func TestBudgetEndsInPause(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(*puppet, *run)
		want recording.WindowEnd
	}{
		{"interrupt", func(_ *puppet, r *run) { r.stop() }, recording.EndInterrupt},
		{"exit", func(p *puppet, _ *run) { p.end() }, recording.EndExit},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := startPuppet(t)
			var o openings
			run := record(t, agent.Config{PID: p.PID, Budget: 0.0001, Progress: o.progress}.Advance(time.Millisecond))
			for o.pauses.Load() == 0 {
				p.order("main launch 100")
			}
			test.end(p, run)
			got := run.finish()
			expectEnd(t, got, test.want)
			expectCoverage(t, got)
			expectAccount(t, got)
			if len(got.Budget.Windows) != 1 || got.Budget.Elapsed <= got.Window.Duration {
				t.Errorf("the recording ended in no pause: %+v", got.Budget)
			}
			if !slices.ContainsFunc(got.Warnings, func(w string) bool { return strings.Contains(w, "before its windows were paid for") }) {
				t.Errorf("nothing says that the budget is exceeded: %q", got.Warnings)
			}
		})
	}
}

// The target becomes another program while no probe is in it.
func TestBudgetExecInPause(t *testing.T) {
	p := startPuppet(t)
	var o openings
	run := record(t, agent.Config{PID: p.PID, Budget: 0.01, Progress: o.progress}.Advance(time.Second))
	for o.pauses.Load() == 0 {
		p.order("main launch 10000")
	}
	p.tell("main exec")
	got := run.finish()
	if got.Window.End != recording.EndExec && got.Window.End != recording.EndExit {
		t.Errorf("the window ended by %q", got.Window.End)
	}
	expectCoverage(t, got)
	expectAccount(t, got)
}

// The target's program ends just when a window is to be opened: what was seen in the
// ones before is the recording, and the next program is another target.
func TestBudgetEndsWhileAWindowOpens(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(*puppet)
		want recording.WindowEnd
	}{
		{"exit", func(p *puppet) { p.end() }, recording.EndExit},
		{"exec", func(p *puppet) { p.tell("main again"); p.WaitLines("up", 2) }, recording.EndExec},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := startPuppet(t)
			o := openings{budget: 0.05}
			progress, goOn := o.holdBefore(t, 2)
			run := record(t, agent.Config{PID: p.PID, Budget: o.budget, Progress: progress}.Advance(time.Second))
			for o.pauses.Load() == 0 {
				p.order("main launch 10000")
			}
			for o.waits(run, 2) {
				time.Sleep(tick)
			}
			test.end(p)
			goOn()
			got := run.finish()
			expectEnd(t, got, test.want)
			expectCoverage(t, got)
			expectAccount(t, got)
			if len(got.Budget.Windows) != 1 || got.Budget.Elapsed <= got.Window.Duration {
				t.Errorf("the recording ended in no pause: %+v", got.Budget)
			}
		})
	}
}

func TestBudgetRefuses(t *testing.T) {
	p := startPuppet(t)
	tests := []struct {
		name   string
		config agent.Config
		want   error
	}{
		{"more than a CPU", agent.Config{Budget: 1.01}, agent.ErrUsage},
		{"negative", agent.Config{Budget: -0.01}, agent.ErrUsage},
		{"leaving out without a budget", agent.Config{LeaveOut: true}, agent.ErrUsage},
		{"a timeline", agent.Config{Budget: 0.01, Timeline: time.Second}, agent.ErrUsage},
		{"perf events", agent.Config{Budget: 0.01, Mechanism: probe.PerfEvent}, agent.ErrBudget},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.config.PID = p.PID
			if _, err := agent.Record(t.Context(), test.config); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
	config := agent.Config{PID: p.PID, Budget: 0.01}
	if _, err := agent.Open(t.Context(), config); !errors.Is(err, agent.ErrUsage) {
		t.Errorf("a session alone takes a budget: %v", err)
	}
	p.end()
}
