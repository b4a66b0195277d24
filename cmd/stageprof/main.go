// Command stageprof attaches to a running training process, times every CUDA
// driver call that it makes, and says which stage of the training loop the
// time belongs to.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"stageprof/agent/calibrate"
	"stageprof/agent/keeper"
)

func main() {
	ownProc()
	if calibrate.Target() || keeper.Run() { // this process is a child of one that records
		return
	}
	// A reader that has gone is an error of that one write, not the end of a
	// recording.
	signal.Ignore(syscall.SIGPIPE)
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// ownProc gives an ordinary user's process with file capabilities its own files in
// /proc, which are root's otherwise: the kernel's version is read from its memory. To
// look into the process still takes all the capabilities that it has.
func ownProc() {
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) // never fails with 1
}
