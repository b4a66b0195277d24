package target

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// fuse is a file system with one file, whose server can stop answering: as every
// user can have one. The numbers are those of the kernel's <linux/fuse.h>.
type fuse struct {
	device  *os.File
	content []byte
	mute    atomic.Bool
}

const (
	fuseLookup, fuseGetattr, fuseOpen, fuseRead, fuseRelease, fuseFlush, fuseInit, fuseForget = 1, 3, 14, 15, 18, 25, 26, 2

	fuseRoot, fuseFile = 1, 2 // nodes
	fuseHeader         = 40   // of requests
)

// mountFuse shows a content at the returned path until the end of the test.
func mountFuse(t *testing.T, content []byte, name string) (path string, f *fuse) {
	t.Helper()
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", device.Fd())
	if err := unix.Mount("stageprof-test", folder, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		t.Fatalf("mounting a FUSE file system: %v", err)
	}
	f = &fuse{device: device, content: content}
	served := make(chan struct{})
	go func() { defer close(served); f.serve() }()
	t.Cleanup(func() {
		// Whoever waits for an answer gets an error.
		if err := unix.Unmount(folder, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		device.Close()
		<-served
	})
	return filepath.Join(folder, name), f
}

func (f *fuse) serve() {
	request := make([]byte, 1<<20)
	for {
		n, err := unix.Read(int(f.device.Fd()), request)
		if err == unix.EINTR || err == unix.ENOENT {
			continue
		}
		if err != nil || n < fuseHeader {
			return // unmounted
		}
		if f.mute.Load() {
			continue
		}
		le := binary.NativeEndian
		opcode, node, in := le.Uint32(request[4:]), le.Uint64(request[16:]), request[fuseHeader:n]
		if opcode == fuseForget {
			continue
		}
		answer, failure := f.answer(opcode, node, in)
		out := le.AppendUint32(nil, uint32(16+len(answer)))
		out = le.AppendUint32(out, uint32(-int32(failure)))
		out = append(out, request[8:16]...) // which request it is
		_, _ = unix.Write(int(f.device.Fd()), append(out, answer...))
	}
}

func (f *fuse) answer(opcode uint32, node uint64, in []byte) ([]byte, unix.Errno) {
	var b bytes.Buffer
	put := func(values ...any) {
		for _, v := range values {
			_ = binary.Write(&b, binary.NativeEndian, v) // a buffer takes everything
		}
	}
	switch opcode {
	case fuseInit:
		put(uint32(7), uint32(31), uint32(1<<16), uint32(0), uint16(16), uint16(12), uint32(1<<16), uint32(1), [9]uint32{})
	case fuseLookup:
		put(uint64(fuseFile), uint64(0), uint64(0), uint64(0), uint64(0), f.attributes(fuseFile))
	case fuseGetattr:
		put(uint64(0), uint64(0), f.attributes(node))
	case fuseOpen:
		put(uint64(0), uint64(0))
	case fuseRead:
		from := min(binary.NativeEndian.Uint64(in[8:]), uint64(len(f.content)))
		size := uint64(binary.NativeEndian.Uint32(in[16:]))
		return f.content[from:min(from+size, uint64(len(f.content)))], 0
	case fuseRelease, fuseFlush:
	default:
		return nil, unix.ENOSYS
	}
	return b.Bytes(), 0
}

type fuseAttributes struct {
	Inode, Size, Blocks                    uint64
	Times                                  [3]uint64
	TimesNS                                [3]uint32
	Mode, Links, User, Group, Device, _, _ uint32
}

func (f *fuse) attributes(node uint64) fuseAttributes {
	if node == fuseRoot {
		return fuseAttributes{Inode: node, Mode: unix.S_IFDIR | 0o755, Links: 2}
	}
	return fuseAttributes{Inode: node, Mode: unix.S_IFREG | 0o755, Links: 1, Size: uint64(len(f.content))}
}
