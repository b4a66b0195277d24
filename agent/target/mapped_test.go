package target

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// copyOf copies a file into a new directory that other users may look into.
func copyOf(t testing.TB, path, name string) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, name)
	if err := os.WriteFile(out, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return out
}

func inodeOf(t testing.TB, path string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return strconv.FormatUint(st.Ino, 10)
}

func contentOf(t testing.TB, r io.ReaderAt, size int64) string {
	t.Helper()
	b := make([]byte, size)
	if _, err := r.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func fileContent(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// routes are the two ways to a mapped file; OpenMapped tries one after the other.
var routes = map[string]func(*Process, Mapping) (*File, error){
	"map_files": (*Process).openMapFiles,
	"path":      (*Process).openByPath,
	"both":      (*Process).OpenMapped,
}

func TestOpenMapped(t *testing.T) {
	library := driverLibrary(t)
	for _, name := range []string{"plain.so", "with space.so", "really (deleted)", "line\nbreak.so"} {
		t.Run(name, func(t *testing.T) {
			path := copyOf(t, library, name)
			p, m := mapped(t, path)
			for route, open := range routes {
				f, err := open(p, m)
				if err != nil {
					t.Errorf("%s: %v", route, err)
					continue
				}
				defer f.Close()
				if strconv.FormatUint(f.Inode(), 10) != inodeOf(t, path) || f.Dev() != m.Dev || f.Removed() ||
					contentOf(t, f, f.Size()) != fileContent(t, path) {
					t.Errorf("%s: another file: %+v", route, f)
				}
				if fileContent(t, f.AttachPath()) != fileContent(t, path) {
					t.Errorf("%s: AttachPath leads elsewhere", route)
				}
			}
		})
	}
}

// mapped returns a process that has mapped the file, and the mapping.
func mapped(t testing.TB, path string) (*Process, Mapping) {
	t.Helper()
	x := start(t, nil)
	// The tester reads lines, so a name with a line break must come through a link.
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	x.do("map-code %s", link)
	p := x.open()
	ms, err := p.Mappings()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range ms {
		if strconv.FormatUint(m.Inode, 10) == inodeOf(t, path) {
			return p, m
		}
	}
	t.Fatalf("%q is not mapped", path)
	return nil, Mapping{}
}

// What is mapped is found, not what has taken its name (or nothing) since.
func TestCaseC10(t *testing.T) {
	library := driverLibrary(t)
	for name, change := range map[string]func(path string) error{
		"deleted": os.Remove,
		"replaced": func(path string) error {
			other := path + ".new"
			if err := os.WriteFile(other, []byte("something else"), 0o755); err != nil {
				return err
			}
			return os.Rename(other, path)
		},
		"directory removed": func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
	} {
		t.Run(name, func(t *testing.T) {
			path := copyOf(t, library, "libcuda.so.1")
			x := start(t, nil)
			x.do("load %s", path)
			if err := change(path); err != nil {
				t.Fatal(err)
			}
			p := x.open()
			drivers, err := p.Drivers()
			if err != nil || len(drivers) != 1 {
				t.Fatalf("Drivers() = %+v, %v, skipped %+v", drivers, err, p.Skipped())
			}
			d := drivers[0]
			if !d.Deleted || d.Path != path || !d.File.Removed() {
				t.Errorf("path %q, deleted %v, removed %v", d.Path, d.Deleted, d.File.Removed())
			}
			if contentOf(t, d.File, d.File.Size()) != fileContent(t, library) {
				t.Error("the driver is not the mapped file")
			}
			if fileContent(t, d.File.AttachPath()) != fileContent(t, library) {
				t.Error("AttachPath does not lead to the mapped file")
			}
			if f, err := p.openByPath(d.Mappings[0]); !errors.Is(err, ErrFileGone) {
				t.Errorf("by its path: %+v, %v, want ErrFileGone", f, err)
			}
		})
	}
}

// A target that has changed its root directory still has files of before.
func TestOpenMappedAfterChroot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("chroot takes root")
	}
	path := copyOf(t, driverLibrary(t), "lib.so")
	x := start(t, nil)
	x.do("load %s", path)
	x.do("chroot %s", filepath.Dir(path))
	p := x.open()
	m := mappingOf(t, p, path)
	for route, open := range routes {
		f, err := open(p, m)
		if err != nil {
			t.Errorf("%s: %v", route, err)
			continue
		}
		f.Close()
	}
}

// On overlayfs maps and stat may tell different devices.
func TestOpenMappedOnOverlay(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting takes root")
	}
	base := t.TempDir()
	for _, d := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(base, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(base, "lower/libcuda.so.1"), []byte(fileContent(t, driverLibrary(t))), 0o755); err != nil {
		t.Fatal(err)
	}
	// A tmpfs holds the upper layer, since an overlay can not.
	script := fmt.Sprintf(`set -e; cd %[1]s; mount -t tmpfs tmpfs upper; mkdir upper/u upper/w
		mount -t overlay -o lowerdir=%[1]s/lower,upperdir=%[1]s/upper/u,workdir=%[1]s/upper/w overlay merged
		exec %[2]s`, base, testerProgram(t))
	x := start(t, exec.Command("unshare", "-m", "sh", "-c", script))
	path := filepath.Join(base, "merged/libcuda.so.1")
	x.do("load %s", path)
	p := x.open()
	m := mappingOf(t, p, path)
	for route, open := range routes {
		f, err := open(p, m)
		if err != nil {
			t.Errorf("%s: %v", route, err)
			continue
		}
		if contentOf(t, f, f.Size()) != fileContent(t, driverLibrary(t)) {
			t.Errorf("%s: another file", route)
		}
		t.Logf("%s: maps say device %#x inode %d, stat %#x %d", route, m.Dev, m.Inode, f.Dev(), f.Inode())
		f.Close()
	}
	if drivers, err := p.Drivers(); err != nil || len(drivers) != 1 {
		t.Errorf("Drivers() = %+v, %v, skipped %+v", drivers, err, p.Skipped())
	}
}

// Where stat and maps number devices differently, content decides.
func TestOpenMappedByContent(t *testing.T) {
	library := driverLibrary(t)
	path := copyOf(t, library, "lib.so")
	x := start(t, nil)
	x.do("load %s", path)
	p := x.open()
	m := mappingOf(t, p, path)
	m.Dev++
	for route, open := range routes {
		f, err := open(p, m)
		if err != nil {
			t.Errorf("%s: %v", route, err)
			continue
		}
		f.Close()
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g, err := os.Open(testerProgram(t))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	st, err := g.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if p.sameContent(&File{f: g, size: st.Size()}, m) {
		t.Error("another program has the same content")
	}
	if !p.sameContent(&File{f: f, size: int64(len(fileContent(t, library)))}, m) {
		t.Error("the mapped file has other content")
	}
	beyond := m
	beyond.Offset = 1 << 40
	if p.sameContent(&File{f: f, size: 4096}, beyond) {
		t.Error("a mapping behind the end of the file has the same content")
	}
}

// Only regular files are opened: opening others can block or do things.
func TestReopenRefuses(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, "/dev/null", "/"} {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		handle := os.NewFile(uintptr(fd), path)
		if f, err := reopen(handle); err == nil {
			t.Errorf("opened %q", path)
			f.Close()
		}
		handle.Close()
	}
}

func TestOpenMappedWithoutFile(t *testing.T) {
	p := start(t, nil).open()
	for _, path := range []string{"[stack]", "[heap]"} {
		if f, err := p.OpenMapped(mappingOf(t, p, path)); err == nil {
			t.Errorf("opened %q: %+v", path, f)
		}
	}
}
