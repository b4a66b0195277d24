package target

import (
	"slices"
	"testing"
)

func threadsOf(t testing.TB, p *Process) []Thread {
	t.Helper()
	ts, err := p.Threads()
	if err != nil {
		t.Fatal(err)
	}
	return ts
}

func TestThreads(t *testing.T) {
	x := start(t, nil)
	p := x.open()
	if ts := threadsOf(t, p); len(ts) != 1 || ts[0] != (Thread{TID: x.pid, NSTID: x.pid, Name: "tester"}) {
		t.Errorf("one thread: %+v", ts)
	}
	names := []string{"worker", `odd\n ) "x`, "exactly15bytes!"}
	for _, name := range names {
		x.do("thread %s", name)
	}
	var got []string
	for _, th := range threadsOf(t, p) {
		got = append(got, th.Name)
	}
	if want := append([]string{"tester"}, names...); !slices.Equal(got, want) {
		t.Errorf("threads %q, want %q", got, want)
	}
}
