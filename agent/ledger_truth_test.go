package agent_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"stageprof/agent"
	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/report"
	"stageprof/sim/simtest"
)

// clocks is what a thread's own clocks say about a stage, in nanoseconds.
type clocks struct {
	Wall uint64 // CLOCK_MONOTONIC
	CPU  uint64 // CLOCK_THREAD_CPUTIME_ID
	Wait uint64 // on a run queue, from schedstat
}

// spent is what the tester "ledger" says about one of its stages.
type spent struct {
	Stage        string
	Inner, Outer clocks // between reads inside, and outside, of the stage's markers
	Switches     uint64 // off the CPU
	Involuntary  uint64 // of these, while it wanted to run
	Least        uint64 // what the stage is for took at least this long
}

// slack is how far the ledger's time on the CPU, or on a run queue, may be from
// what the scheduler's own clock says. Most stages differ by less than 0.1 ms.
// But the scheduler reads its clock at the beginning of a switch and at a
// wake-up, the ledger later, in a tracepoint: microseconds each time. When a
// virtual machine is paused, for some milliseconds, the scheduler's clock leaves
// that out as stolen time, while to the ledger the thread is on the CPU. And the
// scheduler's clock is the raw time stamp counter, while CLOCK_MONOTONIC is
// slewed by up to 0.05 % to follow the network's time. What is compared is 30 ms
// and more.
func slack(switches, wall uint64) uint64 {
	return uint64(10*time.Millisecond) + switches*uint64(20*time.Microsecond) + wall/1000
}

// within fails unless got lies between two bounds, give or take.
func within(t *testing.T, what string, got, low, high, slack uint64) {
	t.Helper()
	if got+slack < low || got > high+slack {
		t.Errorf("%s: %v, want %v to %v ± %v", what, time.Duration(got), time.Duration(low), time.Duration(high), time.Duration(slack))
	}
}

// blockedParts are the parts of sleeping threads outside driver calls, by name.
func blockedParts(p recording.Parts) map[string]uint64 {
	return map[string]uint64{
		"gil_wait": p.GILWaitNS, "futex": p.BlockedFutexNS, "poll": p.BlockedPollNS, "read": p.BlockedReadNS,
		"sleep": p.BlockedSleepNS, "fault": p.BlockedFaultNS, "other": p.BlockedOtherNS,
	}
}

// ledgerStages says what the worker waits for in each stage of the tester.
var ledgerStages = map[string]string{
	"spin": "", "compete": "", "yield": "", "synchronize": "",
	"sleep": "sleep", "condition": "futex", "poll": "poll", "select": "poll", "epoll": "poll",
	"read": "read", "recv": "read", "write": "other", "fault": "fault",
}

// measuredRun is a recording of the tester "ledger" and what it measured itself.
type measuredRun struct {
	*recording.Recording
	tid      int
	stages   []spent
	all      clocks // of the worker, from sleep to sleep, all of it in the window
	stolenMS uint64 // from the machine, by its hypervisor, meanwhile
	truth    simtest.Truth
}

// recordLedger records the tester with the driver waiting in the given way. The
// worker sleeps when the window opens and when it ends.
func recordLedger(t *testing.T, sched string) measuredRun {
	t.Helper()
	p := simtest.Start(t, simtest.Tester(t, "ledger", "--markers", simtest.Markers(t), "--hold", "-").With("SIMCUDA_SCHED="+sched))
	p.WaitLine("up")
	r := record(t, agent.Config{PID: p.PID})
	p.Ready()
	p.WaitLine("done")
	run := measuredRun{Recording: r.interrupt()}
	for _, line := range p.Lines() {
		if strings.HasPrefix(line, "{") {
			run.add(t, line)
		}
	}
	p.Release()
	p.Wait()
	run.truth = p.Truth()
	expectPartition(t, run.Recording)
	if len(run.Losses) > 0 {
		t.Errorf("losses: %+v", run.Losses)
	}
	return run
}

func (r *measuredRun) add(t *testing.T, line string) {
	t.Helper()
	var printed struct {
		spent
		TID      int
		All      clocks
		StolenMS uint64 `json:"stolen_ms"`
	}
	if err := json.Unmarshal([]byte(line), &printed); err != nil {
		t.Fatalf("reading %q: %v", line, err)
	}
	if printed.Stage != "" {
		r.stages = append(r.stages, printed.spent)
		return
	}
	r.tid, r.all, r.stolenMS = printed.TID, printed.All, printed.StolenMS
}

// span returns the worker's one span of a stage.
func (r *measuredRun) span(t *testing.T, stage string) recording.Span {
	t.Helper()
	var found []recording.Span
	for _, s := range r.Spans {
		if r.Threads[s.Thread].TID == r.tid && strings.Join(r.Paths[s.Path].Names, "/") == stage {
			found = append(found, s)
		}
	}
	if len(found) != 1 || found[0].Partial {
		t.Fatalf("spans of stage %q: %+v, want a whole one", stage, found)
	}
	return found[0]
}

// Each stage's time is where its thread has spent it.
func TestPartsEqualThreadsOwnClocks(t *testing.T) {
	for _, sched := range []string{"block", "spin"} {
		t.Run(sched, func(t *testing.T) {
			run := recordLedger(t, sched)
			if len(run.stages) != len(ledgerStages) {
				t.Errorf("%d stages were measured, want %d", len(run.stages), len(ledgerStages))
			}
			for _, s := range run.stages {
				t.Run(s.Stage, func(t *testing.T) { run.expectSpent(t, s, sched) })
			}
		})
	}
}

// expectSpent compares a stage's parts with what its thread measured. As the
// parts sum to the wall time, lower bounds for all of them bound each from above.
func (r *measuredRun) expectSpent(t *testing.T, s spent, sched string) {
	span := r.span(t, s.Stage)
	p, slack := span.Parts, slack(s.Switches, s.Outer.Wall)
	within(t, "wall", span.WallNS, s.Inner.Wall, s.Outer.Wall, 0)
	// No bound from above: time that the hypervisor steals is not in the thread's clock.
	if cpu := p.RunningNS + p.CUDACPUNS; cpu+slack < s.Inner.CPU {
		t.Errorf("on a CPU for %d ns, by its own clock %d", cpu, s.Inner.CPU)
	}
	// A thread that is ready to run in a driver call counts as blocked there.
	within(t, "runnable", p.RunnableNS, s.Inner.Wait-min(s.Inner.Wait, p.CUDABlockedNS), s.Outer.Wait, slack)
	own, known := ledgerStages[s.Stage]
	if !known {
		t.Fatalf("stage %q is not known", s.Stage)
	}
	expectNoOtherWaits(t, p, map[string]uint64{"fault": slack, own: sum(p)})
	r.expectLeast(t, s, p, slack)
	if s.Stage == "synchronize" {
		r.expectDriver(t, s, p, sched)
	} else if p.CUDACPUNS+p.CUDABlockedNS != 0 {
		t.Errorf("in driver calls: %d ns", p.CUDACPUNS+p.CUDABlockedNS)
	}
}

// expectLeast checks that what the stage is for has its time.
func (r *measuredRun) expectLeast(t *testing.T, s spent, p recording.Parts, slack uint64) {
	t.Helper()
	var got uint64
	switch s.Stage {
	case "synchronize":
		return // the driver's truth says it better
	case "spin":
		got = p.RunningNS + slack
	case "compete", "yield":
		got = p.RunnableNS + slack
	case "sleep":
		// The kernel's timer runs before the thread is switched out. In between it runs, unless it is preempted.
		got = p.BlockedSleepNS + p.RunningNS
		if s.Involuntary > 0 {
			got += p.RunnableNS
		}
	default:
		got = blockedParts(p)[ledgerStages[s.Stage]] // it was seen asleep all that time
	}
	if got < s.Least {
		t.Errorf("%v, by the thread's own clocks at least %v; parts %+v", time.Duration(got), time.Duration(s.Least), p)
	}
}

// expectDriver compares the time in driver calls with the driver's own clock,
// which is read inside of the probes, and with the span's calls.
func (r *measuredRun) expectDriver(t *testing.T, s spent, p recording.Parts, sched string) {
	t.Helper()
	var inside uint64
	for _, row := range r.truth.Rows {
		if row.Tag == s.Stage {
			inside += row.WallNS
		}
	}
	got := p.CUDACPUNS + p.CUDABlockedNS
	if inside == 0 || got < inside {
		t.Errorf("in driver calls: %d ns, by the driver's clock at least %d", got, inside)
	}
	if got > s.Outer.Wall-p.RunnableNS-p.RunningNS {
		t.Errorf("in driver calls: %d ns of the %d ns around the stage", got, s.Outer.Wall)
	}
	// The driver waits in the way it was told to.
	slack := slack(s.Switches, s.Outer.Wall)
	if sched == "spin" {
		within(t, "blocked in spinning calls", p.CUDABlockedNS, 0, s.Outer.Wait, slack)
	} else {
		within(t, "CPU of blocking calls", p.CUDACPUNS, 0, s.Outer.CPU, slack+r.stolenMS*uint64(time.Millisecond))
	}
}

// A thread's rows hold all of its time in the window.
func TestThreadsTimeEqualsItsClocks(t *testing.T) {
	run := recordLedger(t, "block")
	var all recording.Parts
	for _, s := range run.Stages {
		if s.Thread >= 0 && run.Threads[s.Thread].TID == run.tid {
			all = plus(plus(all, s.Parts), s.PartialParts)
		}
	}
	var switches uint64
	for _, s := range run.stages {
		switches += s.Switches
	}
	slack := slack(switches+2, run.all.Wall)
	// The steal clock is read in steps of 10 ms, and may not hold the last tick's.
	stolen := (run.stolenMS + 20) * uint64(time.Millisecond)
	within(t, "on a CPU", all.RunningNS+all.CUDACPUNS, run.all.CPU, run.all.CPU+stolen, slack)
	within(t, "runnable", all.RunnableNS, run.all.Wait-min(run.all.Wait, all.CUDABlockedNS), run.all.Wait, slack)
	if window := uint64(run.Window.Duration); sum(all) != window {
		t.Errorf("the thread's parts sum to %d ns, the window lasted %d", sum(all), window)
	}
}

// plus adds two partitions.
func plus(a, b recording.Parts) recording.Parts {
	return recording.Parts{
		RunningNS: a.RunningNS + b.RunningNS, CUDACPUNS: a.CUDACPUNS + b.CUDACPUNS,
		CUDABlockedNS: a.CUDABlockedNS + b.CUDABlockedNS, GILWaitNS: a.GILWaitNS + b.GILWaitNS,
		RunnableNS: a.RunnableNS + b.RunnableNS, BlockedFutexNS: a.BlockedFutexNS + b.BlockedFutexNS,
		BlockedPollNS: a.BlockedPollNS + b.BlockedPollNS, BlockedReadNS: a.BlockedReadNS + b.BlockedReadNS,
		BlockedSleepNS: a.BlockedSleepNS + b.BlockedSleepNS, BlockedFaultNS: a.BlockedFaultNS + b.BlockedFaultNS,
		BlockedOtherNS: a.BlockedOtherNS + b.BlockedOtherNS,
	}
}

// A thread that waits for a CPU is runnable, also if nobody saw it get one.
func TestPartsOfSwitchesThatNobodySaw(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	tid := threadID(t, p.PID, "w")
	occupyCPU(t, tid)
	l := openSession(t, agent.Config{PID: p.PID, Probes: "all"})
	waited := uint64(0)
	for begin := time.Now(); waited < 6*slack(0, 0); {
		if time.Since(begin) > simtest.Patience {
			t.Fatalf("the thread has waited for its CPU for only %v", time.Duration(waited))
		}
		p.order("w begin step")
		awaitSleep(t, p.PID, "w")
		before, delay := switches(t, p.PID, tid), runDelay(t, p.PID, tid)
		l.unseen(l.SeeOnlyWakeups, func() { p.order("w launch 1") })
		awaitSleep(t, p.PID, "w")
		after := switches(t, p.PID, tid)
		// Else it has also waited after its call had begun.
		if after.voluntary == before.voluntary+1 && after.involuntary == before.involuntary {
			waited += runDelay(t, p.PID, tid) - delay
		}
		p.order("w end")
	}
	p.end()
	got := l.finish(nil)
	expectParts(t, got)
	if parts := timesByPath(got)["[step]"].Parts; parts.RunnableNS+slack(0, 0) < waited {
		t.Errorf("the thread has waited for a CPU for %v, parts %+v", time.Duration(waited), parts)
	}
}

// occupyCPU gives a thread one CPU, which another process wants all the time and more
// urgently.
func occupyCPU(t *testing.T, tid int) {
	t.Helper()
	busy := exec.Command("sh", "-c", "while :; do :; done")
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := busy.Process.Kill(); err != nil {
			t.Error(err)
		}
		if err := busy.Wait(); err == nil {
			t.Error("it has ended by itself")
		}
	})
	const nice = 10
	var first unix.CPUSet
	first.Set(firstCPU(t))
	if err := errors.Join(unix.SchedSetaffinity(tid, &first), unix.SchedSetaffinity(busy.Process.Pid, &first),
		unix.Setpriority(unix.PRIO_PROCESS, tid, nice)); err != nil {
		t.Fatal(err)
	}
}

// firstCPU is one that this process may use.
func firstCPU(t *testing.T) (cpu int) {
	t.Helper()
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	for !allowed.IsSet(cpu) {
		cpu++
	}
	return cpu
}

// runDelay is how long a thread has waited for a CPU, by the scheduler's own account.
func runDelay(t *testing.T, pid, tid int) uint64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", pid, tid))
	if err != nil {
		t.Fatal(err)
	}
	var onCPU, delay uint64
	if _, err := fmt.Sscan(string(text), &onCPU, &delay); err != nil {
		t.Fatalf("reading %q: %v", text, err)
	}
	return delay
}

// offCPU is how often a thread has left the CPU by itself, and was taken off it.
type offCPU struct{ voluntary, involuntary int }

func switches(t *testing.T, pid, tid int) (n offCPU) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", pid, tid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\nvoluntary_ctxt_switches:")
	if _, err := fmt.Sscanf(after, "%d\nnonvoluntary_ctxt_switches: %d", &n.voluntary, &n.involuntary); err != nil {
		t.Fatalf("reading %q: %v", text, err)
	}
	return n
}

// gilWait is what the threads of testdata/gilwait.py have measured, in
// nanoseconds: times of CLOCK_MONOTONIC, then durations.
type gilWait struct {
	Entered, Waits, Put, Got uint64 // of the thread in Queue.get
	Held                     uint64 // by the calls that held the lock, and around them
	Overlap                  uint64 // of beats that did not come with calls that held the lock
	GapCPU                   uint64 `json:"gap_cpu"` // used by the beating thread meanwhile
	Wait, Switches           uint64 // of the beating thread: on a run queue; off the CPU, how often
}

// Driver calls that keep Python's lock cost the other threads: their wait for it
// is told from other waits.
func TestCaseC22GILWait(t *testing.T) {
	const rounds = 10
	script, err := filepath.Abs("testdata/gilwait.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, python := range interpreters(t) {
		t.Run(python, func(t *testing.T) {
			command := simtest.Command{Path: python, Args: []string{script, simtest.Driver(t), fmt.Sprint(rounds)}}
			got, p := runTester(t, agent.Config{}, command.With(
				"PYTHONPATH="+filepath.Join(simtest.Root(t), "build/python"), "SIMCUDA_SCHED=block", lockOn))
			var measured gilWait
			if err := json.Unmarshal([]byte(p.WaitLine("{")), &measured); err != nil {
				t.Fatal(err)
			}
			expectPartition(t, got)
			expectNoLosses(t, got)
			expectHolder(t, got, p.Truth(), rounds)
			expectBeat(t, onlySpan(t, got, "beat").Parts, measured)
			expectHolderCauses(t, got, onlySpan(t, got, "beat").Parts, measured)
			expectQueue(t, onlySpan(t, got, "queue").Parts, measured)
		})
	}
}

// onlySpan returns the one span of a stage.
func onlySpan(t *testing.T, r *recording.Recording, stage string) recording.Span {
	t.Helper()
	var found []recording.Span
	for _, s := range r.Spans {
		if strings.Join(r.Paths[s.Path].Names, "/") == stage {
			found = append(found, s)
		}
	}
	if len(found) != 1 || found[0].Partial {
		t.Fatalf("spans of stage %q: %+v, want a whole one", stage, found)
	}
	return found[0]
}

// expectHolder checks the calls that keep the lock.
func expectHolder(t *testing.T, r *recording.Recording, truth simtest.Truth, rounds uint64) {
	t.Helper()
	var inside uint64
	for _, row := range truth.Rows {
		if row.Tag == "forward" && row.Symbol == "cuStreamSynchronize" {
			inside += row.WallNS
		}
	}
	var calls []recording.SpanCall
	for _, c := range onlySpan(t, r, "forward").Calls {
		if r.Symbols[c.Symbol].Name == "cuStreamSynchronize" {
			calls = append(calls, c)
		}
	}
	if len(calls) != 1 || calls[0].GIL != recording.GILHeld || calls[0].Count != rounds {
		t.Fatalf("waiting calls in the stage: %+v, want %d with the lock held", calls, rounds)
	}
	// The driver's clock is read inside of the probes.
	if got := calls[0].CPUNS + calls[0].BlockedNS; inside == 0 || got < inside {
		t.Errorf("these took %d ns, by the driver's clock at least %d", got, inside)
	}
}

// expectBeat checks the thread that wants the lock. While another one keeps it
// in a call, it sleeps for it; or it is about to, or wakes up every few ms to
// look: then it runs, or is ready to.
func expectBeat(t *testing.T, p recording.Parts, measured gilWait) {
	t.Helper()
	if measured.Overlap == 0 {
		t.Fatal("the lock was in nobody's way: the test shows nothing")
	}
	slack := slack(measured.Switches, sum(p))
	if p.GILWaitNS+p.RunnableNS+measured.GapCPU+slack < measured.Overlap {
		t.Errorf("waited %d ns for the lock, by its own clock %d in calls that held it; parts %+v", p.GILWaitNS, measured.Overlap, p)
	}
	within(t, "runnable", p.RunnableNS, 0, measured.Wait, slack)
	// Python takes more memory now and then, and waits for the map of it like any other.
	expectNoOtherWaits(t, p, map[string]uint64{"gil_wait": p.GILWaitNS, "fault": slack, "other": slack})
}

// expectNoOtherWaits fails if a thread has slept for longer than it may, by what for.
// In a page fault it can sleep at any time, while other threads change the map of the
// process's memory.
func expectNoOtherWaits(t *testing.T, p recording.Parts, most map[string]uint64) {
	t.Helper()
	for name, part := range blockedParts(p) {
		if part > most[name] {
			t.Errorf("blocked, %s: %d ns", name, part)
		}
	}
}

// expectHolderCauses checks how much of the waiting is put down to the calls that
// keep the lock: what the thread that wants it waited in them, and not more than
// all threads waited.
func expectHolderCauses(t *testing.T, r *recording.Recording, beat recording.Parts, measured gilWait) {
	t.Helper()
	caused, waited := gilWaitCaused(r), gilWaits(r)
	var wall, all, most uint64
	for _, c := range r.Calls {
		if c.GIL == recording.GILHeld {
			if strings.Join(r.Paths[c.Path].Names, "/") == "forward" {
				wall += c.WallNS
			}
		} else if c.GILWaitCausedNS != 0 {
			t.Errorf("a call that did not hold the lock has caused %d ns of waiting", c.GILWaitCausedNS)
		}
	}
	for stage := range caused {
		all += caused[stage]
	}
	for stage := range waited {
		most += waited[stage]
	}
	if all > most {
		t.Errorf("calls have caused %d ns of waiting, threads have waited %d", all, most)
	}
	around := measured.Held - min(wall, measured.Held) // the lock was kept there, too
	slack := slack(measured.Switches, sum(beat))
	if caused["forward"]+beat.RunnableNS+measured.GapCPU+around+slack < measured.Overlap {
		t.Errorf("the calls have caused %d ns of waiting, by the waiting thread's own clock %d; its parts: %+v", caused["forward"], measured.Overlap, beat)
	}
}

// expectQueue checks the thread that waits for another's work: for the lock it
// can wait only before it sleeps in Queue.get and after it is woken up.
func expectQueue(t *testing.T, p recording.Parts, measured gilWait) {
	t.Helper()
	if asleep := measured.Put - measured.Waits; p.BlockedFutexNS < asleep {
		t.Errorf("waited %d ns, by its own clock at least %d; parts %+v", p.BlockedFutexNS, asleep, p)
	}
	if most := measured.Waits - measured.Entered + measured.Got - measured.Put; p.GILWaitNS > most {
		t.Errorf("waited %d ns for the lock, by its own clock at most %d", p.GILWaitNS, most)
	}
}

// pipelineTime is how long TestPipelineTimes runs: STAGEPROF_LONG, a duration,
// or 20 s.
func pipelineTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("STAGEPROF_LONG")
	if text == "" {
		return 20 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("STAGEPROF_LONG: %v", err)
	}
	return d
}

// ownRow is the pipeline's own view of a stage on a thread.
type ownRow struct {
	TID    int
	Path   string   `json:"stage_path"`
	EachNS []uint64 `json:"each_ns"`
}

// runPipeline records all loops of sim/pipeline.py and returns its own times.
func runPipeline(t *testing.T, length time.Duration) (*recording.Recording, []ownRow) {
	t.Helper()
	stats, ready := filepath.Join(t.TempDir(), "stats.json"), filepath.Join(t.TempDir(), "ready")
	// So few iterations a second that all spans of a long run are kept one by one.
	const spans, targets, spansPerIteration = 40_000, 2, 10
	rate := spans / targets / spansPerIteration / length.Seconds()
	p := simtest.Start(t, simtest.Command{Path: "python3", Dir: simtest.Root(t), Args: []string{
		"sim/pipeline.py", "--duration", fmt.Sprint(length.Seconds()), "--rate", fmt.Sprint(rate),
		"--stats-json", stats, "--ready-file", ready,
	}})
	p.WaitLine("ready")
	r := record(t, agent.Config{PID: p.PID})
	if err := os.WriteFile(ready, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	got := <-r.result // no patience of ours: only the test's own time limit is long enough
	if got.err != nil {
		t.Fatalf("recording: %v", got.err)
	}
	p.Wait()
	data, err := os.ReadFile(stats)
	if err != nil {
		t.Fatal(err)
	}
	var own struct{ Stages []ownRow }
	if err := json.Unmarshal(data, &own); err != nil {
		t.Fatalf("reading the pipeline's times: %v", err)
	}
	return got.recording, own.Stages
}

// The pipeline's own clocks and the recorded spans agree, span for span, and
// every span's parts sum to it.
func TestPipelineTimes(t *testing.T) {
	got, own := runPipeline(t, pipelineTime(t))
	expectPartition(t, got)
	expectNoLosses(t, got)
	expectSpanLines(t, got)
	if len(own) == 0 {
		t.Fatal("the pipeline had no stages: the test shows nothing")
	}
	spans := spansByStage(got)
	for _, row := range own {
		key := simtest.SpanKey{TID: row.TID, Tag: row.Path}
		expectTimes(t, key, spans[key], row.EachNS)
		delete(spans, key)
	}
	for key, walls := range spans {
		t.Errorf("%d spans of %+v, which the pipeline does not know", len(walls), key)
	}
}

// expectSpanLines fails unless every span is a line of --spans whose parts sum
// to its wall time.
func expectSpanLines(t *testing.T, r *recording.Recording) {
	t.Helper()
	var file bytes.Buffer
	if err := report.Spans(&file, correlate.Build(r)); err != nil {
		t.Fatal(err)
	}
	lines := json.NewDecoder(&file)
	n := 0
	for ; lines.More(); n++ {
		var line struct {
			Wall  uint64 `json:"wall_ns"`
			Parts map[string]uint64
		}
		if err := lines.Decode(&line); err != nil {
			t.Fatal(err)
		}
		var sum uint64
		for _, part := range line.Parts {
			sum += part
		}
		if sum != line.Wall {
			t.Fatalf("line %d: wall %d ns, parts %d: %v", n+1, line.Wall, sum, line.Parts)
		}
	}
	if n != len(r.Spans) {
		t.Errorf("%d lines, %d spans", n, len(r.Spans))
	}
	t.Logf("%d spans in %v: the parts of each sum to its wall time", n, r.Window.Duration)
}

// spansByStage returns the wall times of whole spans in the order of their begin.
func spansByStage(r *recording.Recording) map[simtest.SpanKey][]uint64 {
	spans := slices.SortedFunc(slices.Values(r.Spans), func(a, b recording.Span) int { return cmp.Compare(a.BeginNS, b.BeginNS) })
	walls := map[simtest.SpanKey][]uint64{}
	for _, s := range spans {
		if s.Thread >= 0 && !s.Partial {
			key := simtest.SpanKey{TID: r.Threads[s.Thread].TID, Tag: strings.Join(r.Paths[s.Path].Names, "/")}
			walls[key] = append(walls[key], s.WallNS)
		}
	}
	return walls
}

// aroundMarkers bounds, for the median span, what the pipeline's clock counts
// and the markers do not: its bookkeeping in Python, two calls that give the GIL
// up and take it again, and the probes. 15 to 33 µs were measured; single spans
// wait there for a CPU or for the GIL, up to tens of milliseconds.
const aroundMarkers = uint64(time.Millisecond)

// expectTimes compares spans with the same ones by a clock read around them.
func expectTimes(t *testing.T, key simtest.SpanKey, spans, own []uint64) {
	t.Helper()
	if len(spans) != len(own) {
		t.Errorf("%+v: %d spans, the pipeline counts %d", key, len(spans), len(own))
		return
	}
	around := make([]uint64, len(spans))
	for i := range spans {
		if spans[i] > own[i] {
			t.Errorf("%+v, span %d: %d ns, by a clock around it only %d", key, i, spans[i], own[i])
			return
		}
		around[i] = own[i] - spans[i]
	}
	slices.Sort(around)
	if median := around[len(around)/2]; median > aroundMarkers {
		t.Errorf("%+v: half of the spans miss %v of what the pipeline measured", key, time.Duration(median))
	}
}
