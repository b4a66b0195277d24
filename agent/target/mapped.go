package target

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// File is a file that the target has mapped, held open for reading. It implements
// [io.ReaderAt].
type File struct {
	f       *os.File
	dev     uint64
	inode   uint64
	size    int64
	removed bool
}

// ReadAt implements [io.ReaderAt].
func (f *File) ReadAt(b []byte, off int64) (int, error) { return f.f.ReadAt(b, off) }

// Fd returns the descriptor, which stays valid until Close.
func (f *File) Fd() int { return int(f.f.Fd()) }

// AttachPath returns a path that leads this process to the very file, wherever it lies and
// whether or not it still has a name: what to give to the kernel for a uprobe.
func (f *File) AttachPath() string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// Dev returns the device as stat gives it. On overlayfs and btrfs it differs from the mapping's.
func (f *File) Dev() uint64 { return f.dev }

// Inode returns the inode number as stat gives it.
func (f *File) Inode() uint64 { return f.inode }

// Size returns the size in bytes when the file was opened.
func (f *File) Size() int64 { return f.size }

// Removed reports whether the file had lost its last name when it was opened.
func (f *File) Removed() bool { return f.removed }

// Close closes the file.
func (f *File) Close() error { return f.f.Close() }

// OpenMapped opens the file behind a mapping: the mapped inode itself, not what now lies at its
// path. The caller closes it.
//
// It asks /proc/PID/map_files first, which is right by construction but needs
// CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN, and then goes by the path, in the target's root
// directory and then in ours (for a target that has changed its root directory). What a path
// leads to counts only if it is the mapped file: same inode and device or, where the file
// system reports another device to stat than to maps (overlayfs, btrfs), same inode and same
// content as the target's memory at the start of the mapping. Else the error wraps
// [ErrFileGone].
func (p *Process) OpenMapped(m Mapping) (*File, error) {
	action := fmt.Sprintf("opening the mapped file %q", m.Path)
	if m.Inode == 0 || m.Path == "" {
		return nil, fmt.Errorf("%s: mapping %#x-%#x has no file", action, m.Start, m.End)
	}
	f, direct := p.openMapFiles(m)
	if direct == nil {
		return f, nil
	}
	f, byPath := p.openByPath(m)
	if byPath == nil {
		return f, nil
	}
	if denied(byPath) {
		return nil, p.fail(action, byPath, unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH)
	}
	if denied(direct) && errors.Is(byPath, ErrFileGone) {
		// Another file lies there; only map_files leads to the mapped one.
		caps := []int{unix.CAP_CHECKPOINT_RESTORE}
		if os.Geteuid() != p.status.uid {
			caps = append(caps, unix.CAP_DAC_READ_SEARCH)
		}
		return nil, p.deny(fmt.Sprintf("%s: %v; reaching it in map_files", action, byPath), caps...)
	}
	return nil, p.fail(action, byPath, unix.CAP_SYS_PTRACE)
}

func (p *Process) openMapFiles(m Mapping) (*File, error) {
	name := fmt.Sprintf("map_files/%x-%x", m.Start, m.End)
	handle, err := p.dir.open(name, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	f, err := reopen(handle)
	if err != nil {
		return nil, err
	}
	// The mapping may have been replaced since it was read; its numbers or, where stat has
	// others than maps, its name tell.
	if (fileID{f.dev, f.inode} == m.id()) {
		return f, nil
	}
	link, err := p.dir.readlink(name)
	if err == nil && (link == m.Path || m.Deleted && link == m.Path+deletedSuffix) && p.sameContent(f, m) {
		return f, nil
	}
	return nil, errors.Join(ErrFileGone, f.Close())
}

// openByPath tries the path in the target's root directory and in ours.
func (p *Process) openByPath(m Mapping) (*File, error) {
	root, err := p.dir.open("root", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := p.openInRoot(root, m)
	if err == nil {
		return f, nil
	}
	ours, rootErr := os.OpenFile("/", unix.O_PATH|unix.O_DIRECTORY, 0)
	if rootErr != nil {
		return nil, err
	}
	defer ours.Close()
	if f, ourErr := p.openInRoot(ours, m); ourErr == nil {
		return f, nil
	}
	return nil, err
}

func (p *Process) openInRoot(root *os.File, m Mapping) (*File, error) {
	names := []string{m.Path}
	if m.Deleted {
		names = append(names, m.Path+deletedSuffix) // it may really be called so
	}
	err := error(ErrFileGone)
	for _, name := range names {
		var f *File
		if f, err = p.openVerified(root, name, m); err == nil {
			return f, nil
		}
	}
	return nil, err
}

func (p *Process) openVerified(root *os.File, name string, m Mapping) (*File, error) {
	// Symbolic links are followed as the target would follow them.
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(int(root.Fd()), name, &how)
	if gone(err) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%w: nothing is at its path now", ErrFileGone)
	} else if err != nil {
		return nil, err
	}
	handle := os.NewFile(uintptr(fd), name)
	defer handle.Close()
	other := fmt.Errorf("%w: another file is at its path now", ErrFileGone)
	// The handle has done nothing to the file yet. Only the one with the mapped
	// file's number is opened; whoever can write to the path chooses what is there.
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("stat %q: %w", name, err)
	}
	if st.Ino != m.Inode {
		return nil, other
	}
	f, err := reopen(handle)
	if err != nil {
		return nil, err
	}
	if (fileID{f.dev, f.inode} == m.id()) || p.sameContent(f, m) {
		return f, nil
	}
	return nil, errors.Join(other, f.Close())
}

// reopen turns a handle, which can be had for anything without side effects, into a readable
// file, but only if it is a regular one: opening a device or a pipe can do things.
func reopen(handle *os.File) (*File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(handle.Fd()), &st); err != nil {
		return nil, fmt.Errorf("stat %q: %w", handle.Name(), err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("%q is not a regular file", handle.Name())
	}
	path := fmt.Sprintf("/proc/self/fd/%d", handle.Fd())
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: handle.Name(), Err: err}
	}
	return &File{
		f: os.NewFile(uintptr(fd), handle.Name()), dev: st.Dev, inode: st.Ino,
		size: st.Size, removed: st.Nlink == 0,
	}, nil
}

// sameContent compares the first page of a mapping with the file. Writable mappings say
// nothing about the file; a page of code may hold the breakpoints of somebody's uprobes, which
// makes the answer no.
func (p *Process) sameContent(f *File, m Mapping) bool {
	if m.Write || !m.Read {
		return false
	}
	n := min(m.End-m.Start, 4096)
	if int64(m.Offset) < 0 || int64(m.Offset) >= f.size {
		return false
	}
	n = min(n, uint64(f.size)-m.Offset)
	memory, content := make([]byte, n), make([]byte, n)
	if err := p.ReadMemory(m.Start, memory); err != nil {
		return false
	}
	if _, err := io.ReadFull(io.NewSectionReader(f, int64(m.Offset), int64(n)), content); err != nil {
		return false
	}
	return bytes.Equal(memory, content)
}
