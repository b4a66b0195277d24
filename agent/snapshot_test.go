package agent_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stageprof/agent"
	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// live is a recording that is looked at, or meddled with, while it runs.
type live struct {
	*agent.Session
	t     *testing.T
	final chan result
}

func openLive(t *testing.T, pid int) *live {
	t.Helper()
	return openLiveWith(t, agent.Config{PID: pid, Probes: "all"})
}

func openLiveWith(t *testing.T, config agent.Config) *live {
	t.Helper()
	config.Live = true
	return openSession(t, config)
}

func openSession(t *testing.T, config agent.Config) *live {
	t.Helper()
	session, err := agent.Open(t.Context(), config)
	if err != nil {
		t.Fatalf("opening: %v", err)
	}
	l := &live{session, t, make(chan result, 1)}
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		r, err := session.Wait(t.Context())
		l.final <- result{r, err}
	}()
	t.Cleanup(func() {
		<-waited // t's context is done by now
		if err := session.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return l
}

// unseen lets something happen while the kernel side does not see threads being
// switched.
func (l *live) unseen(blind func() (undo func() error, err error), happen func()) {
	l.t.Helper()
	undo, err := blind()
	if err != nil {
		l.t.Fatal(err)
	}
	happen()
	if err := undo(); err != nil {
		l.t.Fatal(err)
	}
}

func (l *live) snapshot() *recording.Recording {
	l.t.Helper()
	r, err := l.Snapshot()
	if err != nil {
		l.t.Fatalf("taking a snapshot: %v", err)
	}
	return r
}

// finish waits for the target's end. If there is something to do with each, it takes
// snapshots one after the other.
func (l *live) finish(each func(*recording.Recording)) *recording.Recording {
	l.t.Helper()
	var tick <-chan time.Time
	if each != nil {
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		tick = ticker.C
	}
	patience := time.After(simtest.Patience)
	for {
		select {
		case got := <-l.final:
			if got.err != nil {
				l.t.Fatalf("recording: %v", got.err)
			}
			return got.recording
		case <-tick:
			each(l.snapshot())
		case <-patience:
			l.t.Fatal("the recording does not end")
		}
	}
}

// since is what happened between two snapshots.
func (l *live) since(earlier, later *recording.Recording) *recording.Recording {
	l.t.Helper()
	r, err := correlate.Since(earlier, later)
	if err != nil {
		l.t.Fatalf("subtracting snapshots: %v", err)
	}
	return r
}

// stageTimes is a stage's time in and outside of its children, of all spans.
type stageTimes struct {
	Spans uint64
	Wall  uint64
	Child uint64
	CPU   uint64
	Parts recording.Parts
}

// timesOf sums a Recording's stages by thread and path; the number of spans is
// that of those that have ended.
func timesOf(r *recording.Recording) map[string]stageTimes {
	sums := map[string]stageTimes{}
	key := func(thread, path int) string {
		name := "process"
		if thread >= 0 {
			name = fmt.Sprint(r.Threads[thread].Serial)
		}
		return fmt.Sprint(name, r.Paths[path].Names)
	}
	for _, s := range r.Stages {
		addTimes(sums, key(s.Thread, s.Path), stageTimes{
			Spans: s.Count + s.PartialCount, Wall: s.WallNS + s.PartialWallNS, Child: s.ChildNS + s.PartialChildNS,
			CPU: s.CPUNS + s.PartialCPUNS, Parts: s.Parts.Plus(s.PartialParts),
		})
	}
	for _, s := range r.Open {
		k := key(s.Thread, s.Path)
		sum := sums[k]
		sum.Spans--
		sums[k] = sum
	}
	return sums
}

// timesByPath is timesOf for all threads together.
func timesByPath(r *recording.Recording) map[string]stageTimes {
	sums := map[string]stageTimes{}
	for key, s := range timesOf(r) {
		addTimes(sums, key[strings.Index(key, "["):], s)
	}
	return sums
}

func addTimes(sums map[string]stageTimes, key string, s stageTimes) {
	sum := sums[key]
	sum.Spans += s.Spans
	sum.Wall += s.Wall
	sum.Child += s.Child
	sum.CPU += s.CPU
	sum.Parts = sum.Parts.Plus(s.Parts)
	sums[key] = sum
}

func TestSnapshotsSumToTheRecording(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "calls",
		"--threads", "8", "--calls", "40000", "--stages", "3", "--markers", simtest.Markers(t)))
	p.WaitLine("up")
	l := openLive(t, p.PID)
	before := l.snapshot()
	p.Ready()

	sums, calls, snapshots := timesOf(before), simtest.Counts{}, 0
	add := func(r *recording.Recording) {
		expectAccounted(t, r)
		part := l.since(before, r)
		expectAccounted(t, part)
		expectParts(t, part)
		for key, s := range timesOf(part) {
			addTimes(sums, key, s)
		}
		for k, n := range counts(part) {
			calls.Add(k, n)
		}
		before = r
		snapshots++
	}
	final := l.finish(add)
	add(final)
	p.Wait()
	if snapshots < 5 {
		t.Errorf("%d snapshots", snapshots)
	}
	expectEqual(t, final, p.Truth().Counts())
	if diff := simtest.Diff(counts(final), calls); diff != "" {
		t.Errorf("the intervals do not sum to the recording:\n%s", diff)
	}
	for key, want := range timesOf(final) {
		if got := sums[key]; got != want {
			t.Errorf("stage %s: the intervals sum to\n%+v, the recording has\n%+v", key, got, want)
		}
	}
}

// What is seen before a snapshot and noted after it, because the thread or its
// processor was held up in between, counts from the snapshot on: that has told
// already what went before.
func TestSnapshotComesBeforeWhatIsNotedLater(t *testing.T) {
	ahead := 100 * time.Millisecond
	for !comesBeforeWhatIsNotedLater(t, ahead) { // on a slow machine
		ahead *= 2
	}
}

// comesBeforeWhatIsNotedLater has the kernel side believe in a snapshot so far
// ahead, and returns whether everything was done by then.
func comesBeforeWhatIsNotedLater(t *testing.T, ahead time.Duration) bool {
	t.Helper()
	p := startPuppet(t)
	p.order("main start w")
	l := openLive(t, p.PID)
	p.order("w begin step", "main process-begin epoch")
	moment := agent.Monotonic() + uint64(ahead)
	if err := l.SetPeekedUntil(moment); err != nil {
		t.Fatal(err)
	}
	p.order("w launch 1", "main process-end")
	first := l.snapshot()
	if agent.Monotonic() >= moment {
		p.end()
		return false
	}
	for _, s := range first.Open {
		if end := s.BeginNS + s.WallNS; end != moment {
			t.Errorf("%v is accounted for until %d ns after the moment", first.Paths[s.Path].Names, int64(end-moment))
		}
	}
	for _, s := range first.Stages {
		if s.Thread == -1 && (s.Count != 1 || s.WallNS == 0) {
			t.Errorf("the process's stage: %+v", s)
		}
	}
	for _, c := range first.Calls {
		if c.Count != 1 || c.WallNS != 0 {
			t.Errorf("a call that began and ended before the moment: %+v", c)
		}
	}
	if len(first.Open) != 1 || len(first.Calls) != 1 {
		t.Errorf("%d open stages, %d calls", len(first.Open), len(first.Calls))
	}
	for agent.Monotonic() < moment {
		p.order("w launch 1")
	}
	p.order("w end")
	p.end()
	expectParts(t, l.since(first, l.finish(func(*recording.Recording) {})))
	return true
}

// The kernel now and then passes a switch without its tracepoint: a thread that is
// taken to be waiting runs. What a snapshot has told of the wait stays told.
func TestSnapshotComesBeforeASwitchThatNobodySaw(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	l := openLive(t, p.PID)
	p.order("w begin step")
	file := filepath.Join(t.TempDir(), "go")
	p.tell("w pause " + file)
	p.WaitLine("inside")

	blocked := func(r *recording.Recording) uint64 { return timesByPath(r)["[step]"].Parts.CUDABlockedNS }
	var told *recording.Recording
	var undo func() error
	simtest.Eventually(t, "the kernel side is blind while the thread waits", func() bool {
		var err error
		if undo, err = l.BlindToSwitches(); err != nil {
			t.Fatal(err)
		}
		before := l.snapshot()
		told = l.snapshot()
		if blocked(told) > blocked(before) {
			return true
		}
		if err := undo(); err != nil {
			t.Fatal(err)
		}
		return false
	})
	touch(t, file)
	p.order("w end")
	if err := undo(); err != nil {
		t.Fatal(err)
	}
	p.end()
	final := l.finish(func(*recording.Recording) {})
	expectParts(t, final)
	if blocked(final) < blocked(told) {
		t.Errorf("%d ns of waiting in calls, and %d ns by the snapshot before", blocked(final), blocked(told))
	}
}

// What is open, and what is running, at the moment of a snapshot.
func TestSnapshotOfWhatIsOpen(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w", "main start early", "early begin before")
	l := openLive(t, p.PID)
	p.order("w begin outer", "w begin inner", "w launch 3", "main process-begin epoch")
	first := l.snapshot()
	expectNoLosses(t, first)
	expectParts(t, first)
	if got := launchCount(first); got != 3 {
		t.Errorf("%d launches", got)
	}
	open := map[stageKey]spanCount{{"w", "outer"}: {0, 1}, {"w", "outer/inner"}: {0, 1}, {"early", "before"}: {0, 1}, {"", "epoch"}: {0, 1}}
	expectSpanCounts(t, first, open)
	if len(first.Open) != len(open) || len(first.Spans) != 0 {
		t.Errorf("open: %+v, closed: %+v", first.Open, first.Spans)
	}

	file := filepath.Join(t.TempDir(), "go")
	p.tell("w pause " + file)
	p.WaitLine("inside")
	second := l.snapshot()
	expectAccounted(t, second)
	if diff := cmp.Diff(map[string]uint64{recording.LossInFlight: 1}, losses(second)); diff != "" {
		t.Errorf("losses while a call runs (-want +got):\n%s", diff)
	}
	touch(t, file)
	p.order("early end", "w end", "w begin inner", "w end")

	third := l.snapshot()
	part := l.since(second, third)
	expectNoLosses(t, part)
	expectParts(t, part)
	if part.Seen.Calls != 1 || launchCount(part) != 0 {
		t.Errorf("%d calls seen, %d launches", part.Seen.Calls, launchCount(part))
	}
	expectSpanCounts(t, part, map[stageKey]spanCount{
		{"w", "outer"}: {0, 1}, {"w", "outer/inner"}: {1, 1}, {"early", "before"}: {0, 1}, {"", "epoch"}: {0, 1},
	})
	p.order("main process-end", "w end")
	p.end()
	final := l.finish(func(*recording.Recording) {})
	expectSpanCounts(t, final, map[stageKey]spanCount{
		{"w", "outer"}: {1, 0}, {"w", "outer/inner"}: {2, 0}, {"early", "before"}: {0, 1}, {"", "epoch"}: {1, 0},
	})
	expectSpanCounts(t, l.since(third, final), map[stageKey]spanCount{{"w", "outer"}: {0, 1}, {"", "epoch"}: {1, 0}})
	if again := l.snapshot(); again != final {
		t.Error("a snapshot after the end is not what Wait returned")
	}
}

func expectSpanCounts(t *testing.T, r *recording.Recording, want map[stageKey]spanCount) {
	t.Helper()
	got := map[stageKey]spanCount{}
	for key, s := range stageRows(t, r) {
		got[key] = spanCount{s.Count, s.PartialCount}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

// The rows of threads that have ended leave the kernel's tables, also more of
// them than these could hold at once, and all calls are still there.
func TestEndedThreadsAreFolded(t *testing.T) {
	const threads, calls = 12000, 3
	p := simtest.Start(t, simtest.Tester(t, "churn", "--threads", fmt.Sprint(threads), "--at-once", "16", "--calls", fmt.Sprint(calls),
		"--markers", simtest.Markers(t)))
	p.WaitLine("up")
	l := openLive(t, p.PID)
	p.Ready()
	before := l.snapshot()
	sums, times := counts(before).By(simtest.BySymbol), timesByPath(before)
	add := func(r *recording.Recording) {
		part := l.since(before, r)
		expectParts(t, part)
		for k, n := range counts(part).By(simtest.BySymbol) {
			sums.Add(k, n)
		}
		for path, s := range timesByPath(part) {
			addTimes(times, path, s)
		}
		before = r
	}
	final := l.finish(add)
	add(final)
	p.Wait()
	if diff := cmp.Diff(timesByPath(final), times); diff != "" {
		t.Errorf("times of stages (-the recording +the sum of its intervals):\n%s", diff)
	}
	truth := p.Truth().Counts().By(simtest.BySymbol)
	for what, got := range map[string]simtest.Counts{"the recording": counts(final).By(simtest.BySymbol), "the sum of its intervals": sums} {
		if diff := simtest.Diff(truth, got); diff != "" {
			t.Errorf("%s differs from the driver's truth:\n%s", what, diff)
		}
	}
	expectAccounted(t, final)
	folded, ended := uint64(0), uint64(0)
	for _, s := range final.Stages {
		if len(final.Paths[s.Path].Names) > 0 {
			ended += s.Count
			if final.Threads[s.Thread].Folded {
				folded += s.Count
			}
		}
	}
	if ended != threads || folded == 0 || len(final.Calls)+len(final.Stages) > 2048+100 {
		t.Errorf("%d threads' stages, %d of them folded, in %d and %d rows", ended, folded, len(final.Calls), len(final.Stages))
	}
}

// Threads are named whose spans the agent has yet to take from the kernel side
// when their rows are folded.
func TestFoldedThreadsKeepTheNamesOfTheirSpans(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "churn", "--threads", "1500", "--at-once", "16", "--calls", "3",
		"--markers", simtest.Markers(t)))
	p.WaitLine("up")
	session, err := agent.Open(t.Context(), agent.Config{PID: p.PID, Probes: "all", Live: true})
	if err != nil {
		t.Fatalf("opening: %v", err)
	}
	defer session.Close()
	p.Ready()
	p.Wait()
	r, err := session.Snapshot()
	if err != nil {
		t.Fatalf("taking a snapshot: %v", err)
	}
	if len(r.Spans) < 1500 || !slices.ContainsFunc(r.Threads, func(th recording.Thread) bool { return th.Folded }) {
		t.Errorf("%d spans of %d threads", len(r.Spans), len(r.Threads))
	}
	for _, s := range r.Spans {
		if th := r.Threads[s.Thread]; th.TID == 0 || th.Name == "" {
			t.Fatalf("a span of the thread %+v", th)
		}
	}
}

func TestSnapshotAfterClose(t *testing.T) {
	p := startPuppet(t)
	session, err := agent.Open(t.Context(), agent.Config{PID: p.PID, Probes: "launch"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := session.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	}
	if _, err := session.Snapshot(); !errors.Is(err, agent.ErrClosed) {
		t.Errorf("a snapshot of a closed recording: %v", err)
	}
	p.end()
}
