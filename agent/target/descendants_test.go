package target

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A shell with a forked copy of itself that has a child of another program.
func TestDescendants(t *testing.T) {
	cmd := exec.Command("sh", "-c", `(sleep 600 & echo sleeper $!; read x <&3; kill $!) & echo copy $!; wait`)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	cmd.ExtraFiles = []*os.File{r}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close(); cmd.Wait() })
	pids := map[string]int{}
	lines := bufio.NewScanner(out)
	for len(pids) < 2 && lines.Scan() {
		var name string
		var pid int
		if _, err := fmt.Sscan(lines.Text(), &name, &pid); err != nil {
			t.Fatal(err)
		}
		pids[name] = pid
	}
	waitExec(t, pids["sleeper"])
	got, err := Descendants(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		got[i].StartTicks = 0
	}
	want := []Descendant{
		{PID: pids["copy"], Parent: cmd.Process.Pid, Copy: true},
		{PID: pids["sleeper"], Parent: pids["copy"]},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("descendants (-want +got):\n%s", diff)
	}
}

// waitExec waits until a process runs sleep.
func waitExec(t *testing.T, pid int) {
	t.Helper()
	for {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err != nil {
			t.Fatal(err)
		}
		if string(comm) == "sleep\n" {
			return
		}
	}
}

func TestDescendantsOfACircle(t *testing.T) {
	stats := map[int]statLine{1: {parent: 3}, 2: {parent: 1}, 3: {parent: 2}}
	got := below([]int{1}, stats, map[int][]int{3: {1}, 1: {2}, 2: {3}})
	want := []Descendant{{PID: 2, Parent: 1}, {PID: 3, Parent: 2}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("descendants (-want +got):\n%s", diff)
	}
}
