package keeper

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"stageprof/agent/probe"
)

// environment marks a process as a keeper.
const environment = "STAGEPROF_KEEPER"

// The keeper's descriptors.
const (
	socketFD = 3 + iota
	agentFD  // of the agent's process
)

// name is the keeper's in lists of processes. Who kills what is called like this program
// (pkill, killall) does not mean the keeper: it ends by itself.
const name = "probe-keeper"

// Run runs the keeper if this process is one, and then reports true: the caller has to
// exit. Programs that record call it first in main, tests in TestMain.
func Run() bool {
	if os.Getenv(environment) == "" {
		return false
	}
	_ = os.WriteFile("/proc/self/comm", []byte(name), 0) // it is a name only
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	if err := keep(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	return true
}

func keep() error {
	refused := refuseMorePrivileges()
	c, err := newConn(os.NewFile(socketFD, "socket"))
	if err == nil {
		err = c.send(reply{Failed: failureOf(refused)})
	}
	if refused != nil || err != nil {
		return errors.Join(refused, err)
	}
	k := keeping{agent: c, probes: map[uint64]*kept{}}
	gone, err := k.obey()
	_ = c.socket.Close() // an agent that is there takes this for the end
	k.working.Wait()
	if gone {
		err = errors.Join(err, awaitEnd(agentFD))
	}
	return errors.Join(err, k.takeAllOff())
}

// refuseMorePrivileges returns an error if this process has got privileges by its file:
// an agent's are passed on, so somebody else has started it.
func refuseMorePrivileges() error {
	bound, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil || bound == 1 {
		return err
	}
	values, err := unix.Auxv()
	if err != nil {
		return err
	}
	const secure = 23 // AT_SECURE
	if slices.ContainsFunc(values, func(v [2]uintptr) bool { return v[0] == secure && v[1] != 0 }) {
		return errors.New("only an agent starts this")
	}
	return nil
}

// keeping is what a keeper has in its hands.
type keeping struct {
	agent   *conn
	working sync.WaitGroup // on requests

	mu     sync.Mutex
	probes map[uint64]*kept
}

// kept are probes that were attached at once.
type kept struct {
	io.Closer
	busy atomic.Int64 // CPU time that has not been told yet
}

func (k *kept) took() time.Duration { return time.Duration(k.busy.Swap(0)) }

// obey does what the agent asks for until that has nothing more to ask, is gone, or can't be
// understood. Attaching waits for the kernel most of the time, so several requests are
// worked on at once.
func (k *keeping) obey() (gone bool, err error) {
	for {
		var r request
		files, err := k.agent.receive(&r)
		if errors.Is(err, net.ErrClosed) { // here, as something could not be told
			return false, nil
		}
		if isGone(err) {
			return true, nil
		}
		if err != nil || r.Kind == askEnd {
			return false, err
		}
		k.working.Go(func() { k.work(r, files) })
	}
}

// work does what a request asks for, and tells the agent. Where that can't be told it must
// not wait for it any longer. If it is gone the probes stay in hand.
func (k *keeping) work(r request, files []*os.File) {
	var err error
	if r.Kind == askOff {
		err = k.agent.send(k.takeOff(r.ID))
	} else {
		err = k.tell(k.attach(r, files))
	}
	if err != nil && !isGone(err) {
		fmt.Fprintf(os.Stderr, "%s: answering: %v\n", name, err)
		_ = k.agent.socket.Close()
	}
}

// attach returns the reply to a request, and the descriptors of the links.
func (k *keeping) attach(r request, files []*os.File) (reply, []int) {
	probes := &kept{}
	if err := probes.attach(r, files); err != nil {
		return reply{ID: r.ID, Busy: probes.took(), Failed: failureOf(err)}, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.probes[r.ID] = probes
	return reply{ID: r.ID, Busy: probes.took(), Held: probe.IsHeld(probes.Closer)}, probe.Descriptors(probes.Closer)
}

// tell sends a reply with the descriptors of links, in as many packets as it takes.
func (k *keeping) tell(r reply, fds []int) error {
	for len(fds) > mostFiles {
		if err := k.agent.send(reply{ID: r.ID, More: true}, fds[:mostFiles]...); err != nil {
			return err
		}
		fds = fds[mostFiles:]
	}
	return k.agent.send(r, fds...)
}

func (k *kept) attach(r request, files []*os.File) error {
	if len(files) != 2 {
		closeAll(files)
		return fmt.Errorf("a request with %d files", len(files))
	}
	file := files[0]
	defer file.Close()
	program, err := programOf(files[1])
	if err != nil {
		return err
	}
	defer program.Close() // which the links keep
	path := fmt.Sprintf("/proc/self/fd/%d", file.Fd())
	by := probe.Attacher{Mechanism: r.Mechanism, PID: r.PID, Busy: &k.busy, Held: r.Held, Name: r.Name}
	if r.Kind == askReturn {
		k.Closer, err = by.Return(path, program, r.Points)
	} else {
		k.Closer, err = by.Entry(path, program, r.Points)
	}
	return err
}

func programOf(file *os.File) (*ebpf.Program, error) {
	defer file.Close()
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return ebpf.NewProgramFromFD(fd)
}

func (k *keeping) takeOff(id uint64) reply {
	k.mu.Lock()
	probes := k.probes[id]
	delete(k.probes, id)
	k.mu.Unlock()
	if probes == nil {
		return reply{ID: id, Failed: failureOf(fmt.Errorf("nothing is kept as %d", id))}
	}
	err := probes.Close()
	return reply{ID: id, Busy: probes.took(), Failed: failureOf(err)}
}

// takeAllOff takes off what is left, or leaves it to an agent that has descriptors of it.
func (k *keeping) takeAllOff() error {
	var all probe.Links
	for _, probes := range k.probes {
		all.Add(probes)
	}
	return all.Close()
}

// awaitEnd returns when a process has ended, by its descriptor. An agent that is being killed
// still has descriptors of the links: as long as it has, nothing would come off here, but there.
func awaitEnd(pidfd int) error {
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, -1)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
