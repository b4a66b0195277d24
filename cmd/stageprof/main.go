// Command stageprof attaches to a running training process, times every CUDA
// driver call that it makes, and says which stage of the training loop the
// time belongs to.
package main

import (
	"context"
	"os"

	"stageprof/agent/calibrate"
)

func main() {
	if calibrate.Target() { // this process is a calibration's child
		return
	}
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
