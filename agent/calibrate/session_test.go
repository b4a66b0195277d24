package calibrate

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"structs"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"stageprof/agent/probe"
)

// A uprobe session is one link for both ends of a call: its program runs at the entry,
// where it can say that nobody wants the return, and at the return, with eight bytes
// that it left at that entry. The library loads programs for it, and can't attach them.

// traceUprobeSession is the kernel's BPF_TRACE_UPROBE_SESSION.
const traceUprobeSession = 57

var errNoSessions = errors.New("this kernel has no uprobe sessions as they are used here (Linux 6.13 to 6.19)")

// haveSessions looks for the kind of link, and for the kernel's function that gives a
// program the eight bytes: from Linux 7.0 on that has an argument.
func haveSessions() error {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return fmt.Errorf("reading the kernel's types: %w", err)
	}
	var kinds *btf.Enum
	var cookie *btf.Func
	err = errors.Join(kernel.TypeByName("bpf_attach_type", &kinds), kernel.TypeByName("bpf_session_cookie", &cookie))
	if errors.Is(err, btf.ErrNotFound) {
		return errNoSessions
	}
	if err != nil {
		return fmt.Errorf("reading the kernel's types: %w", err)
	}
	known := slices.ContainsFunc(kinds.Values, func(v btf.EnumValue) bool { return v.Name == "BPF_TRACE_UPROBE_SESSION" })
	prototype, ok := cookie.Type.(*btf.FuncProto)
	if !known || !ok || len(prototype.Params) > 0 {
		return errNoSessions
	}
	return nil
}

// attachSession attaches a program to a point of the file at path, for one process.
func attachSession(path string, program *ebpf.Program, point probe.Point, pid int) (io.Closer, error) {
	name, err := unix.BytePtrFromString(path)
	if err != nil {
		return nil, err
	}
	// The part of the kernel's union bpf_attr that is about multi-uprobe links.
	attr := struct {
		_                             structs.HostLayout
		program, target, kind, flags  uint32
		path                          *byte
		offsets, semaphores, cookies  *uint64
		count, multiFlags, process, _ uint32
	}{
		program: uint32(program.FD()),
		kind:    traceUprobeSession,
		path:    name,
		offsets: &point.Offset,
		cookies: &point.Cookie,
		count:   1,
		process: uint32(pid),
	}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_LINK_CREATE, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(program)
	if errno != 0 {
		return nil, fmt.Errorf("attaching a uprobe session to %q: %w", path, errno)
	}
	return os.NewFile(fd, "uprobe session"), nil
}
