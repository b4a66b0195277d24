package correlate_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

// regionFacts are what a Region says, in a form that is easy to compare.
type regionFacts struct {
	Count, WallNS, ExclusiveNS, Partial uint64
	Own, Within                         uint64 // calls
	WithinNS                            uint64
}

func factsOf(l *correlate.Ledger) map[string]regionFacts {
	facts := map[string]regionFacts{}
	for _, r := range l.Regions {
		var names []string
		for _, name := range r.Names {
			names = append(names, name[strings.LastIndex(name, ":")+1:])
		}
		facts[string(r.Attribution)+" "+r.Path.Joined+" | "+strings.Join(names, ">")] = regionFacts{
			r.Count, r.WallNS, r.ExclusiveNS, r.Partial.Count, r.Own.Count, r.Within.Count, r.Within.WallNS,
		}
	}
	return facts
}

func TestRegions(t *testing.T) {
	const us = uint64(time.Microsecond)
	want := map[string]regionFacts{
		"own forward | malloc":             {50, 5000 * us, 2000 * us, 2, 3, 43, 40*60*us + 3*70*us},
		"own forward | malloc>map_block":   {40, 3000 * us, 3000 * us, 0, 40, 40, 40 * 60 * us},
		"own trim | release_cached_blocks": {2, 8000 * us, 8000 * us, 0, 60, 60, 60 * 80 * us},
		"none  | release_cached_blocks":    {1, 500 * us, 500 * us, 0, 5, 5, 5 * 80 * us},
	}
	l := correlate.Build(recordingtest.Regions())
	if diff := cmp.Diff(want, factsOf(l)); diff != "" {
		t.Errorf("regions (-want +got):\n%s", diff)
	}
	// They divide calls and add none.
	if l.All.Count != 1108 || !l.Balance.Holds() {
		t.Errorf("%d calls", l.All.Count)
	}
}

// Executions that lasted longer than the recording can't be true.
func TestImpossibleRegions(t *testing.T) {
	b := recordingtest.New()
	main := b.Thread(1, "t")
	b.RegionTime(main, "a", b.Region("f"), 3, time.Hour, 0)
	partial := b.RegionTime(main, "a", b.Region("f"), 2, time.Millisecond, 0)
	partial.PartialCount, partial.PartialWallNS = 1, uint64(time.Hour)
	l := correlate.Build(b.Recording())
	if diff := cmp.Diff(map[string]regionFacts{"own a | f": {Count: 2, WallNS: 2e6, ExclusiveNS: 2e6}}, factsOf(l)); diff != "" {
		t.Errorf("regions (-want +got):\n%s", diff)
	}
	want := []recording.Loss{{Reason: correlate.ImpossibleDuration, Kind: correlate.LossSpans, Count: 4}}
	for i := range l.Losses {
		l.Losses[i].Help = ""
	}
	if diff := cmp.Diff(want, l.Losses); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
}

// Allocations are summed by stage.
func TestAllocations(t *testing.T) {
	want := []correlate.Allocations{
		{Path: correlate.Path{Joined: "forward", Names: []string{"forward"}}, Attribution: recording.AttributionOwn,
			Count: 50, Bytes: 50 << 20, Freed: 10, FreedBytes: 8 << 20, FreedUnknown: 2},
		{Path: correlate.Path{Joined: "trim", Names: []string{"trim"}}, Attribution: recording.AttributionAutograd, Freed: 40, FreedBytes: 40 << 20},
	}
	if diff := cmp.Diff(want, correlate.Build(recordingtest.Regions()).Allocations); diff != "" {
		t.Errorf("allocations (-want +got):\n%s", diff)
	}
}

// What ended between two snapshots.
func TestRegionsSince(t *testing.T) {
	earlier, later := recordingtest.Regions(), recordingtest.Regions()
	later.Window.Duration += time.Second
	for i := range later.Calls {
		c := &later.Calls[i]
		c.Count, c.WallNS, c.CPUNS = 3*c.Count, 3*c.WallNS, 3*c.CPUNS
		for b := range c.Hist {
			c.Hist[b] *= 3
		}
	}
	for i := range later.RegionTimes[:2] { // the others have not run since
		row := &later.RegionTimes[i]
		row.Count, row.WallNS, row.ChildNS, row.PartialCount = 2*row.Count, 2*row.WallNS, 2*row.ChildNS, 2*row.PartialCount
	}
	later.Overhead.Followed += 90
	earlier.Allocations = []recording.Allocation{{Count: 3, Bytes: 300}}
	later.Allocations = []recording.Allocation{{Count: 5, Bytes: 350, Freed: 1, FreedBytes: 100}}
	r, err := correlate.Since(earlier, later)
	if err != nil {
		t.Fatal(err)
	}
	const us = uint64(time.Microsecond)
	want := map[string]regionFacts{
		"own forward | malloc":             {50, 5000 * us, 2000 * us, 2, 6, 86, 2 * (40*60*us + 3*70*us)},
		"own forward | malloc>map_block":   {40, 3000 * us, 3000 * us, 0, 80, 80, 2 * 40 * 60 * us},
		"own trim | release_cached_blocks": {0, 0, 0, 0, 120, 120, 2 * 60 * 80 * us},
		"none  | release_cached_blocks":    {0, 0, 0, 0, 10, 10, 2 * 5 * 80 * us},
	}
	if diff := cmp.Diff(want, factsOf(correlate.Build(r))); diff != "" {
		t.Errorf("regions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]recording.Allocation{{Count: 2, Bytes: 50, Freed: 1, FreedBytes: 100}}, r.Allocations); diff != "" {
		t.Errorf("allocations (-want +got):\n%s", diff)
	}
	if r.Overhead.Followed != 90 {
		t.Errorf("%d executions", r.Overhead.Followed)
	}
	later.RegionTimes = later.RegionTimes[1:]
	if _, err := correlate.Since(earlier, later); !errors.Is(err, correlate.ErrNotSnapshots) {
		t.Errorf("without a row of the earlier one: %v", err)
	}
}
