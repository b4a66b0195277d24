package keeper

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"stageprof/agent/probe"
)

// ErrEnded says that the keeper is gone: it was killed, or could not go on.
var ErrEnded = errors.New("the process that keeps the probes has ended")

// Keeper is a running keeper, as its agent sees it.
type Keeper struct {
	conn    *conn
	command *exec.Cmd
	ended   chan struct{} // closed when nothing comes from it any more
	cause   error         // then: why, if it was not killed
	told    atomic.Bool   // that it has left something

	mu      sync.Mutex // guards what follows
	last    uint64     // ID that was given
	waiting map[uint64]chan answer
}

// answer is a reply with all its files.
type answer struct {
	reply
	files []*os.File
}

// start returns when the keeper can be asked.
func start() (*Keeper, error) {
	if os.Getenv(environment) != "" {
		return nil, errors.New("this is one: its program does not call Run")
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	k, err := execute(theirs)
	if err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	if k.conn, err = newConn(ours); err == nil {
		if err = k.awaitFirst(); err == nil {
			go k.listen()
			return k, nil
		}
		_ = k.conn.socket.Close()
	}
	_ = k.command.Process.Kill() // it has nothing yet
	_ = k.command.Wait()
	return nil, err
}

// patience bounds the start of a keeper, which takes some milliseconds.
const patience = 10 * time.Second

// awaitFirst returns when the keeper has said that it is there.
func (k *Keeper) awaitFirst() error {
	if err := k.conn.socket.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	var first reply
	if _, err := k.conn.receive(&first); isGone(err) {
		return errors.New("it has ended at once")
	} else if err != nil {
		return err
	}
	if first.Failed != nil {
		return first.Failed
	}
	return k.conn.socket.SetReadDeadline(time.Time{})
}

// socketPair returns both ends of a connection that passes packets as they are.
func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "keeper"), os.NewFile(uintptr(fds[1]), "agent"), nil
}

// execute starts this program as a keeper, in a session of its own: no signal from a
// terminal reaches it, and none that is sent to the agent's process group.
func execute(socket *os.File) (*Keeper, error) {
	defer socket.Close()
	self, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return nil, err
	}
	agent := os.NewFile(uintptr(self), "agent")
	defer agent.Close()
	c := exec.Command("/proc/self/exe")
	c.Args = []string{name, "of", strconv.Itoa(os.Getpid())}
	c.Dir = "/"
	c.Env = []string{environment + "=1"}
	c.ExtraFiles = []*os.File{socket, agent}
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	done, err := probe.PassOnHoldTo(c)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := c.Start(); err != nil {
		return nil, err
	}
	return &Keeper{command: c, ended: make(chan struct{}), waiting: map[uint64]chan answer{}}, nil
}

// Ended reports whether the keeper is gone.
func (k *Keeper) Ended() bool {
	select {
	case <-k.ended:
		return true
	default:
		return false
	}
}

// stop tells the keeper that there is nothing more to do, and returns the CPU time that it
// has used. With nothing but the connection's end it would wait for that of this process,
// so that is closed later.
func (k *Keeper) stop() (used time.Duration, err error) {
	k.wake()
	if err := k.conn.send(request{Kind: askEnd}); err != nil && !isGone(err) {
		return 0, errors.Join(err, k.conn.socket.Close())
	}
	_ = k.command.Wait() // how it ended says nothing: it may have been killed before
	if state := k.command.ProcessState; state != nil {
		used = state.UserTime() + state.SystemTime()
	}
	<-k.ended
	return used, k.conn.socket.Close()
}

// wake lets the keeper go on if somebody has stopped it: the agent would wait for it.
func (k *Keeper) wake() {
	_ = k.command.Process.Signal(syscall.SIGCONT) // fails only if it has ended
}

// listen passes what the keeper says on to who waits for it, until that is gone.
func (k *Keeper) listen() {
	defer close(k.ended)
	parts := map[uint64][]*os.File{} // of replies that are not complete
	for {
		var r reply
		files, err := k.conn.receive(&r)
		if isGone(err) {
			break
		}
		if err != nil { // as for want of descriptors
			k.cause = err
			_ = k.conn.send(request{Kind: askEnd}) // else it would go on keeping what nobody knows
			break
		}
		files = append(parts[r.ID], files...)
		if r.More {
			parts[r.ID] = files
			continue
		}
		delete(parts, r.ID)
		if waiting := k.forget(r.ID); waiting != nil {
			waiting <- answer{r, files}
		} else { // nobody has asked
			closeAll(files)
		}
	}
	for _, files := range parts {
		closeAll(files)
	}
}

// nextID numbers probes.
func (k *Keeper) nextID() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last++
	return k.last
}

// expect returns where the answer of an ID will come.
func (k *Keeper) expect(id uint64) chan answer {
	waiting := make(chan answer, 1)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waiting[id] = waiting
	return waiting
}

// forget returns where the answer of an ID is waited for, for the last time; nil: nowhere.
func (k *Keeper) forget(id uint64) chan answer {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer delete(k.waiting, id)
	return k.waiting[id]
}

// ask sends a request, and returns the answer.
func (k *Keeper) ask(r request, files ...int) (answer, error) {
	waiting := k.expect(r.ID)
	defer k.forget(r.ID)
	k.wake()
	if err := k.conn.send(r, files...); isGone(err) {
		<-k.ended // which is noticed there as well
	} else if err != nil {
		return answer{}, fmt.Errorf("asking the process that keeps the probes: %w", err)
	}
	select {
	case a := <-waiting:
		return a, a.Failed.err()
	case <-k.ended:
	}
	select { // it may have been the last thing that it said
	case a := <-waiting:
		return a, a.Failed.err()
	default:
	}
	if k.cause != nil {
		return answer{}, fmt.Errorf("%w: %w", ErrEnded, k.cause)
	}
	return answer{}, ErrEnded
}

// cpu is the CPU time that the keeper has used.
func (k *Keeper) cpu() time.Duration {
	const ofProcess = 2 // a clock of all of its threads, as clock_getcpuclockid(3) has it
	var now unix.Timespec
	_ = unix.ClockGettime(int32(^k.command.Process.Pid<<3|ofProcess), &now) // fails if it is gone
	return time.Duration(now.Nano())
}

// memory is what the keeper has in memory for itself, in bytes, 0 if unknown. What it has of
// the program's file it has in common with this process.
func (k *Keeper) memory() uint64 {
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", k.command.Process.Pid))
	if err != nil {
		return 0
	}
	var size, resident, shared uint64 // pages
	if _, err := fmt.Sscan(string(statm), &size, &resident, &shared); err != nil {
		return 0
	}
	return (resident - min(shared, resident)) * uint64(os.Getpagesize())
}
