package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
)

// errAborted says that the second interrupt came before the files were whole.
var errAborted = errors.New("interrupted twice: nothing was written")

// outputs are the files of one command. They are opened before the work, so
// that a path that can't be written is found at once; they get their names
// together, after all of them are whole, or not at all.
type outputs struct {
	mu      sync.Mutex
	files   []*output
	settled bool // committed or discarded
	dropped bool // discarded
}

// output is one file in the making. A regular file grows beside its path under
// another name; anything else there (a terminal, a pipe, /dev/null) is written
// directly, since it must not be replaced.
type output struct {
	path string // where it goes, symbolic links resolved
	temp string // where it is until then, empty when written directly
	file *os.File
}

// open adds the file that will be at path. The writer that it returns is valid
// until commit or discard.
func (o *outputs) open(path string) (io.Writer, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.settled {
		return nil, errAborted
	}
	out, err := newOutput(path)
	if err != nil {
		return nil, err
	}
	o.files = append(o.files, out)
	return out, nil
}

// serial tells the files in the making apart.
var serial atomic.Uint32

// place is where a file that is written to path comes to lie: symbolic links on
// the way are followed, also where the file does not exist yet.
func place(path string) string {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	} else if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(dir, filepath.Base(path))
	}
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	return path
}

func newOutput(path string) (*output, error) {
	if path == "-" {
		return nil, errors.New("output \"-\": name a file, or /dev/stdout")
	}
	path = place(path)
	switch info, err := os.Stat(path); {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("checking the output: %w", err)
	case info.IsDir():
		return nil, fmt.Errorf("output %q is a directory", path)
	default:
		// Opened also where it will be replaced: a file that its owner has
		// protected stays as it is. A pipe that nobody reads is an error, not
		// a wait.
		file, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if errors.Is(err, syscall.ENXIO) {
			return nil, fmt.Errorf("output %q is a pipe that nobody reads", path)
		}
		if err != nil {
			return nil, fmt.Errorf("checking the output: %w", err)
		}
		if !info.Mode().IsRegular() {
			return &output{path: path, file: file}, nil
		}
		file.Close()
	}
	// A short name: the longest that a directory takes leaves no room for more.
	temp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".stageprof.%d.%d.tmp", os.Getpid(), serial.Add(1)))
	file, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, fmt.Errorf("creating the output %q: %w", path, cause(err))
	}
	return &output{path: path, temp: temp, file: file}, nil
}

// cause is an error without the name of the file in the making, which says
// nothing to people.
func cause(err error) error {
	var path *os.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}

// Write writes to the file in the making.
func (o *output) Write(b []byte) (int, error) {
	n, err := o.file.Write(b)
	return n, cause(err)
}

// commit gives every file its name. After a discard it does nothing but say so.
func (o *outputs) commit() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.settled {
		return errAborted
	}
	o.settled = true
	for i, out := range o.files {
		if err := out.commit(); err != nil {
			for _, rest := range o.files[i:] {
				rest.discard()
			}
			return fmt.Errorf("writing %q: %w", out.path, cause(err))
		}
	}
	return nil
}

// discard removes what was not committed, and reports whether that was
// everything. It may be called at any time, also while another goroutine
// writes.
func (o *outputs) discard() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.settled {
		return false
	}
	o.settled, o.dropped = true, true
	for _, out := range o.files {
		out.discard()
	}
	return true
}

// aborted reports whether the files were discarded.
func (o *outputs) aborted() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.dropped
}

func (o *output) commit() error {
	if o.temp == "" {
		return o.file.Close()
	}
	if err := errors.Join(o.file.Sync(), o.file.Close()); err != nil {
		return err
	}
	return os.Rename(o.temp, o.path)
}

func (o *output) discard() {
	o.file.Close()
	if o.temp != "" {
		os.Remove(o.temp)
	}
}
