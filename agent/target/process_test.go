package target

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"stageprof/agent/capability"
)

func TestOpenRefuses(t *testing.T) {
	leader := start(t, nil)
	leader.do("thread worker")
	var workerTID int
	for _, th := range threadsOf(t, leader.open()) {
		if th.Name == "worker" {
			workerTID = th.TID
		}
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	headless := start(t, nil)
	headless.do("end-main-thread")
	for waitForState(t, headless.pid) != 'Z' {
		runtime.Gosched()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	for _, tc := range []struct {
		name string
		pid  int
		want error
		says string
	}{
		{"zero", 0, ErrNoProcess, "positive"},
		{"negative", -5, ErrNoProcess, "positive"},
		{"exited and reaped", gone.Process.Pid, ErrNoProcess, ""},
		{"larger than any pid", 1<<31 - 1, ErrNoProcess, ""},
		{"larger than 32 bits", 1 << 40, ErrNoProcess, ""},
		{"itself", os.Getpid(), ErrSelf, ""},
		{"a thread of itself", anotherThread(t), ErrSelf, "one of its threads"},
		{"a thread", workerTID, ErrThread, fmt.Sprintf("belongs to process %d (\"tester\")", leader.pid)},
		{"a kernel thread", 2, ErrKernelThread, `"kthreadd"`},
		{"a zombie", zombie(t), ErrZombie, "waits for its parent"},
		{"a process without its main thread", headless.pid, ErrZombie, "1 others run on"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := Open(tc.pid)
			if err == nil {
				p.Close()
			}
			if !errors.Is(err, tc.want) || !strings.Contains(fmt.Sprint(err), tc.says) ||
				!strings.Contains(fmt.Sprint(err), strconv.Itoa(tc.pid)) {
				t.Errorf("Open(%d): %v, want %v saying %q", tc.pid, err, tc.want, tc.says)
			}
		})
	}
}

// anotherThread returns the id of a thread of this program other than its first.
func anotherThread(t *testing.T) int {
	t.Helper()
	ids, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if tid, err := strconv.Atoi(id.Name()); err == nil && tid != os.Getpid() {
			return tid
		}
	}
	t.Fatal("this program has one thread only")
	return 0
}

// zombie returns the pid of a process that has exited and is not waited for until the end of
// the test.
func zombie(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Wait() })
	for waitForState(t, cmd.Process.Pid) != 'Z' {
		runtime.Gosched()
	}
	return cmd.Process.Pid
}

func waitForState(t *testing.T, pid int) byte {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	s, err := parseStat(b)
	if err != nil {
		t.Fatal(err)
	}
	return s.state
}

func TestIdentity(t *testing.T) {
	before := time.Now()
	cmd := exec.Command(testerProgram(t), "one", "", "three words here")
	cmd.Env = []string{"RANK=3", "EMPTY=", "=odd", "BARE"}
	x := start(t, cmd)
	x.do("name a) R (b")
	p := x.open()

	if p.PID() != x.pid || p.NSPID() != x.pid {
		t.Errorf("PID, NSPID = %d, %d, want %d", p.PID(), p.NSPID(), x.pid)
	}
	if p.Comm() != "a) R (b" {
		t.Errorf("Comm() = %q", p.Comm())
	}
	if p.Exe() != testerProgram(t) {
		t.Errorf("Exe() = %q", p.Exe())
	}
	if want := []string{testerProgram(t), "one", "", "three words here"}; !slices.Equal(p.Cmdline(), want) {
		t.Errorf("Cmdline() = %q, want %q", p.Cmdline(), want)
	}
	for name, want := range map[string]string{"RANK": "3", "EMPTY": "", "BARE": "", "PATH": ""} {
		if got := p.Env(name); got != want {
			t.Errorf("Env(%q) = %q, want %q", name, got, want)
		}
	}
	if _, ok := p.LookupEnv("EMPTY"); !ok {
		t.Error("an empty variable is taken for an unset one")
	}
	if _, ok := p.LookupEnv("PATH"); ok {
		t.Error("an unset variable is taken for a set one")
	}
	if p.UID() != os.Geteuid() {
		t.Errorf("UID() = %d", p.UID())
	}
	// btime is cut to a second, ticks to 1/100 s.
	if d := p.StartTime().Sub(before); d < -2*time.Second || d > time.Minute {
		t.Errorf("StartTime() = %v, %v from when it was started", p.StartTime(), d)
	}
	again := x.open()
	if p.StartTicks() == 0 || again.StartTicks() != p.StartTicks() {
		t.Errorf("StartTicks() = %d, then %d", p.StartTicks(), again.StartTicks())
	}
	dev, inode, err := p.PIDNamespace()
	var st unix.Stat_t
	if statErr := unix.Stat("/proc/self/ns/pid", &st); statErr != nil || err != nil || dev != st.Dev || inode != st.Ino {
		t.Errorf("PIDNamespace() = %d, %d, %v, want this program's %d, %d", dev, inode, err, st.Dev, st.Ino)
	}
}

func TestSeccomp(t *testing.T) {
	x := start(t, nil)
	if got := x.open().Seccomp(); got != 0 {
		t.Errorf("without a filter: %d", got)
	}
	x.do("filter")
	if got := x.open().Seccomp(); got != 2 {
		t.Errorf("with a filter: %d", got)
	}
}

// every calls each method that asks the kernel for something and returns its error by name.
func every(p *Process, m Mapping) map[string]error {
	errs := make(map[string]error)
	_, errs["Mappings"] = p.Mappings()
	_, errs["Threads"] = p.Threads()
	_, errs["OpenMapped"] = p.OpenMapped(m)
	_, errs["Drivers"] = p.Drivers()
	_, errs["MarkerLibs"] = p.MarkerLibs()
	_, errs["Execed"] = p.Execed()
	_, _, errs["PIDNamespace"] = p.PIDNamespace()
	errs["ReadMemory"] = p.ReadMemory(m.Start, make([]byte, 8))
	return errs
}

func TestExit(t *testing.T) {
	x := start(t, nil)
	p := x.open()
	m := mappingOf(t, p, testerProgram(t))
	select {
	case <-p.Exited():
		t.Fatal("Exited() before the target exits")
	default:
	}
	if err := x.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	for name, err := range every(p, m) {
		if !errors.Is(err, ErrTargetExited) {
			t.Errorf("%s of a zombie: %v", name, err)
		}
	}
	x.cmd.Wait()
	for name, err := range every(p, m) {
		if !errors.Is(err, ErrTargetExited) {
			t.Errorf("%s of a reaped process: %v", name, err)
		}
	}
}

// Another process with the same pid is another target.
func TestReusedPID(t *testing.T) {
	x := start(t, nil)
	p := x.open()
	m := mappingOf(t, p, testerProgram(t))
	x.cmd.Process.Kill()
	x.cmd.Wait()
	if _, err := os.Stat("/proc/sys/kernel/ns_last_pid"); err != nil || os.Geteuid() != 0 {
		t.Skip("choosing a pid takes root and a kernel with checkpoint support")
	}
	heir := processWithPID(t, x.pid)
	for name, err := range every(p, m) {
		if !errors.Is(err, ErrTargetExited) {
			t.Errorf("%s of a process whose pid %d is reused: %v", name, heir.pid, err)
		}
	}
	if got := heir.open().PID(); got != p.PID() {
		t.Errorf("the heir's pid is %d", got)
	}
}

// processWithPID starts testers until one gets the pid.
func processWithPID(t *testing.T, pid int) *tester {
	t.Helper()
	for range 1000 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0); err != nil {
			t.Fatal(err)
		}
		// The shell's own fork would take the pid, so the tester is started directly.
		x := start(t, nil)
		if x.pid == pid {
			return x
		}
		x.cmd.Process.Kill()
	}
	t.Fatalf("no process got pid %d", pid)
	return nil
}

func TestClose(t *testing.T) {
	descriptors := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	x := start(t, nil)
	x.do("load %s", driverLibrary(t))
	before := descriptors()
	p, err := Open(x.pid)
	if err != nil {
		t.Fatal(err)
	}
	m := mappingOf(t, p, testerProgram(t))
	if drivers, err := p.Drivers(); err != nil || len(drivers) != 1 {
		t.Fatalf("Drivers() = %v, %v", drivers, err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if after := descriptors(); after != before {
		t.Errorf("%d descriptors open, %d before", after, before)
	}
	for name, err := range every(p, m) {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	select {
	case <-p.Exited():
		t.Error("Close looks like the target's exit")
	default:
	}
}

func TestExeced(t *testing.T) {
	x := start(t, nil)
	p := x.open()
	if execed, err := p.Execed(); execed || err != nil {
		t.Errorf("Execed() = %v, %v before", execed, err)
	}
	if got := x.ask("exec " + testerProgram(t)); got != "ready" {
		t.Fatalf("exec: %s", got)
	}
	if execed, err := p.Execed(); !execed || err != nil {
		t.Errorf("Execed() = %v, %v after", execed, err)
	}
	if exited, err := p.hasExited(); exited || err != nil {
		t.Errorf("exec looks like an exit: %v, %v", exited, err)
	}
}

func TestReadMemory(t *testing.T) {
	x := start(t, nil)
	p := x.open()
	const text = "known bytes"
	b := make([]byte, 2*4096+100) // over page boundaries
	if err := p.ReadMemory(x.secret(), b); err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(b, []byte(text)) || !bytes.Equal(b[len(text):], make([]byte, len(b)-len(text))) {
		t.Errorf("read %q…", b[:20])
	}
	if err := p.ReadMemory(0x10, b); !errors.Is(err, unix.EFAULT) {
		t.Errorf("at an unmapped address: %v", err)
	}
	if err := p.ReadMemory(^uint64(0), b[:1]); err == nil {
		t.Error("read at the highest address")
	}
	last := mappingOf(t, p, "[stack]")
	if err := p.ReadMemory(last.End-8, b); !errors.Is(err, unix.EFAULT) {
		t.Errorf("over the end of a mapping: %v", err)
	}
	if err := p.ReadMemory(x.secret(), nil); err != nil {
		t.Errorf("no bytes: %v", err)
	}
}

func TestPermission(t *testing.T) {
	x := start(t, nil)
	library := driverLibrary(t)
	x.do("load %s", library)
	const nobody = 65534
	for _, tc := range []struct {
		name, action string
		caps         []uintptr
		says         string
	}{
		{"another user's process", "open", nil, "CAP_SYS_PTRACE is missing"},
		{"with CAP_SYS_PTRACE", "open", []uintptr{unix.CAP_SYS_PTRACE}, "opened"},
		{"with CAP_PERFMON, its files", "open-mapped", []uintptr{unix.CAP_PERFMON}, "CAP_SYS_PTRACE"},
		{"with CAP_SYS_PTRACE, its files", "open-mapped", []uintptr{unix.CAP_SYS_PTRACE}, "inode " + inodeOf(t, library)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			action := fmt.Sprintf("%s %d %s", tc.action, x.pid, library)
			if got := runAs(t, nobody, tc.caps, action); !strings.Contains(got, tc.says) {
				t.Errorf("%s: %s, want %q", tc.action, got, tc.says)
			}
		})
	}
	// Of a deleted file only map_files knows.
	gone := copyOf(t, library, "gone.so")
	x.do("load %s", gone)
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	action := fmt.Sprintf("open-mapped %d %s", x.pid, gone)
	if got := runAs(t, nobody, []uintptr{unix.CAP_SYS_PTRACE}, action); !strings.Contains(got, "CAP_CHECKPOINT_RESTORE and CAP_DAC_READ_SEARCH are missing") {
		t.Errorf("deleted file with CAP_SYS_PTRACE: %s", got)
	}
	caps := []uintptr{unix.CAP_SYS_PTRACE, unix.CAP_CHECKPOINT_RESTORE}
	if got := runAs(t, nobody, caps, action); !strings.Contains(got, "denied: CAP_DAC_READ_SEARCH is missing") {
		t.Errorf("deleted file with CAP_CHECKPOINT_RESTORE too: %s", got)
	}
	caps = append(caps, unix.CAP_DAC_READ_SEARCH)
	if got := runAs(t, nobody, caps, action); !strings.HasPrefix(got, "inode ") {
		t.Errorf("deleted file with all three: %s", got)
	}
}

func TestPermissionErrorWithEveryCapability(t *testing.T) {
	err := permissionError("reading", ^capability.Set(0), unix.CAP_SYS_PTRACE)
	if !errors.Is(err, ErrPermission) || !strings.Contains(err.Error(), "security module") {
		t.Errorf("%v", err)
	}
}

func TestHiddenProcess(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting takes root")
	}
	x := start(t, nil)
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	for _, mode := range []string{"noaccess", "invisible", "ptraceable"} {
		script := fmt.Sprintf("mount -t proc -o hidepid=%s proc /proc && "+
			"exec setpriv --reuid 65534 --regid 65534 --clear-groups /proc/self/fd/3", mode)
		cmd := exec.Command("unshare", "-m", "sh", "-c", script)
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=open %d", asHelper, x.pid))
		cmd.ExtraFiles = []*os.File{self}
		b, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(b), "hidepid") || !strings.Contains(string(b), "CAP_SYS_PTRACE is missing") {
			t.Errorf("%s: %v: %s", mode, err, b)
		}
	}
}

// The numbers of another pid namespace's /proc mean other processes here.
func TestForeignProc(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a new pid namespace takes root")
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), asHelper+"=open 999999")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID} // and /proc stays ours
	b, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(b), "another pid namespace") {
		t.Errorf("%v: %s", err, b)
	}
}
