package agent_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"stageprof/agent"
	"stageprof/agent/probe"
	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/sim/simtest"
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
	if diff := gocmp.Diff(calls, callsIn(r)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff(times, executions(r)); diff != "" {
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
	if diff := gocmp.Diff(inside, around); diff != "" {
		t.Errorf("time inside (-of the inner ones +as the outer ones say):\n%s", diff)
	}
	expectRegionParts(t, r)
}

// expectRegionParts fails unless the ledger is split by region exactly: in each
// stage no part is larger in all regions together than in the stage, all parts of
// a region are its time outside the regions inside it, and its driver time is that
// of its calls.
func expectRegionParts(t *testing.T, r *recording.Recording) {
	t.Helper()
	expectRegionPartsWithin(t, r)
	of := func(thread, path int) string { return fmt.Sprint(thread, r.Paths[path].Names) }
	exclusive, spent := map[string]uint64{}, map[string]uint64{}
	type times struct{ CPU, Blocked uint64 }
	calls, driver := map[string]times{}, map[string]times{}
	for _, row := range r.RegionTimes {
		region := fmt.Sprint(row.Thread, regionPath(r, row.Region))
		exclusive[region] += row.WallNS - row.ChildNS + row.PartialWallNS - row.PartialChildNS
	}
	for _, c := range r.Calls {
		if c.Region != 0 {
			key := of(c.Thread, c.Path) + regionPath(r, c.Region)
			calls[key] = times{calls[key].CPU + c.CPUNS, calls[key].Blocked + c.WallNS - c.CPUNS}
		}
	}
	for _, row := range r.RegionParts {
		stage, region := of(row.Thread, row.Path), regionPath(r, row.Region)
		spent[fmt.Sprint(row.Thread, region)] += row.Parts.Total()
		if p := row.Parts; p.CUDACPUNS+p.CUDABlockedNS > 0 {
			driver[stage+region] = times{p.CUDACPUNS, p.CUDABlockedNS}
		}
	}
	if diff := gocmp.Diff(exclusive, spent); diff != "" {
		t.Errorf("time in regions (-as they were entered and left +by the ledger):\n%s", diff)
	}
	if diff := gocmp.Diff(calls, driver); diff != "" {
		t.Errorf("driver time in regions (-of the calls +by the ledger):\n%s", diff)
	}
}

func expectRegionPartsWithin(t *testing.T, r *recording.Recording) {
	t.Helper()
	expectParts(t, r)
	type key struct{ thread, path int }
	whole, inside := map[key]recording.Parts{}, map[key]recording.Parts{}
	for _, s := range r.Stages {
		whole[key{s.Thread, s.Path}] = s.Parts.Plus(s.PartialParts)
	}
	for _, row := range r.RegionParts {
		k := key{row.Thread, row.Path}
		inside[k] = inside[k].Plus(row.Parts)
	}
	for k, sum := range inside {
		if !contains(whole[k], sum) {
			t.Errorf("in regions of %v: %+v, in all of it %+v", r.Paths[k.path].Names, sum, whole[k])
		}
	}
}

// contains tells whether each part of q is within that of p.
func contains(p, q recording.Parts) bool {
	return q.RunningNS <= p.RunningNS && q.CUDACPUNS <= p.CUDACPUNS && q.CUDABlockedNS <= p.CUDABlockedNS &&
		q.GILWaitNS <= p.GILWaitNS && q.RunnableNS <= p.RunnableNS && q.BlockedFutexNS <= p.BlockedFutexNS &&
		q.BlockedPollNS <= p.BlockedPollNS && q.BlockedReadNS <= p.BlockedReadNS && q.BlockedSleepNS <= p.BlockedSleepNS &&
		q.BlockedFaultNS <= p.BlockedFaultNS && q.BlockedOtherNS <= p.BlockedOtherNS
}

// regionPlace is what the tester "regions" says about one of its places, in
// nanoseconds: with the places inside it, and the last two without.
type regionPlace struct {
	Place          string
	Inside, Around uint64
	CPU, Asleep    uint64
}

// A stage's time is where it was spent: in a function, in another one inside it,
// or outside of both.
func TestPartsOfRegionsEqualClocks(t *testing.T) {
	command := simtest.Tester(t, "regions", "--markers", simtest.Markers(t)).With("SIMCUDA_SCHED=block")
	got, p := runTester(t, agent.Config{Regions: []string{"regions:outer", "regions:inner"}}, command)
	expectNoLosses(t, got)
	expectRegionParts(t, got)
	places := map[string]regionPlace{}
	for _, line := range p.Lines() {
		var place regionPlace
		if strings.HasPrefix(line, `{"place"`) {
			if err := json.Unmarshal([]byte(line), &place); err != nil {
				t.Fatal(err)
			}
			places[place.Place] = place
		}
	}
	own, outer, inner, both := places[""], places["outer"], places["inner"], places["outer>inner"]
	parts := partsByRegion(t, got, "step")
	for _, test := range []struct {
		place, around regionPlace // the second has the times of all places inside
	}{
		{own, regionPlace{Inside: outer.Inside + inner.Inside, Around: outer.Around + inner.Around}},
		{outer, both}, {inner, regionPlace{}}, {both, regionPlace{}},
	} {
		name := cmp.Or(test.place.Place, "outside of both")
		if test.place.CPU == 0 {
			t.Fatalf("%s: nothing was measured", name)
		}
		p := parts[test.place.Place]
		within(t, name, p.Total(), test.place.Inside-test.around.Around, test.place.Around-test.around.Inside, 0)
		// Its clocks are those of package ledger_truth_test's, see slack.
		slack := slack(100, p.Total())
		if p.RunningNS+p.CUDACPUNS+slack < test.place.CPU {
			t.Errorf("%s: %d ns on the CPU, by its own clock %d", name, p.RunningNS+p.CUDACPUNS, test.place.CPU)
		}
		if p.BlockedSleepNS+p.RunningNS+p.RunnableNS < test.place.Asleep || p.BlockedSleepNS == 0 {
			t.Errorf("%s: asleep for %d ns, by its own clock for %d", name, p.BlockedSleepNS, test.place.Asleep)
		}
	}
}

// partsByRegion splits a stage by region, "" being outside of any.
func partsByRegion(t *testing.T, r *recording.Recording, stage string) map[string]recording.Parts {
	t.Helper()
	l := correlate.Build(r)
	i := slices.IndexFunc(l.Stages, func(s correlate.Stage) bool { return s.Path.Joined == stage })
	if i < 0 || l.Stages[i].ByRegion == nil {
		t.Fatalf("stage %q is not split by region", stage)
	}
	parts := map[string]recording.Parts{}
	for _, p := range l.Stages[i].ByRegion {
		parts[regionPath(r, p.Region)] = measured(&p.Partition)
	}
	return parts
}

// measured are the parts of a Partition as the kernel side measured them.
func measured(p *correlate.Partition) recording.Parts {
	return recording.Parts{
		RunningNS: p.Of(correlate.PartRunning), CUDACPUNS: p.Of(correlate.PartCUDACPU) + p.Of(correlate.PartProbes),
		CUDABlockedNS: p.Of(correlate.PartCUDABlocked), GILWaitNS: p.Of(correlate.PartGILWait),
		RunnableNS: p.Of(correlate.PartRunnable), BlockedFutexNS: p.Of(correlate.PartFutex),
		BlockedPollNS: p.Of(correlate.PartPoll), BlockedReadNS: p.Of(correlate.PartRead),
		BlockedSleepNS: p.Of(correlate.PartSleep), BlockedFaultNS: p.Of(correlate.PartFault),
		BlockedOtherNS: p.Of(correlate.PartBlockedOther),
	}
}

// A stage that begins and ends in a region has all of its time there, and takes it
// from what the region has in the stage around.
func TestStagesInsideARegion(t *testing.T) {
	p := startFunctions(t)
	r := record(t, agent.Config{PID: p.PID, StagesFrom: stagesFrom("inner"), Regions: libraryRegions("outer")})
	p.order("w begin step", "w call outer 3", "w end", "w call inner 2")
	got := r.interrupt()
	p.end()
	expectNoLosses(t, got)
	expectRegionParts(t, got)
	if diff := gocmp.Diff(map[string]uint64{"step | outer": 1, "step/inner | outer": 6, "inner | ": 2}, callsIn(got)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	for _, test := range []struct{ stage, all, none string }{{"step/inner", "outer", ""}, {"inner", "", "outer"}} {
		parts := partsByRegion(t, got, test.stage)
		if parts[test.all].Total() == 0 || parts[test.none].Total() != 0 {
			t.Errorf("stage %q by region: %+v", test.stage, parts)
		}
	}
	if parts := partsByRegion(t, got, "step"); parts["outer"].Total() == 0 || parts[""].Total() == 0 {
		t.Errorf("stage step by region: %+v", parts)
	}
}

// What runs inside a driver call is the call's, whose time belongs to the regions
// that were open when it began.
func TestRegionInsideACall(t *testing.T) {
	p := startPuppet(t)
	p.order("main start w")
	r := record(t, agent.Config{PID: p.PID, Regions: []string{"puppet:nest", "puppet:version"}})
	p.order("w begin step", "w nest 7", "w launch 2", "w end", "w launch 3")
	got := r.interrupt()
	p.end()
	expectParts(t, got)
	expectNoLosses(t, got)
	if diff := gocmp.Diff(map[string]spanCount{"step | nest": {1, 0}, "step | nest>version": {7, 0}}, executions(got)); diff != "" {
		t.Errorf("executions (-want +got):\n%s", diff)
	}
	var calls uint64
	for _, c := range got.Calls {
		if regionPath(got, c.Region) == "nest" {
			calls += c.WallNS
		}
	}
	parts := partsByRegion(t, got, "step")
	if p := parts["nest"]; calls == 0 || p.CUDACPUNS+p.CUDABlockedNS != calls || len(parts) != 2 {
		t.Errorf("calls took %d ns in the region, which consists of %+v", calls, parts)
	}
}

// A snapshot has the time of regions that are open, up to now; what follows is in
// the next one.
func TestOpenRegionInSnapshots(t *testing.T) {
	p := startFunctions(t)
	session, err := agent.Open(t.Context(), agent.Config{PID: p.PID, Regions: []string{"puppet:pause_inside"}, Live: true})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "go")
	p.order("w begin step")
	p.tell("w pause " + file)
	p.WaitLine("inside")
	var earlier recording.Parts
	before := recording.Recording{}
	for i := range 3 {
		r, err := session.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		parts := partsByRegion(t, r, "step")["pause_inside"]
		if parts.Total() <= earlier.Total() || !contains(parts, earlier) {
			t.Errorf("snapshot %d: %+v after %+v", i, parts, earlier)
		}
		if i > 0 {
			since, err := correlate.Since(&before, r)
			if err != nil {
				t.Fatal(err)
			}
			if got := partsByRegion(t, since, "step")["pause_inside"]; got.Plus(earlier) != parts {
				t.Errorf("between snapshots: %+v of %+v", got, parts)
			}
		}
		earlier, before = parts, *r
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.WaitLine(fmt.Sprintf("ok %06d", p.given))
	p.order("w end")
	r, err := session.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	expectRegionParts(t, r)
	if parts := partsByRegion(t, r, "step")["pause_inside"]; !contains(parts, earlier) {
		t.Errorf("at the end %+v, before %+v", parts, earlier)
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
	p.end()
}

// Whatever a thread is doing when a snapshot is taken, no time in a region is told
// twice or never: intervals sum to the recording.
func TestRegionSnapshotsSumToTheRecording(t *testing.T) {
	p := startFunctions(t)
	l := openLiveWith(t, agent.Config{PID: p.PID, Probes: "launch", Regions: libraryRegions("often", "catcher", "plain", "recurse")})
	p.order("w begin step")
	sums := map[string]recording.Parts{}
	add := func(to map[string]recording.Parts, r *recording.Recording) {
		for _, row := range r.RegionParts {
			key := fmt.Sprint(r.Threads[row.Thread].Serial, r.Paths[row.Path].Names, regionPath(r, row.Region))
			to[key] = to[key].Plus(row.Parts)
		}
	}
	before := l.snapshot()
	p.tell("w call often 8000")
	p.tell("w call recurse 12")
	p.tell("w call often 8000")
	if err := p.orders.Close(); err != nil {
		t.Fatal(err)
	}
	p.Release()
	intervals := 0
	final := l.finish(func(r *recording.Recording) {
		add(sums, l.since(before, r))
		before = r
		intervals++
	})
	add(sums, l.since(before, final))
	p.Wait()
	whole := map[string]recording.Parts{}
	add(whole, final)
	if diff := gocmp.Diff(whole, sums); diff != "" || intervals < 2 || len(whole) < 4 {
		t.Errorf("%d intervals do not sum to the recording (-recording +intervals):\n%s", intervals, diff)
	}
	expectRegionPartsWithin(t, final)
}

// More rows than there is room for: what is missing is counted, and the others are
// whole.
func TestRegionPartsFull(t *testing.T) {
	got, _ := runTester(t, agent.Config{Probes: "cuLaunchKernel", Regions: []string{"flood:flood", "flood:launch"}},
		simtest.Tester(t, "flood", "--threads", "2", "--outer", "80", "--inner", "80", "--markers", simtest.Markers(t)))
	lost := losses(got)
	if n := len(got.RegionParts); n != 16384 || lost["region_parts_full"] == 0 || lost["stage_rows_full"] != 0 {
		t.Errorf("%d rows, losses %v", n, lost)
	}
	expectRegionPartsWithin(t, got)
	for _, s := range correlate.Build(got).Stages {
		var sum correlate.Partition
		for _, p := range s.ByRegion {
			sum.WallNS += p.WallNS
		}
		if sum.WallNS != s.Parts.WallNS {
			t.Errorf("stage %q: %d ns in and outside of regions, %d in all", s.Path.Joined, sum.WallNS, s.Parts.WallNS)
		}
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
	if diff := gocmp.Diff(map[string]uint64{"function_left_otherwise": 6}, losses(got)); diff != "" {
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
		if diff := gocmp.Diff(test.want, executions(test.r)); diff != "" {
			t.Errorf("executions (-want +got):\n%s", diff)
		}
	}
	stop()
	if err := errors.Join(<-ended, session.Close()); err != nil {
		t.Error(err)
	}
	p.end()
}
