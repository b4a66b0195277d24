package agent_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

// expectCallsInParts fails unless the calls of every stage took exactly the time
// that its parts say was spent in calls.
func expectCallsInParts(t *testing.T, r *recording.Recording) {
	t.Helper()
	type key struct{ thread, path int }
	type times struct{ CPU, Blocked uint64 }
	calls, parts := map[key]times{}, map[key]times{}
	for _, c := range r.Calls {
		sum := calls[key{c.Thread, c.Path}]
		sum.CPU += c.CPUNS
		sum.Blocked += c.WallNS - c.CPUNS
		calls[key{c.Thread, c.Path}] = sum
	}
	for _, s := range r.Stages {
		both := s.Parts.Plus(s.PartialParts)
		if both.CUDACPUNS+both.CUDABlockedNS > 0 {
			parts[key{s.Thread, s.Path}] = times{both.CUDACPUNS, both.CUDABlockedNS}
		}
	}
	if len(calls) == 0 {
		t.Error("there are no calls: the test shows nothing")
	}
	if diff := cmp.Diff(calls, parts); diff != "" {
		t.Errorf("the calls' times (-) are not what is charged to the stages (+):\n%s", diff)
	}
}

func TestPartsSumToWall(t *testing.T) {
	got, _ := runTester(t, agent.Config{}, simtest.Tester(t, "calls",
		"--threads", "8", "--calls", "5000", "--stages", "16", "--markers", simtest.Markers(t)))
	expectPartition(t, got)
	expectCallsInParts(t, got)
}
