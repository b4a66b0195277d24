package main

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"stageprof/agent/capability"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// The users of these tests: numbers suffice, nobody needs to have them.
const (
	trainer  = 61001 // whose process the target is
	observer = 61002 // who records it
)

// ours is a program of another user with a driver of its own.
type ours struct {
	t      *testing.T
	pid    int
	dir    string // of the target's user; the driver lies here
	orders *os.File
	given  int
	lines  *simtest.Process
}

// startTrainer starts a puppet (sim/testers/puppet.c) as another user.
func startTrainer(t *testing.T) *ours {
	t.Helper()
	dir := dirOf(t, trainer)
	driver := copyInto(t, dir, "libcuda.so.1", simtest.Build(t, "sim/libcuda.so.1"))
	program := copyInto(t, dir, "testers/puppet", simtest.Tester(t, "puppet").Path)
	ready := filepath.Join(dir, "ready")
	if err := os.WriteFile(ready, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	id := strconv.Itoa(trainer)
	process := simtest.Start(t, simtest.Command{
		Path: "setpriv", Args: []string{"--reuid=" + id, "--regid=" + id, "--clear-groups", program},
		Env: []string{"STAGEPROF_READY=" + ready, "SIMCUDA_TRUTH=" + driver + ".truth"},
	})
	process.WaitLine("up")
	orders, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/0", process.PID), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { orders.Close() })
	return &ours{t: t, pid: process.PID, dir: dir, orders: orders, lines: process}
}

func (o *ours) order(order string) {
	o.t.Helper()
	if _, err := fmt.Fprintln(o.orders, order); err != nil {
		o.t.Fatal(err)
	}
	o.given++
	o.lines.WaitLine(fmt.Sprintf("ok %06d", o.given))
}

// launches is how many the driver has counted.
func (o *ours) launches() uint64 {
	o.t.Helper()
	path := filepath.Join(o.dir, fmt.Sprintf("truth.%d", o.given))
	o.order("main truth " + path)
	counts := simtest.ReadTruth(o.t, path).Counts()
	return counts.Only(func(k simtest.Key) bool { return k.Symbol == "cuLaunchKernel" }).Total().Calls
}

// dirOf makes a directory of a user's, which others can reach.
func dirOf(t *testing.T, user int) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(dir, user, user); err != nil {
		t.Fatal(err)
	}
	return dir
}

func copyInto(t *testing.T, dir, name, from string) string {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, trainer, trainer); err != nil {
		t.Fatal(err)
	}
	return path
}

// What happens to the target's driver before it is recorded.
var situations = map[string]func(t *testing.T, o *ours){
	"": func(*testing.T, *ours) {},
	"private folder": func(t *testing.T, o *ours) {
		if err := os.Chmod(o.dir, 0o700); err != nil {
			t.Fatal(err)
		}
	},
	"replaced": func(t *testing.T, o *ours) {
		path := filepath.Join(o.dir, "libcuda.so.1")
		if err := os.Rename(path, path+".old"); err != nil {
			t.Fatal(err)
		}
		copyInto(t, o.dir, "libcuda.so.1", path+".old")
		if err := os.Remove(path + ".old"); err != nil {
			t.Fatal(err)
		}
	},
}

// privilegeCases are the rows of docs/privileges.md.
var privilegeCases = []struct {
	name  string
	user  int
	caps  []uintptr
	args  []string
	state string // of situations
	want  string // "": it works; else what the error names
}{
	{"what it takes", observer, caps(unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE), nil, "", ""},
	{"no CAP_BPF", observer, caps(unix.CAP_PERFMON, unix.CAP_SYS_PTRACE), nil, "", "CAP_BPF"},
	{"no CAP_PERFMON", observer, caps(unix.CAP_BPF, unix.CAP_SYS_PTRACE), nil, "", "CAP_PERFMON"},
	{"no CAP_SYS_PTRACE", observer, caps(unix.CAP_BPF, unix.CAP_PERFMON), nil, "", "CAP_SYS_PTRACE"},
	{"CAP_SYS_ADMIN for both", observer, caps(unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE), nil, "", ""},
	{"CAP_SYS_ADMIN alone", observer, caps(unix.CAP_SYS_ADMIN), nil, "", "CAP_SYS_PTRACE"},
	{"nothing", observer, nil, nil, "", "CAP_BPF"},

	{"one's own process", trainer, caps(unix.CAP_BPF, unix.CAP_PERFMON), nil, "", ""},
	{"one's own process, nothing", trainer, nil, nil, "", "CAP_BPF"},

	{"perf events", observer, caps(unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE),
		[]string{"--mechanism=perf-event", "--probes=cuLaunchKernel"}, "", "CAP_SYS_ADMIN"},
	{"perf events with CAP_SYS_ADMIN", observer, caps(unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE),
		[]string{"--mechanism=perf-event", "--probes=cuLaunchKernel"}, "", ""},

	{"private driver", observer, caps(unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE), nil,
		"private folder", "CAP_DAC_READ_SEARCH"},
	{"private driver with CAP_DAC_READ_SEARCH", observer,
		caps(unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH), nil, "private folder", ""},
	{"one's own private driver", trainer, caps(unix.CAP_BPF, unix.CAP_PERFMON), nil, "private folder", ""},

	{"replaced driver", observer, caps(unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH), nil,
		"replaced", "CAP_CHECKPOINT_RESTORE"},
	{"replaced driver without CAP_DAC_READ_SEARCH", observer,
		caps(unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE, unix.CAP_CHECKPOINT_RESTORE), nil,
		"replaced", "CAP_DAC_READ_SEARCH"},
	{"replaced driver with both", observer,
		caps(unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE, unix.CAP_CHECKPOINT_RESTORE, unix.CAP_DAC_READ_SEARCH), nil,
		"replaced", ""},
	{"replaced driver with CAP_SYS_ADMIN", observer, caps(unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH), nil,
		"replaced", ""},
	{"one's own replaced driver", trainer, caps(unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_CHECKPOINT_RESTORE), nil,
		"replaced", ""},
	{"one's own replaced driver, nothing", trainer, caps(unix.CAP_BPF, unix.CAP_PERFMON), nil,
		"replaced", "CAP_CHECKPOINT_RESTORE"},
}

func caps(c ...uintptr) []uintptr { return c }

// as makes a command run as a user with these capabilities and no others.
func as(t *testing.T, cmd *exec.Cmd, user int, capabilities []uintptr) *exec.Cmd {
	t.Helper()
	cmd.Dir = dirOf(t, user)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: uint32(user), Gid: uint32(user)},
		AmbientCaps: capabilities,
	}
	return cmd
}

// Each set of capabilities records a process completely, or says what is missing;
// and doctor says the same.
func TestPrivileges(t *testing.T) {
	for _, c := range privilegeCases {
		t.Run(c.name, func(t *testing.T) {
			o := startTrainer(t)
			situations[c.state](t, o)
			if len(c.args) == 0 { // doctor is not asked for a mechanism
				checkDoctor(t, as(t, command(t, "doctor", "--pid", strconv.Itoa(o.pid)), c.user, c.caps), c.want)
			}
			cmd := as(t, command(t, append(recordArgs(o.pid, "--save=saved"), c.args...)...), c.user, c.caps)
			if c.want != "" {
				wantTrouble(t, cmd, c.want)
				return
			}
			r := attach(t, cmd)
			before := o.launches()
			o.order("main launch 100")
			r.signal(t, syscall.SIGINT)
			r.wait(t, exitOK)
			if got, want := launchesIn(readSaved(t, r.path("saved"))), o.launches()-before; got != want {
				t.Errorf("recorded %d launches, the driver counted %d", got, want)
			}
		})
	}
}

// An ordinary user who may execute a program with file capabilities serves another
// user's process, with libraries that it loads later, and has nothing else that root has.
func TestServeWithFileCapabilities(t *testing.T) {
	o := startTrainer(t)
	program := withFileCapabilities(t, unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE)
	cmd := as(t, exec.Command(program, serveArgs("--pid", strconv.Itoa(o.pid))...), observer, nil)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	s := startServer(t, cmd)
	expectConfined(t, cmd.Process.Pid, capability.Of(unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE), false)
	s.await(up, 1)
	before := o.launches()
	o.order("main markers " + copyInto(t, o.dir, "libstageprof.so", simtest.Markers(t)))
	o.order("main launch 100")
	s.await("stageprof_driver_calls_seen_total", float64(o.launches()-before))
}

// withFileCapabilities copies this program and lets whoever executes it have capabilities.
func withFileCapabilities(t *testing.T, capabilities ...int) string {
	t.Helper()
	content, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	var refused error
	for _, dir := range []string{dirOf(t, observer), varTmp(t)} {
		program := filepath.Join(dir, "stageprof")
		if err := writeProgram(program, content); err != nil {
			t.Fatal(err)
		}
		err := setFileCapabilities(program, capability.Of(capabilities...))
		if err == nil {
			return program
		}
		refused = errors.Join(refused, fmt.Errorf("%q: %w", dir, err))
	}
	t.Skipf("no folder here where programs can have capabilities: %v", refused)
	return ""
}

// varTmp is a folder that is often in another file system than those of tests.
func varTmp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "stageprof")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// writeProgram writes a program while no process is started: that would have the file
// open for a moment, in which the program can't be executed (ETXTBSY).
func writeProgram(path string, content []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, content, 0o755)
}

// setFileCapabilities says so where the file system keeps none or ignores them.
func setFileCapabilities(program string, set capability.Set) error {
	// struct vfs_cap_data: its version and "effective", then the permitted and the
	// inheritable ones, the low 32 first.
	const version2, effective = 0x02000000, 1
	var value []byte
	for _, word := range [5]uint32{version2 | effective, uint32(set), 0, uint32(set >> 32), 0} {
		value = binary.LittleEndian.AppendUint32(value, word)
	}
	if err := unix.Setxattr(program, "security.capability", value, 0); err != nil {
		return err
	}
	var mounted unix.Statfs_t
	if err := unix.Statfs(program, &mounted); err != nil {
		return err
	}
	if mounted.Flags&(unix.ST_NOSUID|unix.ST_NOEXEC) != 0 {
		return errors.New("mounted without set-user-id programs")
	}
	return nil
}

// confinement is what the kernel says of a thread's privileges.
type confinement struct{ permitted, effective, bounding, ambient, noNewPrivileges uint64 }

// expectConfined checks that every thread of a process has some capabilities and no
// way to others. bounded: that also its bounding set has no others.
func expectConfined(t *testing.T, pid int, want capability.Set, bounded bool) {
	t.Helper()
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(paths) == 0 {
		t.Fatalf("threads %q, %v", paths, err)
	}
	for _, path := range paths {
		status, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			t.Fatal(err)
		}
		var got confinement
		for line, to := range map[string]*uint64{"CapPrm": &got.permitted, "CapEff": &got.effective,
			"CapBnd": &got.bounding, "CapAmb": &got.ambient, "NoNewPrivs": &got.noNewPrivileges} {
			_, rest, _ := strings.Cut(string(status), line+":")
			if _, err := fmt.Sscanf(rest, "%x", to); err != nil {
				t.Fatal(err)
			}
		}
		all := confinement{uint64(want), uint64(want), uint64(want), 0, 1}
		if !bounded {
			all.bounding = got.bounding
		}
		if got != all {
			t.Errorf("%s: %+x, want %+x", path, got, all)
		}
	}
}

// always is what commands that attach keep of root's capabilities in any case.
var always = capability.Of(unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH, unix.CAP_CHECKPOINT_RESTORE)

// While root records, every thread has the capabilities that may still be needed, and
// no others. They do for a driver that comes late, in a folder where only its owner may
// look; to take every probe off; and to write the file where it is wanted.
func TestConfined(t *testing.T) {
	override := capability.Of(unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER)
	cases := []struct {
		name   string
		args   []string
		save   string                    // "": saved
		output func(t *testing.T) string // nil: in a folder of its own
		more   capability.Set
	}{
		{name: "record"},
		{name: "perf events", args: []string{"--mechanism=perf-event"}, more: capability.Of(unix.CAP_SYS_ADMIN)},
		{name: "another user's folder", output: anothersFolder, more: override},
		{name: "another user's file there", output: func(t *testing.T) string {
			output := anothersFolder(t)
			writeText(t, output, "")
			if err := errors.Join(os.Chown(output, trainer, trainer), os.Chmod(filepath.Dir(output), 0o700|os.ModeSticky)); err != nil {
				t.Fatal(err)
			}
			return output
		}, more: override},
		{name: "another user's file", output: func(t *testing.T) string {
			output := filepath.Join(t.TempDir(), "profile")
			writeText(t, output, "")
			if err := os.Chown(output, trainer, trainer); err != nil {
				t.Fatal(err)
			}
			return output
		}, more: override},
		{name: "a protected file", output: func(t *testing.T) string {
			output := filepath.Join(t.TempDir(), "profile")
			if err := os.WriteFile(output, nil, 0o444); err != nil {
				t.Fatal(err)
			}
			return output
		}, more: override},
		{name: "files of each process", args: []string{"--children"}, save: "saved.{pid}", more: override},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := startTrainer(t)
			driver, late := filepath.Join(o.dir, "libcuda.so.1"), lateDriver(t, o)
			plain := simtest.CodeOf(t, o.pid, driver)
			output := filepath.Join(t.TempDir(), "profile")
			if c.output != nil {
				output = c.output(t)
			}
			args := recordArgs(o.pid, "--no-gpu", "--probes=cuLaunchKernel,cuDriverGetVersion", "--output", output, "--save", cmp.Or(c.save, "saved"))
			r := attach(t, command(t, append(args, c.args...)...))
			expectConfined(t, r.cmd.Process.Pid, always|c.more, true)
			before := o.launches()
			o.order("main second " + late + " " + filepath.Join(o.dir, "truth.late"))
			simtest.Eventually(t, "the late driver is probed", func() bool { return !bytes.Equal(simtest.CodeOf(t, o.pid, late), plain) })
			o.order("main launch 100")
			for _, pid := range []int{r.cmd.Process.Pid, simtest.ChildOf(t, r.cmd.Process.Pid, "probe-keeper")} {
				expectConfined(t, pid, always|c.more, true)
			}

			r.signal(t, syscall.SIGINT)
			r.wait(t, exitOK)
			rec := readSaved(t, strings.ReplaceAll(r.path(cmp.Or(c.save, "saved")), pidInName, strconv.Itoa(o.pid)))
			if got, want := launchesIn(rec), o.launches()-before; got != want || profileSum(t, output, "calls") != want {
				t.Errorf("recorded %d launches, the driver counted %d", got, want)
			}
			if !slices.ContainsFunc(rec.Warnings, func(w string) bool { return strings.Contains(w, late) && strings.Contains(w, "is probed") }) {
				t.Errorf("warnings %q, want that %q is probed", rec.Warnings, late)
			}
			for _, path := range []string{driver, late} {
				if !bytes.Equal(simtest.CodeOf(t, o.pid, path), plain) {
					t.Errorf("the code of %q is not as it was", path)
				}
			}
		})
	}
}

// lateDriver is another driver in a folder where only the target's user may look.
func lateDriver(t *testing.T, o *ours) string {
	t.Helper()
	path := copyInto(t, o.dir, "late/libcuda.so.1", filepath.Join(o.dir, "libcuda.so.1"))
	if err := errors.Join(os.Chown(filepath.Dir(path), trainer, trainer), os.Chmod(filepath.Dir(path), 0o700)); err != nil {
		t.Fatal(err)
	}
	return path
}

// anothersFolder is a file's name in a folder where another user alone may do anything.
func anothersFolder(t *testing.T) string {
	dir := filepath.Join(dirOf(t, observer), "private")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, observer, observer)); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "profile")
}

// Those that show what they record are confined, too.
func TestConfinedWhileWatched(t *testing.T) {
	o := startTrainer(t)
	s := startServe(t, "--pid", strconv.Itoa(o.pid))
	s.await(up, 1)
	expectConfined(t, s.cmd.Process.Pid, always, true)

	term := inTerminal(t, nil, "top", "--pid", strconv.Itoa(o.pid))
	term.want("calls/s")
	expectConfined(t, term.command(), always, true)
	term.press("q")
	term.wantEnd(exitOK)
}

// A port that not everybody may listen on takes a capability of its own.
func TestConfinedToPrivilegedPort(t *testing.T) {
	for address, want := range map[string]capability.Set{
		"127.0.0.1:8765": 0, "127.0.0.1:0": 0, "[::1]:1024": 0, "[::1]:80": capability.Of(unix.CAP_NET_BIND_SERVICE),
	} {
		if got := toListen(address); got != want {
			t.Errorf("listening on %q takes %#x, want %#x", address, got, want)
		}
	}
}

// refuseCapset executes stageprof where the system call that gives capabilities up fails.
const refuseCapset = `import ctypes, os, struct, sys
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
REFUSE, ALLOW = 0x00050001, 0x7fff0000  # with EPERM
rules = struct.pack("HBBI" * 4, LOAD, 0, 0, 0, JUMP_IF_EQUAL, 0, 1, int(sys.argv[1]), RETURN, 0, 0, REFUSE, RETURN, 0, 0, ALLOW)
rules = ctypes.create_string_buffer(rules)
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
if ctypes.CDLL(None).prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, struct.pack("HP", 4, ctypes.addressof(rules)), 0, 0):
    sys.exit("no filter")
os.execv(os.environ["STAGEPROF"], ["stageprof"] + sys.argv[2:])
`

// What can't be given up is said, and the recording goes on.
func TestNotConfined(t *testing.T) {
	const said = "capabilities that are not needed are kept"
	refused := func(args ...string) *exec.Cmd {
		return through(t, "python3", append([]string{"-c", refuseCapset, strconv.Itoa(unix.SYS_CAPSET)}, args...)...)
	}
	if r := finish(t, refused("doctor")); r.code != exitOK || !strings.Contains(r.stderr, said) {
		t.Errorf("doctor: exit code %d, stderr %q; want %d and %q", r.code, r.stderr, exitOK, said)
	}
	o := startTrainer(t)
	r := attach(t, refused(recordArgs(o.pid, "--no-gpu")...))
	o.order("main launch 100")
	r.signal(t, syscall.SIGINT)
	r.wait(t, exitOK)
	if got := profileSum(t, r.path("stageprof.pb.gz"), "calls"); got != 100 {
		t.Errorf("the profile has %d calls, want 100", got)
	}
	if !strings.Contains(r.stderr.String(), said) {
		t.Errorf("stderr %q, want %q", r.stderr.String(), said)
	}
}

// Where the dynamic linker is the program that is executed, nothing is started over.
func TestNotConfinedByTheLinker(t *testing.T) {
	program, err := elf.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close() // of a file that was only read
	section := program.Section(".interp")
	if section == nil {
		t.Skip("this program is linked statically")
	}
	linker, err := section.Data()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	byLinker := func(args ...string) *exec.Cmd {
		return through(t, string(bytes.TrimRight(linker, "\x00")), append([]string{self}, args...)...)
	}
	r := finish(t, byLinker("doctor"))
	if want := "are kept"; r.code != exitOK || !strings.Contains(r.stderr, want) {
		t.Errorf("exit code %d, stderr %q; want %d and %q", r.code, r.stderr, exitOK, want)
	}
	// Nor are there a child to calibrate on and a keeper: both are this program.
	o := startTrainer(t)
	recording := attach(t, byLinker(recordArgs(o.pid, "--no-gpu")...))
	o.order("main launch 100")
	recording.signal(t, syscall.SIGINT)
	recording.wait(t, exitOK)
	if got := profileSum(t, recording.path("stageprof.pb.gz"), "calls"); got != 100 {
		t.Errorf("the profile has %d calls, want 100", got)
	}
	if want := "should stageprof be killed, probes may stay"; !strings.Contains(recording.stdout.String(), want) {
		t.Errorf("stdout %q, want %q", recording.stdout.String(), want)
	}
}

// Who may execute a program with file capabilities can't have what it does for its agent done
// for himself.
func TestKeeperRefusesFileCapabilities(t *testing.T) {
	program := withFileCapabilities(t, unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE)
	for _, c := range []struct{ program, want string }{
		{program, "only an agent starts this"},
		{"/proc/self/exe", "socket"}, // which it has not been given
	} {
		cmd := as(t, exec.Command(c.program), observer, nil)
		cmd.Env = append(os.Environ(), "STAGEPROF_KEEPER=1")
		if r := finish(t, cmd); !strings.Contains(r.stderr, c.want) {
			t.Errorf("%s: stderr %q, want %q", c.program, r.stderr, c.want)
		}
	}
}

func checkDoctor(t *testing.T, cmd *exec.Cmd, missing string) {
	t.Helper()
	r := finish(t, cmd)
	code := exitOK
	if missing != "" {
		code = exitError
	}
	if r.code != code || !strings.Contains(r.stderr, missing) {
		t.Errorf("doctor: exit code %d, stderr %q; want %d and %q", r.code, r.stderr, code, missing)
	}
}

func readSaved(t *testing.T, path string) *recording.Recording {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rec, err := recording.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func launchesIn(rec *recording.Recording) (n uint64) {
	for _, row := range rec.Calls {
		if rec.Symbols[row.Symbol].Name == "cuLaunchKernel" {
			n += row.Count
		}
	}
	return n
}
