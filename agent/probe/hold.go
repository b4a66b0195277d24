package probe

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// A hold is a file system for BPF objects (bpffs) that is mounted nowhere: only descriptors
// of this process, and of one that it passes them on to, lead to it. A link that has a file there is taken off by one of the kernel's own
// workers, once that file is gone (all kernels with multi-uprobe links). Whoever closes the
// last descriptor of a link takes it off himself, and a process that is killed meanwhile
// leaves probes in the target: it can no longer change the target's code. Nobody kills a
// kernel's worker.
type hold struct {
	dir       int // a descriptor of its root, which alone keeps it
	inherited bool
	files     atomic.Uint64
}

// passedOn is the environment's variable with the descriptor of a hold that this program
// has made before it gave up the right to, and executed itself once more.
const passedOn = "STAGEPROF_HOLD"

// ofThisProcess is nil where the process may not have a hold: to make one takes
// CAP_SYS_ADMIN.
var ofThisProcess = sync.OnceValue(func() *hold {
	if h := inherit(); h != nil {
		return h
	}
	h, err := newHold()
	if err != nil {
		return nil
	}
	return h
})

// PassOnHold makes the hold outlive the execution of a program, in which it belongs before
// all that puts probes on something, too. Here it belongs before what takes CAP_SYS_ADMIN
// away. Should no program be executed, stay takes it back.
func PassOnHold() (stay func()) {
	h := ofThisProcess()
	if h == nil || h.inherited {
		return func() {}
	}
	if _, err := unix.FcntlInt(uintptr(h.dir), unix.F_SETFD, 0); err != nil {
		return func() {}
	}
	os.Setenv(passedOn, strconv.Itoa(h.dir))
	return func() {
		unix.CloseOnExec(h.dir)
		os.Unsetenv(passedOn)
	}
}

// PassOnHoldTo gives the hold to a process that is to execute this program, too, and
// returns what to call when that has been started. Where this process has made it that one
// makes one of its own.
func PassOnHoldTo(c *exec.Cmd) (done func(), err error) {
	h := ofThisProcess()
	if h == nil || !h.inherited {
		return func() {}, nil
	}
	fd, err := unix.FcntlInt(uintptr(h.dir), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("passing on the file system for BPF objects: %w", err)
	}
	file := os.NewFile(uintptr(fd), "hold")
	const standard = 3 // descriptors, which are not among the extra ones
	c.Env = append(c.Env, fmt.Sprintf("%s=%d", passedOn, standard+len(c.ExtraFiles)))
	c.ExtraFiles = append(c.ExtraFiles, file)
	return func() { file.Close() }, nil
}

// inherit returns the hold that was passed on to this process, if there is one. Who gives
// up capabilities can't get any by executing a program from then on. Where that is so,
// nobody else has started this one to make it more than he is, by its file or otherwise, and
// chosen a hold for it.
func inherit() *hold {
	fd, err := strconv.Atoi(os.Getenv(passedOn))
	os.Unsetenv(passedOn) // what this process executes has none
	if err != nil {
		return nil
	}
	if bound, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || bound != 1 {
		return nil
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.BPF_FS_MAGIC {
		return nil // somebody else's variable
	}
	unix.CloseOnExec(fd)
	return &hold{dir: fd, inherited: true}
}

func newHold() (*hold, error) {
	fs, err := unix.Fsopen("bpf", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("opening a file system for BPF objects: %w", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, fmt.Errorf("creating a file system for BPF objects: %w", err)
	}
	dir, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOEXEC|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return nil, fmt.Errorf("mounting a file system for BPF objects: %w", err)
	}
	return &hold{dir: dir}, nil
}

// keep gives a link a file of some name, or of one that no other has, and returns its path.
func (h *hold) keep(l link.Link, name string) (string, error) {
	if name == "" {
		name = fmt.Sprintf("own-%d", h.files.Add(1))
	}
	path := h.path(name)
	return path, l.Pin(path)
}

func (h *hold) path(name string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", h.dir, name) }

// LetGo leaves it to the kernel to take a link off that another process has given a file in
// this one's hold (see [Attacher]), if that process has not done so.
func LetGo(name string) {
	if h := ofThisProcess(); h != nil {
		_ = os.Remove(h.path(name)) // fails only if it is not there
	}
}

// letGo leaves it to the kernel to take a link off.
func letGo(l link.Link, path string) error {
	err := l.Close()                                                     // first: the file is the last that keeps it
	if removed := os.Remove(path); !errors.Is(removed, os.ErrNotExist) { // LetGo may have been quicker
		err = errors.Join(err, removed)
	}
	return err
}
