package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

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

	saved, err := os.Open(r.path("saved"))
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Close()
	rec, err := recording.Read(saved)
	if err != nil {
		t.Fatal(err)
	}
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
	if _, err := fmt.Fprint(orders, "main start q\nq poll 1000000000 25000\nmain launch 1\n"); err != nil {
		t.Fatal(err)
	}
	p.WaitLine("ok 000003")
	// A trial may cost a few times what it costs on a quiet machine: there is enough left.
	r := startRecord(t, p.PID, "--budget", "1%", "--duration", "20s", "--no-gpu")
	r.wait(t, exitOK)
	for _, want := range []string{"left out, to keep the budget", "left out  event (", "not probed since"} {
		if !strings.Contains(r.stdout.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, r.stdout.String())
		}
	}
}

func TestRecordBudgetTooSmall(t *testing.T) {
	p, _ := caller(t)
	cmd := command(t, "record", "--pid", strconv.Itoa(p.PID), "--budget", "0.0001%", "--duration", "1s")
	got := finish(t, cmd)
	if got.code != exitError || !strings.Contains(got.stderr, "the budget can't be kept: 0.0001% of 1s is 1µs") {
		t.Errorf("%+v, want an error that says why", got)
	}
}
