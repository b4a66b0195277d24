package agent_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stageprof/agent"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// eventCounts sums a timeline's calls that have returned as counts does with the rows.
func eventCounts(r *recording.Recording) simtest.Counts {
	c := simtest.Counts{}
	for _, e := range r.Timeline.Calls {
		if e.Partial {
			continue
		}
		one := simtest.Count{Calls: 1, Bytes: e.Bytes}
		if e.Result != 0 {
			one.Errors, one.Bytes = 1, 0
		}
		c.Add(simtest.Key{
			TID: r.Threads[e.Thread].TID, Tag: strings.Join(r.Paths[e.Path].Names, "/"), Symbol: r.Symbols[e.Symbol].Name,
		}, one)
	}
	return c
}

// expectEventsAccounted fails unless every call in the rows is in the timeline,
// earlier, or lost to it.
func expectEventsAccounted(t *testing.T, r *recording.Recording) {
	t.Helper()
	events := eventCounts(r).Total().Calls
	lost := losses(r)["timeline_calls_full"]
	if calls := counts(r).Total().Calls; events+r.Timeline.Earlier+lost != calls {
		t.Errorf("%d events + %d earlier + %d lost, but %d calls", events, r.Timeline.Earlier, lost, calls)
	}
}

// expectEventsSumToRows fails unless the events of each row add up to it: number,
// errors, bytes and time.
func expectEventsSumToRows(t *testing.T, r *recording.Recording) {
	t.Helper()
	type key struct {
		thread, path, symbol int
		gil                  recording.GIL
		attribution          recording.Attribution
	}
	type sum struct{ count, errors, wall, cpu, bytes uint64 }
	want, got := map[key]sum{}, map[key]sum{}
	for _, c := range r.Calls {
		k := key{c.Thread, c.Path, c.Symbol, c.GIL, c.Attribution}
		s := want[k]
		want[k] = sum{s.count + c.Count, s.errors + c.Errors, s.wall + c.WallNS, s.cpu + c.CPUNS, s.bytes + c.Bytes}
	}
	for _, e := range r.Timeline.Calls {
		if e.Partial {
			continue
		}
		k := key{e.Thread, e.Path, e.Symbol, e.GIL, e.Attribution}
		s := got[k]
		s.count, s.wall, s.cpu = s.count+1, s.wall+e.WallNS, s.cpu+e.CPUNS
		if e.Result == 0 {
			s.bytes += e.Bytes
		} else {
			s.errors++
		}
		got[k] = s
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(key{}, sum{})); diff != "" {
		t.Errorf("rows and the sums of their events (-rows +events):\n%s", diff)
	}
}

// expectOperationsNumbered fails unless each operation of a stream is of one call,
// and the operations are those of the functions that give work.
func expectOperationsNumbered(t *testing.T, r *recording.Recording) {
	t.Helper()
	type operation struct {
		stream int
		number uint64
	}
	seen := map[operation]bool{}
	for _, e := range r.Timeline.Calls {
		if e.Operation == 0 {
			continue
		}
		o := operation{e.Stream, e.Operation}
		if api := r.Symbols[e.Symbol].API; seen[o] || e.Stream == 0 || e.Result != 0 || e.Partial || waitingAPIs[api] || strings.HasPrefix(api, "cuEvent") {
			t.Errorf("%s is operation %d of stream %d: %+v", api, e.Operation, e.Stream, e)
		}
		seen[o] = true
	}
	if len(seen) == 0 {
		t.Error("no call has given a stream an operation: the test shows nothing")
	}
}

// expectOffSumsToParts fails unless each thread's times off the CPU sum to the
// parts of its stages, to the nanosecond. Which of two parts a thread was in when
// one of our programs was interrupted, only the ledger says.
func expectOffSumsToParts(t *testing.T, r *recording.Recording) {
	t.Helper()
	want, got := map[int]recording.Parts{}, map[int]recording.Parts{}
	for _, s := range r.Stages {
		if s.Thread >= 0 {
			p := s.Parts.Plus(s.PartialParts)
			p.RunningNS, p.CUDACPUNS = 0, 0
			p.RunnableNS, p.CUDABlockedNS = p.RunnableNS+p.CUDABlockedNS, 0
			want[s.Thread] = want[s.Thread].Plus(p)
		}
	}
	for thread, p := range want {
		if p == (recording.Parts{}) {
			delete(want, thread)
		}
	}
	for _, e := range r.Timeline.Off {
		p := got[e.Thread]
		to := map[recording.OffState]*uint64{
			recording.OffGILWait: &p.GILWaitNS, recording.OffRunnable: &p.RunnableNS,
			recording.OffBlockedFutex: &p.BlockedFutexNS, recording.OffBlockedPoll: &p.BlockedPollNS,
			recording.OffBlockedRead: &p.BlockedReadNS, recording.OffBlockedSleep: &p.BlockedSleepNS,
			recording.OffBlockedFault: &p.BlockedFaultNS, recording.OffBlockedOther: &p.BlockedOtherNS,
		}[e.State]
		if e.InCall {
			to = &p.RunnableNS
		}
		*to += e.WallNS
		got[e.Thread] = p
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parts of the threads' time off the CPU, CUDA BLKD as runnable (-ledger +events):\n%s", diff)
	}
}

// At full speed every call is an event, or a loss that is counted.
func TestTimelineEqualsTruth(t *testing.T) {
	for _, threads := range []int{1, 8} {
		t.Run(fmt.Sprintf("%d threads", threads), func(t *testing.T) {
			got, p := runTester(t, agent.Config{Timeline: time.Hour}, simtest.Tester(t, "calls", "--threads", fmt.Sprint(threads),
				"--calls", "20000", "--stages", "4", "--markers", simtest.Markers(t)))
			expectEqual(t, got, p.Truth().Counts())
			if diff := simtest.Diff(p.Truth().Counts(), eventCounts(got)); diff != "" {
				t.Errorf("the events differ from the driver's truth:\n%s", diff)
			}
			if got.Timeline.Earlier != 0 || got.Timeline.StartNS != got.Window.StartNS {
				t.Errorf("the timeline begins at %d with %d calls before, the window at %d", got.Timeline.StartNS, got.Timeline.Earlier, got.Window.StartNS)
			}
			expectEventsSumToRows(t, got)
			expectOperationsNumbered(t, got)
			expectOffSumsToParts(t, got)
		})
	}
}

// A ring buffer that is too small loses events and counts them, and nothing else.
func TestTimelineRoomTooSmall(t *testing.T) {
	for _, threads := range []int{1, 8} {
		t.Run(fmt.Sprintf("%d threads", threads), func(t *testing.T) {
			config := agent.Config{Timeline: time.Hour, TimelineRoom: os.Getpagesize()}
			got, p := runTester(t, config, simtest.Tester(t, "calls", "--threads", fmt.Sprint(threads),
				"--calls", "20000", "--stages", "4", "--markers", simtest.Markers(t)))
			if diff := simtest.Diff(p.Truth().Counts(), counts(got)); diff != "" {
				t.Errorf("the recording differs from the driver's truth:\n%s", diff)
			}
			if losses(got)["timeline_calls_full"] == 0 || len(got.Timeline.Calls) == 0 {
				t.Errorf("%d events, losses %v", len(got.Timeline.Calls), losses(got))
			}
			expectEventsAccounted(t, got)
		})
	}
}

// coveredBy is how many operations calls of a kind have waited for.
func coveredBy(r *recording.Recording) map[debtKey]uint64 {
	type call struct {
		thread int
		begin  uint64
	}
	waits := map[call]*recording.CallEvent{}
	for i := range r.Timeline.Calls {
		c := &r.Timeline.Calls[i]
		waits[call{c.Thread, c.BeginNS}] = c
	}
	covered := map[debtKey]uint64{}
	for _, w := range r.Timeline.Waits {
		wait := waits[call{w.Thread, w.BeginNS}]
		for _, c := range r.Timeline.Calls {
			if c.Stream == w.Stream && c.Operation > w.From && c.Operation <= w.Until {
				covered[waitOf(r, wait.Thread, wait.Path, wait.Symbol)]++
			}
		}
	}
	return covered
}

func waitOf(r *recording.Recording, thread, path, symbol int) debtKey {
	return debtKey{Thread: r.Threads[thread].Name, Path: strings.Join(r.Paths[path].Names, "/"), API: r.Symbols[symbol].API}
}

// The operations that a wait is for, one by one, are as many as the sync debt
// says, whatever streams do.
func TestTimelineWaits(t *testing.T) {
	for _, test := range debtTests {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("SIMCUDA_DEVICES", "2")
			p := startPuppet(t)
			p.order("main stream s", "main event e")
			r, orders := playBefore(t, p, test.orders, agent.Config{PID: p.PID, Probes: "default", Timeline: time.Hour})
			p.order(orders...)
			got := r.interrupt()
			p.end()
			expectNoLosses(t, got)
			want := map[debtKey]uint64{}
			for _, d := range got.Debts {
				operations := d.Operations
				if wait := waitOf(got, d.Thread, d.Path, d.Symbol); strings.HasPrefix(wait.API, "cuMemcpy") && d.Owner == d.Path {
					operations -= d.Waits // such a copy is an operation itself, which no other call has given
				}
				if operations > 0 {
					want[waitOf(got, d.Thread, d.Path, d.Symbol)] += operations
				}
			}
			for key := range want {
				want[key] -= test.beyond
			}
			if diff := cmp.Diff(want, coveredBy(got)); diff != "" {
				t.Errorf("operations that calls waited for (-debts +events):\n%s", diff)
			}
		})
	}
}

// Without sync debt nothing is known of streams.
func TestTimelineWithoutSyncDebt(t *testing.T) {
	p := startPuppet(t)
	r := record(t, agent.Config{PID: p.PID, NoSyncDebt: true, Timeline: time.Hour})
	p.order("main stream s", "main enqueue s 3", "main sync s")
	got := r.interrupt()
	p.end()
	expectEventsSumToRows(t, got)
	for _, e := range got.Timeline.Calls {
		if e.Stream != 0 || e.Operation != 0 {
			t.Errorf("%+v", e)
		}
	}
	if len(got.Timeline.Waits) > 0 {
		t.Errorf("waits: %+v", got.Timeline.Waits)
	}
}

// partials are the calls of a timeline that are cut, by thread.
func partials(r *recording.Recording) map[string]recording.CallEvent {
	cut := map[string]recording.CallEvent{}
	for _, e := range r.Timeline.Calls {
		if e.Partial {
			cut[r.Threads[e.Thread].Name] = e
		}
	}
	return cut
}

// What is open at the window's edges is cut there, and says so.
func TestTimelineEdges(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w", "main start asleep", "w begin early", "main process-begin epoch")
	awaitSleep(t, p.PID, "asleep")
	r := record(t, agent.Config{PID: p.PID, Timeline: time.Hour})
	p.order("w launch 3", "w begin inner", "main process-begin run", "main process-end")
	file := filepath.Join(t.TempDir(), "go")
	p.tell("w pause " + file)
	p.WaitLine("inside")
	got := r.interrupt()
	touch(t, file)
	p.end()

	expectAccounted(t, got)
	expectEventsAccounted(t, got)
	expectEventsSumToRows(t, got)
	expectOffSumsToParts(t, got)
	end := got.Window.StartNS + uint64(got.Window.Duration)
	cut := partials(got)
	call, ok := cut["w"]
	if len(cut) != 1 || !ok || got.Symbols[call.Symbol].Name != "cuStreamQuery" || call.BeginNS+call.WallNS != end ||
		strings.Join(got.Paths[call.Path].Names, "/") != "early/inner" {
		t.Errorf("calls that are cut: %+v", cut)
	}
	for _, e := range got.Timeline.Off {
		if name := got.Threads[e.Thread].Name; name == "asleep" && (!e.Partial || e.State != recording.OffBlockedFutex || e.BeginNS != got.Window.StartNS || e.BeginNS+e.WallNS != end) {
			t.Errorf("%s: %+v", name, e)
		}
	}
	type span struct {
		path    string
		partial bool
	}
	var process []span
	for _, s := range got.Timeline.Spans {
		if s.Thread != -1 {
			t.Errorf("a span that is among the others: %+v", s)
		}
		process = append(process, span{strings.Join(got.Paths[s.Path].Names, "/"), s.Partial})
	}
	if diff := cmp.Diff([]span{{"epoch/run", false}, {"epoch", true}}, process, cmp.AllowUnexported(span{})); diff != "" {
		t.Errorf("spans of the process (-want +got):\n%s", diff)
	}
	if len(got.Spans) != 2 {
		t.Errorf("spans: %+v", got.Spans)
	}
}

// Threads that end in a call leave it cut.
func TestTimelineOfEndedThreads(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w", "main start v", "w begin step")
	r := record(t, agent.Config{PID: p.PID, Timeline: time.Hour})
	p.order("w launch 5", "v launch 2", "v exit")
	p.tell("w hang")
	p.WaitLine("inside")
	p.Kill()
	got := r.finish()
	expectEventsAccounted(t, got)
	expectEventsSumToRows(t, got)
	cut := partials(got)
	if call, ok := cut["w"]; len(cut) != 1 || !ok || got.Symbols[call.Symbol].Name != "cuStreamQuery" || call.WallNS == 0 {
		t.Errorf("calls that are cut: %+v, losses %v", cut, losses(got))
	}
}

// Only the last part of the window is kept, and what came before is counted.
func TestTimelineWindow(t *testing.T) {
	p := startPuppet(t)
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID, Timeline: time.Nanosecond})
	p.order("main begin step", "main launch 7", "main end")
	got := r.interrupt()
	expectEqual(t, got, since(baseline, p.end().Counts()))
	expectEventsAccounted(t, got)
	if got.Timeline.Earlier != 7 || len(got.Timeline.Calls) != 0 || got.Timeline.StartNS != got.Window.StartNS+uint64(got.Window.Duration)-1 {
		t.Errorf("%+v", got.Timeline)
	}
}

// What the ledger has of a time off the CPU whose end nobody saw is an event, also of
// a thread that ends then.
func TestTimelineOfASwitchThatNobodySaw(t *testing.T) {
	for _, order := range []string{"launch 1", "end", "exit"} {
		t.Run(order, func(t *testing.T) {
			p := startPuppet(t)
			p.order("main start w")
			l := openSession(t, agent.Config{PID: p.PID, Probes: "all", Timeline: time.Hour})
			p.order("w begin step")
			awaitSleep(t, p.PID, "w")
			l.unseen(l.SeeOnlyWakeups, func() { p.order("w " + order) })
			p.end()
			got := l.finish(nil)
			expectParts(t, got)
			expectEventsSumToRows(t, got)
			expectOffSumsToParts(t, got)
			if step := timesByPath(got)["[step]"].Parts; step.BlockedFutexNS == 0 {
				t.Errorf("the thread has not slept: the test shows nothing: %+v", step)
			}
		})
	}
}

// awaitSleep waits until a thread has left the CPU to wait for something.
func awaitSleep(t *testing.T, pid int, name string) {
	t.Helper()
	path := fmt.Sprintf("/proc/%d/task/%d/wchan", pid, threadID(t, pid, name))
	simtest.Eventually(t, fmt.Sprintf("thread %q sleeps", name), func() bool {
		channel, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(channel) != "0"
	})
}

func TestTimelineOfGILWait(t *testing.T) {
	script, err := filepath.Abs("testdata/gilwait.py")
	if err != nil {
		t.Fatal(err)
	}
	command := simtest.Command{Path: interpreters(t)[0], Args: []string{script, simtest.Driver(t), "5"}}
	got, _ := runTester(t, agent.Config{Timeline: time.Hour}, command.With(
		"PYTHONPATH="+filepath.Join(simtest.Root(t), "build/python"), "SIMCUDA_SCHED=block"))
	expectEventsSumToRows(t, got)
	expectOffSumsToParts(t, got)
	waited := uint64(0)
	for _, e := range got.Timeline.Off {
		if e.State == recording.OffGILWait && !e.InCall {
			waited += e.WallNS
		}
	}
	if waited == 0 {
		t.Error("no thread has waited for the GIL: the test shows nothing")
	}
}

func TestTimelineConfig(t *testing.T) {
	for name, c := range map[string]agent.Config{
		"negative":      {Timeline: -1},
		"long":          {Timeline: 2 * agent.MaxDuration},
		"live":          {Timeline: 1, Live: true},
		"odd room":      {Timeline: 1, TimelineRoom: 5000},
		"less than one": {Timeline: 1, TimelineRoom: 1024},
		"too much room": {Timeline: 1, TimelineRoom: 2 << 30},
	} {
		c.PID = 1
		if err := c.Validate(); !errors.Is(err, agent.ErrUsage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Of calls in which the window's end finds many threads, the time off the CPU is
// that of their events.
func TestTimelineOfManyCallsInProgress(t *testing.T) {
	const threads = 60
	file := filepath.Join(t.TempDir(), "go")
	p := startPuppet(t)
	for i := range threads {
		p.order(fmt.Sprintf("main start w%d", i))
	}
	r := record(t, agent.Config{PID: p.PID, Timeline: time.Hour})
	for i := range threads {
		p.tell(fmt.Sprintf("w%d pause %s", i, file))
	}
	p.WaitLines("inside", threads)
	got := r.interrupt()
	touch(t, file)
	p.end()
	cut := partials(got)
	off := map[string]uint64{}
	for _, e := range got.Timeline.Off {
		if name := got.Threads[e.Thread].Name; e.InCall && e.BeginNS >= cut[name].BeginNS {
			off[name] += e.WallNS
		}
	}
	for name, call := range cut {
		if call.BeginNS >= got.Timeline.StartNS && call.WallNS-call.CPUNS != off[name] {
			t.Errorf("%s: a call of %d ns was on the CPU for %d ns, but its events say that it was off for %d ns", name, call.WallNS, call.CPUNS, off[name])
		}
	}
	if len(cut) != threads {
		t.Errorf("%d calls are cut", len(cut))
	}
}
