package target

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"stageprof/agent/capability"
)

const (
	ticksPerSecond = 100     // USER_HZ, the same on every architecture that CUDA exists for
	maxArguments   = 4 << 20 // bytes of cmdline and environ
	maxPID         = 1 << 22 // the kernel's own limit
)

// Process is a target. Its methods may be called from several goroutines.
type Process struct {
	pid      int
	dir      procDir
	pidfd    *os.File
	stat     statLine
	status   status
	start    time.Time
	comm     string
	exe      string
	exeID    fileID
	cmdline  []string
	environ  map[string]string
	exited   chan struct{}
	watching sync.WaitGroup

	closing  sync.Once
	closeErr error

	mu      sync.Mutex
	images  map[imageKey]*Image // every mapped file that was looked at
	skipped []Skipped
}

// Open takes a process as the target. The pid is the one that this process sees. The error wraps
// one of [ErrNoProcess], [ErrThread], [ErrKernelThread], [ErrZombie], [ErrSelf],
// [ErrPermission]; its message says what to do.
func Open(pid int) (*Process, error) {
	if pid <= 0 {
		return nil, fmt.Errorf("pid %d: %w: a pid is a positive number", pid, ErrNoProcess)
	}
	if pid == os.Getpid() {
		return nil, fmt.Errorf("pid %d: %w: give the pid of the process to profile", pid, ErrSelf)
	}
	if pid > maxPID {
		return nil, fmt.Errorf("pid %d: %w: pids end at %d", pid, ErrNoProcess, maxPID)
	}
	dir, err := openProcDir(pid)
	if err != nil {
		return nil, fmt.Errorf("pid %d: %w", pid, explainAbsent(pid, err))
	}
	p := &Process{pid: pid, dir: dir, exited: make(chan struct{}), images: make(map[imageKey]*Image)}
	if err := p.identify(); err != nil {
		return nil, errors.Join(fmt.Errorf("pid %d: %w", pid, err), dir.f.Close())
	}
	p.describe()
	p.watching.Go(p.watch)
	return p, nil
}

// explainAbsent says why /proc shows nothing of a process.
func explainAbsent(pid int, err error) error {
	if self, linkErr := os.Readlink("/proc/self"); linkErr != nil || self != strconv.Itoa(os.Getpid()) {
		return fmt.Errorf("%w: /proc belongs to another pid namespace than this process, or is not mounted", err)
	}
	// Hidden processes can be absent as well as refused.
	killErr := unix.Kill(pid, 0)
	if exists := killErr == nil || errors.Is(killErr, unix.EPERM); denied(err) || gone(err) && exists {
		return permissionError("looking at it in /proc, which hides it (option hidepid)", capability.Effective(), unix.CAP_SYS_PTRACE)
	}
	if gone(err) {
		return ErrNoProcess
	}
	return err
}

// identify refuses what is no live user process, pins the incarnation and checks that its
// mappings may be read.
func (p *Process) identify() error {
	b, err := p.dir.read("status", maxStatus)
	if err != nil {
		return explainAbsent(p.pid, err)
	}
	if p.status, err = parseStatus(b); err != nil {
		return err
	}
	if err := p.refuseThread(); err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(p.pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return ErrNoProcess
	} else if err != nil {
		return fmt.Errorf("opening a pidfd: %w", err)
	}
	p.pidfd = os.NewFile(uintptr(fd), "pidfd:"+strconv.Itoa(p.pid))
	// The directory still answers, so at this moment it and the pidfd are the same process.
	if err := p.inspect(); err != nil {
		return errors.Join(err, p.pidfd.Close())
	}
	return nil
}

func (p *Process) refuseThread() error {
	switch leader := p.status.tgid; leader {
	case p.pid:
		return nil
	case os.Getpid():
		return fmt.Errorf("%w: it is one of its threads", ErrSelf)
	default:
		name := ""
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", leader)); err == nil {
			name = fmt.Sprintf(" (%q)", strings.TrimSuffix(string(b), "\n"))
		}
		return fmt.Errorf("%w: it belongs to process %d%s; give that pid", ErrThread, leader, name)
	}
}

func (p *Process) inspect() error {
	b, err := p.dir.read("stat", maxStatus)
	if gone(err) {
		return ErrNoProcess
	} else if err != nil {
		return err
	}
	if p.stat, err = parseStat(b); err != nil {
		return err
	}
	switch {
	case p.stat.flags&kernelFlag != 0:
		return fmt.Errorf("%w (%q): it runs no user code", ErrKernelThread, p.stat.comm)
	case p.stat.state == 'Z' && p.status.threads > 1:
		return fmt.Errorf("%w: its main thread (%q) has ended while %d others run on, and with it /proc lost its mappings",
			ErrZombie, p.stat.comm, p.status.threads-1)
	case p.stat.state == 'Z':
		return fmt.Errorf("%w (%q): it is a zombie that waits for its parent", ErrZombie, p.stat.comm)
	case p.stat.state == 'X', p.stat.state == 'x':
		return ErrNoProcess
	}
	maps, err := p.dir.open("maps", unix.O_RDONLY)
	if denied(err) {
		return p.deny("reading its memory mappings", unix.CAP_SYS_PTRACE)
	} else if gone(err) {
		return ErrNoProcess
	} else if err != nil {
		return err
	}
	return maps.Close()
}

// describe reads what is nice to know; what may not be read stays empty.
func (p *Process) describe() {
	p.start = bootTime().Add(time.Duration(p.stat.startTicks) * time.Second / ticksPerSecond)
	p.comm = p.stat.comm
	p.exe, _ = p.dir.readlink("exe")
	if st, err := p.dir.stat("exe"); err == nil {
		p.exeID = fileID{st.Dev, st.Ino}
	}
	if b, err := p.dir.read("cmdline", maxArguments); err == nil {
		p.cmdline = splitNUL(b)
	}
	p.environ = make(map[string]string)
	if b, err := p.dir.read("environ", maxArguments); err == nil {
		for _, kv := range splitNUL(b) {
			// The first of several wins, as with getenv.
			if k, v, ok := strings.Cut(kv, "="); ok {
				if _, dup := p.environ[k]; !dup {
					p.environ[k] = v
				}
			}
		}
	}
}

func splitNUL(b []byte) []string {
	s := strings.TrimSuffix(string(b), "\x00")
	if s == "" {
		return nil
	}
	return strings.Split(s, "\x00")
}

// bootTime returns when the machine booted, the zero time if /proc/stat does not say.
func bootTime() time.Time {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Time{}
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "btime "); ok {
			if s, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64); err == nil {
				return time.Unix(s, 0)
			}
		}
	}
	return time.Time{}
}

// watch closes exited when the process ends; closing the pidfd ends it too.
func (p *Process) watch() {
	conn, err := p.pidfd.SyscallConn()
	if err != nil {
		return
	}
	// A non-nil error means that the pidfd was closed: nobody waits any more.
	if err := conn.Read(readable); err == nil {
		close(p.exited)
	}
}

// readable reports whether a poll of the descriptor finds it ready, as a pidfd is after exit.
func readable(fd uintptr) bool {
	for {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
}

// hasExited asks the kernel, so it is never late as the channel may be.
func (p *Process) hasExited() (exited bool, err error) {
	conn, err := p.pidfd.SyscallConn()
	if err != nil {
		return false, ErrClosed
	}
	if err := conn.Control(func(fd uintptr) { exited = readable(fd) }); err != nil {
		return false, ErrClosed
	}
	return exited, nil
}

// fail gives an error from /proc its meaning: the target is gone, the access is not
// permitted, or something else.
func (p *Process) fail(action string, err error, caps ...int) error {
	exited, stateErr := p.hasExited()
	switch {
	case stateErr != nil:
		return fmt.Errorf("%s: %w", action, stateErr)
	case exited, errors.Is(err, unix.ESRCH): // the latter while it is exiting
		return fmt.Errorf("%s: %w", action, ErrTargetExited)
	case denied(err):
		return p.deny(action, caps...)
	}
	return fmt.Errorf("%s of process %d: %w", action, p.pid, err)
}

func (p *Process) deny(action string, caps ...int) error {
	return permissionError(fmt.Sprintf("%s (process %d of user %d)", action, p.pid, p.status.uid), capability.Effective(), caps...)
}

// PID returns the target's pid as this process sees it.
func (p *Process) PID() int { return p.pid }

// NSPID returns the target's pid as the target itself sees it.
func (p *Process) NSPID() int { return p.status.nspid }

// StartTime returns when the target started, to 1/100 s.
func (p *Process) StartTime() time.Time { return p.start }

// StartTicks returns when the target started in clock ticks (1/100 s) since boot. With the pid
// it identifies the incarnation.
func (p *Process) StartTicks() uint64 { return p.stat.startTicks }

// Exe returns the path of the target's executable in its own mount namespace, "" if not
// permitted to know.
func (p *Process) Exe() string { return p.exe }

// Comm returns the name of the target's main thread when it was opened.
func (p *Process) Comm() string { return p.comm }

// UID returns the target's effective user.
func (p *Process) UID() int { return p.status.uid }

// Cmdline returns the target's arguments. The caller must not change them.
func (p *Process) Cmdline() []string { return p.cmdline }

// Env returns a variable of the environment that the target was started with, "" if unset or
// not permitted to know. Variables set later, by os.environ for example, are not in it.
func (p *Process) Env(name string) string { return p.environ[name] }

// LookupEnv is like Env and tells an empty variable from an unset one.
func (p *Process) LookupEnv(name string) (string, bool) {
	v, ok := p.environ[name]
	return v, ok
}

// Seccomp returns the target's seccomp mode when it was opened: 0 off, 1 strict, 2 filter, -1 if
// the kernel does not say.
func (p *Process) Seccomp() int { return p.status.seccomp }

// PIDNamespace returns device and inode of the target's pid namespace.
func (p *Process) PIDNamespace() (dev, inode uint64, err error) {
	st, err := p.dir.stat("ns/pid")
	if exited, stateErr := p.hasExited(); err != nil || stateErr != nil || exited {
		return 0, 0, p.fail("reading the pid namespace", err, unix.CAP_SYS_PTRACE)
	}
	return st.Dev, st.Ino, nil
}

// Exited returns a channel that is closed when the target exits.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Execed reports whether the target has replaced its program since it was opened. Its mappings
// and everything that was learned from them then belong to the past.
func (p *Process) Execed() (bool, error) {
	const action = "checking the program"
	b, err := p.dir.read("stat", maxStatus)
	if err != nil {
		return false, p.fail(action, err)
	}
	now, err := parseStat(b)
	if err != nil {
		return false, fmt.Errorf("%s: %w", action, err)
	}
	if exited, err := p.hasExited(); err != nil || exited {
		return false, p.fail(action, err)
	}
	if now.startStack != p.stat.startStack {
		return true, nil
	}
	// Without address randomisation the stack stays where it was.
	st, err := p.dir.stat("exe")
	return err == nil && p.exeID != fileID{} && p.exeID != fileID{st.Dev, st.Ino}, nil
}

// SameProgram reports whether two looks at one pid have found the same program of the same process.
func (p *Process) SameProgram(q *Process) bool {
	return p.stat.startTicks == q.stat.startTicks && p.stat.startStack == q.stat.startStack && p.exeID == q.exeID
}

// Close releases the target and every file that was opened for it. It may be called again.
func (p *Process) Close() error {
	p.closing.Do(func() {
		p.closeErr = p.pidfd.Close()
		p.watching.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, im := range p.images {
			p.closeErr = errors.Join(p.closeErr, im.close())
		}
		p.closeErr = errors.Join(p.closeErr, p.dir.f.Close())
	})
	return p.closeErr
}
