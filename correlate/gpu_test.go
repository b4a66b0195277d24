package correlate_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

func TestDevicesOfStages(t *testing.T) {
	b := recordingtest.New()
	r := b.Recording()
	one, two := b.Thread(1, "one"), b.Thread(2, "two")
	step, copying := b.Path("step"), b.Path("step/copy")
	r.Spans = []recording.Span{
		{Thread: one, Path: copying, BeginNS: 120, WallNS: 20},
		{Thread: two, Path: step, BeginNS: 140, WallNS: 40}, // overlaps the next one
		{Thread: one, Path: step, BeginNS: 100, WallNS: 60},
		{Thread: one, Path: step, BeginNS: 350, WallNS: 100}, // half of it after the last reading
		{Thread: two, Path: copying, BeginNS: 500, WallNS: 10},
	}
	r.GPU = &recording.GPU{Devices: []recording.Device{
		{Index: 0, Intervals: []recording.DeviceInterval{
			{BeginNS: 100, EndNS: 200, UtilizationPct: 90, PowerW: 300, EnergyJ: 10},
			{BeginNS: 200, EndNS: 300, UtilizationPct: 10, PowerW: 100, EnergyJ: 7},
			{BeginNS: 300, EndNS: 400, UtilizationPct: 40, PowerW: 200, EnergyJ: 4},
		}},
		{Index: 1},
	}}
	want := []correlate.DeviceStage{
		{Path: correlate.Path{Joined: "step", Names: []string{"step"}}, OpenNS: 130, EnergyJ: 8 + 2,
			UtilizationPct: (80*90. + 50*40.) / 130, PowerW: (80*300. + 50*200.) / 130},
		{Path: correlate.Path{Joined: "step/copy", Names: []string{"step", "copy"}}, OpenNS: 20,
			UtilizationPct: 90, PowerW: 300, EnergyJ: 2},
	}
	if diff := cmp.Diff(want, correlate.Build(r).Devices, cmpopts.EquateApprox(1e-12, 0)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whatever the Recording holds: nothing is open for longer than the readings
// are, and means are among what was read.
func TestDevicesOfStagesOfAnyRecording(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		r := recordingtest.Random(rng)
		for _, s := range correlate.Build(r).Devices {
			var covered float64
			least, most := math.Inf(1), math.Inf(-1)
			for _, d := range r.GPU.Devices {
				for _, i := range d.Intervals {
					if d.Index == s.Device && i.EndNS > i.BeginNS {
						covered += float64(i.EndNS - i.BeginNS)
					}
					least, most = min(least, i.UtilizationPct), max(most, i.UtilizationPct)
				}
			}
			if s.OpenNS == 0 || float64(s.OpenNS) > covered*(1+1e-9) {
				t.Fatalf("open for %d ns, of which the readings cover %v", s.OpenNS, covered)
			}
			if u := s.UtilizationPct; u < least-1e-3 || u > most+1e-3 || math.IsNaN(s.EnergyJ) {
				t.Fatalf("got %+v, want a mean between %v and %v", s, least, most)
			}
		}
	}
}
