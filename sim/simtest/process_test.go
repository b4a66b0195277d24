package simtest

import (
	"syscall"
	"testing"
	"time"
)

// A child that has outlived the process is ended with it: Kill returns, though the
// child holds what the process has printed to open.
func TestKillEndsChildren(t *testing.T) {
	p := Start(t, Command{Path: "/bin/sh", Args: []string{"-c", "sleep 1000 >/dev/null & echo started"}})
	p.WaitLine("started")
	for begin := time.Now(); startTicks(p.PID) != ""; time.Sleep(time.Millisecond) {
		if time.Since(begin) > Patience {
			t.Fatal("the shell does not end")
		}
	}
	p.Kill()
	if err := p.Exit(); err != nil {
		t.Errorf("the process itself had ended before: %v", err)
	}
}

// Another process that has got the number is none of the test's.
func TestKillSparesOthers(t *testing.T) {
	other := Start(t, Command{Path: "/bin/sleep", Args: []string{"1000"}})
	ended := make(chan struct{})
	close(ended)
	(&Process{PID: other.PID, started: "before", exited: ended}).Kill()
	if err := syscall.Kill(other.PID, 0); err != nil {
		t.Errorf("it was ended: %v", err)
	}
	other.Kill()
	if err := other.Exit(); err == nil {
		t.Error("it had ended by itself, or was not killed")
	}
}
