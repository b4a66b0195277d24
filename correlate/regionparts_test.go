package correlate_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

// split writes partitions by region as "region part" and their times in µs.
func split(l *correlate.Ledger, list []correlate.RegionPartition) map[string]uint64 {
	times := map[string]uint64{}
	for _, p := range list {
		var names []string
		for _, name := range l.RegionNames(p.Region) {
			names = append(names, name[strings.LastIndex(name, ":")+1:])
		}
		for _, part := range p.Parts {
			times[strings.Join(names, ">")+" "+part.String()] += part.NS / 1000
		}
	}
	return times
}

// A stage's time is divided by region first, and its calls with it.
func TestPartsByRegion(t *testing.T) {
	l := correlate.Build(recordingtest.RegionParts())
	want := map[string]map[string]uint64{
		"forward": {
			" cuda cpu: cuLaunchKernel [gil free]": 5000, " running": 77_610, " gil wait": 5000, " blocked: futex": 7390,
			"malloc cuda cpu: cuMemMap [gil free]": 150, "malloc cuda blocked: cuMemMap [gil free]": 60, "malloc running": 1790,
			"malloc>map_block cuda cpu: cuMemMap [gil free]": 2000, "malloc>map_block cuda blocked: cuMemMap [gil free]": 400,
			"malloc>map_block running": 600,
		},
		"trim": {
			" running": 2000, "release_cached_blocks cuda cpu: cuMemUnmap [gil free]": 4200,
			"release_cached_blocks cuda blocked: cuMemUnmap [gil free]": 600, "release_cached_blocks running": 1200,
			"release_cached_blocks blocked: futex": 2000,
		},
		"": {
			" running": 500, " blocked: sleep": 19_000, "release_cached_blocks cuda cpu: cuMemUnmap [gil free]": 350,
			"release_cached_blocks cuda blocked: cuMemUnmap [gil free]": 50, "release_cached_blocks running": 100,
		},
	}
	got := map[string]map[string]uint64{"": split(l, l.OutsideByRegion)}
	for i := range l.Stages {
		got[l.Stages[i].Path.Joined] = split(l, l.Stages[i].ByRegion)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("time by region, in µs (-want +got):\n%s", diff)
	}
	expectSumsOfRegions(t, l)
	var names []string
	for _, p := range correlate.ByInnermostRegion(l, l.Stages[0].ByRegion) {
		names = append(names, p.Name[strings.LastIndex(p.Name, ":")+1:])
	}
	if want := []string{"map_block", "malloc", ""}; !cmp.Equal(want, names) {
		t.Errorf("regions of a stage: %q, want %q", names, want)
	}
}

// expectSumsOfRegions fails unless regions sum to what they are parts of, part by
// part.
func expectSumsOfRegions(t *testing.T, l *correlate.Ledger) {
	t.Helper()
	expect := func(name string, whole *correlate.Partition, list []correlate.RegionPartition) {
		t.Helper()
		if whole == nil || list == nil {
			if (whole == nil) != (list == nil) && len(l.Source.RegionParts) > 0 {
				t.Errorf("%s: %v by region, %v in all", name, list, whole)
			}
			return
		}
		sum, want := map[correlate.PartName]uint64{}, map[correlate.PartName]uint64{}
		for i := range list {
			for _, p := range list[i].Parts {
				sum[p.PartName] += p.NS
			}
		}
		for _, p := range whole.Parts {
			want[p.PartName] = p.NS
		}
		if diff := cmp.Diff(want, sum); diff != "" {
			t.Errorf("%s: regions do not sum to it (-want +got):\n%s", name, diff)
		}
	}
	for i := range l.Stages {
		s := &l.Stages[i]
		expect(s.Path.Joined, s.Parts, s.ByRegion)
		for _, of := range s.Threads {
			expect("a thread in "+s.Path.Joined, of.Parts, of.ByRegion)
		}
	}
	for _, of := range l.Threads {
		expect("outside", of.PartsOutside, of.OutsideByRegion)
	}
	expect("outside", l.PartsOutside, l.OutsideByRegion)
}

// Without times in regions nothing is split, and nothing else changes.
func TestPartsWithoutRegions(t *testing.T) {
	with, without := recordingtest.RegionParts(), recordingtest.RegionParts()
	without.RegionParts = nil
	a, b := correlate.Build(with), correlate.Build(without)
	for i := range b.Stages {
		if b.Stages[i].ByRegion != nil {
			t.Errorf("stage %q is split", b.Stages[i].Path.Joined)
		}
		if diff := cmp.Diff(b.Stages[i].Parts, a.Stages[i].Parts); diff != "" {
			t.Errorf("parts of %q (-without +with):\n%s", b.Stages[i].Path.Joined, diff)
		}
	}
	if b.OutsideByRegion != nil || !cmp.Equal(a.PartsOutside, b.PartsOutside) {
		t.Errorf("outside any stage: %+v, %+v", a.PartsOutside, b.PartsOutside)
	}
}

// More time in a region than the stage has is cut, what the table had no room for
// is outside of any, with its calls; of a stage that is not there nothing is said.
func TestPartsOfDamagedRegions(t *testing.T) {
	r := recordingtest.RegionParts()
	r.RegionParts[0].Parts.GILWaitNS = 1 << 40 // malloc in forward
	r.RegionParts[0].Parts.BlockedReadNS = 1 << 40
	r.RegionParts[2].Path = len(r.Paths)
	r.Paths = append(r.Paths, recording.StagePath{ID: len(r.Paths), Names: []string{"unknown"}})
	l := correlate.Build(r)
	expectSumsOfRegions(t, l)
	if got := split(l, l.Stages[0].ByRegion); got["malloc gil wait"] != 5000 || got[" gil wait"] != 0 || got["malloc blocked: read"] != 0 {
		t.Errorf("forward: %v", got)
	}
	if got := split(l, l.Stages[1].ByRegion); got[" cuda cpu: cuMemUnmap [gil free]"] != 4200 || len(l.Stages) != 2 {
		t.Errorf("trim: %v", got)
	}
}

func TestRandomPartsByRegion(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	for range 300 {
		expectSumsOfRegions(t, correlate.Build(recordingtest.Random(rng)))
	}
}

func TestRegionPartsSince(t *testing.T) {
	earlier, later := recordingtest.RegionParts(), recordingtest.RegionParts()
	later.Window.Duration += time.Second
	for i := range later.RegionParts[:2] {
		p := &later.RegionParts[i].Parts
		*p = p.Plus(*p)
	}
	// A stage that was open in a region, for which there was no room at its end.
	earlier.RegionParts[2].Path = len(earlier.Paths)
	earlier.Paths = append(earlier.Paths, recording.StagePath{ID: len(earlier.Paths), Names: []string{"open"}})
	later.RegionParts = append(later.RegionParts[:2:2], later.RegionParts[3])
	r, err := correlate.Since(earlier, later)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(recordingtest.RegionParts().RegionParts[:2], r.RegionParts); diff != "" {
		t.Errorf("time in regions (-want +got):\n%s", diff)
	}
}
