package main

import (
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"stageprof/agent/mark"
	"stageprof/sim/simtest"
)

// markable starts a program that runs until the test ends.
func markable(t *testing.T) *simtest.Process {
	t.Helper()
	const script = `
import sys, threading
def step(): pass
print("up", flush=True)
end = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), end.set()), daemon=True).start()
while not end.wait(0.001): pass
`
	command := simtest.Command{Path: simtest.Python314(t), Args: []string{"-c", script}}
	p := simtest.Start(t, command.With("PYTHONPATH="+filepath.Dir(simtest.Build(t, "python/stageprof"))))
	p.WaitLine("up")
	return p
}

func TestMark(t *testing.T) {
	p := markable(t)
	pid := strconv.Itoa(p.PID)
	for _, c := range []struct {
		args         []string
		code         int
		want, stderr string
	}{
		{[]string{"--function", "__main__:step"}, exitOK, "__main__:step: marked\n", ""},
		{[]string{"--function", "__main__:step"}, exitOK, "__main__:step: already\n", ""},
		{
			[]string{"--function", "__main__:stop"}, exitError,
			"__main__:stop: refused: there is no 'stop' in it\n",
			"stageprof: 1 of 1 functions could not be marked\n",
		},
		{[]string{"--undo"}, exitOK, "__main__:step: undone\n", ""},
		{[]string{"--undo"}, exitOK, "no function is marked\n", ""},
	} {
		r := stageprof(t, append([]string{"mark", "--pid", pid}, c.args...)...)
		if r != (result{c.code, c.want, c.stderr}) {
			t.Errorf("mark %q gives %+v", c.args, r)
		}
	}
	r := stageprof(t, "mark", "--pid", pid, "--function", "__main__:step", "--format", "json")
	var got struct{ Functions []mark.Outcome }
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || r.code != exitOK {
		t.Fatalf("%+v: %v", r, err)
	}
	if len(got.Functions) != 1 || got.Functions[0] != (mark.Outcome{Function: "__main__:step", Status: mark.Marked}) {
		t.Errorf("outcomes %+v", got.Functions)
	}
	doctor := stageprof(t, "doctor", "--pid", pid)
	if !strings.Contains(doctor.stdout, "can mark functions while it runs") {
		t.Errorf("no word of marking in\n%s", doctor.stdout)
	}
	p.Release()
	p.Wait()
}

func TestMarkTimeout(t *testing.T) {
	p := simtest.Start(t, simtest.Command{
		Path: simtest.Python314(t), Args: []string{"-c", `import sys; print("up", flush=True); sys.stdin.read()`},
	})
	p.WaitLine("up")
	cmd := command(t, "mark", "--pid", strconv.Itoa(p.PID), "--function", "__main__:step", "--timeout", "50ms")
	wantTrouble(t, cmd, "main thread", "(50ms)", "withdrawn", "--timeout")
	p.Release()
	p.Wait()
}

// A program may forbid it.
func TestMarkForbidden(t *testing.T) {
	const script = `
import sys, threading
def forbid(event, args):
    if event == "cpython.remote_debugger_script":
        raise RuntimeError("not here")
sys.addaudithook(forbid)
print("up", flush=True)
end = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), end.set()), daemon=True).start()
while not end.wait(0.001): pass
`
	p := simtest.Start(t, simtest.Command{Path: simtest.Python314(t), Args: []string{"-c", script}})
	p.WaitLine("up")
	cmd := command(t, "mark", "--pid", strconv.Itoa(p.PID), "--function", "__main__:forbid", "--timeout", "5s")
	wantTrouble(t, cmd, "took the request", "audit hook", "stderr")
	if !strings.Contains(p.Stderr(), "not here") {
		t.Errorf("the program's stderr is %q", p.Stderr())
	}
	p.Release()
	p.Wait()
}

func TestMarkTargetsThatCannotBeMarked(t *testing.T) {
	for name, c := range map[string]struct {
		pid  func(*testing.T) int
		want string
	}{
		"nobody":    {func(*testing.T) int { return 4194305 }, "no such process"},
		"zombie":    {zombie, "zombie"},
		"no Python": {sleeper, "no Python"},
	} {
		t.Run(name, func(t *testing.T) {
			wantTrouble(t, command(t, "mark", "--pid", strconv.Itoa(c.pid(t)), "--function", "a:b"), c.want)
		})
	}
}

func TestMarkFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"--pid":            {"--function", "a:b"},
		"--function":       {"--pid", "1"},
		"module:qualname":  {"--pid", "1", "--function", "step"},
		"--timeout":        {"--pid", "1", "--function", "a:b", "--timeout", "0s"},
		`"xml"`:            {"--pid", "1", "--function", "a:b", "--format", "xml"},
		"unexpected":       {"--pid", "1", "--function", "a:b", "c:d"},
		"for usage":        {"--pid", "1", "--function", ""},
		"missing unit":     {"--pid", "1", "--function", "a:b", "--timeout", "3"},
		"stageprof mark -": {"--fast"},
	} {
		if r := stageprof(t, append([]string{"mark"}, args...)...); r.code != exitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("mark %q gives %+v, want %q", args, r, want)
		}
	}
}
