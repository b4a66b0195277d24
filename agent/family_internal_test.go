package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"stageprof/agent/target"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// Who can't look for further descendants goes on with those that are known, and
// says so once.
func TestFamilyGoesOnWithoutLooking(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "idle"))
	root, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	f := newFamilyOf(Config{PID: p.PID, Log: slog.New(slog.DiscardHandler)}, root)
	defer f.forget()
	ctx, stop := context.WithCancel(t.Context())
	looks := 0
	f.below = func(...int) ([]target.Descendant, error) {
		if looks++; looks == 2 {
			stop()
		}
		return nil, errors.New("too many open files")
	}
	f.watch(ctx)
	if want := []string{"any that came later: too many open files"}; looks < 2 || !slices.Equal(f.result().Missed, want) {
		t.Errorf("missed after %d looks: %q, want %q", looks, f.result().Missed, want)
	}
}

// A pid that was given again is of no relative.
func TestFamilyKnowsIncarnations(t *testing.T) {
	root, other := simtest.Start(t, simtest.Tester(t, "idle")), simtest.Start(t, simtest.Tester(t, "idle"))
	process, err := target.Open(root.PID)
	if err != nil {
		t.Fatal(err)
	}
	f := newFamilyOf(Config{PID: root.PID}, process)
	defer f.forget()
	f.below = func(...int) ([]target.Descendant, error) {
		return []target.Descendant{{PID: other.PID, StartTicks: process.StartTicks() - 1}}, nil
	}
	if err := f.look(t.Context()); err != nil || len(f.kin) != 1 {
		t.Errorf("%d relatives, %v", len(f.kin), err)
	}
	_, err = Open(t.Context(), Config{PID: other.PID, started: process.StartTicks() - 1})
	if !errors.Is(err, target.ErrTargetExited) {
		t.Errorf("recording whoever has the pid: %v", err)
	}
}

// Of thousands of processes that come and go nothing is kept but their number, and what
// says something.
func TestFamilyKeepsLittleOfTheBrief(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "idle"))
	root, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	f := newFamilyOf(Config{PID: p.PID, Log: slog.New(slog.DiscardHandler)}, root)
	defer f.forget()
	const many = 5000
	join := func(late bool) *member {
		// With the number of a process that is there, or with that of an earlier one.
		m := &member{user: User{PID: p.PID, Copy: true}, started: root.StartTicks(), late: late}
		f.members = append(f.members, m)
		return m
	}
	recorded := func(calls uint64) *recording.Recording {
		return &recording.Recording{Window: recording.Window{End: recording.EndExit}, Seen: &recording.Seen{Calls: calls}}
	}
	end := func(m *member, r *recording.Recording) {
		if m.isIdle(r) {
			f.countIdle(m)
		} else {
			f.keep(m, r)
		}
	}
	end(join(false), recorded(0))
	for i := range many {
		m := join(true)
		m.progress.Lost = 1
		switch i % 4 {
		case 0:
			end(m, recorded(0))
		case 1:
			m.started--
			f.missEarly(m, target.ErrTargetExited)
		case 2:
			f.missEarly(m, errors.New("no room"))
		case 3:
			if i == 3 {
				end(m, recorded(1))
			} else {
				end(m, recorded(0))
			}
		}
	}
	got := f.result()
	if len(got.Recordings) != 2 {
		t.Errorf("%d recordings, want that of the first one and that with a call", len(got.Recordings))
	}
	for _, want := range []string{
		"forked processes that were found late, and then made no driver call and were in no stage until they ended: 2499",
		"processes that ended before their windows were open: 1250",
		"further processes: 1150",
	} {
		if !slices.Contains(got.Missed, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if len(got.Missed) != maxMissed+3 || len(f.members) != maxMissed+2 {
		t.Errorf("%d texts, %d processes in mind", len(got.Missed), len(f.members))
	}
	if f.counted.calls.Lost != many-maxMissed-1 {
		t.Errorf("%d calls of those that are only counted", f.counted.calls.Lost)
	}
}

// Who waits for a process to use the driver does not mean one that has ended before it
// could be recorded. Without waiting there is nothing else to record.
func TestFamilyWaitsForOneThatLasts(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "idle"))
	root, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close() // of files that were only read
	for _, wait := range []bool{true, false} {
		f := newFamilyOf(Config{PID: p.PID, Wait: wait}, root)
		brief := &member{attached: make(chan struct{})}
		f.members = append(f.members, brief)
		f.missEarly(brief, target.ErrNoProcess)
		close(brief.attached)
		opened, err := f.awaitFirst(t.Context())
		if opened || errors.Is(err, target.ErrNoProcess) == wait {
			t.Errorf("waiting %v: a window is open %v, %v", wait, opened, err)
		}
		if want := []string{"processes that ended before their windows were open: 1"}; wait && !slices.Equal(f.result().Missed, want) {
			t.Errorf("missed %q, want %q", f.result().Missed, want)
		}
	}
}

// A process has ended as soon as nothing of it runs, whether or not it was waited for.
func TestMemberIsGone(t *testing.T) {
	of := func(pid int) *member {
		process, err := target.Open(pid)
		if err != nil {
			t.Fatal(err)
		}
		defer process.Close() // of files that were only read
		return &member{user: User{PID: pid}, started: process.StartTicks()}
	}
	live := simtest.Start(t, simtest.Tester(t, "idle"))
	live.WaitLine("up") // with its second thread
	if of(live.PID).isGone() {
		t.Error("a process that runs is gone")
	}
	waited := simtest.Start(t, simtest.Tester(t, "idle"))
	m := of(waited.PID)
	waited.Kill()
	if !m.isGone() {
		t.Error("a process that was waited for is there")
	}
	for _, tid := range threadsOf(t, live.PID) {
		if m := (&member{user: User{PID: tid}}); !m.isGone() {
			t.Errorf("a process is there whose number a thread has, %d of process %d", tid, live.PID)
		}
	}
	zombie := exec.Command("cat")
	input, err := zombie.StdinPipe()
	if err == nil {
		err = zombie.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	m = of(zombie.Process.Pid)
	if err := input.Close(); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); !m.isGone(); time.Sleep(time.Millisecond) {
		if time.Since(begin) > simtest.Patience {
			t.Error("a process that nobody waits for is there")
			break
		}
	}
	if err := zombie.Wait(); err != nil {
		t.Error(err)
	}
}

func TestUntilNextLook(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0: lookInterval, time.Millisecond: lookInterval, 20 * time.Millisecond: 2 * time.Second, time.Second: mostLookInterval,
	} {
		if got := untilNextLook(took); got != want {
			t.Errorf("after a look of %v the next one is in %v, want %v", took, got, want)
		}
	}
}

// threadsOf returns the numbers of a process's threads but for the first one.
func threadsOf(t *testing.T, pid int) (ids []int) {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if id, err := strconv.Atoi(e.Name()); err != nil {
			t.Fatal(err)
		} else if id != pid {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		t.Fatalf("process %d has no second thread", pid)
	}
	return ids
}

// While none is in a window, the family is not said to be recorded; those that have ended don't count.
func TestFamilyState(t *testing.T) {
	paused, recorded := member{progress: Progress{State: StatePaused}}, member{progress: Progress{State: StateRecording}}
	ended := member{progress: Progress{State: StateRecording}, recording: &recording.Recording{}}
	for _, test := range []struct {
		members []*member
		want    string
	}{
		{nil, StateRecording},
		{[]*member{{}}, StateRecording},
		{[]*member{&paused, &paused, &ended}, StatePaused},
		{[]*member{&paused, &recorded}, StateRecording},
		{[]*member{&ended}, StateRecording},
	} {
		f := family{members: test.members}
		if got := f.state(); got != test.want {
			t.Errorf("state of %d members: %q, want %q", len(test.members), got, test.want)
		}
	}
}
