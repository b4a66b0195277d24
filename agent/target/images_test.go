package target

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"stageprof/agent/elfsym"
)

// paths returns where the drivers lie, sorted.
func paths(drivers []Driver) []string {
	var out []string
	for _, d := range drivers {
		out = append(out, d.Path)
	}
	slices.Sort(out)
	return out
}

func driversOf(t testing.TB, p *Process) []Driver {
	t.Helper()
	drivers, err := p.Drivers()
	if err != nil {
		t.Fatal(err)
	}
	if skipped := p.Skipped(); len(skipped) != 0 {
		t.Errorf("skipped %+v", skipped)
	}
	return drivers
}

// Whatever is mapped and defines the driver API is a driver; what is not mapped is none.
func TestCaseC07(t *testing.T) {
	hidden := []string{"-DLOCAL"}
	t.Run("second copy", func(t *testing.T) {
		a, b := copyOf(t, driverLibrary(t), "libcuda.so.1"), copyOf(t, driverLibrary(t), "renamed.bin")
		decoy := copyOf(t, driverLibrary(t), "libcuda.so.1") // lies about, unmapped
		x := start(t, nil)
		x.do("load %s", a)
		x.do("load %s", b)
		got := driversOf(t, x.open())
		want := []string{a, b}
		slices.Sort(want)
		if !slices.Equal(paths(got), want) {
			t.Errorf("drivers %q, want %q and not %q", paths(got), want, decoy)
		}
	})
	t.Run("inside another library", func(t *testing.T) {
		for name, flags := range map[string][]string{"exported": nil, "hidden": hidden} {
			lib := compile(t, "libvendor-"+name+".so", "driver.c", append([]string{"-shared", "-fPIC"}, flags...)...)
			x := start(t, nil)
			x.do("load %s", lib)
			got := driversOf(t, x.open())
			if len(got) != 1 || got[0].Path != lib || got[0].Static != (flags != nil) {
				t.Errorf("%s: drivers %+v", name, got)
				continue
			}
			checkDriverSymbols(t, &got[0])
		}
	})
	t.Run("linked into the executable", func(t *testing.T) {
		for name, flags := range map[string][]string{
			"exported": {"-rdynamic"}, "local": hidden, "static": {"-static"}, "fixed address": {"-no-pie", "-DLOCAL"},
		} {
			flags = append([]string{"testdata/tester.c", "-pthread"}, flags...)
			program := compile(t, "tester-"+strings.ReplaceAll(name, " ", "-"), "driver.c", flags...)
			x := start(t, exec.Command(program))
			got := driversOf(t, x.open())
			if len(got) != 1 || got[0].Path != program || got[0].Static != (name != "exported") {
				t.Errorf("%s: drivers %+v", name, got)
				continue
			}
			checkDriverSymbols(t, &got[0])
		}
	})
}

func checkDriverSymbols(t *testing.T, d *Driver) {
	t.Helper()
	symbols, err := d.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range symbols {
		names = append(names, s.Name)
		if err := s.Probeable(); err != nil {
			t.Error(err)
		}
		if _, err := d.ELF.Place(s, elfsym.Kernel{}); err != nil {
			t.Error(err)
		}
	}
	slices.Sort(names)
	if want := []string{"cuInit", "cuLaunchKernel", "cuMemAlloc_v2"}; !slices.Equal(names, want) {
		t.Errorf("%s: symbols %q, want %q", d.Path, names, want)
	}
}

// A driver that only exists in the target's mount namespace, unknown to any loader cache.
func TestCaseC08(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting takes root")
	}
	dir := t.TempDir()
	place := filepath.Join(dir, "libcuda.so.1")
	if err := os.WriteFile(place, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("mount --bind %s %s && exec %s", driverLibrary(t), place, testerProgram(t))
	x := start(t, exec.Command("unshare", "-m", "sh", "-c", script))
	x.do("load %s", place)
	got := driversOf(t, x.open())
	if len(got) != 1 || got[0].Path != place {
		t.Fatalf("drivers %+v", got)
	}
	if st, err := os.Stat(place); err != nil || st.Size() != 0 {
		t.Fatalf("the bind mount is visible here: %v, %v", st, err)
	}
	checkDriverSymbols(t, &got[0])
}

// A target in a mount and a pid namespace of its own, with a driver at a path that does not
// exist here.
func TestCaseC09(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("new namespaces take root")
	}
	dir := t.TempDir()
	script := fmt.Sprintf("mount -t tmpfs tmpfs %[1]s && cp %[2]s %[1]s/libcuda.so.1 && exec %[3]s", dir, driverLibrary(t), testerProgram(t))
	x := start(t, exec.Command("unshare", "-mpf", "--mount-proc", "sh", "-c", script))
	x.pid = child(t, x.cmd.Process.Pid)
	path := filepath.Join(dir, "libcuda.so.1")
	x.do("load %s", path)
	x.do("thread worker")
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Fatalf("%q exists here: %v", path, err)
	}
	p := x.open()
	if got := x.ask("pid"); got != "1" || p.NSPID() != 1 || p.PID() != x.pid {
		t.Errorf("the target calls itself %s; PID, NSPID = %d, %d, want %d, 1", got, p.PID(), p.NSPID(), x.pid)
	}
	for _, th := range threadsOf(t, p) {
		if th.NSTID == th.TID || th.NSTID > 10 {
			t.Errorf("thread %+v is not numbered as in its namespace", th)
		}
	}
	got := driversOf(t, p)
	if len(got) != 1 || got[0].Path != path {
		t.Fatalf("drivers %+v", got)
	}
	checkDriverSymbols(t, &got[0])
	for route, open := range routes {
		f, err := open(p, got[0].Mappings[0])
		if err != nil {
			t.Errorf("%s: %v", route, err)
			continue
		}
		if contentOf(t, f, f.Size()) != fileContent(t, driverLibrary(t)) || fileContent(t, f.AttachPath()) != fileContent(t, driverLibrary(t)) {
			t.Errorf("%s: another file", route)
		}
		f.Close()
	}
	if p.Exe() != testerProgram(t) {
		t.Errorf("Exe() = %q", p.Exe())
	}
}

func TestDrivers(t *testing.T) {
	x := start(t, nil)
	p := x.open()
	if got := driversOf(t, p); len(got) != 0 {
		t.Fatalf("drivers of a program without any: %+v", got)
	}
	// Importing the API does not define it, nor does having data of that name.
	x.do("load %s", driverLibrary(t))
	x.do("load %s", compile(t, "libimporter.so", "importer.c", "-shared", "-fPIC", driverLibrary(t)))
	got := driversOf(t, p)
	if len(got) != 1 {
		t.Fatalf("drivers %+v", got)
	}
	d := got[0]
	if d.Path != driverLibrary(t) || d.Version != "535.261.03" || d.BuildID != "abcdef01" || d.Static || d.Deleted {
		t.Errorf("driver %+v", d)
	}
	if len(d.Biases) != 1 {
		t.Fatalf("biases %#x", d.Biases)
	}
	s, err := d.ELF.Lookup("cuInit")
	if err != nil {
		t.Fatal(err)
	}
	inFile, inMemory := make([]byte, 16), make([]byte, 16)
	if err := d.ELF.ReadAtVaddr(s.Value, inFile); err != nil {
		t.Fatal(err)
	}
	if err := p.ReadMemory(d.Biases[0]+s.Value, inMemory); err != nil || string(inFile) != string(inMemory) {
		t.Errorf("cuInit in memory %x, %v, in the file %x", inMemory, err, inFile)
	}
	again := driversOf(t, p)
	if len(again) != 1 || again[0].File != d.File || again[0].ELF != d.ELF {
		t.Errorf("a second look opened the file again: %+v", again)
	}
}

// A file that is loaded twice has one inode to probe and two places in memory.
func TestDriverLoadedTwice(t *testing.T) {
	x := start(t, nil)
	x.do("load %s", driverLibrary(t))
	x.do("load-again %s", driverLibrary(t))
	p := x.open()
	got := driversOf(t, p)
	if len(got) != 1 || len(got[0].Biases) != 2 {
		t.Fatalf("drivers %+v", got)
	}
	s, err := got[0].ELF.Lookup("cuInit")
	if err != nil {
		t.Fatal(err)
	}
	for _, bias := range got[0].Biases {
		b := make([]byte, 4)
		want := make([]byte, 4)
		if err := got[0].ELF.ReadAtVaddr(s.Value, want); err != nil {
			t.Fatal(err)
		}
		if err := p.ReadMemory(bias+s.Value, b); err != nil || string(b) != string(want) {
			t.Errorf("at bias %#x: %x, %v, want %x", bias, b, err, want)
		}
	}
}

func TestMarkerLibs(t *testing.T) {
	lib := compile(t, "libmarker.so", "marker.c", "-shared", "-fPIC")
	x := start(t, nil)
	p := x.open()
	if got, err := p.MarkerLibs(); err != nil || len(got) != 0 {
		t.Errorf("before it is loaded: %+v, %v", got, err)
	}
	x.do("load %s", lib)
	x.do("load %s", driverLibrary(t))
	got, err := p.MarkerLibs()
	if err != nil || len(got) != 1 || got[0].Path != lib {
		t.Fatalf("MarkerLibs() = %+v, %v", got, err)
	}
	if _, err := got[0].ELF.Lookup("stageprof_registry"); err != nil {
		t.Error(err)
	}
	if drivers := driversOf(t, p); !slices.Equal(paths(drivers), []string{driverLibrary(t)}) {
		t.Errorf("drivers %q", paths(drivers))
	}
}

// Code that is mapped from something else than ELF is no concern; ELF that can not be read is
// reported, and neither keeps the driver from being found.
func TestSkipped(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.so")
	b := []byte(fileContent(t, driverLibrary(t)))
	b[54] = 1 // size of a program header
	other := filepath.Join(t.TempDir(), "code.bin")
	for path, content := range map[string][]byte{broken: b, other: []byte("\x90\x90\xc3")} {
		if err := os.WriteFile(path, content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	x := start(t, nil)
	x.do("load %s", driverLibrary(t))
	x.do("map-code %s", broken)
	x.do("map-code %s", other)
	p := x.open()
	drivers, err := p.Drivers()
	if err != nil || len(drivers) != 1 {
		t.Fatalf("Drivers() = %+v, %v", drivers, err)
	}
	if s := p.Skipped(); len(s) != 1 || s[0].Path != broken || !strings.Contains(s[0].Err.Error(), "malformed") {
		t.Errorf("skipped %+v", s)
	}
}

// A library that is replaced and loaded again is examined again, even if the new file gets the
// old one's inode number.
func TestDriversAfterReload(t *testing.T) {
	path := copyOf(t, compile(t, "libmarker.so", "marker.c", "-shared", "-fPIC"), "lib.so")
	x := start(t, nil)
	x.do("load %s", path)
	p := x.open()
	if got := driversOf(t, p); len(got) != 0 {
		t.Fatalf("drivers %+v", got)
	}
	if err := os.Rename(copyOf(t, driverLibrary(t), "new"), path); err != nil {
		t.Fatal(err)
	}
	x.do("load-again %s", path)
	if got := driversOf(t, p); !slices.Equal(paths(got), []string{path}) {
		t.Errorf("drivers %q, want %q", paths(got), path)
	}
}

func TestDriverVersion(t *testing.T) {
	for file, want := range map[string]string{
		"/usr/lib/x86_64-linux-gnu/libcuda.so.535.261.03": "535.261.03",
		"/x/libcuda.so.550.163":                           "550.163",
		"/x/libcuda.so.1":                                 "",
		"/x/libcuda.so":                                   "",
		"/x/mylibcuda.so.535.261.03":                      "",
		"/x/libcuda.so.535.261.03.bak":                    "",
		"":                                                "",
	} {
		if got := driverVersion(file); got != want {
			t.Errorf("driverVersion(%q) = %q, want %q", file, got, want)
		}
	}
}
