package simtest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Patience bounds every wait: a test that waits longer fails with what the process has printed. It is many times what
// the longest wait takes on a quiet machine, unless the environment's STAGEPROF_PATIENCE says otherwise, as "10m":
// emulated machines take their time.
var Patience = patience()

func patience() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("STAGEPROF_PATIENCE")); err == nil {
		return d
	}
	return 3 * time.Minute
}

// Eventually waits for a condition that nothing announces.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("simtest: not after %v: %s", Patience, what)
		}
	}
}

// Command says what to run. The simulator's environment (truth and ready file) is added by Start.
type Command struct {
	Path string
	Args []string
	Env  []string // beside the test's own environment
	Dir  string
}

// Tester returns the command that runs build/sim/testers/name.
func Tester(t testing.TB, name string, args ...string) Command {
	t.Helper()
	return Command{Path: Build(t, filepath.Join("sim", "testers", name)), Args: args}
}

// With returns the command with more environment, as "NAME=value".
func (c Command) With(env ...string) Command {
	c.Env = append(append([]string(nil), c.Env...), env...)
	return c
}

// Process is a running command. It is killed when the test ends, if it still runs.
type Process struct {
	PID int

	t       testing.TB
	dir     string
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	exited  chan struct{}
	started string // its startTicks
	err     error  // of the exit; valid once exited is closed

	mu     sync.Mutex
	lines  []string
	ended  bool // stdout is closed
	change chan struct{}
	stderr bytes.Buffer
}

// Start starts a command with a pipe as its stdin. Truth files go into a folder of the test's own.
func Start(t testing.TB, c Command) *Process {
	t.Helper()
	p := &Process{t: t, dir: t.TempDir(), exited: make(chan struct{}), change: make(chan struct{})}
	p.cmd = exec.Command(c.Path, c.Args...)
	p.cmd.Dir = c.Dir
	p.cmd.Env = append(os.Environ(), "SIMCUDA_TRUTH="+p.truthPath("%p"), "STAGEPROF_READY="+p.readyPath())
	p.cmd.Env = append(p.cmd.Env, c.Env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL} // a test that is killed leaves nothing
	p.cmd.Stderr = &lockedWriter{mu: &p.mu, w: &p.stderr}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatalf("simtest: piping stdout: %v", err)
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatalf("simtest: piping stdin: %v", err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("simtest: starting %q: %v", c.Path, err)
	}
	p.PID = p.cmd.Process.Pid
	p.started = startTicks(p.PID) // it is not waited for yet, so it is there
	go p.follow(stdout)
	t.Cleanup(p.Kill)
	return p
}

// lockedWriter lets the test read what a process wrote to stderr so far.
type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// follow collects stdout and then the exit status.
func (p *Process) follow(stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		p.update(func() { p.lines = append(p.lines, lines.Text()) })
	}
	p.update(func() { p.ended = true })
	p.err = p.cmd.Wait()
	close(p.exited)
}

func (p *Process) update(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.change)
	p.change = make(chan struct{})
}

func (p *Process) readyPath() string           { return filepath.Join(p.dir, "ready") }
func (p *Process) truthPath(pid string) string { return filepath.Join(p.dir, "truth."+pid+".json") }

// find returns the lines with a prefix, and how to learn of more lines.
func (p *Process) find(prefix string) (lines []string, ended bool, change <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.lines {
		if strings.HasPrefix(line, prefix) {
			lines = append(lines, line)
		}
	}
	return lines, p.ended, p.change
}

// WaitLine waits for a line on stdout that starts with a prefix, and returns it. The test fails if the process
// closes stdout before it, or after Patience.
func (p *Process) WaitLine(prefix string) string {
	p.t.Helper()
	return p.WaitLines(prefix, 1)[0]
}

// WaitLines waits for a number of such lines, as several processes with one stdout print them.
func (p *Process) WaitLines(prefix string, n int) []string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	for {
		lines, ended, change := p.find(prefix)
		switch {
		case len(lines) >= n:
			return lines[:n]
		case ended:
			p.t.Fatalf("simtest: %q ended with %d of %d lines %q; it printed\n%s", p.cmd.Path, len(lines), n, prefix, p.output())
		}
		select {
		case <-change:
		case <-ctx.Done():
			p.t.Fatalf("simtest: %d of %d lines %q from %q in %v; it printed\n%s", len(lines), n, prefix, p.cmd.Path, Patience, p.output())
		}
	}
}

func (p *Process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n") + "\nstderr:\n" + p.stderr.String()
}

// Lines returns what the process has printed on stdout so far.
func (p *Process) Lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.lines...)
}

// Stderr returns what the process has printed on stderr so far.
func (p *Process) Stderr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// Ready creates the ready file that testers wait for.
func (p *Process) Ready() {
	p.t.Helper()
	if err := os.WriteFile(p.readyPath(), nil, 0o644); err != nil {
		p.t.Fatalf("simtest: creating the ready file: %v", err)
	}
}

// ReadyLate creates the second file that the tester latedl waits for.
func (p *Process) ReadyLate() {
	p.t.Helper()
	if err := os.WriteFile(p.readyPath()+".late", nil, 0o644); err != nil {
		p.t.Fatalf("simtest: creating the late ready file: %v", err)
	}
}

// Release closes the process's stdin: a tester started with "--hold", "-" exits.
func (p *Process) Release() {
	p.t.Helper()
	if err := p.stdin.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		p.t.Fatalf("simtest: closing stdin: %v", err)
	}
}

// Exit waits for the end of the process and returns its error as exec.Cmd.Wait does.
func (p *Process) Exit() error {
	p.t.Helper()
	select {
	case <-p.exited:
		return p.err
	case <-time.After(Patience):
		p.t.Fatalf("simtest: %q still runs after %v; it printed\n%s", p.cmd.Path, Patience, p.output())
		return nil
	}
}

// Wait waits for the end of the process; the test fails unless it exits with 0.
func (p *Process) Wait() {
	p.t.Helper()
	if err := p.Exit(); err != nil {
		p.t.Fatalf("simtest: %q: %v; it printed\n%s", p.cmd.Path, err, p.output())
	}
}

// Signal sends the process a signal.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("simtest: sending %v to %q: %v", s, p.cmd.Path, err)
	}
}

// Kill ends the process and its children, as far as they still run, and waits for its end.
func (p *Process) Kill() {
	// No other process gets the number while one of the group is left.
	if started := startTicks(p.PID); started == "" || started == p.started {
		_ = syscall.Kill(-p.PID, syscall.SIGKILL) // fails only if all have ended
	}
	<-p.exited
}

// startTicks says when a process was started, which tells it from the next one with its number; "" if there is none.
func startTicks(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// Any name, in parentheses, stands before the 20 fields up to the one wanted.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	return fields[19]
}

// Truth reads what the ended process has counted.
func (p *Process) Truth() Truth {
	p.t.Helper()
	return p.TruthOf(p.PID)
}

// TruthOf reads what a forked child of the process has counted.
func (p *Process) TruthOf(pid int) Truth {
	p.t.Helper()
	return ReadTruth(p.t, p.truthPath(fmt.Sprint(pid)))
}

// AllTruth reads what the process and all its children that have ended counted, in the order of process IDs.
func (p *Process) AllTruth() []Truth {
	p.t.Helper()
	paths, err := filepath.Glob(p.truthPath("*"))
	if err != nil {
		p.t.Fatalf("simtest: listing truth files: %v", err)
	}
	var all []Truth
	for _, path := range paths {
		all = append(all, ReadTruth(p.t, path))
	}
	slices.SortFunc(all, func(a, b Truth) int { return a.PID - b.PID })
	return all
}

// Expected reads the counts that a tester printed: what the truth must hold.
func (p *Process) Expected() Counts {
	p.t.Helper()
	return parseExpected(p.t, p.Lines())
}

// ChildOf returns a process of that name which another one has started, 0 if there is none.
func ChildOf(t testing.TB, parent int, name string) int {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatalf("simtest: listing processes: %v", err)
	}
	for _, path := range paths {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		var pid, above int
		var state string
		comm := fmt.Sprintf("(%s)", name)
		before, after, found := strings.Cut(string(stat), comm)
		if !found {
			continue
		}
		if _, err := fmt.Sscan(before+after, &pid, &state, &above); err == nil && above == parent && state != "Z" {
			return pid
		}
	}
	return 0
}
