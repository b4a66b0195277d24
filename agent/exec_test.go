package agent_test

import (
	"fmt"
	"os"
	"testing"

	"stageprof/agent"
	"stageprof/sim/simtest"
)

// A process that is attached to as soon as it exists may be a shell that still
// has to execute the program: with --wait that is the program to record.
func TestWaitFollowsExec(t *testing.T) {
	calls := simtest.Tester(t, "calls", "--calls", "500")
	shell := simtest.Command{Path: "/bin/sh", Args: []string{"-c",
		fmt.Sprintf(`echo started; read go; exec %q "$@"`, calls.Path), "sh", calls.Args[0], calls.Args[1]}}
	p := simtest.Start(t, shell)
	p.WaitLine("started")
	waiting := make(chan struct{})
	r := start(t, agent.Config{PID: p.PID, Wait: true, Progress: func(now agent.Progress) {
		select {
		case <-waiting:
		default:
			close(waiting)
		}
	}})
	<-waiting
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/fd/0", p.PID), []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	p.WaitLine("up")
	<-r.ready
	p.Ready()
	got := r.finish()
	p.Wait()
	expectEqual(t, got, p.Truth().Counts())
}
