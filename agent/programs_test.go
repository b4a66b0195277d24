package agent_test

import (
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"stageprof/agent"
	"stageprof/recording"
)

// The kernel's account of our programs is in the Recording if the kernel keeps
// one: the entry program has run once for each call.
func TestProgramCosts(t *testing.T) {
	account, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		t.Fatal(err)
	}
	defer account.Close()
	p := startPuppet(t)
	p.order("main start w")
	r := record(t, agent.Config{PID: p.PID})
	p.order("w launch 100")
	got := r.interrupt()
	p.end()
	runs := map[string]recording.Program{}
	for _, program := range got.Overhead.Programs {
		runs[program.Name] = program
	}
	if entry := runs["driver_entry"]; entry.Runs != got.Seen.Calls || entry.WallNS == 0 {
		t.Errorf("%d calls, and %+v", got.Seen.Calls, entry)
	}
}
