package capability

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The environment of a copy of this program that confines itself.
const (
	keepSet   = "STAGEPROF_TEST_KEEP" // to these
	situation = "STAGEPROF_TEST_SITUATION"
)

func TestMain(m *testing.M) {
	keep, ok := os.LookupEnv(keepSet)
	if !ok {
		os.Exit(m.Run())
	}
	if err := confineTo(keep); err != nil {
		fmt.Println("error:", err)
	}
	fmt.Println("pid", os.Getpid(), os.Args[1:])
	runtime.LockOSThread()
	fmt.Printf("here %x\n", uint64(mine().permitted))
	if err := printThreads(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func confineTo(keep string) error {
	set, err := strconv.ParseUint(keep, 16, 64)
	if err != nil {
		return err
	}
	switch os.Getenv(situation) {
	case "execve is refused":
		err = answer(unix.SYS_EXECVE, unix.EACCES)
	case "capset is pretended":
		err = answer(unix.SYS_CAPSET, 0)
	}
	if err != nil {
		return err
	}
	return Confine(Set(set))
}

// answer makes a system call do nothing, and return what is said; 0: that it has worked.
func answer(call uint32, errno syscall.Errno) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program)))
	if failed != 0 {
		return failed
	}
	return nil
}

// printThreads prints what the kernel says of each thread.
func printThreads() error {
	paths, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		return err
	}
	for _, path := range paths {
		status, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", status)
	}
	return nil
}

// confinement is a copy of this program, to be run with some arguments.
func confinement(t *testing.T, keep Set) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "some", "arguments")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%x", keepSet, uint64(keep)))
	return cmd
}

func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// values are what all threads have in a line of their status, each once.
func values(status, line string) []string {
	var all []string
	for _, found := range regexp.MustCompile(`(?m)^`+line+`:\s*(\w+)$`).FindAllStringSubmatch(status, -1) {
		all = append(all, strings.TrimLeft(found[1], "0"))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

var recording = Of(unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE)

func TestConfine(t *testing.T) {
	const user = 61002 // nobody needs to have this number
	cases := []struct {
		name string
		keep Set
		as   *syscall.SysProcAttr
		// in hexadecimal, and "" for none
		permitted, ambient string
	}{
		{"root", recording, nil, "c000080000", ""},
		{"root, nothing", 0, nil, "", ""},
		{"root in a container", recording, &syscall.SysProcAttr{AmbientCaps: []uintptr{unix.CAP_KILL}}, "c000080000", ""},
		{"a user with more", recording, &syscall.SysProcAttr{
			Credential:  &syscall.Credential{Uid: user, Gid: user},
			AmbientCaps: []uintptr{unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_CHOWN},
		}, "c000000000", "c000000000"},
		{"a user with nothing", recording, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}, "", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cmd := confinement(t, c.keep)
			cmd.SysProcAttr = c.as
			got := output(t, cmd)
			if want := fmt.Sprintf("pid %d [some arguments]\n", cmd.Process.Pid); !strings.HasPrefix(got, want) {
				t.Errorf("it printed %q, want %q first", got, want)
			}
			if want := "Name:\tcapability.test\n"; !strings.Contains(got, want) {
				t.Errorf("it printed %q, want %q", got, want)
			}
			for line, want := range map[string]string{
				"CapPrm": c.permitted, "CapEff": c.permitted, "CapAmb": c.ambient, "CapInh": c.ambient, "NoNewPrivs": "1",
			} {
				if got := values(got, line); !slices.Equal(got, []string{want}) {
					t.Errorf("%s of its threads: %q, want %q in all", line, got, want)
				}
			}
			if root := c.as == nil || c.as.Credential == nil; root && !slices.Equal(values(got, "CapBnd"), []string{c.permitted}) {
				t.Errorf("its threads are bounded to %q, want %q", values(got, "CapBnd"), c.permitted)
			}
		})
	}
}

// Where it does not work, the process has what it had, and works on.
func TestConfineFails(t *testing.T) {
	for in, want := range map[string]string{
		"execve is refused":   "permission denied",
		"capset is pretended": "goes on granting",
	} {
		t.Run(in, func(t *testing.T) {
			cmd := confinement(t, recording)
			cmd.Env = append(cmd.Env, situation+"="+in)
			got := output(t, cmd)
			if !strings.Contains(got, "error: ") || !strings.Contains(got, want) {
				t.Errorf("it printed %q, want an error with %q", got, want)
			}
			if want := fmt.Sprintf("here %x\n", uint64(Permitted())); !strings.Contains(got, want) {
				t.Errorf("it printed %q, want %q", got, want)
			}
		})
	}
}

// A file with a capability that is given up is executed all the same. In a file system
// that ignores those of files, as any other one.
func TestConfineWithFileCapabilities(t *testing.T) {
	cmd := confinement(t, recording)
	content, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Path = filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(cmd.Path, content, 0o755); err != nil {
		t.Fatal(err)
	}
	// struct vfs_cap_data: its version and "effective", then what is permitted and what
	// is inheritable, the low 32 first.
	value := binary.LittleEndian.AppendUint32(nil, 0x02000001)
	for _, word := range []uint32{1 << unix.CAP_CHOWN, 0, 0, 0} {
		value = binary.LittleEndian.AppendUint32(value, word)
	}
	if err := unix.Setxattr(cmd.Path, "security.capability", value, 0); err != nil {
		t.Fatal(err)
	}
	got := output(t, cmd)
	if want := fmt.Sprintf("pid %d [some arguments]\nhere c000080000\n", cmd.Process.Pid); !strings.HasPrefix(got, want) {
		t.Errorf("it printed %q, want %q first", got, want)
	}
	if got := values(got, "NoNewPrivs"); !slices.Equal(got, []string{"1"}) {
		t.Errorf("no_new_privs of its threads: %q", got)
	}
}

func TestSet(t *testing.T) {
	s := Of(unix.CAP_BPF, unix.CAP_CHOWN)
	for _, c := range []struct {
		all  Set
		want bool
	}{
		{Of(unix.CAP_CHOWN), true}, {Of(unix.CAP_CHOWN, unix.CAP_BPF), true}, {0, true},
		{Of(unix.CAP_KILL), false}, {Of(unix.CAP_KILL, unix.CAP_BPF), false},
	} {
		if got := s.Has(c.all); got != c.want {
			t.Errorf("%#x has %#x: %v, want %v", uint64(s), uint64(c.all), got, c.want)
		}
	}
	if !Permitted().Has(Effective()) || Effective() == 0 {
		t.Errorf("effective %#x, permitted %#x", uint64(Effective()), uint64(Permitted()))
	}
}
