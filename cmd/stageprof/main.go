// Command stageprof attaches to a running training process, times every CUDA
// driver call that it makes, and says which stage of the training loop the
// time belongs to.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"stageprof/agent/calibrate"
)

func main() {
	if calibrate.Target() { // this process is a calibration's child
		return
	}
	// A reader that has gone is an error of that one write, not the end of a
	// recording.
	signal.Ignore(syscall.SIGPIPE)
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
