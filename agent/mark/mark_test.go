package mark

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stageprof/agent/target"
	"stageprof/sim/simtest"
)

// program is testdata/program.py, running.
type program struct {
	t      *testing.T
	pid    int
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr *strings.Builder
	wake   *os.File // ends the native call of "block"
	end    func()
}

// start starts the program. environ has the last word.
func start(t *testing.T, python string, args []string, environ ...string) *program {
	t.Helper()
	cmd := exec.Command(python, append(args, "testdata/program.py")...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH="+filepath.Dir(simtest.Build(t, "python/stageprof")))
	cmd.Env = append(cmd.Env, environ...)
	p := &program{t: t, stderr: &strings.Builder{}}
	cmd.Stderr = p.stderr
	sleeping, wake, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer sleeping.Close()
	p.wake, cmd.ExtraFiles = wake, []*os.File{sleeping}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	p.end = func() {
		if !ended {
			ended = true
			p.stdin.Close()
			wake.Close()
			if err := cmd.Wait(); err != nil || p.stderr.String() != "" {
				t.Errorf("the program ended with %v and stderr\n%s", err, p.stderr)
			}
		}
	}
	t.Cleanup(p.end)
	p.stdout = bufio.NewReader(stdout)
	var up struct{ PID int }
	p.read(&up)
	p.pid = up.PID
	return p
}

func (p *program) read(answer any) {
	p.t.Helper()
	line, err := p.stdout.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, answer)
	}
	if err != nil {
		p.t.Fatalf("the program answered %q: %v", line, err)
	}
}

// do has the program obey a line.
func do[T any](p *program, line string) T {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.stdin, line); err != nil {
		p.t.Fatal(err)
	}
	var answer T
	p.read(&answer)
	return answer
}

// spans has the program call every function n times; it returns what it counted of their stages.
func (p *program) spans(n int) map[string]int {
	return do[map[string]int](p, fmt.Sprintf("call %d", n))
}

// wrapped returns the names, as the program calls them, that mean something wrapped.
func (p *program) wrapped() []string {
	names := do[map[string]bool](p, "names")
	maps.DeleteFunc(names, func(_ string, wrapped bool) bool { return !wrapped })
	return slices.Sorted(maps.Keys(names))
}

// mark marks functions of the module work; the request must be carried out.
func (p *program) mark(undo bool, functions ...string) []Outcome {
	p.t.Helper()
	c := Config{PID: p.pid, Undo: undo, Timeout: simtest.Patience}
	for _, f := range functions {
		c.Functions = append(c.Functions, "work:"+f)
	}
	if err := c.Validate(); err != nil {
		p.t.Fatal(err)
	}
	outcomes, err := Run(p.t.Context(), c)
	if err != nil {
		p.t.Fatal(err)
	}
	p.expectNothingLeft()
	return outcomes
}

// expectNothingLeft fails if a folder of the program's user is left.
func (p *program) expectNothingLeft() {
	p.t.Helper()
	for _, place := range places {
		left, err := filepath.Glob(filepath.Join(place, "stageprof-mark-*"))
		if err != nil || len(left) > 0 {
			p.t.Errorf("left behind: %q (%v)", left, err)
		}
	}
}

func expectOutcomes(t *testing.T, got []Outcome, want ...Outcome) {
	t.Helper()
	for i := range want {
		want[i].Function = "work:" + want[i].Function
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
}

// every is each function of the program that can be marked, and the spans that each call of the
// program's makes of it. Steps of generators and coroutines are spans of their own.
var every = map[string]int{
	"step": 2, "generate": 3, "fetch": 1, "stream": 3,
	"Trainer.method": 1, "Trainer.static": 2, "Trainer.of_class": 1, "Trainer.Inner.method": 1,
}

func TestEveryKindOfFunction(t *testing.T) {
	p := start(t, simtest.Python314(t), nil)
	functions := slices.Sorted(maps.Keys(every))
	var marked, again, undone []Outcome
	for _, f := range functions {
		references := 0
		if f == "step" {
			references = 1 // the program has imported it from there
		}
		marked = append(marked, Outcome{Function: f, Status: Marked, References: references})
		again = append(again, Outcome{Function: f, Status: Already})
		undone = append(undone, Outcome{Function: f, Status: Undone, References: references})
	}
	if got := p.spans(3); len(got) > 0 {
		t.Errorf("stages %v before any is marked", got)
	}

	expectOutcomes(t, p.mark(false, functions...), marked...)
	want := map[string]int{}
	for f, n := range every {
		want[f] = 7 * n
	}
	if diff := cmp.Diff(want, p.spans(7)); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	all := []string{"fetch", "generate", "imported", "inner", "method", "of_class", "static", "step", "stream"}
	if diff := cmp.Diff(all, p.wrapped()); diff != "" {
		t.Errorf("wrapped (-want +got):\n%s", diff)
	}

	expectOutcomes(t, p.mark(false, functions...), again...)
	if diff := cmp.Diff(want, p.spans(7)); diff != "" {
		t.Errorf("spans after marking twice (-want +got):\n%s", diff)
	}

	expectOutcomes(t, p.mark(true, functions...), undone...)
	if got := p.wrapped(); len(got) > 0 {
		t.Errorf("wrapped after it was undone: %q", got)
	}
	if got := p.spans(3); len(got) > 0 {
		t.Errorf("stages %v after it was undone", got)
	}
	if got := p.mark(true); len(got) > 0 {
		t.Errorf("undone twice: %+v", got)
	}
}

// Undoing everything needs no names.
func TestUndoAll(t *testing.T) {
	p := start(t, simtest.Python314(t), nil)
	p.mark(false, "step", "Trainer.method")
	expectOutcomes(t, p.mark(true),
		Outcome{Function: "step", Status: Undone, References: 1}, Outcome{Function: "Trainer.method", Status: Undone})
	expectOutcomes(t, p.mark(true, "step"), Outcome{Function: "step", Status: NotMarked})
}

// What someone else has put in a wrapper's place stays.
func TestUndoKeepsWhatIsNotOurs(t *testing.T) {
	p := start(t, simtest.Python314(t), nil)
	p.mark(false, "step")
	do[struct{}](p, "replace")
	expectOutcomes(t, p.mark(true), Outcome{Function: "step", Status: Undone, References: 1, Kept: 1})
	if got := p.wrapped(); len(got) > 0 {
		t.Errorf("still wrapped: %q", got)
	}
	expectOutcomes(t, p.mark(false, "step"), Outcome{Function: "step", Status: Marked})
	if got, want := p.spans(5), map[string]int{"step": 5}; !maps.Equal(got, want) {
		t.Errorf("spans %v, want %v", got, want)
	}
}

func TestRefusedFunctions(t *testing.T) {
	p := start(t, simtest.Python314(t), nil)
	reasons := map[string]string{
		"absent":            `no "absent"`,
		"Absent.method":     `no class "Absent"`,
		"step.method":       `no class "step"`,
		"Trainer.inherited": "name work:Base.inherited",
		"Trainer.attribute": "property",
		"Trainer.Inner":     "but a type",
		"size":              "builtin_function_or_method",
	}
	functions := slices.Sorted(maps.Keys(reasons))
	for i, o := range p.mark(false, functions...) {
		want := strings.ReplaceAll(reasons[functions[i]], `"`, `'`)
		if o.Function != "work:"+functions[i] || o.Status != Refused || !strings.Contains(o.Reason, want) {
			t.Errorf("%+v, want %q", o, want)
		}
	}
	// A module that the program did not import is not imported.
	outcomes, err := Run(t.Context(), Config{PID: p.pid, Functions: []string{"antigravity:fly"}, Timeout: simtest.Patience})
	if err != nil || len(outcomes) != 1 || !strings.Contains(outcomes[0].Reason, "not imported a module 'antigravity'") {
		t.Errorf("outcomes %+v, error %v", outcomes, err)
	}
	if got := p.wrapped(); len(got) > 0 {
		t.Errorf("wrapped: %q", got)
	}
}

func TestUnavailable(t *testing.T) {
	python := simtest.Python314(t)
	sleep := exec.Command("sleep", "600")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		sleep.Process.Kill()
		sleep.Wait()
	})
	cases := map[string]struct {
		pid  int
		want string
	}{
		"older":           {start(t, "python3", nil).pid, "only 3.14 and newer"},
		"off by -X":       {start(t, python, []string{"-X", "disable-remote-debug"}).pid, "-X disable-remote-debug"},
		"off by variable": {start(t, python, nil, "PYTHON_DISABLE_REMOTE_DEBUG=1").pid, "PYTHON_DISABLE_REMOTE_DEBUG"},
		"no Python":       {sleep.Process.Pid, "there is no Python in it"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Run(t.Context(), Config{PID: c.pid, Functions: []string{"work:step"}, Timeout: simtest.Patience})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want %q in it", err, c.want)
			}
			if again := Inspect(c.pid); again == nil || again.Error() != err.Error() {
				t.Errorf("looking at it gives %v, want %v", again, err)
			}
		})
	}
	if err := Inspect(start(t, python, nil).pid); err != nil {
		t.Errorf("of a program that can be marked: %v", err)
	}
}

// Without the marker package nothing is changed.
func TestNoPackage(t *testing.T) {
	python := simtest.Python314(t)
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "stageprof.py"), []byte("answer = 42\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"": "not importable there: No module named 'stageprof'", other: "is another one"} {
		p := start(t, python, nil, "PYTHONPATH="+path)
		_, err := Run(t.Context(), Config{PID: p.pid, Functions: []string{"work:step"}, Timeout: simtest.Patience})
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q in it", err, want)
		}
		if got := p.wrapped(); len(got) > 0 {
			t.Errorf("wrapped: %q", got)
		}
		p.expectNothingLeft()
	}
}

// While the main thread is inside a native call nothing happens; a request that was given up is
// withdrawn for good.
func TestBlockedMainThread(t *testing.T) {
	p := start(t, simtest.Python314(t), nil)
	do[struct{}](p, "block")
	_, err := Run(t.Context(), Config{PID: p.pid, Functions: []string{"work:step"}, Timeout: 200 * time.Millisecond})
	if !errors.Is(err, ErrTimeout) {
		t.Fatalf("the error is %v, want %v", err, ErrTimeout)
	}
	p.expectNothingLeft()
	if err := Inspect(p.pid); err != nil {
		t.Errorf("after it was withdrawn: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Run(ctx, Config{PID: p.pid, Functions: []string{"work:step"}, Timeout: simtest.Patience})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v, want %v", err, context.Canceled)
	}
	p.wakeUp()
	if got := p.wrapped(); len(got) > 0 {
		t.Errorf("wrapped: %q", got)
	}
	expectOutcomes(t, p.mark(false, "Trainer.method"), Outcome{Function: "Trainer.method", Status: Marked})
}

func (p *program) wakeUp() {
	p.t.Helper()
	if _, err := p.wake.Write([]byte{0}); err != nil {
		p.t.Fatal(err)
	}
}

// A request is there for one debugger at a time.
func TestRequestPending(t *testing.T) {
	p := start(t, simtest.Python314(t), nil)
	do[struct{}](p, "block")
	process, mem := openMemory(t, p.pid)
	support, err := findSupport(process, mem)
	if err != nil {
		t.Fatal(err)
	}
	if err := putNumber(mem, support.Pending, 1); err != nil {
		t.Fatal(err)
	}
	_, err = Run(t.Context(), Config{PID: p.pid, Functions: []string{"work:step"}, Timeout: simtest.Patience})
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "another debugger") {
		t.Errorf("the error is %v", err)
	}
	if err := withdraw(mem, support); err != nil {
		t.Fatal(err)
	}
	if err := post(mem, support, "/"+strings.Repeat("x", support.PathSize-1)); !errors.Is(err, ErrUnavailable) {
		t.Errorf("a path that is one byte too long: %v", err)
	}
	p.wakeUp()
}

func openMemory(t *testing.T, pid int) (*target.Process, *target.Memory) {
	t.Helper()
	process, err := target.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	mem, err := process.OpenMemory()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(mem.Close(), process.Close()); err != nil {
			t.Error(err)
		}
	})
	return process, mem
}

// The target may end while it is waited for.
func TestTargetEnds(t *testing.T) {
	p := start(t, simtest.Python314(t), nil)
	do[struct{}](p, "block")
	process, mem := openMemory(t, p.pid)
	support, err := findSupport(process, mem)
	if err != nil {
		t.Fatal(err)
	}
	p.end()
	if err := post(mem, support, "/nowhere"); !errors.Is(err, target.ErrTargetExited) {
		t.Errorf("writing to it gives %v", err)
	}
}
