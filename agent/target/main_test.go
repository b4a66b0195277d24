package target

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// asHelper is set in the environment of a copy of the test program that runs one action with
// other privileges; see runAs.
const asHelper = "TARGET_TEST_HELPER"

func TestMain(m *testing.M) {
	if action := os.Getenv(asHelper); action != "" {
		fmt.Println(help(action))
		return
	}
	code := m.Run()
	if dir, err := buildDir(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// buildDir holds what is compiled once for all tests. Other users may look into it.
var buildDir = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "target-test-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
})

var compiling sync.Mutex

// compile builds testdata/source into a file of that name, once, and returns its path.
func compile(t testing.TB, name, source string, flags ...string) string {
	t.Helper()
	compiling.Lock()
	defer compiling.Unlock()
	dir, err := buildDir()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, name)
	if _, err := os.Stat(out); err == nil {
		return out
	}
	args := append([]string{"-O1", "-Wall", "-Wextra", "-Werror", "-o", out, filepath.Join("testdata", source)}, flags...)
	if b, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc %q: %v\n%s", args, err, b)
	}
	return out
}

func testerProgram(t testing.TB) string { return compile(t, "tester", "tester.c", "-pthread") }

func driverLibrary(t testing.TB) string {
	return compile(t, "libcuda.so.535.261.03", "driver.c", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-Wl,--build-id=0xabcdef01")
}

// tester is a running copy of testdata/tester.c.
type tester struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	pid int // of the tester itself, which may not be cmd's
}

// start runs the tester, by default testerProgram, until the end of the test.
func start(t testing.TB, cmd *exec.Cmd) *tester {
	t.Helper()
	if cmd == nil {
		cmd = exec.Command(testerProgram(t))
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	x := &tester{t: t, cmd: cmd, in: in, out: bufio.NewReader(out), pid: cmd.Process.Pid}
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait() // its status is that of a killed process
	})
	if got := x.line(); got != "ready" {
		t.Fatalf("tester said %q", got)
	}
	return x
}

func (x *tester) line() string {
	x.t.Helper()
	s, err := x.out.ReadString('\n')
	if err != nil {
		x.t.Fatalf("reading the tester's answer: %v", err)
	}
	return strings.TrimSuffix(s, "\n")
}

// ask sends a command and returns the answer.
func (x *tester) ask(command string) string {
	x.t.Helper()
	if _, err := io.WriteString(x.in, command+"\n"); err != nil {
		x.t.Fatal(err)
	}
	return x.line()
}

// do sends a command that must succeed.
func (x *tester) do(format string, args ...any) {
	x.t.Helper()
	command := fmt.Sprintf(format, args...)
	if got := x.ask(command); got != "ok" {
		x.t.Fatalf("%s: %s", command, got)
	}
}

func (x *tester) secret() uint64 {
	x.t.Helper()
	v, err := strconv.ParseUint(x.ask("secret"), 0, 64)
	if err != nil {
		x.t.Fatal(err)
	}
	return v
}

// open takes the tester as target until the end of the test.
func (x *tester) open() *Process {
	x.t.Helper()
	return openPID(x.t, x.pid)
}

func openPID(t testing.TB, pid int) *Process {
	t.Helper()
	p, err := Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return p
}

// child returns the only child of a process.
func child(t testing.TB, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	c, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatalf("children of %d: %q", pid, b)
	}
	return c
}

// runAs runs help(action) in a copy of this program as another user with the capabilities
// and returns what it printed. The program is passed as a descriptor, since the other user may
// not reach its path.
func runAs(t *testing.T, uid uint32, caps []uintptr, action string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("becoming another user takes root")
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	cmd := &exec.Cmd{
		Path:       "/proc/self/fd/3",
		Args:       []string{"helper"},
		Dir:        "/",
		Env:        []string{asHelper + "=" + action},
		ExtraFiles: []*os.File{self},
		SysProcAttr: &syscall.SysProcAttr{
			Credential:  &syscall.Credential{Uid: uid, Gid: uid},
			AmbientCaps: caps,
		},
	}
	b, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("helper %q: %v\n%s", action, err, b)
	}
	return strings.TrimSpace(string(b))
}

// help opens the target that the action "verb pid path" names and returns what comes of it.
func help(action string) string {
	verb, rest, _ := strings.Cut(action, " ")
	number, path, _ := strings.Cut(rest, " ")
	pid, err := strconv.Atoi(number)
	if err != nil {
		return err.Error()
	}
	p, err := Open(pid)
	if err != nil {
		return err.Error()
	}
	defer p.Close()
	if verb != "open-mapped" {
		return "opened"
	}
	ms, err := p.Mappings()
	if err != nil {
		return err.Error()
	}
	for _, m := range ms {
		if m.Path == path {
			f, err := p.OpenMapped(m)
			if err != nil {
				return err.Error()
			}
			return fmt.Sprintf("inode %d", f.Inode())
		}
	}
	return "not mapped"
}
