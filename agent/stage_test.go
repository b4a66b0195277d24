package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stageprof/agent"
	"stageprof/bpf"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// spanCount is how many spans of a stage were seen, whole and in part.
type spanCount struct{ Whole, Partial uint64 }

// stageKey names a stage by its thread's name ("" for the process) and path.
type stageKey struct{ Thread, Path string }

// stageRows indexes a Recording's stages; each key must be there once. The
// rows of the time outside any stage are left out.
func stageRows(t *testing.T, r *recording.Recording) map[stageKey]recording.Stage {
	t.Helper()
	rows := map[stageKey]recording.Stage{}
	for _, s := range r.Stages {
		if len(r.Paths[s.Path].Names) == 0 {
			continue
		}
		key := stageKey{Path: strings.Join(r.Paths[s.Path].Names, "/")}
		if s.Thread >= 0 {
			key.Thread = r.Threads[s.Thread].Name
		}
		if _, twice := rows[key]; twice {
			t.Errorf("two rows for the stage %+v", key)
		}
		rows[key] = s
	}
	return rows
}

// expectSpans fails unless a Recording holds these spans, in its totals and one
// by one, with the same times in both.
func expectSpans(t *testing.T, r *recording.Recording, want map[stageKey]spanCount) {
	t.Helper()
	got := map[stageKey]spanCount{}
	for key, s := range stageRows(t, r) {
		got[key] = spanCount{s.Count, s.PartialCount}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	expectSpansInTotals(t, r)
	expectPartition(t, r)
}

// stageTotal is what the spans of a stage sum to.
type stageTotal struct{ Whole, Partial, WallNS, PartialWallNS uint64 }

// expectSpansInTotals compares the spans that were kept one by one with the
// totals. Stages of the whole process have totals only. If spans were not kept,
// which is no fault on a slow machine, their number must be the missing one.
func expectSpansInTotals(t *testing.T, r *recording.Recording) {
	t.Helper()
	if lost := losses(r)["spans_not_kept"] + losses(r)["span_records_full"]; lost > 0 {
		if held, _ := spans(r); uint64(len(r.Spans))+lost != held {
			t.Errorf("%d spans, %d of them one by one, losses %v", held, len(r.Spans), losses(r))
		}
		return
	}
	type key struct{ thread, path int }
	want, got := map[key]stageTotal{}, map[key]stageTotal{}
	for _, s := range r.Stages {
		if s.Thread >= 0 && len(r.Paths[s.Path].Names) > 0 {
			want[key{s.Thread, s.Path}] = stageTotal{s.Count, s.PartialCount, s.WallNS, s.PartialWallNS}
		}
	}
	for _, s := range r.Spans {
		k := key{s.Thread, s.Path}
		total := got[k]
		if s.Partial {
			total.Partial++
			total.PartialWallNS += s.WallNS
		} else {
			total.Whole++
			total.WallNS += s.WallNS
		}
		got[k] = total
		if s.BeginNS < r.Window.StartNS || s.BeginNS+s.WallNS > r.Window.StartNS+uint64(r.Window.Duration) {
			t.Errorf("a span reaches out of the window: %+v", s)
		}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(key{})); diff != "" {
		t.Errorf("totals of spans (-rows +spans):\n%s", diff)
	}
}

// attributions sums a Recording's calls by attribution and stage path.
func attributions(r *recording.Recording) map[string]uint64 {
	sums := map[string]uint64{}
	for _, c := range r.Calls {
		sums[fmt.Sprintf("%s %s", c.Attribution, strings.Join(r.Paths[c.Path].Names, "/"))] += c.Count
	}
	return sums
}

func TestCaseC02NestedStages(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	r := record(t, agent.Config{PID: p.PID})
	baseline := p.truthSoFar().Counts()
	for range 5 {
		p.order("w begin step", "w launch 10", "w begin forward", "w launch 100", "w begin attention", "w launch 1000",
			"w end", "w end", "w begin backward", "w launch 100", "w end", "w end")
	}
	got := r.interrupt()
	expectEqual(t, got, since(baseline, p.end().Counts()))
	expectSpans(t, got, map[stageKey]spanCount{
		{"w", "step"}:                   {5, 0},
		{"w", "step/forward"}:           {5, 0},
		{"w", "step/forward/attention"}: {5, 0},
		{"w", "step/backward"}:          {5, 0},
	})
	expectWholeSums(t, got, "w")
	expectSpanCalls(t, got)
}

// expectSpanCalls fails unless the calls of the spans are those of the rows.
// No span may have more kinds of calls than are kept.
func expectSpanCalls(t *testing.T, r *recording.Recording) {
	t.Helper()
	type key struct{ thread, path, symbol int }
	want, got := map[key]uint64{}, map[key]uint64{}
	for _, c := range r.Calls {
		if c.Attribution == recording.AttributionOwn {
			want[key{c.Thread, c.Path, c.Symbol}] += c.Count
		}
	}
	for _, s := range r.Spans {
		for _, c := range s.Calls {
			got[key{s.Thread, s.Path, c.Symbol}] += c.Count
		}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(key{})); diff != "" {
		t.Errorf("calls (-rows +spans):\n%s", diff)
	}
}

// expectWholeSums checks that a thread's stages partition the time of their
// parents: a stage's time in children is the time of its children.
func expectWholeSums(t *testing.T, r *recording.Recording, thread string) {
	t.Helper()
	rows := stageRows(t, r)
	children := map[string]uint64{}
	for key, s := range rows {
		if at := strings.LastIndex(key.Path, "/"); at >= 0 && key.Thread == thread {
			children[key.Path[:at]] += s.WallNS + s.PartialWallNS
		}
	}
	for key, s := range rows {
		if key.Thread != thread {
			continue
		}
		wall, child, cpu := s.WallNS+s.PartialWallNS, s.ChildNS+s.PartialChildNS, s.CPUNS+s.PartialCPUNS
		if child != children[key.Path] {
			t.Errorf("%q spent %d ns in child stages, they took %d ns", key.Path, child, children[key.Path])
		}
		if wall == 0 || child > wall || cpu > wall {
			t.Errorf("%q: wall %d, child %d, cpu %d ns", key.Path, wall, child, cpu)
		}
	}
}

// since takes from a truth what an earlier one held.
func since(earlier, all simtest.Counts) simtest.Counts {
	rest := simtest.Counts{}
	for k, n := range all {
		e := earlier[k]
		rest.Add(k, simtest.Count{Calls: n.Calls - e.Calls, Errors: n.Errors - e.Errors, Bytes: n.Bytes - e.Bytes})
	}
	return rest
}

func TestCaseC13AttachInMidStage(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w", "w begin step", "w begin forward", "w launch 7")
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	// The first call comes before any marker: the registry alone tells its stage.
	p.order("w launch 10", "w end", "w launch 20", "w begin backward", "w launch 30", "w end", "w end", "w launch 40",
		"w begin step", "w launch 50", "w end")
	got := r.interrupt()
	expectEqual(t, got, since(baseline, p.end().Counts()))
	expectSpans(t, got, map[stageKey]spanCount{
		{"w", "step/forward"}:  {0, 1},
		{"w", "step/backward"}: {1, 0},
		{"w", "step"}:          {1, 1},
	})
	expectWholeSums(t, got, "w")
}

// The same, with a marker as the first that is heard of the thread.
func TestCaseC13AttachInMidStageThenMarker(t *testing.T) {
	for _, marker := range []string{"w end", "w begin attention"} {
		t.Run(marker, func(t *testing.T) {
			p := startPuppet(t)
			p.order("main start w", "w begin step", "w begin forward")
			baseline := p.truthSoFar().Counts()
			r := record(t, agent.Config{PID: p.PID})
			p.order(marker, "w launch 10", "w end", "w launch 20")
			got := r.interrupt()
			expectEqual(t, got, since(baseline, p.end().Counts()))
			expectWholeSums(t, got, "w")
			rows := stageRows(t, got)
			for _, path := range []string{"step", "step/forward"} {
				if s := rows[stageKey{"w", path}]; s.Count != 0 || s.PartialCount != 1 {
					t.Errorf("%q: %d whole and %d partial spans", path, s.Count, s.PartialCount)
				}
			}
		})
	}
}

func TestCaseC13DetachInMidStage(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	p.order("w begin step", "w launch 10", "w begin forward", "w launch 20")
	got := r.interrupt()
	want := since(baseline, p.truthSoFar().Counts())
	p.order("w end", "w launch 5", "w end")
	p.end()
	expectEqual(t, got, want)
	expectSpans(t, got, map[stageKey]spanCount{
		{"w", "step"}:         {0, 1},
		{"w", "step/forward"}: {0, 1},
	})
	expectWholeSums(t, got, "w")
}

// A thread that neither enters nor leaves a stage nor calls is in it for the
// whole window.
func TestCaseC13BlockedInStage(t *testing.T) {
	p := startPuppet(t)
	p.order("main start getter", "getter begin step", "getter begin queue_get", "main start w")
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	p.order("w begin step", "w launch 100", "w end")
	got := r.interrupt()
	expectEqual(t, got, since(baseline, p.end().Counts()))
	expectSpans(t, got, map[stageKey]spanCount{
		{"w", "step"}:                {1, 0},
		{"getter", "step"}:           {0, 1},
		{"getter", "step/queue_get"}: {0, 1},
	})
	rows := stageRows(t, got)
	window := uint64(got.Window.Duration)
	inner, outer := rows[stageKey{"getter", "step/queue_get"}], rows[stageKey{"getter", "step"}]
	if inner.PartialWallNS != window || outer.PartialWallNS != window || outer.PartialChildNS != window {
		t.Errorf("in a window of %d ns: inner %+v, outer %+v", window, inner, outer)
	}
	if inner.PartialCPUNS != 0 || outer.PartialCPUNS != 0 {
		t.Errorf("a sleeping thread ran for %d and %d of %d ns: %+v", inner.PartialCPUNS, outer.PartialCPUNS, window, inner.PartialParts)
	}
}

func TestProcessStages(t *testing.T) {
	for _, open := range []string{"before", "during"} {
		t.Run("opened "+open+" the window", func(t *testing.T) {
			p := startPuppet(t)
			p.order("main start w", "main start v")
			if open == "before" {
				p.order("main process-begin epoch", "main process-begin warmup")
			}
			r := record(t, agent.Config{PID: p.PID})
			if open == "during" {
				p.order("v launch 3", "main process-begin epoch", "main process-begin warmup")
			}
			p.order("w launch 10", "w begin own", "w launch 20", "w end",
				"w process-end", "v launch 40", "v process-end", "v launch 5")
			got := r.interrupt()
			p.end()
			want := map[string]uint64{
				"process epoch/warmup": 10, "own own": 20, "process epoch": 40, "none ": 5,
			}
			spans := map[stageKey]spanCount{
				{"w", "own"}: {1, 0}, {"", "epoch"}: {0, 1}, {"", "epoch/warmup"}: {0, 1},
			}
			if open == "during" {
				want["none "] += 3
				spans[stageKey{"", "epoch"}] = spanCount{1, 0}
				spans[stageKey{"", "epoch/warmup"}] = spanCount{1, 0}
			}
			if diff := cmp.Diff(want, attributions(got)); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			expectSpans(t, got, spans)
			expectNoLosses(t, got)
		})
	}
}

// Several threads are in different stages at the same time, and each call has
// its own thread's.
func TestStagesOfThreadsAtOnce(t *testing.T) {
	const threads = 12
	p := startPuppet(t)
	var start, begin, launch, end []string
	spans := map[stageKey]spanCount{}
	for i := range threads {
		w := fmt.Sprintf("w%d", i)
		start = append(start, "main start "+w)
		begin = append(begin, fmt.Sprintf("%s begin stage%d", w, i), w+" begin shared")
		launch = append(launch, fmt.Sprintf("%s launch %d", w, i+1))
		end = append(end, w+" end", fmt.Sprintf("%s launch %d", w, 2*i+1), w+" end")
		spans[stageKey{w, fmt.Sprintf("stage%d", i)}] = spanCount{3, 0}
		spans[stageKey{w, fmt.Sprintf("stage%d/shared", i)}] = spanCount{3, 0}
	}
	p.order(start...)
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	for range 3 {
		p.order(begin...)
		p.order(launch...)
		p.order(launch...)
		p.order(end...)
	}
	got := r.interrupt()
	expectEqual(t, got, since(baseline, p.end().Counts()))
	expectSpans(t, got, spans)
}

// The marker library is opened after the probes went in.
func TestLateMarkers(t *testing.T) {
	p := startPuppetWithoutMarkers(t)
	p.order("main start w")
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	p.order("w launch 5", "main markers "+simtest.Markers(t))
	awaitMarkers(t, p.PID)
	p.order("w begin step", "w launch 10", "w end", "w begin step", "w launch 10", "w end")
	got := r.interrupt()
	expectEqual(t, got, since(baseline, p.end().Counts()))
	expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {2, 0}})
}

func TestCaseC23MissingStage(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	for i := range 6 {
		p.order("w begin step", "w begin forward", "w launch 10", "w end")
		if i%2 == 0 {
			p.order("w begin backward", "w launch 20", "w end")
		} else {
			p.order("w launch 20")
		}
		p.order("w end")
	}
	got := r.interrupt()
	expectEqual(t, got, since(baseline, p.end().Counts()))
	expectSpans(t, got, map[stageKey]spanCount{
		{"w", "step"}: {6, 0}, {"w", "step/forward"}: {6, 0}, {"w", "step/backward"}: {3, 0},
	})
}

// The training code forgets an end; the enclosing scope heals it.
func TestCaseC23ForgottenEnd(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	p.order("w begin step", "w begin forward", "w launch 10", "w end-to 0", "w launch 3", "w begin step", "w launch 20", "w end")
	got := r.interrupt()
	expectEqual(t, got, since(baseline, p.end().Counts()))
	expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {2, 0}, {"w", "step/forward"}: {1, 0}})
}

// The end marker itself is missed. The stage is closed at the next marker, as a
// partial one, and the loss is said.
func TestCaseC23LostEndMarker(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	r := record(t, agent.Config{PID: p.PID})
	p.order("w begin step", "w begin forward", "w launch 10", "w forget",
		"w begin backward", "w launch 20", "w end", "w end", "w begin step", "w begin forward", "w end", "w end")
	got := r.interrupt()
	p.end()
	if diff := cmp.Diff(map[string]uint64{"own step/forward": 10, "own step/backward": 20}, attributions(got)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	expectSpans(t, got, map[stageKey]spanCount{
		{"w", "step"}: {2, 0}, {"w", "step/forward"}: {1, 1}, {"w", "step/backward"}: {1, 0},
	})
	if diff := cmp.Diff(map[string]uint64{"missed_stage_end": 1}, losses(got)); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
}

// Names arrive as the marker library keeps them; a "/" in one is no border
// between two.
func TestStageNames(t *testing.T) {
	long := strings.Repeat("x", 200)
	whole := strings.Repeat("é", 63) + "!" // 127 bytes
	p := startPuppet(t)
	p.order("main start w")
	r := record(t, agent.Config{PID: p.PID})
	for i, name := range []string{"two words", whole, "a\tb", "bad \xff byte", long + "1", long + "2"} {
		p.order("w begin "+name, fmt.Sprintf("w launch %d", i+1), "w end")
	}
	p.order("w begin a/b", "w launch 100", "w end", "w begin a", "w begin b", "w launch 200", "w end", "w end")
	got := r.interrupt()
	p.end()
	expectNoLosses(t, got)
	const hash = " #hash" // of a name that had to be changed
	changed := regexp.MustCompile(`#[0-9a-f]{8}$`)
	calls, distinct := map[string]uint64{}, map[string]bool{}
	for _, c := range got.Calls {
		names := strings.Join(got.Paths[c.Path].Names, " > ")
		calls[changed.ReplaceAllString(names, hash)] += c.Count
		distinct[names] = true
		if len(names) > 127 {
			t.Errorf("the name %q is too long", names)
		}
	}
	if len(distinct) != 8 {
		t.Errorf("8 stages are shown as %d: %v", len(distinct), distinct)
	}
	want := map[string]uint64{
		"two words": 1, whole: 2, `a\x09b` + hash: 3, `bad \xff byte` + hash: 4, long[:127-len("…#01234567")] + "…" + hash: 5 + 6,
		"a/b": 100, "a > b": 200,
	}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("calls by stage (-want +got):\n%s", diff)
	}
}

// A thread is found in more stages than are kept: it is in the outer ones, and
// right again when it has left the others.
func TestAttachTooDeep(t *testing.T) {
	kept := len(bpf.ProbeThreadState{}.Open)
	p := startPuppet(t)
	p.order("main start w", "w begin outer")
	for i := range kept + 8 {
		p.order(fmt.Sprintf("w mark d%d", i))
	}
	r := record(t, agent.Config{PID: p.PID})
	p.order("w launch 10")
	for range kept + 8 {
		p.order("w unmark")
	}
	p.order("w launch 20", "w end", "w begin step", "w launch 30", "w end")
	got := r.interrupt()
	p.end()
	expectAccounted(t, got)
	calls := map[string]uint64{}
	for _, c := range got.Calls {
		calls[fmt.Sprintf("%d from %s", len(got.Paths[c.Path].Names), got.Paths[c.Path].Names[0])] += c.Count
	}
	want := map[string]uint64{fmt.Sprintf("%d from outer", kept): 10, "1 from outer": 20, "1 from step": 30}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("calls by depth (-want +got):\n%s", diff)
	}
	rows := stageRows(t, got)
	if s := rows[stageKey{"w", "outer"}]; s.Count != 0 || s.PartialCount != 1 {
		t.Errorf("the outermost stage: %+v", s)
	}
	if s := rows[stageKey{"w", "step"}]; s.Count != 1 || s.PartialCount != 0 {
		t.Errorf("the stage after it: %+v", s)
	}
	expectPartition(t, got)
	expectSpansInTotals(t, got)
	if losses(got)["stages_too_deep"] == 0 {
		t.Errorf("losses %v", losses(got))
	}
}

// A thread that was found in mid-stage, and of which nothing is heard until the
// target ends, was in its stage all the time.
func TestCaseC13EndsInStage(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w", "w begin step", "w begin wait", "main start v")
	r := record(t, agent.Config{PID: p.PID})
	p.order("v launch 1")
	p.end()
	got := r.finish()
	expectEnd(t, got, recording.EndExit)
	expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {0, 1}, {"w", "step/wait"}: {0, 1}})
	expectPartition(t, got)
	expectWholeSums(t, got, "w")
	for _, s := range got.Stages {
		if got.Threads[s.Thread].Name == "w" && len(got.Paths[s.Path].Names) == 0 && s.WallNS > 0 {
			t.Errorf("%v outside any stage", time.Duration(s.WallNS))
		}
	}
}

// A thread that gets the id of one that has ended was in none of its stages.
func TestThreadIDUsedAgain(t *testing.T) {
	p := startPuppet(t)
	p.order("main start a", "a begin of_a", "main start v")
	tid := threadID(t, p.PID, "a")
	r := record(t, agent.Config{PID: p.PID})
	p.order("a exit")
	startWithID(t, p, tid)
	p.order("b launch 3")
	got := r.interrupt()
	p.end()
	expectSpans(t, got, map[stageKey]spanCount{{"a", "of_a"}: {0, 1}})
	expectPartition(t, got)
	for _, c := range got.Calls {
		if got.Threads[c.Thread].Name == "b" && len(got.Paths[c.Path].Names) > 0 {
			t.Errorf("calls of b in %q", got.Paths[c.Path].Names)
		}
	}
}

// startWithID has the puppet start the thread "b" with an id that is free. Other
// processes may be faster; then it is tried again.
func startWithID(t *testing.T, p *puppet, tid int) {
	t.Helper()
	for range 200 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(tid-1)), 0); err != nil {
			t.Fatal(err)
		}
		p.order("main start b")
		if threadID(t, p.PID, "b") == tid {
			return
		}
		p.order("b exit")
	}
	t.Fatalf("thread id %d is not given again", tid)
}

// threadID returns the id of the thread with that name.
func threadID(t *testing.T, pid int, name string) int {
	t.Helper()
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range names {
		if comm, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(comm)) == name {
			tid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				t.Fatal(err)
			}
			return tid
		}
	}
	t.Fatalf("process %d has no thread %q", pid, name)
	return 0
}
