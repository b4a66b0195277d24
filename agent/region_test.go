package agent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stageprof/agent"
	"stageprof/agent/probe"
	"stageprof/correlate"
	"stageprof/recording"
)

// regionPath writes a region path, outermost first.
func regionPath(r *recording.Recording, id int) string {
	if id == 0 {
		return ""
	}
	var names []string
	for _, region := range r.RegionPaths[id].Regions {
		names = append(names, r.Regions[region].Name)
	}
	return strings.Join(names, ">")
}

// callsIn sums a Recording's calls by stage path and region path.
func callsIn(r *recording.Recording) map[string]uint64 {
	sums := map[string]uint64{}
	for _, c := range r.Calls {
		sums[strings.Join(r.Paths[c.Path].Names, "/")+" | "+regionPath(r, c.Region)] += c.Count
	}
	return sums
}

// executions counts the executions of regions, complete and partial.
func executions(r *recording.Recording) map[string]spanCount {
	sums := map[string]spanCount{}
	for _, row := range r.RegionTimes {
		key := strings.Join(r.Paths[row.Path].Names, "/") + " | " + regionPath(r, row.Region)
		n := sums[key]
		sums[key] = spanCount{n.Whole + row.Count, n.Partial + row.PartialCount}
	}
	return sums
}

// expectRegions compares calls and executions, and the times with each other: a
// region's time inside others is that of those.
func expectRegions(t *testing.T, r *recording.Recording, calls map[string]uint64, times map[string]spanCount) {
	t.Helper()
	if diff := cmp.Diff(calls, callsIn(r)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(times, executions(r)); diff != "" {
		t.Errorf("executions (-want +got):\n%s", diff)
	}
	inside := map[string]uint64{} // time of regions, by the path of the one around them
	for _, row := range r.RegionTimes {
		path := regionPath(r, row.Region)
		if at := strings.LastIndex(path, ">"); at >= 0 {
			inside[fmt.Sprint(row.Thread, path[:at])] += row.WallNS + row.PartialWallNS
		}
	}
	around := map[string]uint64{}
	for _, row := range r.RegionTimes {
		if row.ChildNS > row.WallNS || row.Count > 0 && (row.MinNS == 0 || row.MinNS > row.MaxNS || row.MaxNS > row.WallNS) {
			t.Errorf("times of %q: %+v", regionPath(r, row.Region), row)
		}
		if n := row.ChildNS + row.PartialChildNS; n > 0 {
			around[fmt.Sprint(row.Thread, regionPath(r, row.Region))] += n
		}
	}
	if diff := cmp.Diff(inside, around); diff != "" {
		t.Errorf("time inside (-of the inner ones +as the outer ones say):\n%s", diff)
	}
}

func libraryRegions(functions ...string) []string {
	for i, f := range functions {
		functions[i] = "libfunctions.so:" + f
	}
	return functions
}

func TestRegions(t *testing.T) {
	p := startFunctions(t)
	r := record(t, agent.Config{PID: p.PID, Regions: libraryRegions("outer", "inner", "tail", "plain", "recurse")})
	p.order("w call outer 2", "w begin step", "w launch 3", "w call outer 1", "w call tail 0", "w begin deep", "w call recurse 2",
		"w end", "w end", "w launch 1")
	got := r.interrupt()
	p.end()
	expectRegions(t, got, map[string]uint64{
		" | outer": 1, " | outer>inner": 4, " | ": 1,
		"step | ": 3, "step | outer": 1, "step | outer>inner": 2, "step | tail": 1, "step | plain": 1,
		"step/deep | recurse": 1, "step/deep | recurse>recurse": 1, "step/deep | recurse>recurse>recurse": 1,
	}, map[string]spanCount{
		" | outer": {1, 0}, " | outer>inner": {2, 0},
		"step | outer": {1, 0}, "step | outer>inner": {2, 0}, "step | tail": {1, 0}, "step | plain": {1, 0},
		"step/deep | recurse": {1, 0}, "step/deep | recurse>recurse": {1, 0}, "step/deep | recurse>recurse>recurse": {1, 0},
	})
	expectNoLosses(t, got)
	// Regions are no stages.
	expectSpans(t, got, map[stageKey]spanCount{{"w", "step"}: {1, 0}, {"w", "step/deep"}: {1, 0}})
	if got.Overhead.Followed != 11 || got.Overhead.FollowedNS == 0 {
		t.Errorf("%d executions cost %d ns", got.Overhead.Followed, got.Overhead.FollowedNS)
	}
}

// One function may be both; what is not a region is no caller.
func TestRegionsAndFunctionStages(t *testing.T) {
	p := startFunctions(t)
	r := record(t, agent.Config{PID: p.PID, StagesFrom: stagesFrom("outer", "through"), Regions: libraryRegions("outer", "inner", "plain")})
	p.order("w call outer 2", "w call through 0", "w launch 1")
	got := r.interrupt()
	p.end()
	expectRegions(t, got, map[string]uint64{
		"outer | outer": 1, "outer | outer>inner": 4, "through | plain": 1, "through | ": 1, " | ": 1,
	}, map[string]spanCount{"outer | outer": {1, 0}, "outer | outer>inner": {2, 0}, "through | plain": {1, 0}})
	expectSpans(t, got, map[stageKey]spanCount{{"w", "outer"}: {1, 0}, {"w", "through"}: {1, 0}})
	expectNoLosses(t, got)
}

// The exception is thrown through two regions and caught in a third.
func TestExceptionThroughRegions(t *testing.T) {
	p := startFunctions(t)
	r := record(t, agent.Config{PID: p.PID, Regions: libraryRegions("often", "catcher", "through", "thrower")})
	p.order("w begin step", "w call often 3", "w call catcher 0", "w end", "w launch 5")
	got := r.interrupt()
	p.end()
	expectRegions(t, got, map[string]uint64{
		"step | often>catcher>through":         3, // plain
		"step | often>catcher>through>thrower": 3,
		"step | often>catcher":                 3, // the handler
		"step | catcher>through":               1,
		"step | catcher>through>thrower":       1,
		" | ":                                  5,
	}, map[string]spanCount{
		"step | often": {1, 0}, "step | often>catcher": {3, 0},
		"step | often>catcher>through": {0, 3}, "step | often>catcher>through>thrower": {0, 3},
		"step | catcher": {1, 0}, "step | catcher>through": {1, 0}, "step | catcher>through>thrower": {1, 0},
	})
	if diff := cmp.Diff(map[string]uint64{"function_left_otherwise": 6}, losses(got)); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
	expectAccounted(t, got)
}

// A region that is open at the window's end is a partial one, with its calls.
func TestRegionAtTheEnd(t *testing.T) {
	p := startFunctions(t)
	r := record(t, agent.Config{PID: p.PID, Regions: []string{"puppet:wait_inside", "puppet:pause_inside"}, StagesFrom: []string{agent.SourceMarkers}})
	file := filepath.Join(t.TempDir(), "go")
	p.tell("w pause " + file)
	p.WaitLine("inside")
	got := r.interrupt()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.end()
	times := executions(got)
	// wait_inside has jumped to where it waits.
	if times[" | pause_inside"] != (spanCount{0, 1}) || times[" | pause_inside>wait_inside"] != (spanCount{1, 0}) {
		t.Errorf("executions: %v", times)
	}
	if losses(got)["in_flight_at_end"] != 1 || losses(got)["function_left_otherwise"] != 0 {
		t.Errorf("losses: %v", losses(got))
	}
}

// Built-in sets tell that the target has none of their functions.
func TestRegionSetsAbsent(t *testing.T) {
	p := startFunctions(t)
	r := record(t, agent.Config{PID: p.PID, RegionSets: []string{"torch", "nccl"}})
	p.order("w launch 2")
	got := r.interrupt()
	p.end()
	warnings := strings.Join(got.Warnings, "\n")
	for _, want := range []string{"torch (libc10_cuda.so)", "nccl (libnccl.so)"} {
		if strings.Count(warnings, want) != 1 {
			t.Errorf("no or several warnings of %q:\n%s", want, warnings)
		}
	}
	expectNoLosses(t, got)
	config := agent.Config{PID: p.PID, RegionSets: []string{"tensorflow"}}
	if err := config.Validate(); !errors.Is(err, agent.ErrUsage) {
		t.Errorf("an unknown set: %v", err)
	}
}

// What costs a thread more than a hundredth of its time is said.
func TestDearRegions(t *testing.T) {
	p := startFunctions(t)
	r := record(t, agent.Config{PID: p.PID, Probes: "launch", Regions: libraryRegions("plain", "often")})
	p.order("w call often 20000")
	got := r.interrupt()
	p.end()
	if executions(got)[" | often>plain"] != (spanCount{20000, 0}) {
		t.Errorf("executions: %v", executions(got))
	}
	warnings := strings.Join(got.Warnings, "\n")
	if !strings.Contains(warnings, `following "plain" costs a thread`) || strings.Contains(warnings, `following "often"`) {
		t.Errorf("warnings:\n%s", warnings)
	}
	if got.Overhead.Followed != 20001 {
		t.Errorf("%d executions", got.Overhead.Followed)
	}
}

// Perf events give the same.
func TestRegionsByPerfEvents(t *testing.T) {
	p := startFunctions(t)
	r := record(t, agent.Config{
		PID: p.PID, Probes: "cuLaunchKernel", Mechanism: probe.PerfEvent, Regions: libraryRegions("outer", "inner"), StagesFrom: stagesFrom("split"),
	})
	p.order("w call outer 2", "w call split -1", "w call split 1")
	got := r.interrupt()
	p.end()
	expectRegions(t, got, map[string]uint64{" | outer": 1, " | outer>inner": 4, "split | ": 2, " | ": 1},
		map[string]spanCount{" | outer": {1, 0}, " | outer>inner": {2, 0}})
	expectSpans(t, got, map[stageKey]spanCount{{"w", "split"}: {2, 0}})
	expectNoLosses(t, got)
}

// Snapshots of an open window, and threads that end in it.
func TestRegionsInSnapshots(t *testing.T) {
	p := startFunctions(t)
	config := agent.Config{PID: p.PID, Probes: "launch", Regions: libraryRegions("plain", "inner"), Live: true}
	session, err := agent.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := session.Wait(ctx)
		ended <- err
	}()
	p.order("w call plain 0", "w call inner 2")
	before, err := session.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	p.order("w call plain 0", "w exit", "main start v", "v call plain 0")
	after, err := session.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	since, err := correlate.Since(before, after)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		r    *recording.Recording
		want map[string]spanCount
	}{
		{before, map[string]spanCount{" | plain": {1, 0}, " | inner": {1, 0}}},
		{after, map[string]spanCount{" | plain": {3, 0}, " | inner": {1, 0}}},
		{since, map[string]spanCount{" | plain": {2, 0}}},
	} {
		if diff := cmp.Diff(test.want, executions(test.r)); diff != "" {
			t.Errorf("executions (-want +got):\n%s", diff)
		}
	}
	stop()
	if err := errors.Join(<-ended, session.Close()); err != nil {
		t.Error(err)
	}
	p.end()
}
