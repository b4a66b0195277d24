package target

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Whoever can write to the folder of a mapped file changes what its path leads to
// all the time: to another file of the same content, to a pipe, to a device, to a
// link through /proc, to nothing. Only the mapped file is ever opened, by either
// route.
func TestHostileSymlinkRaces(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("opening mapped files takes root")
	}
	real := copyOf(t, driverLibrary(t), "lib.so")
	folder := filepath.Dir(real)
	p, m := mapped(t, real)

	twin, secret, fifo := filepath.Join(folder, "twin"), filepath.Join(folder, "secret"), filepath.Join(folder, "fifo")
	for path, content := range map[string]string{twin: fileContent(t, real), secret: "secret"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(folder, "kept")
	if err := os.Rename(real, kept); err != nil {
		t.Fatal(err)
	}
	opened := watchOpens(t, twin, secret)
	stop := changeLink(t, real, []string{kept, twin, fifo, secret, "/dev/zero", "/proc/self/exe", folder, filepath.Join(folder, "nothing"), real})
	found := 0
	deadline := time.Now().Add(time.Minute) // on a busy machine nothing may change for a while
	for i := 0; i < 3000 || found == 0 && time.Now().Before(deadline); i++ {
		f, err := p.openByPath(m)
		if err != nil {
			continue
		}
		found++
		if f.inode != m.Inode || f.dev != m.Dev {
			t.Errorf("opened inode %d of device %#x, mapped is %d of %#x", f.inode, f.dev, m.Inode, m.Dev)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	if found == 0 {
		t.Error("the mapped file was never found: the test shows nothing")
	}
	if n := opened(); n != 0 {
		t.Errorf("files that are not mapped were opened %d times", n)
	}
	// map_files leads to the mapped file wherever its path leads to.
	f, err := p.OpenMapped(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// changeLink makes a symbolic link lead to one place after the other until the
// returned function is called.
func changeLink(t *testing.T, link string, places []string) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var changing sync.WaitGroup
	changing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			next := link + ".next"
			if err := errors.Join(os.Symlink(places[i%len(places)], next), os.Rename(next, link)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	return func() { close(done); changing.Wait() }
}

// watchOpens counts how often any of the files is opened.
func watchOpens(t *testing.T, paths ...string) (count func() int) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	for _, path := range paths {
		if _, err := unix.InotifyAddWatch(fd, path, unix.IN_OPEN|unix.IN_ACCESS); err != nil {
			t.Fatal(err)
		}
	}
	return func() int {
		events := 0
		b := make([]byte, 64<<10)
		for {
			n, err := unix.Read(fd, b)
			if errors.Is(err, unix.EAGAIN) {
				return events
			}
			if err != nil {
				t.Fatal(err)
			}
			events += n / unix.SizeofInotifyEvent
		}
	}
}

// Processes that have mapped a file whose server does not answer hide no process
// of another user; nobody waits for them twice, and only few are waited for.
func TestHostileUnansweringFiles(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting takes root")
	}
	const other = 54321
	path, file := mountFuse(t, []byte(fileContent(t, driverLibrary(t))), "libcuda.so.1")
	asOther := exec.Command(testerProgram(t))
	asOther.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: other, Gid: other}}
	var mute []int
	for range maxUnanswered + 2 {
		x := start(t, nil)
		x.do("load %s", path)
		mute = append(mute, x.pid)
	}
	good := start(t, asOther)
	good.do("load %s", driverLibrary(t))
	finder := Finder{Patience: time.Minute}
	find := func() Found {
		t.Helper()
		found, err := finder.Find(t.Context(), regexp.MustCompile(regexp.QuoteMeta(testerProgram(t))), AnyUser)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	look := func() Found {
		t.Helper()
		found := find()
		for _, pid := range mute {
			if slices.Contains(found.PIDs, pid) == slices.Contains(found.Unanswered, pid) {
				t.Errorf("process %d is in none or both of %+v", pid, found)
			}
		}
		if !slices.Contains(found.PIDs, good.pid) {
			t.Errorf("process %d is not in %+v", good.pid, found)
		}
		return found
	}
	if found := look(); len(found.PIDs) != len(mute)+1 {
		t.Errorf("found %+v, want %d and %v", found, good.pid, mute)
	}
	file.mute.Store(true)
	// This look waits for those that don't answer, and maybe not long enough for the
	// others; the next ones wait for the others alone.
	finder.Patience = 200 * time.Millisecond
	find()
	finder.Patience = time.Minute
	for range 3 {
		if found := look(); len(found.PIDs) != 1 || len(finder.stuck) != maxUnanswered {
			t.Errorf("found %+v, want %d alone; %d readings are stuck", found, good.pid, len(finder.stuck))
		}
	}
}
