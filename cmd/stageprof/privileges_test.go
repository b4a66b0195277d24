package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

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
			if got, want := savedLaunches(t, r.path("saved")), o.launches()-before; got != want {
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
	if got, want := effectiveCapabilities(t, cmd.Process.Pid), uint64(1)<<unix.CAP_BPF|1<<unix.CAP_PERFMON|1<<unix.CAP_SYS_PTRACE; got != want {
		t.Errorf("it has the capabilities %#x, want %#x", got, want)
	}
	s.await(up, 1)
	before := o.launches()
	o.order("main markers " + copyInto(t, o.dir, "libstageprof.so", simtest.Markers(t)))
	o.order("main launch 100")
	s.await("stageprof_driver_calls_seen_total", float64(o.launches()-before))
}

// withFileCapabilities copies this program and lets whoever executes it have capabilities.
func withFileCapabilities(t *testing.T, capabilities ...uint) string {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(executable)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dirOf(t, observer), "stageprof")
	if err := os.WriteFile(program, content, 0o755); err != nil {
		t.Fatal(err)
	}
	// struct vfs_cap_data: its version and "effective", then the permitted and the
	// inheritable ones, the low 32 first.
	const version2, effective = 0x02000000, 1
	words := [5]uint32{version2 | effective}
	for _, c := range capabilities {
		words[1+2*(c/32)] |= 1 << (c % 32)
	}
	var value []byte
	for _, w := range words {
		value = binary.LittleEndian.AppendUint32(value, w)
	}
	if err := unix.Setxattr(program, "security.capability", value, 0); err != nil {
		t.Fatal(err)
	}
	return program
}

func effectiveCapabilities(t *testing.T, pid int) (caps uint64) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(status), "CapEff:")
	if _, err := fmt.Sscanf(line, "%x", &caps); err != nil {
		t.Fatal(err)
	}
	return caps
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

func savedLaunches(t *testing.T, path string) uint64 {
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
	var n uint64
	for _, row := range rec.Calls {
		if rec.Symbols[row.Symbol].Name == "cuLaunchKernel" {
			n += row.Count
		}
	}
	return n
}
