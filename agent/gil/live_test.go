package gil

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"stageprof/agent/target"
)

// state is the answer for one thread.
type state string

const (
	free     state = "free"
	held     state = "held"
	disabled state = "disabled"
)

// here is the machine that the tests run on.
func here() *machine {
	return machines[map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]]
}

// evaluate applies a plan as the kernel side does, with nothing but the plan, the thread pointer and
// the target's memory.
func evaluate(t *testing.T, mem reader, plan Plan, tp uint64) state {
	t.Helper()
	load := func(addr uint64) uint64 {
		t.Helper()
		value, err := word(mem, addr)
		if err != nil {
			t.Fatalf("the plan %+v leads to unreadable memory: %v", plan, err)
		}
		return value
	}
	holds := false
	switch plan.Method {
	case ThreadLocal:
		if plan.FreeThreaded && uint32(load(plan.GILEnabledAddress)) == 0 {
			return disabled
		}
		block := tp
		if plan.TLSModule != 0 {
			vector := load(tp + here().vectorAt)
			if plan.TLSModule > load(vector-16) {
				return free
			}
			block = load(vector + 16*plan.TLSModule)
			if block == 0 || block == ^uint64(0) {
				return free
			}
		}
		holds = load(block+uint64(plan.TLSOffset)) != 0
	case CurrentThreadState:
		ts := load(plan.Address)
		holds = ts != 0 && load(ts+plan.ThreadIDOffset) == tp-plan.SelfBelow
	default:
		t.Fatalf("nothing to evaluate in %+v", plan)
	}
	if holds {
		return held
	}
	return free
}

// workers is a running program that obeys the protocol of testdata/workers.py.
type workers struct {
	process *target.Process
	tids    []int      // of the obedient threads, then of those that do nothing
	tps     []uint64   // their thread pointers
	ask     []*os.File // a byte makes thread k go into the call that holds the lock
	end     []*os.File // a byte makes it come back

	elsewhere []int // threads that come to wait for something else than the lock
}

const workerCount = 4

// startWorkers runs a program whose last arguments are the count of workers and more.
func startWorkers(t *testing.T, path string, environ []string, args ...string) *workers {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), environ...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	w := &workers{}
	for range workerCount {
		for _, end := range []*[]*os.File{&w.ask, &w.end} {
			r, f, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			defer r.Close()
			*end = append(*end, f)
			cmd.ExtraFiles = append(cmd.ExtraFiles, r)
		}
	}
	line := startAndReadLine(t, cmd, &stderr)
	for _, field := range strings.Fields(line) {
		tid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatalf("thread ids %q: %v", line, err)
		}
		w.tids = append(w.tids, tid)
	}
	if len(w.tids) < workerCount {
		t.Fatalf("thread ids %q", line)
	}
	w.process = open(t, cmd.Process.Pid)
	for _, tid := range w.tids {
		w.tps = append(w.tps, threadPointer(t, tid))
	}
	for k := range workerCount {
		w.await(t, k, askFD(k))
	}
	return w
}

// startAndReadLine starts a program, which is killed when the test ends, and returns the first line
// that it prints.
func startAndReadLine(t *testing.T, cmd *exec.Cmd, stderr *bytes.Buffer) string {
	t.Helper()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting %q: %v", cmd.Args, err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		cmd.Wait()
		t.Fatalf("%q printed no line: %v\n%s", cmd.Args, err, stderr)
	}
	return line
}

// startHolder runs a program that loads or maps files.
func startHolder(t *testing.T, program string, files ...string) Plan {
	t.Helper()
	cmd := exec.Command(program, files...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close() })
	startAndReadLine(t, cmd, &stderr)
	return detect(t, open(t, cmd.Process.Pid))
}

func open(t *testing.T, pid int) *target.Process {
	t.Helper()
	p, err := target.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func askFD(k int) int { return 3 + 2*k }
func endFD(k int) int { return 4 + 2*k }

// await waits until worker k is blocked in read() on a descriptor.
func (w *workers) await(t *testing.T, k, fd int) {
	t.Helper()
	want := fmt.Sprintf("%d %#x ", unix.SYS_READ, fd)
	path := fmt.Sprintf("/proc/%d/task/%d/syscall", w.process.PID(), w.tids[k])
	for start := time.Now(); ; time.Sleep(100 * time.Microsecond) {
		now, err := os.ReadFile(path)
		if err == nil && strings.HasPrefix(string(now), want) {
			return
		}
		if time.Since(start) > time.Minute {
			t.Fatalf("worker %d does %q, not %q (%v)", k, now, want, err)
		}
	}
}

func (w *workers) hold(t *testing.T, k int) {
	t.Helper()
	poke(t, w.ask[k])
	w.await(t, k, endFD(k))
}

func (w *workers) release(t *testing.T, k int) {
	t.Helper()
	poke(t, w.end[k])
	w.await(t, k, askFD(k))
}

func poke(t *testing.T, f *os.File) {
	t.Helper()
	if _, err := f.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
}

// check evaluates the plan for each thread; holding says whether worker k holds the lock.
func (w *workers) check(t *testing.T, plan Plan, holding func(k int) bool) {
	t.Helper()
	for i, tp := range w.tps {
		want := free
		if i < workerCount && holding(i) {
			want = held
		}
		if got := evaluate(t, w.process, plan, tp); got != want {
			t.Fatalf("thread %d of %d is %s, want %s (plan %+v)", i, len(w.tps), got, want, plan)
		}
	}
}

// rounds is how often each test makes a thread take the lock and give it back; every thread is looked
// at twice in each round.
const rounds = 40

// checkTurns lets the workers hold the lock one after the other.
func (w *workers) checkTurns(t *testing.T, plan Plan) {
	t.Helper()
	for round := range rounds {
		turn := round % workerCount
		w.hold(t, turn)
		w.check(t, plan, func(k int) bool { return k == turn })
		w.release(t, turn)
		w.check(t, plan, func(int) bool { return false })
	}
}

// checkTogether lets all workers hold a lock at the same time: each has its own.
func (w *workers) checkTogether(t *testing.T, plan Plan) {
	t.Helper()
	for turn := range workerCount {
		w.hold(t, turn)
		w.check(t, plan, func(k int) bool { return k <= turn })
	}
	for turn := range workerCount {
		w.release(t, turn)
		w.check(t, plan, func(k int) bool { return k > turn })
	}
}

// samples is how often each waiting thread is looked at.
const samples = 20

// checkWaiting lets one worker hold the lock while the others wait for it and some threads for
// something else.
func (w *workers) checkWaiting(t *testing.T, plan Plan) {
	t.Helper()
	inside := func(word uint64) bool { return plan.LockStart <= word && word < plan.LockEnd }
	for _, tid := range w.elsewhere {
		w.awaitWord(t, tid, func(word uint64) bool { return !inside(word) }) // it may be on the way there
	}
	w.hold(t, 0)
	for k := 1; k < workerCount; k++ {
		poke(t, w.ask[k])
	}
	for range samples {
		for _, tid := range w.tids[1:workerCount] {
			if word := w.awaitWord(t, tid, anyWord); !inside(word) {
				t.Fatalf("a thread waits for the lock at %#x (plan %+v)", word, plan)
			}
		}
		for _, tid := range w.elsewhere {
			if word := w.awaitWord(t, tid, anyWord); inside(word) {
				t.Fatalf("a thread waits for something else at %#x (plan %+v)", word, plan)
			}
		}
		time.Sleep(time.Millisecond)
	}
	for k := range workerCount {
		poke(t, w.end[k])
	}
	for k := range workerCount {
		w.await(t, k, askFD(k))
	}
}

func anyWord(uint64) bool { return true }

// awaitWord waits until a thread is blocked in futex() on a word that is wanted; it returns its address.
func (w *workers) awaitWord(t *testing.T, tid int, wanted func(word uint64) bool) uint64 {
	t.Helper()
	path := fmt.Sprintf("/proc/%d/task/%d/syscall", w.process.PID(), tid)
	for start := time.Now(); ; time.Sleep(100 * time.Microsecond) {
		now, err := os.ReadFile(path)
		var number int
		var word uint64
		n, _ := fmt.Sscanf(string(now), "%d 0x%x ", &number, &word)
		if n == 2 && number == unix.SYS_FUTEX && wanted(word) {
			return word
		}
		if time.Since(start) > time.Minute {
			t.Fatalf("thread %d does %q (%v)", tid, now, err)
		}
	}
}

// checkDisabled lets all workers go where they would hold the lock if it were not off.
func (w *workers) checkDisabled(t *testing.T) {
	t.Helper()
	plan := detect(t, w.process)
	for k := range workerCount {
		w.hold(t, k)
	}
	for _, tp := range w.tps {
		if got := evaluate(t, w.process, plan, tp); got != disabled {
			t.Fatalf("a thread is %s (plan %+v)", got, plan)
		}
	}
}

// threadPointer asks the kernel for a thread's thread pointer. The thread's system call goes on afterwards.
func threadPointer(t *testing.T, tid int) uint64 {
	t.Helper()
	runtime.LockOSThread() // a tracer is a thread
	defer runtime.UnlockOSThread()
	if err := unix.PtraceSeize(tid); err != nil {
		t.Fatalf("seizing thread %d: %v", tid, err)
	}
	if err := unix.PtraceInterrupt(tid); err != nil {
		t.Fatalf("interrupting thread %d: %v", tid, err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(tid, &status, unix.WALL, nil); err != nil || !status.Stopped() {
		t.Fatalf("waiting for thread %d: %v, %#x", tid, err, status)
	}
	tp, err := threadRegister(tid)
	if err := errors.Join(err, unix.PtraceDetach(tid)); err != nil {
		t.Fatalf("reading the registers of thread %d: %v", tid, err)
	}
	return tp
}

func detect(t *testing.T, p Process) Plan {
	t.Helper()
	plan, err := Detect(p)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// build runs a compiler or a tool like it on files of testdata; its output goes to a temporary file,
// whose path is returned and stands for OUT in the arguments.
func build(t *testing.T, name, tool string, args ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	for i, arg := range args {
		args[i] = strings.ReplaceAll(arg, "OUT", out)
	}
	cmd := exec.Command(tool, args...)
	cmd.Dir = "testdata"
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", cmd.Args, err, output)
	}
	return out
}
