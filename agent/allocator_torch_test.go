//go:build torch

package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stageprof/agent"
	"stageprof/recording"
)

// allocatorSteps is how often sim/torch/allocator.py goes through its stages.
const allocatorSteps = 5

// recordAllocator records sim/torch/allocator.py, and returns what the
// allocator's own statistics counted.
func recordAllocator(t *testing.T, config agent.Config, args ...string) (*recording.Recording, map[string]uint64) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "stats.json")
	p := startScript(t, "sim/torch/allocator.py", append([]string{fmt.Sprint(allocatorSteps), "--stats", file}, args...)...)
	config.PID = p.PID
	r := record(t, config)
	p.begin(t)
	got := r.finish()
	p.Wait() // it has survived the exceptions
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var stats map[string]uint64
	if err := json.Unmarshal(text, &stats); err != nil {
		t.Fatal(err)
	}
	return got, stats
}

// insideOf lists the regions that a row's calls were made in, by the last part
// of their names.
func insideOf(r *recording.Recording, region int) []string {
	var names []string
	for _, name := range strings.Split(regionPath(r, region), ">") {
		names = append(names, name[strings.LastIndex(name, ":")+1:])
	}
	return names
}

// The allocator's regions explain every driver call that manages memory, in
// both ways to keep it, also when it runs out: then an exception leaves malloc.
func TestTorchAllocatorRegions(t *testing.T) {
	tests := []struct {
		name string
		args []string
		// For each function: the regions of which one is around all its calls.
		around map[string][]string
	}{
		{"expandable segments", []string{"--expandable"}, map[string][]string{
			"cuMemMap": {"mapAndSetAccess"}, "cuMemSetAccess": {"mapAndSetAccess"}, "cuMemUnmap": {"unmapHandles"},
			"cuMemCreate": {"map_block"},
		}},
		{"segments", nil, map[string][]string{"cuMemAlloc": {"alloc_block"}, "cuMemFree": {"release_block", "release_blocks"}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, _ := recordAllocator(t, agent.Config{RegionSets: []string{"torch", "torch-malloc"}}, test.args...)
			seen := map[string]uint64{}
			for _, c := range got.Calls {
				api, regions := got.Symbols[c.Symbol].API, insideOf(got, c.Region)
				seen[api] += c.Count
				if around, ok := test.around[api]; ok && !slices.ContainsFunc(around, func(name string) bool { return slices.Contains(regions, name) }) {
					t.Errorf("%d calls of %s in %v, not in any of %v", c.Count, api, regions, around)
				}
				stage := strings.Join(got.Paths[c.Path].Names, "/")
				if api == "cuMemUnmap" && stage == "trim" && !slices.Contains(regions, "emptyCache") {
					t.Errorf("%d calls of cuMemUnmap in %v: not by emptyCache", c.Count, regions)
				}
			}
			for api := range test.around {
				if seen[api] == 0 {
					t.Errorf("no calls of %s: the test shows nothing", api)
				}
			}
			expectAllocatorRuns(t, got)
			expectRegionParts(t, got)
			expectAccounted(t, got)
		})
	}
}

// expectAllocatorRuns counts the executions of regions that do not depend on
// PyTorch's version.
func expectAllocatorRuns(t *testing.T, r *recording.Recording) {
	t.Helper()
	runs := map[string]spanCount{}
	for _, row := range r.RegionTimes {
		inside := insideOf(r, row.Region)
		key := strings.Join(r.Paths[row.Path].Names, "/") + " " + inside[len(inside)-1]
		n := runs[key]
		runs[key] = spanCount{n.Whole + row.Count, n.Partial + row.PartialCount}
	}
	for key, want := range map[string]spanCount{
		"grow malloc":                    {4 * allocatorSteps, 0},
		"pressure malloc":                {0, allocatorSteps}, // left by OutOfMemoryError
		"pressure release_cached_blocks": {allocatorSteps, 0},
		"trim emptyCache":                {allocatorSteps, 0},
	} {
		if runs[key] != want {
			t.Errorf("%s: %+v, want %+v", key, runs[key], want)
		}
	}
	if n := losses(r)["function_left_otherwise"]; n < allocatorSteps {
		t.Errorf("%d functions were left by an exception, want %d or more", n, allocatorSteps)
	}
}

// What the tracing points tell is what the allocator counts itself.
func TestTorchAllocations(t *testing.T) {
	got, stats := recordAllocator(t, agent.Config{Allocations: true, RegionSets: []string{"torch"}}, "--expandable")
	sums := map[string]uint64{}
	byStage := map[string]uint64{}
	for _, a := range got.Allocations {
		sums["allocated"] += a.Count
		sums["allocated_bytes"] += a.Bytes
		sums["freed"] += a.Freed
		sums["freed_bytes"] += a.FreedBytes
		byStage[strings.Join(got.Paths[a.Path].Names, "/")] += a.Count + a.Freed
	}
	if diff := cmp.Diff(stats, sums); diff != "" {
		t.Errorf("sums (-torch.cuda.memory_stats() +recorded):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]uint64{"grow": 4 * allocatorSteps, "drop": 4 * allocatorSteps}, byStage); diff != "" {
		t.Errorf("by stage (-want +got):\n%s", diff)
	}
}
