package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode"

	"golang.org/x/sys/unix"

	"stageprof/agent"
	"stageprof/report"
	"stageprof/sim/simtest"
)

// Names that act on terminals, pages, tables and spreadsheets, as a target may
// choose them. NVTX takes names as they are.
var hostileNames = []string{
	"\x1b]0;title\x07\x1b[2J\x1b[31mred", "=cmd|'/c calc'!A1", "+1+1", "@sum(1)", "-2", "a|b`c*d_[e](http://f)", "</script><script>alert(1)</script>",
	"bidi \u202e\u2066 override", "c1 \u009b31m", "\xff\xfe invalid", "tab\tand \x7f", `"},{"a":"b`, `}# HELP x y`,
}

// hostileTarget runs with such names for its driver, its arguments, its threads
// and its stages, and calls on until told to go on with something else.
func hostileTarget(t *testing.T) (p *simtest.Process, order func(orders ...string)) {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "=lib\n\x1b[2J\u202edriver (deleted)")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(simtest.Driver(t))
	if err != nil {
		t.Fatal(err)
	}
	driver := filepath.Join(folder, "lib\x1b[31m\ncuda.so")
	if err := os.WriteFile(driver, text, 0o755); err != nil {
		t.Fatal(err)
	}
	p = simtest.Start(t, simtest.Tester(t, "puppet", "--driver", driver))
	p.Ready()
	p.WaitLine("up")
	orders, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/0", p.PID), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { orders.Close() })
	given := 0
	order = func(all ...string) {
		t.Helper()
		for _, o := range all {
			if _, err := fmt.Fprintln(orders, o); err != nil {
				t.Fatal(err)
			}
			given++
			p.WaitLine(fmt.Sprintf("ok %06d", given))
		}
	}
	order("main rename \x1b[31m=main", "main start w", "main nvtx "+simtest.Build(t, "sim/testers/libnvtx.so"))
	return p, order
}

// expectNothingActs fails if a text does something to a terminal or a page.
func expectNothingActs(t *testing.T, what, text string) {
	t.Helper()
	if at := strings.Index(text, "<script>alert"); at >= 0 && strings.Contains(text, "<html") {
		t.Errorf("%s has …%q…", what, text[at:min(len(text), at+40)])
	}
	for i, r := range text {
		if r != '\n' && (unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)) {
			t.Errorf("%s has %q: …%q…", what, r, text[max(0, i-40):min(len(text), i+40)])
			return
		}
	}
}

// expectHarmless is expectNothingActs of what shows the names.
func expectHarmless(t *testing.T, what, text string) {
	t.Helper()
	expectNothingActs(t, what, text)
	if !strings.Contains(text, "red") && !strings.Contains(text, "cuda.so") {
		t.Errorf("%s shows none of the names:\n%s", what, text)
	}
}

// Nothing that the target can name acts on what shows it.
func TestHostileNames(t *testing.T) {
	p, order := hostileTarget(t)
	pid := strconv.Itoa(p.PID)
	stages := "--stages-from=" + agent.SourceNVTX
	r := startRecord(t, p.PID, "--save", "saved", "--probes", "all", stages)
	for _, name := range hostileNames {
		order("w rename "+name, "w push "+name, "w launch 3", "w pop")
	}
	r.signal(t, syscall.SIGINT)
	r.wait(t, exitOK)
	expectHarmless(t, "record", r.stdout.String())
	expectNothingActs(t, "record's log", r.stderr.String())
	saved := r.path("saved")

	diagnosis := stageprof(t, "doctor", "--pid", pid)
	expectHarmless(t, "doctor", diagnosis.stdout)
	for _, format := range []string{"text", "markdown", "csv"} {
		for _, by := range []string{"", "--by=stage,thread,caller", "--trend", "--histogram=cuLaunchKernel", "--full"} {
			args := []string{"report", saved, "--format", format}
			if by != "" {
				args = append(args, by)
			}
			got := stageprof(t, args...)
			if by == "--full" && got.code == exitUsage {
				continue // it is about the text only
			}
			if got.code != exitOK {
				t.Fatalf("%q: %s", args, got.stderr)
			}
			what := strings.Join(args[2:], " ")
			if by != "--histogram=cuLaunchKernel" {
				expectHarmless(t, what, got.stdout)
			}
			if format == "csv" {
				expectNoFormula(t, what, got.stdout)
			}
		}
	}
	difference := stageprof(t, "diff", saved, saved, "--format", "csv")
	expectNoFormula(t, "diff", difference.stdout)

	page := stageprof(t, "html", saved, "-o", "/dev/stdout")
	if page.code != exitOK {
		t.Errorf("html: %s", page.stderr)
	}
	expectNothingActs(t, "the page", page.stdout)
	once := command(t, "top", "--pid", pid, "--once", "--interval", "300ms", stages)
	shown := finish(t, once)
	if shown.code != exitOK {
		t.Errorf("top: %s", shown.stderr)
	}
	expectNothingActs(t, "top", shown.stdout+shown.stderr)
}

// expectNoFormula fails if a spreadsheet would compute a cell.
func expectNoFormula(t *testing.T, what, text string) {
	t.Helper()
	lines, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(lines) < 2 {
		t.Fatalf("%s: %d lines, %v", what, len(lines), err)
	}
	for _, line := range lines {
		for _, cell := range line {
			if _, err := strconv.ParseFloat(cell, 64); err != nil && cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
				t.Errorf("%s has the cell %q", what, cell)
			}
		}
	}
}

// Neither in what is served.
func TestHostileNamesServed(t *testing.T) {
	p, order := hostileTarget(t)
	s := startServe(t, "--pid", strconv.Itoa(p.PID), "--stages-from", agent.SourceNVTX, "--probes", "all")
	s.await(up, 1)
	for _, name := range hostileNames {
		order("w push "+name, "w launch 3", "w pop")
	}
	s.await("stageprof_driver_calls_seen_total", float64(3*len(hostileNames)))
	for _, path := range []string{"/metrics", "/api/live", "/"} {
		code, text := s.get(path)
		if code != 200 {
			t.Errorf("%s: %d", path, code)
		}
		expectNothingActs(t, path, text)
	}
	s.interrupt()
	expectNothingActs(t, "the log", s.said())
}

// Errors and diagnoses quote the target, too.
func TestHostileNamesInMessages(t *testing.T) {
	const name = "evil\x1b[2J\nstageprof: all is well\u202e"
	message := printableLines(fmt.Sprintf("process 1 (%q) maps nothing\nsecond: %s", name, "\x1b"))
	if strings.Count(message, "\n") != 1 || strings.ContainsAny(message, "\x1b\u202e") {
		t.Errorf("%q", message)
	}
	d := &diagnosis{Process: &process{
		Comm: name, Exe: name, Cmdline: []string{name}, CostNote: name, Absent: []string{name}, Allocations: []string{name},
		Warnings: []string{name}, Sources: map[string][]string{"nvtx": {name}}, Markers: []library{{Path: name}},
		Drivers:   []driver{{library: library{Path: name}, Sites: []site{{Symbol: name}}}},
		Functions: []functionOffer{{Set: "cuda", Library: name, Name: name, Refused: name}},
	}}
	var b strings.Builder
	if err := d.writeText(&b); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); strings.ContainsAny(text, "\x1b\u202e") || strings.Contains(text, "\nstageprof: all is well") || !strings.Contains(text, report.Printable(name)) {
		t.Errorf("%s", text)
	}
}

// A disk that is full, or gets full while the files are written: what finds no room is
// named, nothing half-written stays, the table is there, and the target notices nothing.
func TestHostileFullDisk(t *testing.T) {
	for name, room := range map[string]int{"no room": 0, "room for a part": 8 << 10} {
		t.Run(name, func(t *testing.T) {
			p, ready := caller(t, "--hold", "-")
			disk := smallDisk(t)
			r := startRecord(t, p.PID, "--probes", "all", "-o", filepath.Join(disk, "profile"), "--save", filepath.Join(disk, "saved"),
				"--spans", filepath.Join(disk, "spans"), "--stages-out", filepath.Join(disk, "stages"))
			fill(t, disk, room)
			release(t, ready)
			p.WaitLine("done")
			r.signal(t, syscall.SIGINT)
			r.wait(t, exitError)
			if text := r.stderr.String(); !strings.Contains(text, "no space left") || !strings.Contains(text, disk) {
				t.Errorf("stderr %q, want which file has no room", text)
			}
			if !strings.Contains(r.stdout.String(), "all calls") {
				t.Errorf("stdout %q, want the table", r.stdout.String())
			}
			if left := names(t, disk); !slices.Equal(left, []string{"filler"}) {
				t.Errorf("left on the disk: %q", left)
			}
			if n := differs(t, p.PID, filepath.Base(simtest.Driver(t))); n != 0 {
				t.Errorf("%d bytes of the driver's code are not as they were", n)
			}
			p.Release()
			p.Wait()
			if diff := simtest.Diff(p.Expected(), p.Truth().Counts()); diff != "" {
				t.Errorf("the target was disturbed:\n%s", diff)
			}
		})
	}
}

// smallDisk mounts a file system of 64 KiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatalf("mounting a file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(folder, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return folder
}

// fill leaves so many bytes of room on a disk.
func fill(t *testing.T, disk string, room int) {
	t.Helper()
	f, err := os.Create(filepath.Join(disk, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size := int64(0)
	for err == nil {
		var n int
		n, err = f.Write(make([]byte, 4096))
		size += int64(n)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if err := f.Truncate(size - int64(room)); err != nil {
		t.Fatal(err)
	}
}
