package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"stageprof/recording"
	"stageprof/report"
	"stageprof/sim/simtest"
)

// A loop that calls the driver as fast as it can is recorded in parts, and nothing
// takes them for the whole.
func TestRecordBudget(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "calls", "--calls", "200000000", "--launches-only", "1", "--stages", "1",
		"--markers", simtest.Markers(t)))
	p.WaitLine("up")
	p.Ready()
	r := startRecord(t, p.PID, "--budget", "2%", "--duration", "6s", "--save", "saved", "--no-gpu")
	r.wait(t, exitOK)
	r.wantFiles(t, "ready", "saved", "stageprof.pb.gz")

	rec := savedRecording(t, r.path("saved"))
	if rec.Window.End != recording.EndDuration || rec.Budget == nil || rec.Budget.Share != 0.02 || rec.Budget.Elapsed <= rec.Window.Duration {
		t.Fatalf("the window %+v of %+v", rec.Window, rec.Budget)
	}
	text := r.stdout.String()
	for _, want := range []string{
		" of " + report.Duration(uint64(rec.Budget.Elapsed)), "in " + report.Plural(uint64(len(rec.Budget.Windows)), "window"),
		"\nBUDGET\n", "2% of one CPU", "covered", "estimate",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the table does not say %q:\n%s", want, text)
		}
	}
	if got := profileSum(t, r.path("stageprof.pb.gz"), "calls"); got != rec.Seen.Calls {
		t.Errorf("the profile has %d calls, %d were seen", got, rec.Seen.Calls)
	}
	again := command(t, "report", r.path("saved"))
	if got := finish(t, again); got.stdout != text {
		t.Errorf("report prints something else than record:\n%s\n%s", got.stdout, text)
	}
}

// The keeper of root's command is killed while a window is open: its probes come off when
// that is over, not when the command is.
func TestRecordBudgetKeeperKilled(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "calls", "--calls", "200000000", "--launches-only", "1", "--stages", "1",
		"--markers", simtest.Markers(t)))
	p.WaitLine("up")
	driver := simtest.Driver(t)
	before := string(simtest.CodeOf(t, p.PID, driver))
	probed := func() bool { return string(simtest.CodeOf(t, p.PID, driver)) != before }
	r := startRecord(t, p.PID, "--budget", "2%", "--no-gpu")
	killKeeper := func() {
		keeper := simtest.ChildOf(t, r.cmd.Process.Pid, "probe-keeper")
		if keeper == 0 || !probed() {
			t.Fatalf("keeper %d, probes are in: %t", keeper, probed())
		}
		if err := syscall.Kill(keeper, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		simtest.Eventually(t, "it has ended", func() bool { return !isKeeper(keeper) })
	}
	killKeeper() // the target does not call yet: the first window is open as long as that
	p.Ready()
	simtest.Eventually(t, "the window is over", func() bool { return !probed() })
	simtest.Eventually(t, "another one is open", probed)
	r.signal(t, syscall.SIGINT)
	r.wait(t, exitOK)
	if probed() {
		t.Error("something is left")
	}
}

// Where --probes does not say what to record, functions that say little are left out,
// and the table says which.
func TestRecordBudgetLeavesOut(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "puppet"))
	p.Ready()
	p.WaitLine("up")
	orders, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/0", p.PID), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer orders.Close()
	if _, err := fmt.Fprint(orders, "main start q\nmain launch 1\n"); err != nil {
		t.Fatal(err)
	}
	p.WaitLine("ok 000002")
	// Also where others want its CPU, it calls as often as it is told to.
	if err := unix.Setpriority(unix.PRIO_PROCESS, secondThread(t, p.PID), -20); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(orders, "q poll 1000000000 100000\n"); err != nil {
		t.Fatal(err)
	}
	// A trial may cost a few times what it costs on a quiet machine: there is enough left.
	r := startRecord(t, p.PID, "--budget", "4%", "--duration", "30s", "--no-gpu")
	r.wait(t, exitOK)
	for _, want := range []string{"left out, to keep the budget", "left out  event (", "not probed since"} {
		if !strings.Contains(r.stdout.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, r.stdout.String())
		}
	}
}

// secondThread is the thread of a process that is not its first.
func secondThread(t *testing.T, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil || len(entries) != 2 {
		t.Fatalf("%d threads: %v", len(entries), err)
	}
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil && tid != pid {
			return tid
		}
	}
	t.Fatalf("no second thread among %v", entries)
	return 0
}

// Each rank of a node is recorded in windows of its own, and the table and the files say
// of each how much of its time they are.
func TestRecordBudgetOfChildren(t *testing.T) {
	const workers = 3
	// They call all the time, so a fifth of a CPU leaves gaps, and pays for putting probes
	// in and taking them off also where these machines' processors are shared.
	p, pids := launcher(t, workers, "--calls", "200000000", "--launches-only", "1", "--stages", "1")
	p.Ready()
	r := startRecord(t, p.PID, "--children", "--budget", "20%", "--probes", "default", "--duration", "6s",
		"--save", "run.{rank}.rec", "-o", "run.{rank}.pb.gz", "--no-gpu")
	r.wait(t, exitOK)
	saved, want := []string{"report"}, []string{"\nBUDGET ", "\nEstimate, ", "recorded in windows"}
	calls := map[int64]uint64{}
	if strings.Contains(r.stdout.String(), "NOT RECORDED") {
		t.Fatalf("not all were recorded:\n%s", r.stdout.String())
	}
	for rank := range workers {
		rec := savedRecording(t, r.path(fmt.Sprintf("run.%d.rec", rank)))
		if b := rec.Budget; rec.Target.PID != pids[rank] || b == nil || b.Share != 0.2 || b.Elapsed <= rec.Window.Duration || rec.Window.End != recording.EndDuration {
			t.Fatalf("rank %d: %+v of process %d, %+v", rank, rec.Window, rec.Target.PID, b)
		}
		calls[int64(rank)] = rec.Seen.Calls
		if got := profileSum(t, r.path(fmt.Sprintf("run.%d.pb.gz", rank)), "calls"); got != rec.Seen.Calls {
			t.Errorf("the profile of rank %d has %d calls, %d were seen", rank, got, rec.Seen.Calls)
		}
		want = append(want, report.Duration(uint64(rec.Window.Duration))+" of "+report.Duration(uint64(rec.Budget.Elapsed)))
		saved = append(saved, r.path(fmt.Sprintf("run.%d.rec", rank)))
	}
	text := r.stdout.String()
	for _, want := range want {
		if !strings.Contains(text, want) {
			t.Errorf("the table does not say %q:\n%s", want, text)
		}
	}
	again := command(t, append(saved, "-o", "all.pb.gz")...)
	if got := finish(t, again); got.code != exitOK || got.stdout != text {
		t.Errorf("report ends with %d and prints something else than record:\n%s\n%s", got.code, got.stdout, text)
	}
	if diff := cmp.Diff(calls, ranks(t, filepath.Join(again.Dir, "all.pb.gz"))); diff != "" {
		t.Errorf("calls by rank of one profile (-want +got):\n%s", diff)
	}
}

func savedRecording(t *testing.T, path string) *recording.Recording {
	t.Helper()
	rec, err := readRecording(path)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestRecordBudgetTooSmall(t *testing.T) {
	p, _ := caller(t)
	cmd := command(t, "record", "--pid", strconv.Itoa(p.PID), "--budget", "0.0001%", "--duration", "1s")
	got := finish(t, cmd)
	if got.code != exitError || !strings.Contains(got.stderr, "the budget can't be kept: 0.0001% of 1s is 1µs") {
		t.Errorf("%+v, want an error that says why", got)
	}
}
