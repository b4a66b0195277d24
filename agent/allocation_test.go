package agent_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stageprof/agent"
	"stageprof/agent/probe"
	"stageprof/recording"
	"stageprof/sim/simtest"
)

// allocated is what PyTorch's allocator gave out and got back in a stage.
type allocated struct{ Count, Bytes, Freed, FreedBytes, FreedUnknown uint64 }

// allocations sums a Recording's allocations by attribution, stage path and
// region path.
func allocations(r *recording.Recording) map[string]allocated {
	sums := map[string]allocated{}
	for _, a := range r.Allocations {
		key := string(a.Attribution) + " " + strings.Join(r.Paths[a.Path].Names, "/") + " | " + regionPath(r, a.Region)
		s := sums[key]
		sums[key] = allocated{
			s.Count + a.Count, s.Bytes + a.Bytes, s.Freed + a.Freed, s.FreedBytes + a.FreedBytes, s.FreedUnknown + a.FreedUnknown,
		}
	}
	return sums
}

// An imitation of PyTorch's tracing points: what is given out and comes back is
// counted in the stage and the region in which that happens.
func TestAllocations(t *testing.T) {
	library := simtest.Build(t, "sim/testers/libc10_cuda.so")
	for _, mechanism := range []probe.Mechanism{probe.UprobeMulti, probe.PerfEvent} {
		t.Run(string(mechanism), func(t *testing.T) {
			p := startPuppet(t)
			p.order("main library "+library, "main start w", "w call give 7")
			r := record(t, agent.Config{
				PID: p.PID, Probes: "launch", Mechanism: mechanism, Allocations: true, Regions: []string{"libc10_cuda.so:give"},
			})
			p.order("w call give 100", "w begin step", "w call give 1000", "w call give_too 64", "w call give_too 0", "w call take 2",
				"w end", "w call take 1", "w call take 2")
			got := r.interrupt()
			p.end()
			want := map[string]allocated{
				"none  | give":    {Count: 1, Bytes: 100},
				"none  | ":        {Freed: 3, FreedBytes: 1100, FreedUnknown: 1},
				"own step | give": {Count: 1, Bytes: 1000},
				"own step | ":     {Count: 1, Bytes: 64, Freed: 2, FreedBytes: 64, FreedUnknown: 1},
			}
			if diff := cmp.Diff(want, allocations(got)); diff != "" {
				t.Errorf("allocations (-want +got):\n%s", diff)
			}
			expectNoLosses(t, got)
		})
	}
}

// Nobody is told of the points unless they are asked for, and then it is said
// that there are none.
func TestAllocationsAbsent(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	r := record(t, agent.Config{PID: p.PID, Allocations: true})
	p.order("w launch 1")
	got := r.interrupt()
	p.end()
	if !strings.Contains(strings.Join(got.Warnings, "\n"), "pytorch:malloc") || len(got.Allocations) > 0 {
		t.Errorf("allocations %v, warnings %q", got.Allocations, got.Warnings)
	}
}
