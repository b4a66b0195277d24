package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// sleeper starts a process that does nothing until the test ends.
func sleeper(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd.Process.Pid
}

// zombie starts a process that has ended and that nobody waits for until the
// test ends.
func zombie(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Wait() })
	for !strings.HasPrefix(state(t, cmd.Process.Pid), "Z") {
		time.Sleep(time.Millisecond)
	}
	return cmd.Process.Pid
}

// state reads a process's state from /proc/PID/status.
func state(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(b), "\nState:\t")
	return after
}

// kernelThread finds one: they have no command line and no parent but 2.
func kernelThread(t *testing.T) int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, stat := range stats {
		b, err := os.ReadFile(stat)
		if err != nil {
			continue // it has ended
		}
		pid, rest, _ := strings.Cut(string(b), " ")
		fields := strings.Fields(rest[strings.LastIndex(rest, ")")+1:])
		if fields[1] == "2" {
			n, err := strconv.Atoi(pid)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no kernel thread is visible here; the tests need the host's pid namespace")
	return 0
}

// otherThread is a thread of this process that is not its first.
func otherThread(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	tid, err := strconv.Atoi(entries[len(entries)-1].Name())
	if err != nil || tid == os.Getpid() {
		t.Fatalf("no second thread among %d (%v)", len(entries), err)
	}
	return tid
}

// Trouble with the target ends with exit code 1, one clear line, and no file.
func TestTargetsThatCannotBeRecorded(t *testing.T) {
	cases := map[string]struct {
		pid  func(*testing.T) int
		want []string
	}{
		"nobody":        {func(*testing.T) int { return 4194305 }, []string{"4194305", "no such process"}},
		"thread":        {otherThread, []string{"thread", strconv.Itoa(os.Getpid())}},
		"zombie":        {zombie, []string{"zombie"}},
		"kernel thread": {kernelThread, []string{"kernel thread"}},
		"no driver":     {sleeper, []string{"CUDA driver", "sleep", "--wait"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cmd := command(t, "record", "--pid", strconv.Itoa(c.pid(t)), "--save", "saved", "--ready-file", "ready")
			wantTrouble(t, cmd, c.want...)
		})
	}
}

// through prepares stageprof to be started by another program, whose arguments
// name it with $STAGEPROF.
func through(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { self.Close() })
	cmd := command(t)
	other := exec.Command(name, args...)
	other.Env, other.Dir = append(cmd.Env, "STAGEPROF=/proc/self/fd/3"), cmd.Dir
	other.ExtraFiles = []*os.File{self}
	return other
}

func TestRecordOneself(t *testing.T) {
	wantTrouble(t, through(t, "sh", "-c", "exec $STAGEPROF record --pid $$"), "itself")
}

func TestRecordWithoutPrivileges(t *testing.T) {
	script := fmt.Sprintf("exec setpriv --bounding-set=-all $STAGEPROF record --pid %d", sleeper(t))
	wantTrouble(t, through(t, "sh", "-c", script), "CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE")
}

// wantTrouble runs a command that can't work.
func wantTrouble(t *testing.T, cmd *exec.Cmd, want ...string) {
	t.Helper()
	r := finish(t, cmd)
	if r.code != exitError || r.stdout != "" {
		t.Errorf("exit code %d, stdout %q; want %d and nothing", r.code, r.stdout, exitError)
	}
	if strings.Count(r.stderr, "\n") != 1 {
		t.Errorf("stderr %q, want one line", r.stderr)
	}
	for _, text := range want {
		if !strings.Contains(r.stderr, text) {
			t.Errorf("stderr %q, want %q in it", r.stderr, text)
		}
	}
	if left := names(t, cmd.Dir); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}
