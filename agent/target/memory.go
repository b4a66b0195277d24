package target

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// ReadMemory fills b with the target's memory at addr. It does not stop the target, so what
// the target writes meanwhile may be seen in part. The error wraps [ErrPermission],
// [ErrTargetExited] or, for an address that is not mapped, unix.EFAULT.
func (p *Process) ReadMemory(addr uint64, b []byte) error {
	for done := 0; done < len(b); {
		local := []unix.Iovec{{Base: &b[done]}}
		local[0].SetLen(len(b) - done)
		remote := []unix.RemoteIovec{{Base: uintptr(addr) + uintptr(done), Len: len(b) - done}}
		n, err := unix.ProcessVMReadv(p.pid, local, remote, 0)
		if err == nil && n == 0 {
			err = unix.EFAULT
		}
		if err != nil {
			return p.fail(fmt.Sprintf("reading memory at %#x", addr+uint64(done)), err, unix.CAP_SYS_PTRACE)
		}
		done += n
	}
	// The system call goes by number. That the target lives now proves that it was the one.
	if exited, err := p.hasExited(); err != nil || exited {
		return p.fail("reading memory", err)
	}
	return nil
}
