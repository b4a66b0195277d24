package pprofout

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stageprof/recording/recordingtest"
)

// Regions are the callers of the native caller. The one whose code made the call
// is that caller, and is there once.
func TestRegionsAreCallers(t *testing.T) {
	const class = "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::"
	want := map[string]int64{
		"stage:forward;cuLaunchKernel":                                      1000,
		"stage:forward;" + class + "malloc;" + class + "map_block;cuMemMap": 40,
		"stage:forward;" + class + "malloc;cuMemMap":                        3,
		"stage:trim;" + class + "release_cached_blocks;cudaFree;cuMemUnmap": 60,
		"stage:none;" + class + "release_cached_blocks;cuMemUnmap":          5,
	}
	got := map[string]int64{}
	for stack, v := range values(makeProfile(t, recordingtest.Regions(), Options{StageFrames: true})) {
		got[stack] = v[callsColumn]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("calls by stack (-want +got):\n%s", diff)
	}
}

// Regions move no call to another row: without them the profile's sums are the
// same.
func TestRegionsDivide(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	for range 50 {
		r := recordingtest.Random(rng)
		var with, without int64
		for _, s := range makeProfile(t, r, Options{}).Sample {
			with += s.Value[callsColumn]
		}
		for i := range r.Calls {
			r.Calls[i].Region = 0
		}
		for _, s := range makeProfile(t, r, Options{}).Sample {
			without += s.Value[callsColumn]
		}
		if with != without {
			t.Fatalf("%d calls with regions, %d without", with, without)
		}
	}
}

// What found no room in the kernel side's tables has a frame of its own.
func TestOtherRegions(t *testing.T) {
	b := recordingtest.New()
	id := b.Region("f")
	b.Call(b.Thread(1, "t"), "a", b.Symbol("cuMemMap"), 3, time.Millisecond, 0).Region = id
	b.Recording().RegionPaths[id].Regions = []int{-1, 0}
	for stack := range values(makeProfile(t, b.Recording(), Options{})) {
		if !strings.Contains(stack, "(other regions);f;cuMemMap") {
			t.Errorf("stack %q", stack)
		}
	}
}

// Where a stage's time was spent in a region, that stands between the stage and
// the part; the time elsewhere is right below the stage.
func TestRegionsInTheProfileOfStages(t *testing.T) {
	const (
		class = "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::"
		us    = int64(time.Microsecond)
	)
	want := map[string]int64{
		"stage:forward;cuda: cuLaunchKernel": 5000 * us, "stage:forward;running": 77_610 * us,
		"stage:forward;gil wait": 5000 * us, "stage:forward;blocked: futex": 7390 * us,
		"stage:forward;" + class + "malloc;cuda: cuMemMap":                        210 * us,
		"stage:forward;" + class + "malloc;running":                               1790 * us,
		"stage:forward;" + class + "malloc;" + class + "map_block;cuda: cuMemMap": 2400 * us,
		"stage:forward;" + class + "malloc;" + class + "map_block;running":        600 * us,
		"stage:trim;running": 2000 * us,
		"stage:trim;" + class + "release_cached_blocks;cuda: cuMemUnmap": 4800 * us,
		"stage:trim;" + class + "release_cached_blocks;running":          1200 * us,
		"stage:trim;" + class + "release_cached_blocks;blocked: futex":   2000 * us,
		"stage:none;running":        500 * us,
		"stage:none;blocked: sleep": 19_000 * us,
		"stage:none;" + class + "release_cached_blocks;cuda: cuMemUnmap": 400 * us,
		"stage:none;" + class + "release_cached_blocks;running":          100 * us,
	}
	got := map[string]int64{}
	for stack, v := range values(makeStages(t, recordingtest.RegionParts())) {
		if v[stageWall] > 0 {
			got[stack] = v[stageWall]
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wall time by stack (-want +got):\n%s", diff)
	}
}
