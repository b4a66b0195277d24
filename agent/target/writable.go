package target

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Memory is the target's address space as it was when it was opened. Once the target has executed
// another program, or has ended, every access fails: nothing is ever written into a program that was
// not looked at.
type Memory struct {
	process *Process
	file    *os.File
}

// OpenMemory opens the target's memory for reading and writing. The caller closes it.
func (p *Process) OpenMemory() (*Memory, error) {
	f, err := p.dir.open("mem", unix.O_RDWR)
	if err != nil {
		return nil, p.fail("opening the memory", err, unix.CAP_SYS_PTRACE)
	}
	return &Memory{p, f}, nil
}

// ReadMemory fills b with the memory at addr.
func (m *Memory) ReadMemory(addr uint64, b []byte) error {
	if n, err := unix.Pread(int(m.file.Fd()), b, int64(addr)); n != len(b) {
		return m.fail("reading", addr, err)
	}
	return nil
}

// WriteMemory writes b to addr. It does not stop the target.
func (m *Memory) WriteMemory(addr uint64, b []byte) error {
	if n, err := unix.Pwrite(int(m.file.Fd()), b, int64(addr)); n != len(b) {
		return m.fail("writing", addr, err)
	}
	return nil
}

// fail explains an access that was not complete: of nothing, without an error, when the address space
// is gone.
func (m *Memory) fail(action string, addr uint64, err error) error {
	if err == nil {
		err = fmt.Errorf("%w, or executes another program", ErrTargetExited)
	}
	return m.process.fail(fmt.Sprintf("%s memory at %#x", action, addr), err, unix.CAP_SYS_PTRACE)
}

// Close releases the address space.
func (m *Memory) Close() error { return m.file.Close() }

// OpenRoot opens the target's root directory, as a place to resolve its paths in.
func (p *Process) OpenRoot() (*os.File, error) {
	f, err := p.dir.open("root", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, p.fail("opening the root directory", err, unix.CAP_SYS_PTRACE)
	}
	return f, nil
}
