package agent

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"stageprof/bpf"
	"stageprof/sim/simtest"
)

// threadsTable is a drain that knows of some threads, none of which is there any more.
func threadsTable(t *testing.T, serials ...uint32) *drain {
	t.Helper()
	spec, err := bpf.LoadProbe()
	if err != nil {
		t.Fatal(err)
	}
	threads, err := ebpf.NewMap(spec.Maps["threads"])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { threads.Close() })
	d := &drain{Session: &Session{retired: newRetired(true)}}
	d.objects.Threads = threads
	for _, serial := range serials {
		setEnd(t, d, serial, bpf.ProbeThreadEndTHREAD_RUNS)
	}
	return d
}

func setEnd(t *testing.T, d *drain, serial uint32, end bpf.ProbeThreadEnd) {
	t.Helper()
	if err := d.objects.Threads.Put(serial, bpf.ProbeThreadInfo{Ended: uint32(end)}); err != nil {
		t.Error(err)
	}
}

// A thread that is not through with its end when the window is over is waited for.
func TestAwaitEnds(t *testing.T) {
	d := threadsTable(t, 1, 2)
	go func() {
		setEnd(t, d, 1, bpf.ProbeThreadEndTHREAD_ENDED)
		setEnd(t, d, 2, bpf.ProbeThreadEndTHREAD_ENDED_UNSEEDED)
	}()
	if err := d.awaitEnds(simtest.Patience); err != nil {
		t.Fatal(err)
	}
	if n := d.unseenEnds(); n != 0 {
		t.Errorf("%d ends are unseen, want none", n)
	}
}

// An end that the kernel has skipped is not waited for for ever, and is told.
func TestAwaitSkippedEnd(t *testing.T) {
	d := threadsTable(t, 1, 2)
	setEnd(t, d, 1, bpf.ProbeThreadEndTHREAD_ENDED)
	if err := d.awaitEnds(time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if n := d.unseenEnds(); n != 1 {
		t.Errorf("%d ends are unseen, want 1", n)
	}
}
