package mark

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// The folder's files. The last two are the target's.
const (
	scriptFile   = "script.py"
	claimFile    = "taken"
	answerFile   = "answer"
	unfinishedAs = "answer.new" // what the answer is called while it is written
)

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 4 << 20

// places are the directories, as the target sees them, that are tried for the folder.
var places = []string{"/tmp", "/var/tmp", "/dev/shm"}

// folder is a directory in the target's file system.
type folder struct {
	parent, dir *os.File
	name        string
	path        string // as the target sees it
	uid         int
}

// makeFolder makes a folder for the user uid under the target's root directory.
func makeFolder(root *os.File, uid int) (*folder, error) {
	var errs []error
	for _, place := range places {
		f, err := makeFolderIn(root, place, uid)
		if err == nil {
			return f, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("making a folder for the script: %w", errors.Join(errs...))
}

func makeFolderIn(root *os.File, place string, uid int) (*folder, error) {
	// The target decides what its links point to; none may lead out of its root directory.
	fd, err := unix.Openat2(int(root.Fd()), place, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: place, Err: err}
	}
	parent := os.NewFile(uintptr(fd), place)
	name := "stageprof-mark-" + rand.Text()
	if err := unix.Mkdirat(fd, name, 0o700); err != nil {
		return nil, errors.Join(&os.PathError{Op: "mkdir", Path: place, Err: err}, parent.Close())
	}
	f := &folder{parent: parent, name: name, path: path.Join(place, name), uid: uid}
	if err := f.open(); err != nil {
		return nil, errors.Join(err, unix.Unlinkat(fd, name, unix.AT_REMOVEDIR), parent.Close())
	}
	return f, nil
}

// open opens the new directory and makes sure that it is the one that was made: in a parent without
// the sticky bit another user could have put something else in its place.
func (f *folder) open() error {
	fd, err := unix.Openat(int(f.parent.Fd()), f.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: f.path, Err: err}
	}
	f.dir = os.NewFile(uintptr(fd), f.path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return errors.Join(&os.PathError{Op: "stat", Path: f.path, Err: err}, f.dir.Close())
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o777 != 0o700 {
		return errors.Join(fmt.Errorf("%q was replaced while it was made", f.path), f.dir.Close())
	}
	return nil
}

// putScript writes the script and hands the folder over to the target's user.
func (f *folder) putScript(text string) error {
	file, err := f.create(scriptFile)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	err = errors.Join(err, file.Chown(f.uid, -1), file.Close())
	if err == nil {
		err = f.dir.Chown(f.uid, -1)
	}
	if err != nil {
		return fmt.Errorf("writing the script for user %d: %w", f.uid, err)
	}
	return nil
}

func (f *folder) create(name string) (*os.File, error) {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(int(f.dir.Fd()), name, flags, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "create", Path: path.Join(f.path, name), Err: err}
	}
	return os.NewFile(uintptr(fd), path.Join(f.path, name)), nil
}

// claim tells whether the request is the agent's to withdraw. If it is not, the script has begun.
func (f *folder) claim() (bool, error) {
	file, err := f.create(claimFile)
	if errors.Is(err, unix.EEXIST) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, file.Close()
}

// answer reads the answer; ok is false while there is none.
func (f *folder) answer() (b []byte, ok bool, err error) {
	name := path.Join(f.path, answerFile)
	fd, err := unix.Openat(int(f.dir.Fd()), answerFile, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, &os.PathError{Op: "open", Path: name, Err: err}
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	b, err = io.ReadAll(io.LimitReader(file, maxAnswer+1))
	if err == nil && len(b) > maxAnswer {
		err = fmt.Errorf("reading %q: longer than %d bytes", name, maxAnswer)
	}
	return b, err == nil, err
}

// remove takes the folder away, by the names that it is known to hold.
func (f *folder) remove() error {
	var errs []error
	for _, name := range []string{scriptFile, claimFile, answerFile, unfinishedAs} {
		if err := unix.Unlinkat(int(f.dir.Fd()), name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, &os.PathError{Op: "remove", Path: path.Join(f.path, name), Err: err})
		}
	}
	if err := unix.Unlinkat(int(f.parent.Fd()), f.name, unix.AT_REMOVEDIR); err != nil {
		errs = append(errs, &os.PathError{Op: "remove", Path: f.path, Err: err})
	}
	return errors.Join(append(errs, f.dir.Close(), f.parent.Close())...)
}
