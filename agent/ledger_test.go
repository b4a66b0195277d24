package agent_test

import (
	"strings"
	"testing"

	"stageprof/agent"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// sum is the time that a partition covers.
func sum(p recording.Parts) uint64 {
	return p.RunningNS + p.CUDACPUNS + p.CUDABlockedNS + p.GILWaitNS + p.RunnableNS + p.BlockedFutexNS +
		p.BlockedPollNS + p.BlockedReadNS + p.BlockedSleepNS + p.BlockedFaultNS + p.BlockedOtherNS
}

// expectPartition fails unless the parts of every span and of every stage sum
// to their wall time to the nanosecond.
func expectPartition(t *testing.T, r *recording.Recording) {
	t.Helper()
	expectParts(t, r)
	if len(r.Spans) == 0 {
		t.Error("there are no spans: the test shows nothing")
	}
}

func expectParts(t *testing.T, r *recording.Recording) {
	t.Helper()
	for _, s := range r.Spans {
		if got := sum(s.Parts) + s.ChildNS; got != s.WallNS {
			t.Fatalf("a span of %v lasted %d ns, its parts and child stages %d: %+v", r.Paths[s.Path].Names, s.WallNS, got, s)
		}
	}
	for _, s := range r.Stages {
		if s.Thread == -1 {
			continue
		}
		name := strings.Join(r.Paths[s.Path].Names, "/")
		if got := sum(s.Parts) + s.ChildNS; got != s.WallNS {
			t.Errorf("stage %q: wall %d ns, parts and child stages %d", name, s.WallNS, got)
		}
		if got := sum(s.PartialParts) + s.PartialChildNS; got != s.PartialWallNS {
			t.Errorf("stage %q: wall of partial spans %d ns, parts and child stages %d", name, s.PartialWallNS, got)
		}
	}
}

func TestPartsSumToWall(t *testing.T) {
	got, _ := runTester(t, agent.Config{}, simtest.Tester(t, "calls",
		"--threads", "8", "--calls", "5000", "--stages", "16", "--markers", simtest.Markers(t)))
	expectPartition(t, got)
}
