package target

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// procDir is an open /proc/PID directory. It stands for one process incarnation: once that is
// gone every access fails, even if the number has been given to a new process.
type procDir struct {
	f *os.File
}

func openProcDir(pid int) (procDir, error) {
	path := fmt.Sprintf("/proc/%d", pid)
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return procDir{}, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return procDir{os.NewFile(uintptr(fd), path)}, nil
}

func (d procDir) open(name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(d.f.Fd()), name, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: d.f.Name() + "/" + name, Err: err}
	}
	return os.NewFile(uintptr(fd), d.f.Name()+"/"+name), nil
}

// read returns the file's content, which must not be longer than limit bytes.
func (d procDir) read(name string, limit int64) ([]byte, error) {
	f, err := d.open(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("reading %q: longer than %d bytes", f.Name(), limit)
	}
	return b, nil
}

func (d procDir) readlink(name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(d.f.Fd()), name, buf)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: d.f.Name() + "/" + name, Err: err}
	}
	return string(buf[:n]), nil
}

func (d procDir) stat(name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(d.f.Fd()), name, &st, 0); err != nil {
		return st, &os.PathError{Op: "stat", Path: d.f.Name() + "/" + name, Err: err}
	}
	return st, nil
}

// gone reports whether the error is how /proc answers for a process that does not exist.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH)
}

// denied reports whether the error is a refusal.
func denied(err error) bool {
	return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)
}
