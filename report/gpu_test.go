package report

import (
	"strings"
	"testing"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

// twoDevices is a recording of one stage that is open for 100 ms, with two
// devices that were read twice.
func twoDevices() *recording.Recording {
	b := recordingtest.New()
	r := b.Recording()
	r.Spans = []recording.Span{{Thread: b.Thread(1, "main"), Path: b.Path("step"), BeginNS: uint64(50 * ms), WallNS: uint64(100 * ms)}}
	device := func(index int, busy float64) recording.Device {
		return recording.Device{Index: index, Name: "H200", Samples: 2, Intervals: []recording.DeviceInterval{
			{BeginNS: 0, EndNS: uint64(100 * ms), UtilizationPct: busy, PowerW: 300, EnergyJ: 30},
			{BeginNS: uint64(100 * ms), EndNS: uint64(200 * ms), UtilizationPct: busy, PowerW: 300, EnergyJ: 30},
		}}
	}
	r.GPU = &recording.GPU{Driver: "550.54.15", Devices: []recording.Device{device(0, 90), device(1, 10)}}
	return r
}

func TestDeviceStages(t *testing.T) {
	text := func(r *recording.Recording, full bool) string {
		var b strings.Builder
		if err := Text(&b, correlate.Build(r), TextOptions{Full: full}); err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(b.String()), " ")
	}
	full := text(twoDevices(), true)
	for _, want := range []string{
		"GPU WHILE A STAGE IS OPEN OPEN BUSY POWER ENERGY",
		"step 100 ms 50% 600 W 60.0 J", "GPU 0 100 ms 90% 300 W 30.0 J", "GPU 1 100 ms 10% 300 W 30.0 J",
	} {
		if !strings.Contains(full, want) {
			t.Errorf("%q is missing in %s", want, full)
		}
	}
	r := twoDevices()
	r.GPU = nil
	if strings.Contains(text(r, true), "GPU WHILE") {
		t.Error("without a device there is a table of what it did")
	}
}

func TestDeviceStagesJSON(t *testing.T) {
	stages := jsonOf(t, twoDevices())["gpu_stages"].([]any)
	if len(stages) != 2 {
		t.Fatalf("%d rows, want one for each device", len(stages))
	}
	if got := stages[1].(map[string]any); got["stage_path"] != "step" || got["gpu"].(interface{ String() string }).String() != "1" ||
		got["open_ns"].(interface{ String() string }).String() != "100000000" {
		t.Errorf("got %v", got)
	}
}
