package agent_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stageprof/agent"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// What a hostile or an unlucky target does must neither harm it nor make the
// numbers wrong: they equal the driver's truth, or what is missing is counted.

// sized is how much of something a test does: in `make test`, and in `make test-long`.
func sized(short, long int) int {
	if os.Getenv("STAGEPROF_LONG") != "" {
		return long
	}
	return short
}

// Markers with forged arguments, ten for each call, as fast as the target can, which is
// millions a second on each thread where nobody records: every call is counted, under
// whatever stage, and the account of time stays whole.
func TestHostileForgedMarkers(t *testing.T) {
	const threads, markersPerCall = 2, 10
	calls := sized(40_000, 1_000_000)
	got, p := runTester(t, agent.Config{}, simtest.Tester(t, "forger", "--threads", fmt.Sprint(threads), "--calls", fmt.Sprint(calls)).With(
		"LD_PRELOAD="+simtest.Markers(t)))
	t.Logf("%d forged markers in %v", threads*calls*markersPerCall, got.Window.Duration)
	expectAccounted(t, got)
	if diff := simtest.Diff(p.Truth().Counts().By(simtest.ByThreadAndSymbol), counts(got).By(simtest.ByThreadAndSymbol)); diff != "" {
		t.Errorf("the recording differs from the driver's truth:\n%s", diff)
	}
	if lostCalls(got) != 0 {
		t.Errorf("losses %v", losses(got))
	}
	for _, c := range got.Calls {
		if c.WallNS > uint64(got.Window.Duration) {
			t.Errorf("%s took %d ns in a window of %v", got.Symbols[c.Symbol].Name, c.WallNS, got.Window.Duration)
		}
	}
	if p.Stderr() != "" {
		t.Errorf("stderr: %s", p.Stderr())
	}
}

// 100 000 distinct names, which the kernel side has to read each: all calls are
// there, those of stages without a name of their own together, and that is said.
func TestHostileManyNames(t *testing.T) {
	const names = 100_000
	p := startPuppet(t)
	p.order("main start w", "main nvtx "+simtest.Build(t, "sim/testers/libnvtx.so"))
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID, Probes: "launch", StagesFrom: []string{agent.SourceNVTX}})
	p.order(fmt.Sprintf("w ranges %d", names))
	got := r.interrupt()
	expectAccounted(t, got)
	truth := since(baseline, p.end().Counts())
	if diff := simtest.Diff(truth.By(simtest.ByThreadAndSymbol), counts(got).By(simtest.ByThreadAndSymbol)); diff != "" {
		t.Errorf("the recording differs from the driver's truth:\n%s", diff)
	}
	held, _ := spans(got)
	missed := losses(got)["spans_not_kept"] + losses(got)["span_records_full"]
	if held != names || uint64(len(got.Spans))+missed != names {
		t.Errorf("%d spans in the totals, %d one by one, losses %v", held, len(got.Spans), losses(got))
	}
	// Stages without a name of their own are together, and say how many.
	other := uint64(0)
	for key, s := range stageRows(t, got) {
		if key.Path == "(other stages)" {
			other += s.Count + s.PartialCount
		}
	}
	if other == 0 || other != losses(got)["stage_names_full"] {
		t.Errorf("%d other stages, losses %v", other, losses(got))
	}
}

// Signals come inside driver calls, and their handlers mark stages and call the
// driver; a timer interrupts whatever runs, the probes too.
func TestHostileSignals(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	p.order("w begin step", "w signal 500", "w storm 20000", "w signal 500", "w end", "w launch 10")
	got := r.interrupt()
	expectEqual(t, got, since(baseline, p.end().Counts()))
	expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {1, 0}, {"w", "step/handler"}: {1000, 0}})
}

// A thread ends inside a driver call. What it had pushed for its end runs, the
// marker library ends its stage, and the one call is lost.
func TestHostileThreadEndsInCall(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w", "main start v")
	r := record(t, agent.Config{PID: p.PID})
	p.order("w begin step", "w launch 10", "w leave", "v launch 5", "main launch 1")
	got := r.interrupt()
	p.WaitLine("cleaned")
	p.end()
	expectAccounted(t, got)
	if n := launchCount(got); n != 16 {
		t.Errorf("%d launches", n)
	}
	if diff := cmp.Diff(map[string]uint64{"lost_return": 1}, losses(got)); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
	expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {1, 0}})
}

// C++ exceptions leave driver calls. What is not timed is left to them: functions that
// call back never are, others are not if they are not chosen.
func TestHostileExceptions(t *testing.T) {
	for _, test := range []struct{ probes, order string }{
		{"all", "w throw-back 100"},
		{"launch", "w throw-out 100"},
	} {
		t.Run(test.order, func(t *testing.T) {
			p := startFunctions(t)
			r := record(t, agent.Config{PID: p.PID, Probes: test.probes})
			p.order("w begin step", "w launch 3", test.order, "w launch 4", "w end")
			got := r.interrupt()
			p.end()
			expectNoLosses(t, got)
			if diff := cmp.Diff(map[string]uint64{"own step": 7}, attributions(got)); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {1, 0}})
		})
	}
}

// An exception out of a call that is timed can't be unwound (docs/limits.md). What was
// recorded until then is there, and no more.
func TestHostileExceptionOutOfTimedCall(t *testing.T) {
	p := startFunctions(t)
	r := record(t, agent.Config{PID: p.PID})
	p.order("w begin step", "w launch 3")
	p.tell("w throw-out 1")
	got := r.finish()
	if err := p.Exit(); err == nil || !strings.Contains(err.Error(), syscall.SIGABRT.String()) {
		t.Errorf("the target ended by %v", err)
	}
	expectEnd(t, got, recording.EndExit)
	expectAccounted(t, got)
	if diff := cmp.Diff(map[string]uint64{"own step": 3}, attributions(got)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if n := lostCalls(got); n != 1 {
		t.Errorf("losses %v", losses(got))
	}
	expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {0, 1}})
}

// A child of vfork runs in the target's memory, with its probes in the code, and
// is another process all the same. The driver can't tell and counts its calls as
// the parent's.
func TestHostileVfork(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	p.order("w begin step", "w launch 10", "w vfork 100", "w launch 20", "w end", "main vfork 50", "main launch 3")
	got := r.interrupt()
	childs := map[string]uint64{"step": 100, "": 50}
	want := since(baseline, p.end().Counts())
	for k, n := range want {
		n.Calls -= childs[k.Tag]
		want[k] = n
	}
	expectEqual(t, got, want)
	expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {1, 0}})
}

// More threads come and go than the tables have room for, and the few ids that there
// are for them are given again and again: rows of their own are there for as many as
// there is room for, and of the others the sum.
func TestHostileThreadIDsUsedAgain(t *testing.T) {
	threads := sized(12_000, 200_000)
	script := fmt.Sprintf("exec %s --threads %d --at-once 8 --markers %s", simtest.Build(t, "sim/testers/churn"), threads, simtest.Markers(t))
	if eachNamespaceLimitsIDs(t) {
		script = "echo 400 >/proc/sys/kernel/pid_max; " + script
	}
	p := simtest.Start(t, simtest.Command{Path: "/usr/bin/unshare", Args: []string{"--pid", "--fork", "--mount-proc", "sh", "-c", script}})
	p.WaitLine("up")
	target := onlyChild(t, p.PID)
	r := record(t, agent.Config{PID: target})
	setNextID(t, target)
	p.Ready()
	got := r.finish()
	p.Wait()
	truth := p.TruthOf(1).Counts()
	if diff := simtest.Diff(truth.By(simtest.ByTagAndSymbol), counts(got).By(simtest.ByTagAndSymbol)); diff != "" {
		t.Errorf("the recording differs from the driver's truth:\n%s", diff)
	}
	expectAccounted(t, got)
	lost := losses(got)
	delete(lost, "spans_not_kept")
	if len(lost) > 0 {
		t.Errorf("losses %v", lost)
	}
	inside, outside := map[int]int{}, map[int]int{}
	for _, thread := range got.Threads {
		outside[thread.TID]++
		inside[thread.NTID]++
	}
	t.Logf("%d threads of %d are told apart; %d ids, %d in the target's namespace", len(got.Threads), threads, len(outside), len(inside))
	if len(outside) == len(got.Threads) || len(inside) == len(got.Threads) {
		t.Error("no thread id was used again: the test shows nothing")
	}
	whole := uint64(0)
	for _, s := range got.Stages {
		if len(got.Paths[s.Path].Names) > 0 {
			whole += s.Count
		}
	}
	if whole != uint64(threads) {
		t.Errorf("%d whole spans of %d threads", whole, threads)
	}
}

// eachNamespaceLimitsIDs tells whether pid_max is a pid namespace's own, from Linux 6.14
// on, and not the whole machine's: then somebody with no rights outside may change it.
func eachNamespaceLimitsIDs(t *testing.T) bool {
	t.Helper()
	const nobody = 65534
	look := exec.Command("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "test", "-w", "/proc/sys/kernel/pid_max")
	look.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	err := look.Run()
	t.Logf("pid_max is a namespace's own: %t", err == nil)
	return err == nil
}

// setNextID lets the kernel search for free ids from the same one on, again and
// again, until the test ends.
func setNextID(t *testing.T, last int) {
	t.Helper()
	done := make(chan struct{})
	var setting sync.WaitGroup
	setting.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(last)), 0); err != nil {
				t.Error(err)
				return
			}
		}
	})
	t.Cleanup(func() { close(done); setting.Wait() })
}

// User, time, mount and pid namespaces of its own, and a clock that is a day
// ahead: the target is named by its pid out here, and times are the kernel's.
func TestHostileNamespaces(t *testing.T) {
	script := fmt.Sprintf("exec %s --calls 3000 --threads 2 --stages 2 --markers %s", simtest.Build(t, "sim/testers/calls"), simtest.Markers(t))
	p := simtest.Start(t, simtest.Command{Path: "/usr/bin/unshare", Args: []string{
		"--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc", "--time", "--monotonic", "86400", "sh", "-c", script}})
	p.WaitLine("up")
	r := record(t, agent.Config{PID: onlyChild(t, p.PID)})
	p.Ready()
	got := r.finish()
	p.Wait()
	truth := p.TruthOf(1).Counts()
	if diff := simtest.Diff(truth.By(simtest.ByTagAndSymbol), counts(got).By(simtest.ByTagAndSymbol)); diff != "" {
		t.Errorf("the recording differs from the driver's truth:\n%s", diff)
	}
	expectNoLosses(t, got)
	expectPartition(t, got)
	for _, s := range got.Stages {
		if len(got.Paths[s.Path].Names) > 0 && (s.PartialCount != 0 || s.WallNS > uint64(got.Window.Duration)) {
			t.Errorf("%+v in a window of %v", s, got.Window.Duration)
		}
	}
}

// In mid-stage when it is attached to, by a clock that is a day ahead of ours:
// the stage is cut at the window's edge as any other.
func TestHostileTimeNamespaceInMidStage(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "orders")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("exec %s <%s", simtest.Build(t, "sim/testers/puppet"), fifo)
	process := simtest.Start(t, simtest.Command{Path: "/usr/bin/unshare",
		Args: []string{"--time", "--monotonic", "86400", "--fork", "sh", "-c", script}})
	orders, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &puppet{Process: process, t: t, orders: orders}
	process.Ready()
	process.WaitLine("up")
	p.order("main markers "+simtest.Markers(t), "main start w", "w begin step", "w launch 5")
	pid := onlyChild(t, process.PID)
	r := record(t, agent.Config{PID: pid})
	p.order("w launch 10", "w end", "w begin step", "w launch 1", "w end")
	got := r.interrupt()
	if err := orders.Close(); err != nil {
		t.Fatal(err)
	}
	process.Wait()
	expectNoLosses(t, got)
	if n := launchCount(got); n != 11 {
		t.Errorf("%d launches", n)
	}
	expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {1, 1}})
	for _, s := range got.Stages {
		if s.PartialWallNS > uint64(got.Window.Duration) {
			t.Errorf("%+v in a window of %v", s, got.Window.Duration)
		}
	}
}

// The target has changed its root folder and loads a driver from in there.
func TestHostileChroot(t *testing.T) {
	root := t.TempDir()
	text, err := os.ReadFile(simtest.Variant(t, "decoy"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "driver.so"), text, 0o755); err != nil {
		t.Fatal(err)
	}
	p := startPuppet(t)
	p.order("main start w")
	baseline := p.truthSoFar().Counts()
	p.order("main chroot "+root, "main second /driver.so /second.json")
	r := record(t, agent.Config{PID: p.PID})
	p.order("w begin step", "w launch 10", "w query 20", "w end", "main truth /first.json")
	got := r.interrupt()
	want := since(baseline, simtest.ReadTruth(t, filepath.Join(root, "first.json")).Counts())
	if err := p.orders.Close(); err != nil {
		t.Fatal(err)
	}
	p.Release()
	p.Wait()
	for k, n := range simtest.ReadTruth(t, filepath.Join(root, "second.json")).Counts() {
		k.Tag = "step" // which the other driver does not know
		want.Add(k, n)
	}
	expectEqual(t, got, want)
	expectDrivers(t, got, simtest.Driver(t), filepath.Join(root, "driver.so"))
}

// The driver's file is replaced, then removed, while it is probed.
func TestHostileDriverReplacedWhileAttached(t *testing.T) {
	path := copyDriver(t, "libcuda.so.1")
	p := startPuppet(t, "--driver", path)
	p.order("main start w")
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	p.order("w begin step", "w launch 10")
	if err := os.Rename(copyDriver(t, "other"), path); err != nil {
		t.Fatal(err)
	}
	p.order("w launch 100")
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	// A library that is opened makes the agent look at all that is mapped.
	second, truth := simtest.Variant(t, "decoy"), filepath.Join(t.TempDir(), "second.json")
	p.order("w launch 1000", fmt.Sprintf("main second %s %s", second, truth), "w launch 5", "w end")
	got := r.interrupt()
	expectEqual(t, got, since(baseline, p.end().Counts()))
}

// 20 000 mappings.
func TestHostileManyMappings(t *testing.T) {
	p := startPuppet(t)
	p.order("main mappings 20000", "main start w")
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	p.order("w begin step", "w launch 100", "main mappings 20000", "w launch 100", "w end")
	got := r.interrupt()
	expectEqual(t, got, since(baseline, p.end().Counts()))
}

// A library that claims to be a driver with more functions than could be told
// apart, or attached to in a lifetime, is left alone; the real one is not.
func TestHostileHugeDriver(t *testing.T) {
	huge := hugeDriver(t, 100_000)
	p := startPuppet(t)
	p.order("main start w", "main library "+huge)
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	p.order("w begin step", "w launch 10", "w end")
	got := r.interrupt()
	expectEqual(t, got, since(baseline, p.end().Counts()))
	expectDrivers(t, got, simtest.Driver(t))
	if w := strings.Join(got.Warnings, "\n"); !strings.Contains(w, huge) {
		t.Errorf("warnings: %s", w)
	}
}

// hugeDriver makes a library with so many functions of a driver's.
func hugeDriver(t *testing.T, functions int) string {
	t.Helper()
	var source strings.Builder
	source.WriteString(".text\n")
	for i := range functions {
		name := fmt.Sprintf("cuFunction%d", i)
		switch i {
		case 0:
			name = "cuInit"
		case 1:
			name = "cuLaunchKernel"
		}
		fmt.Fprintf(&source, ".globl %[1]s\n.type %[1]s,@function\n%[1]s: ret\n.size %[1]s,1\n", name)
	}
	source.WriteString(".section .note.GNU-stack,\"\",@progbits\n")
	folder := t.TempDir()
	assembly, library := filepath.Join(folder, "huge.s"), filepath.Join(folder, "libhuge.so")
	if err := os.WriteFile(assembly, []byte(source.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-shared", "-nostdlib", "-o", library, assembly).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return library
}

// The agent is stopped for five seconds in which the target calls 400,000 times a second:
// counting goes on in the kernel.
func TestHostileAgentStopped(t *testing.T) {
	const rate, seconds = 200_000, 5
	p := startPuppet(t)
	threads := []string{"w", "v"}
	for _, thread := range threads {
		p.order("main start " + thread)
	}
	baseline := p.truthSoFar().Counts()
	a := startAgent(t, p.PID)
	a.Signal(syscall.SIGSTOP)
	begin := time.Now()
	for _, thread := range threads {
		p.order(thread + " begin step")
		p.tell(fmt.Sprintf("%s poll %d %d", thread, rate*seconds, rate))
	}
	for _, thread := range threads {
		p.order(thread + " end") // which waits for the calls
	}
	t.Logf("%.0f calls a second for %v", float64(len(threads)*rate*seconds)/time.Since(begin).Seconds(), time.Since(begin))
	a.Signal(syscall.SIGCONT)
	got := a.interrupt()
	expectEqual(t, got, since(baseline, p.end().Counts()))
	expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {1, 0}, {"v", "step"}: {1, 0}})
}

// expectRestored waits until all code of the libraries that get probes is what it
// was before, and the gate is closed.
func expectRestored(t *testing.T, p *puppet, before map[string]string) {
	t.Helper()
	simtest.Eventually(t, "the gate is closed", func() bool { return gate(t, p.PID) == 0 })
	for path, text := range before {
		simtest.Eventually(t, fmt.Sprintf("the code of %q is as it was", path), func() bool {
			return string(simtest.CodeOf(t, p.PID, path)) == text
		})
	}
}

func probedText(t *testing.T, p *puppet) map[string]string {
	t.Helper()
	text := map[string]string{}
	for _, path := range []string{simtest.Driver(t), simtest.Markers(t)} {
		text[path] = string(simtest.CodeOf(t, p.PID, path))
	}
	return text
}

// kill -9 of the agent while it attaches and while it records: every byte of the
// target's code is restored, and the target goes on.
func TestHostileAgentKilledRestoresCode(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	before := probedText(t, p)
	kills := 0
	kill := func(t *testing.T, await func(*agentProcess)) {
		t.Helper()
		a := launchAgent(t, p.PID, agentRequest{})
		keeper := awaitKeeper(t, a.PID)
		await(a)
		p.tell("w launch 100")
		a.Signal(syscall.SIGKILL)
		p.obeyed()
		p.order("w begin step", "w launch 100", "w end")
		expectRestored(t, p, before)
		expectEnded(t, keeper)
		kills++
	}
	t.Run("attaching", func(t *testing.T) {
		for i := range sized(10, 60) {
			kill(t, func(*agentProcess) {
				awaitFirst(t, p, before)
				time.Sleep(time.Duration(i%5) * time.Millisecond)
			})
		}
	})
	t.Run("recording", func(t *testing.T) {
		kill(t, func(a *agentProcess) { a.WaitLine("live") })
	})
	if n := p.end().Counts().By(simtest.BySymbol)[simtest.Key{Symbol: "cuLaunchKernel"}].Calls; n != uint64(200*kills) {
		t.Errorf("the target made %d calls in %d recordings", n, kills)
	}
}

// awaitFirst returns at once when the driver has the first of its probes.
func awaitFirst(t *testing.T, p *puppet, before map[string]string) {
	t.Helper()
	driver := simtest.Driver(t)
	for end := time.Now().Add(simtest.Patience); string(simtest.CodeOf(t, p.PID, driver)) == before[driver]; {
		if time.Now().After(end) {
			t.Fatal("the driver gets no probes")
		}
	}
}

// kill -9 of an agent that puts its probes in and takes them off all the time.
func TestHostileAgentKilledUnderBudget(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w", "main start q")
	before := probedText(t, p)
	p.tell("q poll 1000000000 0") // windows are short
	kill := func(t *testing.T, wait func()) {
		t.Helper()
		a := launchAgent(t, p.PID, agentRequest{Budget: 0.2, Advance: 50 * time.Millisecond})
		a.WaitLine("live")
		keeper := awaitKeeper(t, a.PID)
		wait()
		a.Signal(syscall.SIGKILL)
		p.order("w begin step", "w launch 100", "w end")
		expectRestored(t, p, before)
		expectEnded(t, keeper)
	}
	t.Run("as the probes come off", func(t *testing.T) {
		for range sized(8, 40) {
			kill(t, func() {
				simtest.Eventually(t, "a window is closed", func() bool { return !isFollowed(t, p.PID) })
			})
		}
	})
	t.Run("any moment", func(t *testing.T) {
		for range sized(8, 40) {
			kill(t, func() { time.Sleep(rand.N(1500 * time.Millisecond)) })
		}
	})
	r := record(t, agent.Config{PID: p.PID, Probes: "launch"})
	p.order("w begin last", "w launch 100", "w end")
	got := r.interrupt()
	if n := counts(got).Total().Calls; n != 100 {
		t.Errorf("%d calls of 100 were counted: %v", n, losses(got))
	}
	expectRestored(t, p, before)
}

// An agent that comes to be short of descriptors, or of memory: it says so or
// succeeds, leaves nothing behind, and the target notices nothing.
func TestHostileAgentLimits(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	before := probedText(t, p)
	limits := []agentLimits{{Memory: 300 << 20}, {Memory: 700 << 20}, {Memory: 1 << 30}, {Memory: 2 << 30}}
	for _, n := range []uint64{8, 16, 24, 32, 48, 64, 96} {
		limits = append(limits, agentLimits{Descriptors: n})
	}
	for _, limit := range limits {
		t.Run(fmt.Sprintf("%+v", limit), func(t *testing.T) {
			a := launchAgent(t, p.PID, agentRequest{Limits: limit, Duration: 1})
			err := a.Exit()
			switch reason := a.Stderr(); {
			case err == nil:
				expectAccounted(t, a.finish())
			case limit.Descriptors > 0 && !strings.Contains(reason, "too many open files"), reason == "":
				t.Errorf("%v, because of %q", err, reason)
			}
			p.order("w begin step", "w launch 10", "w end")
			expectRestored(t, p, before)
		})
	}
	if n := p.end().Counts().By(simtest.BySymbol)[simtest.Key{Symbol: "cuLaunchKernel"}].Calls; n != uint64(10*len(limits)) {
		t.Errorf("the target made %d calls", n)
	}
}
