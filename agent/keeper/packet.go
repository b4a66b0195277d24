package keeper

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"stageprof/agent/probe"
)

// request is a packet to the keeper.
type request struct {
	ID   uint64 // of the probes, as the agent numbers them from 1 on
	Kind kind
	// The rest is for askEntry and askReturn, which come with two files: the one to probe,
	// opened as a path only, and the program. These are the fields of a probe.Attacher:
	Mechanism probe.Mechanism
	PID       int
	Held      bool
	Name      string
	Points    []probe.Point
}

type kind int

const (
	askEntry  kind = iota // to attach to entries of functions
	askReturn             // or to their returns
	askOff                // to take off what was attached
	askEnd                // to end: the agent has no descriptors of links any more
)

// reply answers the request with its ID, or is the first packet of all, which says that
// the keeper is there.
type reply struct {
	ID     uint64
	Busy   time.Duration // CPU time that changing the target's code took
	Failed *failure
	Held   bool // the kernel takes these probes off
	More   bool // another packet brings more descriptors of the links
}

// failure is an error on its way to the agent.
type failure struct {
	Text  string
	Errno syscall.Errno // 0: it comes from no system call
}

func failureOf(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Text: err.Error()}
	errors.As(err, &f.Errno)
	return f
}

func (f *failure) err() error {
	if f == nil {
		return nil
	}
	return f
}

func (f *failure) Error() string { return f.Text }

func (f *failure) Unwrap() error {
	if f.Errno == 0 {
		return nil
	}
	return f.Errno
}

const (
	// A packet has room for the points of the largest file that is probed.
	packetSize = 1 << 18
	// mostFiles is how many descriptors the kernel passes on at once.
	mostFiles = 253
)

// conn passes packets, and files with them, between an agent and its keeper.
type conn struct {
	socket *net.UnixConn
	mu     sync.Mutex // guards sending
	buffer []byte     // for receiving
}

// newConn takes a socket over.
func newConn(file *os.File) (*conn, error) {
	defer file.Close() // of which there is a duplicate then
	socket, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	packets, ok := socket.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("descriptor %d is no socket between processes", file.Fd()), socket.Close())
	}
	if err := packets.SetWriteBuffer(packetSize); err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	return &conn{socket: packets, buffer: make([]byte, packetSize)}, nil
}

func (c *conn) send(packet any, files ...int) error {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(packet); err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _, err := c.socket.WriteMsgUnix(b.Bytes(), rights, nil)
	return err
}

// receive returns the files that came with a packet. It is for one goroutine.
func (c *conn) receive(packet any) ([]*os.File, error) {
	rights := make([]byte, unix.CmsgSpace(mostFiles*4))
	n, rightsLen, flags, _, err := c.socket.ReadMsgUnix(c.buffer, rights)
	if err != nil {
		return nil, err
	}
	files, err := filesIn(rights[:rightsLen])
	switch {
	case err != nil:
	case flags&unix.MSG_CTRUNC != 0: // some of the files found no place in this process
		err = unix.EMFILE
	case flags&unix.MSG_TRUNC != 0:
		err = unix.EMSGSIZE
	default:
		err = gob.NewDecoder(bytes.NewReader(c.buffer[:n])).Decode(packet)
	}
	if err != nil {
		closeAll(files)
		return nil, fmt.Errorf("receiving a packet: %w", err)
	}
	return files, nil
}

func filesIn(rights []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			closeAll(files)
			return nil, err
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "passed on"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) (err error) {
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// isGone tells whether a failure to send or to receive means that the other side is gone, or
// that this one has closed the connection.
func isGone(err error) bool {
	for _, gone := range []error{io.EOF, net.ErrClosed, unix.EPIPE, unix.ECONNRESET, unix.ECONNREFUSED, unix.ENOTCONN} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return false
}
