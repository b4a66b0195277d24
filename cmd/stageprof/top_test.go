package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"stageprof/sim/simtest"
)

// terminal is a tmux of its own, with one window in which a command runs.
type terminal struct {
	t   *testing.T
	dir string // of the socket, and of what the command leaves
}

// inTerminal runs stageprof in a terminal of 120 × 30 cells. What follows it on
// the same terminal says how it ended, and whether the terminal is as before.
func inTerminal(t *testing.T, env []string, args ...string) *terminal {
	t.Helper()
	// A socket's path is bounded, so it has a folder with a short name.
	dir, err := os.MkdirTemp("", "top")
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{t: t, dir: dir}
	t.Cleanup(func() { os.RemoveAll(dir) })
	writeText(t, filepath.Join(dir, "conf"), "set -g default-terminal tmux-256color\n")
	term.serve()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const script = `cd "$1" && shift && stty -g >before
"$@"
echo "exit status $?"
stty -g >after
echo settled
exec cat
`
	writeText(t, filepath.Join(dir, "script"), script)
	command := append([]string{"new-session", "-d", "-x", "120", "-y", "30", "sh", filepath.Join(dir, "script"), dir,
		"env", "-u", "NO_COLOR", asCommand + "=1"}, env...)
	term.tmux(append(append(command, self), args...)...)
	return term
}

// serve starts the tmux. It is a child of the test's, to end with it also if the test
// is killed; what runs in the terminal is then hung up.
func (term *terminal) serve() {
	term.t.Helper()
	server := term.prepare("-D")
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := server.Start(); err != nil {
		term.t.Fatal(err)
	}
	term.t.Cleanup(func() {
		term.try("kill-server")
		server.Wait()
	})
	simtest.Eventually(term.t, "tmux answers", func() bool {
		_, err := term.try("show-options", "-s")
		return err == nil
	})
}

func writeText(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (term *terminal) prepare(args ...string) *exec.Cmd {
	return exec.Command("tmux", append([]string{"-S", filepath.Join(term.dir, "tmux"), "-f", filepath.Join(term.dir, "conf")}, args...)...)
}

func (term *terminal) try(args ...string) (string, error) {
	out, err := term.prepare(args...).CombinedOutput()
	return string(out), err
}

func (term *terminal) tmux(args ...string) string {
	term.t.Helper()
	out, err := term.try(args...)
	if err != nil {
		term.t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return out
}

func (term *terminal) press(keys ...string) {
	term.t.Helper()
	term.tmux(append([]string{"send-keys"}, keys...)...)
}

func (term *terminal) screen() string {
	term.t.Helper()
	return term.tmux("capture-pane", "-p")
}

// until waits for a screen.
func (term *terminal) until(what string, is func(screen string) bool) {
	term.t.Helper()
	deadline := time.Now().Add(simtest.Patience)
	for !is(term.screen()) {
		if time.Now().After(deadline) {
			term.t.Fatalf("the screen does not show %s:\n%s", what, term.screen())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (term *terminal) want(texts ...string) {
	term.t.Helper()
	for _, text := range texts {
		term.until(strconv.Quote(text), func(screen string) bool { return strings.Contains(screen, text) })
	}
}

func (term *terminal) wantNot(text string) {
	term.t.Helper()
	term.until("no "+strconv.Quote(text), func(screen string) bool { return !strings.Contains(screen, text) })
}

// wantEnd waits for the command's end, after which the terminal is as it was.
func (term *terminal) wantEnd(code int) {
	term.t.Helper()
	term.want(fmt.Sprintf("exit status %d", code), "settled")
	before, after := term.read("before"), term.read("after")
	if before != after {
		term.t.Errorf("the terminal's settings were %q and are %q", before, after)
	}
	const flags = "#{alternate_on} #{cursor_flag} #{mouse_any_flag} #{keypad_flag} #{keypad_cursor_flag}"
	if got := strings.TrimSpace(term.tmux("display-message", "-p", flags)); got != "0 1 0 0 0" {
		term.t.Errorf("the terminal's modes are %q, want those of a fresh one", got)
	}
}

func (term *terminal) read(name string) string {
	term.t.Helper()
	b, err := os.ReadFile(filepath.Join(term.dir, name))
	if err != nil {
		term.t.Fatal(err)
	}
	return string(b)
}

// command is the id of the process that the terminal's script has started.
func (term *terminal) command() int {
	term.t.Helper()
	script := strings.TrimSpace(term.tmux("display-message", "-p", "#{pane_pid}"))
	b, err := os.ReadFile(filepath.Join("/proc", script, "task", script, "children"))
	if err != nil {
		term.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		term.t.Fatalf("children of the script: %v", err)
	}
	return pid
}

// startPipeline starts the training pipeline, which runs until the test ends.
func startPipeline(t *testing.T) *simtest.Process {
	t.Helper()
	p := simtest.Start(t, simtest.Command{
		Path: "python3", Dir: simtest.Root(t),
		Args: []string{"sim/pipeline.py", "--duration", "3600", "--rate", "20"},
	})
	p.WaitLine("ready")
	return p
}

func topArgs(p *simtest.Process, more ...string) []string {
	return append([]string{"top", "--pid", strconv.Itoa(p.PID), "--interval", "200ms"}, more...)
}

func TestTop(t *testing.T) {
	p := startPipeline(t)
	term := inTerminal(t, nil, topArgs(p)...)
	term.want(fmt.Sprintf("pid %d", p.PID), "copy_to_cpu", "drafter_wait", "(outside any stage)", "WALL/IT", "nothing lost", "▇▇▇")

	term.press("i")
	term.want("WALL/S")
	term.press("s")
	term.want("sorted by wall")

	term.press("/", "copy_")
	term.want("filter: copy_")
	term.wantNot("drafter_wait")
	term.press("Enter")
	term.press("Enter")
	term.want("cuStreamSynchronize", "WAITED FOR")
	term.press("End")
	term.want("PYTHON LINE", "Pipeline.target_loop", "target-0", "target-1")
	term.press("Escape")
	term.wantNot("PYTHON LINE")
	term.press("Escape")
	term.want("drafter_wait")

	term.press("?")
	term.want("KEYS")
	term.press("?")
	term.wantNot("KEYS")

	term.press("p")
	term.want("paused")
	paused := term.screen()
	term.press("p")
	term.wantNot("paused")
	term.until("other numbers", func(screen string) bool { return screen != paused })
	term.until("two seconds", func(screen string) bool { return shownTime(screen, "recording for ") > 1 })
	term.press("r")
	term.until("less than all of the time", func(screen string) bool {
		all := shownTime(screen, "all: ")
		return all >= 0 && all < shownTime(screen, "recording for ")
	})

	term.tmux("resize-window", "-x", "40", "-y", "8")
	term.want("too small", "40 × 8")
	term.tmux("resize-window", "-x", "90", "-y", "24")
	term.want("copy_to_cpu", "q quit")

	term.press("q")
	term.wantEnd(exitOK)
	if err := syscall.Kill(p.PID, 0); err != nil {
		t.Errorf("the process is gone (%v)", err)
	}
}

// shownTime is the time in seconds that stands behind a text on a screen.
func shownTime(screen, before string) int {
	_, after, found := strings.Cut(screen, before)
	var minutes, seconds int
	if n, _ := fmt.Sscanf(after, "%d:%d", &minutes, &seconds); !found || n != 2 {
		return -1
	}
	return 60*minutes + seconds
}

// The last screen stays, and accounts for every call that the driver counted.
func TestTopUntilTheTargetExits(t *testing.T) {
	p, ready := caller(t)
	term := inTerminal(t, nil, topArgs(p, "--probes", "all")...)
	term.want("0 calls/s")
	release(t, ready)
	p.Wait()
	term.want("target exited")
	term.press("l")
	want := strconv.FormatUint(sum(p.Truth()), 10)
	term.until("all calls", func(screen string) bool {
		return strings.Contains(strings.ReplaceAll(screen, ",", ""), want+" calls seen = "+want+" reported + 0 lost")
	})
	term.press("q")
	term.wantEnd(exitOK)
}

func TestTopOfAKilledTarget(t *testing.T) {
	p := startPipeline(t)
	term := inTerminal(t, nil, topArgs(p)...)
	term.want("copy_to_cpu")
	p.Kill()
	term.want("target exited", "copy_to_cpu")
	term.press("Enter")
	term.want("esc back")
	term.press("C-c")
	term.wantEnd(exitOK)
}

// A signal is another way to quit.
func TestTopIsTerminated(t *testing.T) {
	p := startPipeline(t)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT} {
		term := inTerminal(t, nil, topArgs(p)...)
		term.want("copy_to_cpu")
		if err := syscall.Kill(term.command(), signal); err != nil {
			t.Fatal(err)
		}
		term.wantEnd(exitOK)
	}
}

func TestTopWithoutColours(t *testing.T) {
	p := startPipeline(t)
	term := inTerminal(t, []string{"NO_COLOR=1"}, topArgs(p)...)
	term.want("copy_to_cpu", "bbbb", "c cuda cpu")
	if colours := term.tmux("capture-pane", "-p", "-e"); strings.Contains(colours, "\x1b[3") {
		t.Errorf("colours on the screen: %q", colours)
	}
	term.press("q")
	term.wantEnd(exitOK)
}

// What no screen can be drawn on is refused before anything is attached.
func TestTopWithoutATerminal(t *testing.T) {
	const nobody = "--pid=4194305"
	wantTrouble(t, command(t, "top", nobody), "no terminal", "--once")
	term := inTerminal(t, []string{"TERM=dumb"}, "top", nobody)
	term.want("dumb", "--once")
	term.wantEnd(exitError)
}

func TestTopErrorOnTheTerminal(t *testing.T) {
	term := inTerminal(t, nil, "top", "--pid", strconv.Itoa(sleeper(t)))
	term.want("CUDA driver")
	term.wantEnd(exitError)
}

func TestTopOnce(t *testing.T) {
	p := startPipeline(t)
	r := stageprof(t, topArgs(p, "--once", "--interval", "2s")...)
	if r.code != exitOK || r.stderr != "" {
		t.Errorf("exit code %d, stderr %q; want %d and nothing", r.code, r.stderr, exitOK)
	}
	for _, text := range []string{"pid " + strconv.Itoa(p.PID), "copy_to_cpu", "WALL/IT", "c cuda cpu", "nothing lost"} {
		if !strings.Contains(r.stdout, text) {
			t.Errorf("stdout lacks %q:\n%s", text, r.stdout)
		}
	}
	if strings.ContainsAny(r.stdout, "\x1b\r") {
		t.Errorf("stdout is no plain text: %q", r.stdout)
	}
}

// Top takes the options of record that say what to attach to.
func TestTopTargetOptions(t *testing.T) {
	wantTrouble(t, command(t, "top", "--once", "--pid=4194305", "--stages-from=usdt:lib.so:p:begin,end,nvtx",
		"--sync-debt=false", "--python-stacks=off"), "no such process")
}

func TestTopUsage(t *testing.T) {
	cases := map[string]struct {
		args []string
		want string
	}{
		"no pid":        {nil, "--pid"},
		"negative pid":  {[]string{"--pid=-1"}, "-1"},
		"interval":      {[]string{"--pid=1", "--interval=99ms"}, "shorter"},
		"long interval": {[]string{"--pid=1", "--interval=2h"}, "longer"},
		"argument":      {[]string{"4242"}, "unexpected argument"},
		"probes":        {[]string{"--pid=1", "--probes=cuLaunchKernl"}, "cuLaunchKernel"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := stageprof(t, append([]string{"top"}, c.args...)...)
			if r.code != exitUsage || !strings.Contains(r.stderr, c.want) {
				t.Errorf("exit code %d, stderr %q; want %d and %q", r.code, r.stderr, exitUsage, c.want)
			}
		})
	}
}
