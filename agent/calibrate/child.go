package calibrate

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"stageprof/agent/probe"
)

// child is the running target of a calibration.
type child struct {
	command *exec.Cmd
	code    *os.File
	in      io.WriteCloser
	out     *bufio.Reader
	data    uint64 // address of its data page
	only    int    // process whose calls reach the programs, 0: any
}

func start(ctx context.Context) (*child, error) {
	code, err := stubFile()
	if err != nil {
		return nil, err
	}
	c := &child{command: exec.CommandContext(ctx, "/proc/self/exe"), code: code}
	c.command.Env = []string{environment + "=1", "GODEBUG=asyncpreemptoff=1"}
	c.command.ExtraFiles = []*os.File{code}
	c.command.Stderr = os.Stderr
	// An interrupt at the terminal is for the recording, not for its helper.
	c.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if c.in, err = c.command.StdinPipe(); err != nil {
		return nil, errors.Join(err, code.Close())
	}
	out, err := c.command.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, c.in.Close(), code.Close())
	}
	c.out = bufio.NewReader(out)
	if err := c.command.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the calibration's child: %w", err), code.Close())
	}
	if _, err := fmt.Fscanln(c.out, &c.data); err != nil {
		return nil, errors.Join(fmt.Errorf("waiting for the calibration's child: %w", err), c.stop())
	}
	// The word that stands for "the current thread state" in the way that the
	// kernel side reads Python's lock.
	if _, err := code.WriteAt(binary.NativeEndian.AppendUint64(nil, c.data), pageSize); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

// stubFile returns anonymous memory with the stubs in its first page.
func stubFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("stageprof-calibration", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making memory for the calibration: %w", err)
	}
	file := os.NewFile(uintptr(fd), "stageprof-calibration")
	if err := file.Truncate(2 * pageSize); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	for i, code := range stubCode() {
		if _, err := file.WriteAt(code, int64(stubAt(i))); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	return file, nil
}

// stubCode is the code of all stubs in their order: those for calls, then those
// for functions.
func stubCode() [][]byte {
	var code [][]byte
	for _, s := range stubs {
		code = append(code, s.code)
	}
	for _, s := range functionStubs {
		code = append(code, s.code)
	}
	return code
}

// stubAt is where a stub begins. None does at 0: an offset of 0 stands for the place
// of a symbol, which this file has not.
func stubAt(i int) uint64 { return uint64(i+1) * stubAlign }

// path names the stubs' memory for attaching probes.
func (c *child) path() string { return fmt.Sprintf("/proc/self/fd/%d", c.code.Fd()) }

// filter tells whether the kernel lets only the child's calls through.
func (c *child) filter(on bool) {
	if on {
		c.only = c.command.Process.Pid
	}
}

func (c *child) attacher(mechanism probe.Mechanism) probe.Attacher {
	return probe.Attacher{Mechanism: mechanism, PID: c.only}
}

// call lets the child call stub i n times and returns the nanoseconds per call.
func (c *child) call(i, n int) (float64, error) {
	if _, err := fmt.Fprintln(c.in, stubAt(i), n); err != nil {
		return 0, fmt.Errorf("asking the calibration's child: %w", err)
	}
	var elapsed int64
	if _, err := fmt.Fscanln(c.out, &elapsed); err != nil {
		return 0, fmt.Errorf("hearing from the calibration's child: %w", err)
	}
	return float64(elapsed) / float64(n), nil
}

func (c *child) stop() error {
	// The child ends at the end of its input.
	return errors.Join(c.in.Close(), c.command.Wait(), c.code.Close())
}
