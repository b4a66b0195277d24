package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"stageprof/recording"
	"stageprof/sim/simtest"
)

// running is a record command that is attached to a process.
type running struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	exited         chan struct{}
}

// startRecord attaches to a process and returns when its probes are live. The
// files named in args are in a folder of its own.
func startRecord(t *testing.T, pid int, args ...string) *running {
	t.Helper()
	return attach(t, command(t, recordArgs(pid, args...)...))
}

func recordArgs(pid int, more ...string) []string {
	return append([]string{"record", "--pid", strconv.Itoa(pid), "--ready-file", "ready"}, more...)
}

// attach starts a command of recordArgs and returns when its probes are live.
func attach(t *testing.T, cmd *exec.Cmd) *running {
	t.Helper()
	r := &running{cmd: cmd, exited: make(chan struct{})}
	r.cmd.Stderr = &r.stderr
	if r.cmd.Stdout == nil {
		r.cmd.Stdout = &r.stdout
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.exited)
		r.cmd.Wait()
	}()
	t.Cleanup(func() {
		r.cmd.Process.Kill()
		<-r.exited
	})
	deadline := time.After(simtest.Patience)
	for {
		if _, err := os.Stat(r.path("ready")); err == nil {
			return r
		}
		select {
		case <-r.exited:
			t.Fatalf("record ended: %s", r.stderr.String())
		case <-deadline:
			t.Fatal("the probes do not become live")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (r *running) path(name string) string { return filepath.Join(r.cmd.Dir, name) }

func (r *running) signal(t *testing.T, signals ...syscall.Signal) {
	t.Helper()
	for _, s := range signals {
		if err := r.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
}

// wait waits for the end and checks the exit code.
func (r *running) wait(t *testing.T, code int) {
	t.Helper()
	select {
	case <-r.exited:
	case <-time.After(simtest.Patience):
		t.Fatal("record does not end")
	}
	if got := r.cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d, want %d; stderr: %s", got, code, r.stderr.String())
	}
}

func (r *running) wantFiles(t *testing.T, want ...string) {
	t.Helper()
	if got := names(t, r.cmd.Dir); !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
}

// profileSum sums a column of a profile.
func profileSum(t *testing.T, path, column string) uint64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := profile.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(p.SampleType, func(v *profile.ValueType) bool { return v.Type == column })
	if i < 0 {
		t.Fatalf("%q has no column %q", path, column)
	}
	var sum int64
	for _, s := range p.Sample {
		sum += s.Value[i]
	}
	return uint64(sum)
}

// table is the part of the JSON output that these tests read.
type table struct {
	Window struct {
		End recording.WindowEnd `json:"end"`
	} `json:"window"`
	All struct {
		Count uint64 `json:"count"`
	} `json:"all"`
	GPU recording.GPU `json:"gpu"`
}

// wantTable checks that stdout is one JSON object and nothing else.
func (r *running) wantTable(t *testing.T, end recording.WindowEnd) table {
	t.Helper()
	var got table
	d := json.NewDecoder(&r.stdout)
	if err := d.Decode(&got); err != nil {
		t.Fatalf("stdout is no JSON: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		t.Errorf("stdout goes on after the JSON (%v)", err)
	}
	if got.Window.End != end {
		t.Errorf("window ended by %q, want %q", got.Window.End, end)
	}
	return got
}

// caller starts a process that calls the driver once its ready file, which is
// returned, exists, and then lives until released.
func caller(t *testing.T, args ...string) (p *simtest.Process, ready string) {
	t.Helper()
	ready = filepath.Join(t.TempDir(), "go")
	args = append([]string{"--ready", ready, "--markers", simtest.Markers(t), "--calls", "2000", "--stages", "2"}, args...)
	p = simtest.Start(t, simtest.Tester(t, "calls", args...))
	p.WaitLine("up")
	return p, ready
}

func release(t *testing.T, ready string) {
	t.Helper()
	if err := os.WriteFile(ready, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

// sum is the number of calls that the driver itself counted.
func sum(truth simtest.Truth) uint64 {
	var n uint64
	for _, row := range truth.Rows {
		n += row.Calls
	}
	return n
}

func TestRecordUntilInterrupted(t *testing.T) {
	p, ready := caller(t, "--hold", "-")
	r := startRecord(t, p.PID, "--probes", "all", "--format", "json", "--save", "saved",
		"--stages-out", "stages", "--spans", "spans")
	r.wantFiles(t, slices.Sorted(slices.Values(append(temps(t, r), "ready")))...)
	release(t, ready)
	p.WaitLine("done")
	r.signal(t, syscall.SIGINT)
	r.wait(t, exitOK)
	r.wantFiles(t, "ready", "saved", "spans", "stageprof.pb.gz", "stages")
	for _, line := range []string{"what=profile file=stageprof.pb.gz", `what="profile of stages" file=stages`, "what=spans file=spans", "what=recording file=saved"} {
		if !strings.Contains(r.stderr.String(), line+"\n") {
			t.Errorf("stderr %q does not name a file: %s", r.stderr.String(), line)
		}
	}
	table := r.wantTable(t, recording.EndInterrupt)

	p.Release()
	p.Wait()
	want := sum(p.Truth())
	if table.All.Count != want {
		t.Errorf("the table has %d calls, the driver counted %d", table.All.Count, want)
	}
	if got := profileSum(t, r.path("stageprof.pb.gz"), "calls"); got != want {
		t.Errorf("the profile has %d calls, the driver counted %d", got, want)
	}
	lines, err := os.ReadFile(r.path("spans"))
	if err != nil {
		t.Fatal(err)
	}
	// 2000 calls in steps of 200: 100 in each of two stages.
	if got, spans := bytes.Count(lines, []byte("\n")), profileSum(t, r.path("stages"), "spans"); got != 20 || spans != 20 {
		t.Errorf("%d lines of spans, and %d spans in the profile of the stages; want 20", got, spans)
	}
	saved, err := os.Open(r.path("saved"))
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Close()
	rec, err := recording.Read(saved)
	if err != nil {
		t.Fatal(err)
	}
	var calls uint64
	for _, c := range rec.Calls {
		calls += c.Count
	}
	if calls != want || rec.GPU == nil && rec.GPUNote == "" {
		t.Errorf("the saved recording has %d calls, want %d; GPU %v, note %q", calls, want, rec.GPU, rec.GPUNote)
	}
}

// temps lists the files in the making.
func temps(t *testing.T, r *running) []string {
	t.Helper()
	temps := slices.DeleteFunc(names(t, r.cmd.Dir), func(name string) bool { return !strings.HasSuffix(name, ".tmp") })
	if len(temps) != 4 {
		t.Errorf("files in the making: %q, want those of two profiles, the spans and the recording", temps)
	}
	return temps
}

func TestRecordInterruptedTwice(t *testing.T) {
	p, _ := caller(t)
	r := startRecord(t, p.PID, "--save", "saved")
	// Both are there before it can obey the first one. Different signals: of two like
	// ones that wait, the kernel drops one.
	r.signal(t, syscall.SIGSTOP)
	simtest.Eventually(t, "it is stopped", func() bool { return strings.HasPrefix(state(t, r.cmd.Process.Pid), "T") })
	r.signal(t, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCONT)
	r.wait(t, exitError)
	r.wantFiles(t, "ready")
	if want := "stageprof: interrupted twice: nothing was written\n"; r.stderr.String() != want || r.stdout.Len() > 0 {
		t.Errorf("stderr %q, stdout %q; want %q and nothing", r.stderr.String(), r.stdout.String(), want)
	}
}

// The command is killed as its probes come off.
func TestRecordKilledAsProbesComeOff(t *testing.T) {
	o := startTrainer(t)
	o.order("main markers " + copyInto(t, o.dir, "libstageprof.so", simtest.Markers(t)))
	code := func() string {
		return string(simtest.CodeOf(t, o.pid, filepath.Join(o.dir, "libcuda.so.1"))) + string(simtest.CodeOf(t, o.pid, filepath.Join(o.dir, "libstageprof.so")))
	}
	before := code()
	root := func(t *testing.T) *exec.Cmd { return command(t, recordArgs(o.pid)...) }
	user := func(t *testing.T) *exec.Cmd {
		return as(t, root(t), observer, caps(unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE))
	}
	for _, c := range []struct {
		name             string
		cmd              func(*testing.T) *exec.Cmd
		before, together bool // its keeper is killed
	}{
		{"root's", root, false, false},
		// Root gives up what it takes to have the kernel take the probes off, and has
		// arranged for that before.
		{"root's, and its keeper", root, false, true},
		{"root's, after its keeper", root, true, false},
		{"a user's", user, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := range 6 {
				r := attach(t, c.cmd(t))
				if code() == before {
					t.Fatal("nothing is probed")
				}
				keeper := simtest.ChildOf(t, r.cmd.Process.Pid, "probe-keeper")
				if keeper == 0 {
					t.Fatal("it has no keeper")
				}
				if c.before {
					_ = syscall.Kill(keeper, syscall.SIGKILL)
					simtest.Eventually(t, "the keeper has ended", func() bool { return !isKeeper(keeper) })
				}
				r.signal(t, syscall.SIGINT)
				time.Sleep(time.Duration(i) * time.Millisecond)
				if c.together {
					_ = syscall.Kill(keeper, syscall.SIGKILL) // unless it has ended
				}
				if err := r.cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				simtest.Eventually(t, "the probes are off", func() bool { return code() == before })
				simtest.Eventually(t, "the keeper has ended", func() bool { return !isKeeper(keeper) })
			}
		})
	}
}

// isKeeper tells whether a process is one.
func isKeeper(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && strings.HasPrefix(string(line), "probe-keeper\x00")
}

func TestRecordUntilTheTargetExits(t *testing.T) {
	p, ready := caller(t)
	r := startRecord(t, p.PID, "--probes", "all", "--format", "json")
	release(t, ready)
	p.Wait()
	r.wait(t, exitOK)
	table := r.wantTable(t, recording.EndExit)
	if want := sum(p.Truth()); table.All.Count != want {
		t.Errorf("the table has %d calls, the driver counted %d", table.All.Count, want)
	}
	if !strings.Contains(r.stderr.String(), string(recording.EndExit)) {
		t.Errorf("stderr %q does not say that the target exited", r.stderr.String())
	}
}

func TestRecordForADuration(t *testing.T) {
	p, _ := caller(t)
	r := startRecord(t, p.PID, "--duration", "100ms", "--quiet")
	r.wait(t, exitOK)
	r.wantFiles(t, "ready", "stageprof.pb.gz")
	if r.stderr.Len() > 0 || !strings.Contains(r.stdout.String(), "all calls") {
		t.Errorf("stderr %q, stdout %q; want nothing and the table", r.stderr.String(), r.stdout.String())
	}
}

func TestRecordSamplesGPUs(t *testing.T) {
	p, _ := caller(t)
	t.Setenv("LD_LIBRARY_PATH", filepath.Dir(simtest.Build(t, "sim/libnvidia-ml.so.1")))
	t.Setenv("SIMNVML_GPU_PERCENT", "70")
	t.Setenv("SIMNVML_SM_CLOCK_MHZ", "1200")
	t.Setenv("SIMNVML_CLOCK_EVENTS", "4")
	t.Setenv("SIMNVML_PROCESSES", fmt.Sprintf("1:99,%d:1048576", p.PID))
	t.Setenv("SIMNVML_PROCESS_PERCENT", "30")
	r := startRecord(t, p.PID, "--duration", "1ms", "--format", "json")
	r.wait(t, exitOK)
	devices := r.wantTable(t, recording.EndDuration).GPU.Devices
	if len(devices) != 1 || devices[0].Samples < 1 || devices[0].UtilizationPct != 70 {
		t.Fatalf("GPUs %+v, want one, sampled, at 70 %%", devices)
	}
	if len(devices[0].Intervals) != devices[0].Samples {
		t.Errorf("%d intervals of %d samples", len(devices[0].Intervals), devices[0].Samples)
	}
	limits := []recording.ClockLimit{{Reason: "sw_power_cap", Samples: devices[0].Samples}}
	if devices[0].SMClockMHz != 1200 || !slices.Equal(devices[0].ClockLimits, limits) {
		t.Errorf("got %+v, want 1200 MHz and %+v", devices[0], limits)
	}
	if own := devices[0].Process; own == nil || *own.MemoryUsed != 1<<20 || *own.UtilizationPct != 30 {
		t.Errorf("the process's own part is %+v, want 1 MiB and 30 %%", own)
	}
}

// A reader of the table that has gone must not cost the profile.
func TestRecordWithoutReader(t *testing.T) {
	p, _ := caller(t)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	reader.Close()
	cmd := command(t, "record", "--pid", strconv.Itoa(p.PID), "--duration", "1ms")
	cmd.Stdout = writer
	if cmd.Run() == nil {
		t.Error("the table went nowhere and nobody says so")
	}
	profileSum(t, filepath.Join(cmd.Dir, "stageprof.pb.gz"), "calls")
}

// Neither must one of the progress and the warnings: a terminal that is closed.
func TestRecordWithoutReaderOfStderr(t *testing.T) {
	p, _ := caller(t)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	reader.Close()
	cmd := command(t, "record", "--pid", strconv.Itoa(p.PID), "--duration", "1ms", "--verbose")
	cmd.Stderr = writer
	if table, err := cmd.Output(); err != nil || !bytes.Contains(table, []byte("all calls")) {
		t.Errorf("it ended with %v and the table %q", err, table)
	}
	profileSum(t, filepath.Join(cmd.Dir, "stageprof.pb.gz"), "calls")
}

// Perf events take the kernel long to remove. An impatient user gets the
// command's end when they are all gone, not before: what a killed process
// leaves to the kernel can stay in the target.
func TestRecordInterruptedWhileDetaching(t *testing.T) {
	p, _ := caller(t)
	cmd := command(t, recordArgs(p.PID, "--mechanism", "perf-event", "--probes", "cuLaunchKernel,cuStreamSynchronize,cuMemAlloc_v2")...)
	reader, writer := fullPipe(t)
	cmd.Stdout = writer
	r := attach(t, cmd)
	if differs(t, p.PID, "libcuda.so.1") == 0 {
		t.Error("the recorded driver has no probe")
	}
	r.signal(t, syscall.SIGINT)
	simtest.Eventually(t, "the profile is there", func() bool {
		_, err := os.Stat(r.path("stageprof.pb.gz"))
		return err == nil
	})
	// Nobody has read the table yet, and the probes are taken off after it.
	r.signal(t, syscall.SIGTERM)
	simtest.Eventually(t, "it has the signal", func() bool { return !pending(t, r.cmd.Process.Pid, syscall.SIGTERM) })
	if _, err := io.CopyN(io.Discard, reader, 1); err != nil {
		t.Error(err)
	}
	go io.Copy(io.Discard, reader)
	r.wait(t, exitError)
	if want := "the files are written, the table is not"; !strings.Contains(r.stderr.String(), want) {
		t.Errorf("stderr %q does not say that %s", r.stderr.String(), want)
	}
	if n := differs(t, p.PID, "libcuda.so.1"); n != 0 {
		t.Errorf("%d bytes of the driver's code are not what they were", n)
	}
}

// fullPipe is a pipe that takes nothing more until it is read.
func fullPipe(t *testing.T) (reader, writer *os.File) {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		writer.Close()
		reader.Close()
	})
	size, err := unix.FcntlInt(writer.Fd(), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	return reader, writer
}

// pending tells whether a process has yet to take a signal that it was sent.
func pending(t *testing.T, pid int, signal syscall.Signal) bool {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(status), "\nShdPnd:")
	var signals uint64
	if _, err := fmt.Sscanf(line, "%x", &signals); err != nil {
		t.Fatal(err)
	}
	return signals&(1<<(signal-1)) != 0
}

// differs counts the bytes of a mapped library's code that are not those of its
// file.
func differs(t *testing.T, pid int, library string) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		if len(fields) < 6 || !strings.HasPrefix(fields[1], "r-x") || filepath.Base(fields[5]) != library {
			continue
		}
		var start, end, offset int64
		if _, err := fmt.Sscanf(fields[0]+" "+fields[2], "%x-%x %x", &start, &end, &offset); err != nil {
			t.Fatal(err)
		}
		now := part(t, "/proc/"+strconv.Itoa(pid)+"/mem", start, end-start)
		n := 0
		for i, b := range part(t, fields[5], offset, end-start) {
			if now[i] != b {
				n++
			}
		}
		return n
	}
	t.Fatalf("%q is not mapped", library)
	return 0
}

// part reads some bytes of a file; those after its end are 0.
func part(t *testing.T, path string, offset, size int64) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, size)
	if n, err := f.ReadAt(b, offset); err != nil && (err != io.EOF || n == 0) {
		t.Fatal(err)
	}
	return b
}

// device makes a copy of one of the kernel's memory devices: a test as root had
// better not use those in /dev.
func device(t *testing.T, minor int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "device")
	if err := syscall.Mknod(path, syscall.S_IFCHR|0o666, 1<<8|minor); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRecordIntoNullDevice(t *testing.T) {
	const null = 3
	p, _ := caller(t)
	path := device(t, null)
	r := startRecord(t, p.PID, "--duration", "1ms", "-o", path)
	r.wait(t, exitOK)
	if info, err := os.Stat(path); err != nil || info.Mode().IsRegular() {
		t.Errorf("the device became a file (%v)", err)
	}
}

// A disk that fills up costs the profile, but not the table.
func TestRecordOntoFullDisk(t *testing.T) {
	const full = 7
	p, _ := caller(t)
	r := startRecord(t, p.PID, "--duration", "1ms", "-o", device(t, full))
	r.wait(t, exitError)
	if !strings.Contains(r.stderr.String(), "no space left") || !strings.Contains(r.stdout.String(), "all calls") {
		t.Errorf("stderr %q, stdout %q; want the reason and the table", r.stderr.String(), r.stdout.String())
	}
}

func TestReadyFileOfAnEarlierRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ready")
	release(t, path)
	r := &recorder{config: &recordConfig{ReadyFile: path}}
	if err := r.openReadyFile(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the old ready file is still there (%v)", err)
	}
	if err := r.ready.commit(); err != nil {
		t.Fatal(err)
	}
	wantContent(t, path, "")
}
