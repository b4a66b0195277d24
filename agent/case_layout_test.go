package agent_test

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"stageprof/agent"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// drivers is the paths of the files that a Recording's probes were on.
func drivers(r *recording.Recording) map[string]bool {
	paths := map[string]bool{}
	for _, s := range r.Symbols {
		paths[r.Modules[s.Module].Path] = true
	}
	return paths
}

func expectDrivers(t *testing.T, r *recording.Recording, want ...string) {
	t.Helper()
	got := drivers(r)
	for _, path := range want {
		if !got[path] {
			t.Errorf("%q is not probed", path)
		}
	}
	if len(got) != len(want) {
		t.Errorf("probed are %v, want %v", got, want)
	}
}

// What is mapped is probed, wherever the driver's code is. The driver on the
// default path, which another process uses, is left alone.
func TestCaseC07Layouts(t *testing.T) {
	bystander := startPuppet(t)
	vendor := simtest.Build(t, "sim/variants/vendor/libvendor.so")
	copied := copyDriver(t, "libcuda.so.1")
	static := simtest.Build(t, "sim/testers/calls-static")
	tests := []struct {
		name    string
		command simtest.Command
		driver  string
	}{
		{"a second copy", simtest.Tester(t, "calls", "--driver", copied), copied},
		{"inside another library", simtest.Tester(t, "calls", "--driver", vendor), vendor},
		{"linked into the executable", simtest.Tester(t, "calls-static"), static},
		{"a stripped driver", simtest.Tester(t, "calls", "--driver", simtest.Variant(t, "stripped")), simtest.Variant(t, "stripped")},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.command.Args = append(test.command.Args, "--calls", "3000", "--stages", "2", "--markers", simtest.Markers(t))
			p := simtest.Start(t, test.command)
			p.WaitLine("up")
			r := record(t, agent.Config{PID: p.PID})
			if probed(t, bystander.PID, simtest.Driver(t), "cuLaunchKernel") {
				t.Error("the driver of another process has a probe")
			}
			p.Ready()
			got := r.finish()
			p.Wait()
			expectEqual(t, got, p.Truth().Counts())
			expectDrivers(t, got, test.driver)
		})
	}
}

// Two drivers in one process: calls of both are counted.
func TestCaseC07TwoDrivers(t *testing.T) {
	second, truth := simtest.Variant(t, "decoy"), filepath.Join(t.TempDir(), "second.json")
	p := startPuppet(t)
	p.order(fmt.Sprintf("main second %s %s", second, truth))
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID})
	p.order("main start w", "w launch 10", "w query 20", "w begin step", "w launch 30", "w end")
	got := r.interrupt()
	want := since(baseline, p.end().Counts())
	for k, n := range simtest.ReadTruth(t, truth).Counts() {
		want.Add(k, n)
	}
	expectEqual(t, got, want)
	expectDrivers(t, got, simtest.Driver(t), second)
}

// A name of the driver that points to where its file has nothing gets no probe,
// and costs no other function's calls.
func TestDriverWithMisplacedSymbol(t *testing.T) {
	broken, truth := copyDriver(t, "libbroken.so"), filepath.Join(t.TempDir(), "broken.json")
	misplace(t, broken, "cuLaunchKernelEx")
	p := startPuppet(t)
	p.order(fmt.Sprintf("main second %s %s", broken, truth))
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID, Probes: "all"})
	p.order("main start w", "w launch 10", "w query 20")
	got := r.interrupt()
	want := since(baseline, p.end().Counts())
	for k, n := range simtest.ReadTruth(t, truth).Counts() {
		want.Add(k, n)
	}
	expectEqual(t, got, want)
	expectDrivers(t, got, simtest.Driver(t), broken)
	for _, s := range got.Symbols {
		if s.Name == "cuLaunchKernelEx" && got.Modules[s.Module].Path == broken {
			t.Errorf("%q is probed at %#x", s.Name, s.Address)
		}
	}
}

// misplace makes a dynamic symbol of a file point to where the file has nothing.
func misplace(t *testing.T, path, name string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	e, err := elf.NewFile(f)
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := e.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	// The list leaves out the table's first symbol, which is none.
	i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("%q has no %q", path, name)
	}
	const value = 8 // of st_value in Elf64_Sym
	at := int64(e.Section(".dynsym").Offset) + int64(i+1)*elf.Sym64Size + value
	if _, err := f.WriteAt([]byte{0, 0, 0, 0, 0, 0x70, 0, 0}, at); err != nil {
		t.Fatal(err)
	}
}

// copyDriver makes a copy of the driver that the test may change.
func copyDriver(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(simtest.Driver(t))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, text, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// The driver is at a path that exists in the target's mount namespace only, and
// in no cache of the loader.
func TestCaseC08MountNamespace(t *testing.T) {
	place := t.TempDir()
	script := fmt.Sprintf(`mount -t tmpfs none %[1]s && cp %[2]s %[1]s/libcuda.so.1 && exec %[3]s --driver %[1]s/libcuda.so.1 --calls 3000 --stages 2 --markers %[4]s`,
		place, simtest.Driver(t), simtest.Build(t, "sim/testers/calls"), simtest.Markers(t))
	p := simtest.Start(t, simtest.Command{Path: "/usr/bin/unshare", Args: []string{"--mount", "sh", "-c", script}})
	p.WaitLine("up")
	driver := filepath.Join(place, "libcuda.so.1")
	if _, err := os.Stat(driver); err == nil {
		t.Fatalf("%q exists out here", driver)
	}
	r := record(t, agent.Config{PID: p.PID})
	p.Ready()
	got := r.finish()
	p.Wait()
	expectEqual(t, got, p.Truth().Counts())
	expectDrivers(t, got, driver)
}

// Another mount and pid namespace: the target is named by its pid out here, and
// its pid in there is told, too.
func TestCaseC09PIDNamespace(t *testing.T) {
	place := t.TempDir()
	script := fmt.Sprintf(`mount -t tmpfs none %[1]s && cp %[2]s %[4]s %[1]s && exec %[3]s --driver %[1]s/libcuda.so.1 --calls 3000 --threads 3 --stages 2 --markers %[1]s/libstageprof.so`,
		place, simtest.Driver(t), simtest.Build(t, "sim/testers/calls"), simtest.Markers(t))
	p := simtest.Start(t, simtest.Command{Path: "/usr/bin/unshare",
		Args: []string{"--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", script}})
	p.WaitLine("up")
	pid := onlyChild(t, p.PID)
	r := record(t, agent.Config{PID: pid})
	p.Ready()
	got := r.finish()
	p.Wait()
	if got.Target.PID != pid || got.Target.NSPID != 1 {
		t.Errorf("the target is %d, and %d in its namespace; want %d and 1", got.Target.PID, got.Target.NSPID, pid)
	}
	expectDrivers(t, got, filepath.Join(place, "libcuda.so.1"))
	// The driver's truth knows the thread ids of the namespace.
	inside := simtest.Counts{}
	for _, c := range got.Calls {
		inside.Add(simtest.Key{
			TID: got.Threads[c.Thread].NTID, Tag: strings.Join(got.Paths[c.Path].Names, "/"), Symbol: got.Symbols[c.Symbol].Name,
		}, simtest.Count{Calls: c.Count, Errors: c.Errors, Bytes: c.Bytes})
	}
	if diff := simtest.Diff(p.TruthOf(1).Counts(), inside); diff != "" {
		t.Errorf("the recording differs from the driver's truth:\n%s", diff)
	}
	expectNoLosses(t, got)
	for _, thread := range got.Threads {
		if thread.TID == thread.NTID {
			t.Errorf("thread %d has the same id in its namespace", thread.TID)
		}
	}
}

// onlyChild returns the process that a process has started.
func onlyChild(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatalf("children of %d: %q", pid, text)
	}
	return child
}

// The driver's file is replaced or deleted after the target has mapped it: the
// mapped file is probed.
func TestCaseC10DriverReplaced(t *testing.T) {
	tests := []struct {
		name   string
		change func(t *testing.T, path string)
	}{
		{"deleted", func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}},
		{"replaced", func(t *testing.T, path string) {
			// Another layout, so that the offsets of one are wrong in the other.
			text, err := os.ReadFile(simtest.Variant(t, "versioned"))
			if err != nil {
				t.Fatal(err)
			}
			beside := path + ".new"
			if err := os.WriteFile(beside, text, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(beside, path); err != nil {
				t.Fatal(err)
			}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := copyDriver(t, "libcuda.so.1")
			p := simtest.Start(t, simtest.Tester(t, "calls", "--driver", path, "--calls", "3000", "--stages", "2",
				"--markers", simtest.Markers(t)))
			p.WaitLine("up")
			test.change(t, path)
			r := record(t, agent.Config{PID: p.PID})
			p.Ready()
			got := r.finish()
			p.Wait()
			expectEqual(t, got, p.Truth().Counts())
			if len(drivers(got)) != 1 {
				t.Errorf("probed are %v", drivers(got))
			}
		})
	}
}

// A driver that can't be probed is given up with one complaint, and leaves
// nothing behind.
func TestLateDriverIsGivenUp(t *testing.T) {
	second, truth := simtest.Variant(t, "decoy"), filepath.Join(t.TempDir(), "second.json")
	p := startPuppet(t)
	p.order("main start w")
	baseline := p.truthSoFar().Counts()
	l := openLive(t, p.PID)
	l.BreakDriverEntry()
	p.order(fmt.Sprintf("main second %s %s", second, truth))
	complaints := func(r *recording.Recording) (n int) {
		for _, w := range r.Warnings {
			if strings.Contains(w, second) {
				n++
			}
		}
		return n
	}
	simtest.Eventually(t, "the driver is given up", func() bool { return complaints(l.snapshot()) > 0 })
	if probed(t, p.PID, second, "cuDriverGetVersion") {
		t.Error("there are probes left on the driver")
	}
	p.order("w query 20", "w launch 10")
	want := since(baseline, p.end().Counts())
	got := l.finish(func(*recording.Recording) {})
	expectEqual(t, got, want)
	expectDrivers(t, got, simtest.Driver(t))
	if n := complaints(got); n != 1 {
		t.Errorf("%d complaints of the driver: %q", n, got.Warnings)
	}
}

// A driver that is opened during the recording is found by the loader's hook,
// and the gap is told. Calls in the gap may be missed, later ones may not.
func TestCaseC17LateDriver(t *testing.T) {
	second, truth := simtest.Variant(t, "decoy"), filepath.Join(t.TempDir(), "second.json")
	p := startPuppet(t)
	p.order("main start w")
	baseline := p.truthSoFar().Counts()
	var seen atomic.Uint64
	r := record(t, agent.Config{PID: p.PID, Progress: func(now agent.Progress) { seen.Store(now.Calls) }})
	p.order(fmt.Sprintf("main second %s %s", second, truth), "w begin gap")
	gap := uint64(0)
	simtest.Eventually(t, "calls of the late driver are seen", func() bool {
		p.order("w query 1")
		gap++
		return seen.Load() > 0
	})
	p.order("w end", "w begin step", "w query 20", "w launch 10", "w end", "main query 100")
	got := r.interrupt()
	p.end()
	if n := simtest.ReadTruth(t, truth).Counts().Total().Calls; n != gap+120 {
		t.Errorf("the second driver counted %d of %d calls", n, gap+120)
	}
	want := simtest.Counts{
		{Tag: "step", Symbol: "cuDriverGetVersion"}: {Calls: 20},
		{Tag: "step", Symbol: "cuLaunchKernel"}:     {Calls: 10},
		{Tag: "", Symbol: "cuDriverGetVersion"}:     {Calls: 100},
	}
	have := counts(got).By(simtest.ByTagAndSymbol)
	if n := have[simtest.Key{Tag: "gap", Symbol: "cuDriverGetVersion"}].Calls; n == 0 || n > gap {
		t.Errorf("%d of %d calls in the gap were seen", n, gap)
	}
	if diff := simtest.Diff(want, have.Only(func(k simtest.Key) bool { return k.Tag != "gap" })); diff != "" {
		t.Errorf("the recording differs from the driver's truth:\n%s", diff)
	}
	if n := since(baseline, p.Truth().Counts()).Total().Calls; n != 10 {
		t.Errorf("the first driver counted %d calls", n)
	}
	expectNoLosses(t, got)
	expectDrivers(t, got, simtest.Driver(t), second)
	if w := strings.Join(got.Warnings, "\n"); !strings.Contains(w, second) || !strings.Contains(w, "loaded during the recording") {
		t.Errorf("warnings: %s", w)
	}
}

// --wait: the recording begins when the driver comes.
func TestCaseC17WaitForDriver(t *testing.T) {
	late := filepath.Join(t.TempDir(), "ready") // its name with ".late" is the second file
	p := simtest.Start(t, simtest.Tester(t, "latedl", "--delay-ms", "0", "--calls", "2000", "--markers", simtest.Markers(t)).With(
		"STAGEPROF_READY="+late))
	p.WaitLine("up")
	waiting := make(chan struct{}, 1)
	r := start(t, agent.Config{PID: p.PID, Wait: true, Progress: func(now agent.Progress) {
		select {
		case waiting <- struct{}{}:
		default:
		}
	}})
	<-waiting
	touch(t, late)
	<-r.ready
	p.WaitLine("opened")
	touch(t, late+".late")
	got := r.finish()
	p.Wait()
	expectNoLosses(t, got)
	truth := p.Truth().Counts()
	expectAtMost(t, got, truth)
	isLate := func(k simtest.Key) bool { return k.Tag == "late" }
	if diff := simtest.Diff(truth.Only(isLate), counts(got).Only(isLate)); diff != "" {
		t.Errorf("the recording differs from the driver's truth:\n%s", diff)
	}
	if n := truth.Only(isLate).Total().Calls; n != 2000 {
		t.Errorf("the target made %d late calls", n)
	}
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Waiting ends when the target does.
func TestWaitForDriverOfEndingTarget(t *testing.T) {
	p := simtest.Start(t, simtest.Command{Path: "/bin/cat"})
	waiting := make(chan struct{}, 1)
	r := start(t, agent.Config{PID: p.PID, Wait: true, Progress: func(agent.Progress) {
		select {
		case waiting <- struct{}{}:
		default:
		}
	}})
	<-waiting
	p.Signal(syscall.SIGKILL)
	if got := <-r.result; got.err == nil || !strings.Contains(got.err.Error(), "exited") {
		t.Errorf("got %v", got.err)
	}
}
