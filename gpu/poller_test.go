package gpu

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"stageprof/recording"
)

// fakeLibrary answers like NVML, from a script.
type fakeLibrary struct {
	gpus   []*fakeDevice
	err    error // of driver
	closed int
}

func (l *fakeLibrary) driver() (string, error) { return "535.261.03", l.err }

func (l *fakeLibrary) devices() ([]device, error) {
	devices := make([]device, len(l.gpus))
	for i, d := range l.gpus {
		devices[i] = d
	}
	return devices, nil
}

func (l *fakeLibrary) close() error { l.closed++; return nil }

// fakeDevice draws its answers from a function of the metric and of how often
// that metric was read before.
type fakeDevice struct {
	answer func(m metric, before int) (uint64, error)
	reads  [metricCount]int

	// nil: there are no processes.
	memory      func(before int) (map[int]uint64, error)
	memoryReads int
	samples     func(after uint64) (map[int]processSample, uint64, error)
}

func (d *fakeDevice) describe() (recording.Device, error) {
	return recording.Device{Name: "Simulated GPU", UUID: "GPU-0", MemoryTotal: 1000}, nil
}

func (d *fakeDevice) read(m metric) (uint64, error) {
	before := d.reads[m]
	d.reads[m]++
	return d.answer(m, before)
}

// ramp answers utilization 10, 20, 30 …, used memory that peaks at its second
// reading in the window, constant power and energy that grows by 5 J a reading.
// The first reading of each metric is the one that Open makes.
func ramp(m metric, before int) (uint64, error) {
	switch m {
	case utilization:
		return uint64(10 * before), nil
	case memoryUsed:
		return []uint64{1, 100, 900, 300, 300, 300}[before], nil
	case power:
		return 250_500, nil
	case graphicsClock, smClock:
		return uint64(1000 + 100*before), nil
	case memoryClock:
		return 2000, nil
	case clockLimits:
		return []uint64{0, 1, 4 | 1, 0, 0, 0}[before], nil // idle, idle with the power capped, none
	default:
		return uint64(5000 * before), nil
	}
}

func (d *fakeDevice) memoryByProcess() (map[int]uint64, error) {
	if d.memory == nil {
		return nil, nil
	}
	before := d.memoryReads
	d.memoryReads++
	return d.memory(before)
}

func (d *fakeDevice) utilizationByProcess(after uint64) (map[int]processSample, uint64, error) {
	if d.samples == nil {
		return nil, after, nil
	}
	return d.samples(after)
}

func mustOpen(t *testing.T, lib library) *Poller {
	t.Helper()
	p, err := open(t.Context(), time.Second, func() (library, error) { return lib, nil })
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// record runs one window of the given length on fake time.
func record(t *testing.T, window time.Duration, answer func(metric, int) (uint64, error)) (*recording.GPU, string) {
	t.Helper()
	var g *recording.GPU
	var note string
	synctest.Test(t, func(t *testing.T) {
		lib := &fakeLibrary{gpus: []*fakeDevice{{answer: answer}}}
		p := mustOpen(t, lib)
		start := time.Now()
		p.clock = func() uint64 { return uint64(time.Since(start)) }
		p.Start(t.Context())
		time.Sleep(window)
		g, note = p.Stop()
		for range 2 {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
		if lib.closed != 1 {
			t.Errorf("library closed %d times, want once", lib.closed)
		}
	})
	return g, note
}

func TestPollerSummary(t *testing.T) {
	g, note := record(t, 2500*time.Millisecond, ramp)
	want := &recording.GPU{Driver: "535.261.03", Devices: []recording.Device{{
		Name: "Simulated GPU", UUID: "GPU-0",
		UtilizationPct: 20, // 10, 20 and, at the end, 30
		MemoryUsed:     900,
		MemoryTotal:    1000,
		PowerW:         250.5,
		EnergyJ:        15, // readings 1 (start) to 4 (end)
		Samples:        3,

		GraphicsClockMHz: 1200, SMClockMHz: 1200, MemoryClockMHz: 2000,
		ClockLimits: []recording.ClockLimit{{Reason: "gpu_idle", Samples: 2}, {Reason: "sw_power_cap", Samples: 1}},
		Intervals: []recording.DeviceInterval{
			{BeginNS: 0, EndNS: 1e9, UtilizationPct: 10, PowerW: 250.5, EnergyJ: 5},
			{BeginNS: 1e9, EndNS: 2e9, UtilizationPct: 20, PowerW: 250.5, EnergyJ: 5},
			{BeginNS: 2e9, EndNS: 2.5e9, UtilizationPct: 30, PowerW: 250.5, EnergyJ: 5},
		},
	}}}
	if diff := cmp.Diff(want, g); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	if note != "" {
		t.Errorf("note %q, want none", note)
	}
}

func TestPollerWindowShorterThanPeriod(t *testing.T) {
	g, _ := record(t, time.Millisecond, ramp)
	if d := g.Devices[0]; d.Samples != 1 || d.UtilizationPct != 10 || d.EnergyJ != 5 {
		t.Errorf("got %+v, want one sample of 10 %% and 5 J", d)
	}
}

// A failed reading leaves its time, and its energy, to the next one.
func TestPollerIntervalsHaveNoGap(t *testing.T) {
	g, _ := record(t, 2500*time.Millisecond, func(m metric, before int) (uint64, error) {
		if m == power && before == 2 {
			return 0, errors.New("GPU is lost")
		}
		return ramp(m, before)
	})
	want := []recording.DeviceInterval{
		{BeginNS: 0, EndNS: 1e9, UtilizationPct: 10, PowerW: 250.5, EnergyJ: 5},
		{BeginNS: 1e9, EndNS: 2.5e9, UtilizationPct: 30, PowerW: 250.5, EnergyJ: 5},
	}
	if diff := cmp.Diff(want, g.Devices[0].Intervals); diff != "" {
		t.Errorf("intervals (-want +got):\n%s", diff)
	}
}

func TestLongWindowsAreMerged(t *testing.T) {
	s := &sampler{energyKnown: true}
	energyTotal, last := 0.0, uint64(0)
	for at := uint64(1); at <= 10*mostIntervals; at++ {
		s.addInterval(at, [metricCount]uint64{utilization: at % 2 * 100, power: 200_000, energy: at * 1000})
		s.lastEnergy = at * 1000
		if len(s.intervals) >= mostIntervals {
			t.Fatalf("%d intervals are kept, want less than %d", len(s.intervals), mostIntervals)
		}
	}
	for _, i := range s.intervals {
		if i.BeginNS != last || i.UtilizationPct != 50 && i.EndNS-i.BeginNS > 1 || i.PowerW != 200 {
			t.Fatalf("got %+v after one that ended at %d, want no gap, 50 %% and 200 W", i, last)
		}
		last, energyTotal = i.EndNS, energyTotal+i.EnergyJ
	}
	if last != 10*mostIntervals || energyTotal != 10*mostIntervals {
		t.Errorf("intervals up to %d with %v J, want %d and as many J", last, energyTotal, 10*mostIntervals)
	}
}

func TestPollerCountsFailures(t *testing.T) {
	lost := errors.New("GPU is lost")
	g, note := record(t, 2500*time.Millisecond, func(m metric, before int) (uint64, error) {
		if m == power && before == 2 {
			return 0, lost
		}
		return ramp(m, before)
	})
	d := g.Devices[0]
	if d.Samples != 2 || d.UtilizationPct != 20 || d.PowerW != 250.5 {
		t.Errorf("got %+v, want means over the samples 10 %% and 30 %% alone", d)
	}
	if want := "GPU 0 missed 1 of 3 readings, the last by reading the power: GPU is lost"; note != want {
		t.Errorf("note %q, want %q", note, want)
	}
}

func TestPollerDeviceLostForGood(t *testing.T) {
	g, note := record(t, 2500*time.Millisecond, func(m metric, before int) (uint64, error) {
		if before > 0 {
			return 0, errors.New("GPU is lost")
		}
		return ramp(m, before)
	})
	if d := g.Devices[0]; d.Samples != 0 || d.EnergyJ != 0 || d.PowerW != 0 || d.MemoryTotal != 1000 {
		t.Errorf("got %+v, want an empty summary", d)
	}
	if want := "GPU 0 missed 4 of 4 readings"; !strings.HasPrefix(note, want) {
		t.Errorf("note %q, want %q…", note, want)
	}
}

func TestPollerNamesWhatADeviceLacks(t *testing.T) {
	g, note := record(t, time.Second/2, func(m metric, before int) (uint64, error) {
		if m == utilization || m == energy {
			return 0, errUnsupported
		}
		return ramp(m, before)
	})
	if d := g.Devices[0]; d.Samples != 1 || d.UtilizationPct != 0 || d.EnergyJ != 0 || d.PowerW != 250.5 {
		t.Errorf("got %+v, want the power only", d)
	}
	if want := "GPU 0 has no utilization, energy counter"; note != want {
		t.Errorf("note %q, want %q", note, want)
	}
}

// A process has the most memory that it was seen with, and the mean of what it
// did since then.
func TestProcesses(t *testing.T) {
	memory := []map[int]uint64{{}, {1: 100, 2: 5}, {1: 300, 2: 5}, {1: 200}, {1: 200, 3: 7}}
	percent := []map[int]uint64{{9: 100}, {1: 40}, nil, {1: 20}, {3: 50}} // a sample a second
	dev := &fakeDevice{
		answer: func(m metric, _ int) (uint64, error) { return 0, nil },
		memory: func(before int) (map[int]uint64, error) { return memory[before], nil },
	}
	dev.samples = func(uint64) (map[int]processSample, uint64, error) {
		busy, at := map[int]processSample{}, uint64(1_000_000*dev.memoryReads)
		for pid, percent := range percent[dev.memoryReads-1] {
			busy[pid] = processSample{percent, at}
		}
		return busy, at, nil
	}
	p := mustOpen(t, &fakeLibrary{gpus: []*fakeDevice{dev}})
	p.samplers[0].begin(0)
	for second := range uint64(4) {
		p.samplers[0].sample((second + 1) * uint64(time.Second))
	}
	process := func(used uint64, percent float64) *recording.DeviceProcess {
		return &recording.DeviceProcess{MemoryUsed: &used, UtilizationPct: &percent}
	}
	summary := p.Inventory()
	for pid, want := range map[int]*recording.DeviceProcess{
		1: process(300, 20), // of 40, 0 and 20; of the fourth second it may not be known yet
		2: process(5, 0),
		3: process(7, 50), // since it was seen
		9: nil,            // it was over when the window began
	} {
		if diff := cmp.Diff(want, p.Of(summary, pid).Devices[0].Process); diff != "" {
			t.Errorf("process %d (-want +got):\n%s", pid, diff)
		}
	}
	for pid, want := range map[int]*recording.DeviceProcess{1: process(200, 20), 2: nil, 3: process(7, 50)} {
		if diff := cmp.Diff(want, p.Latest(pid).Devices[0].Process); diff != "" {
			t.Errorf("process %d now (-want +got):\n%s", pid, diff)
		}
	}
	if summary.Devices[0].Process != nil || p.Of(nil, 1) != nil {
		t.Error("a summary was changed, or made of none")
	}
}

// However often NVML is read, and however often the driver samples, a process has
// the share of the time that it was busy.
func TestProcessesOfAnyDriver(t *testing.T) {
	const ms = uint64(time.Millisecond)
	every := func(period uint64, n int) (times []uint64) {
		for i := range n {
			times = append(times, uint64(i+1)*period)
		}
		return times
	}
	for name, c := range map[string]struct {
		period   uint64 // of the driver
		percent  []uint64
		readings []uint64
		want     float64
	}{
		"a driver as fast as we":      {500 * ms, []uint64{80, 40}, every(500*ms, 20), 60},
		"a slower one":                {1000 * ms, []uint64{80, 40}, every(500*ms, 20), 60},
		"one that we miss a beat of":  {900 * ms, []uint64{50}, every(500*ms, 90), 50},
		"a faster one":                {250 * ms, []uint64{50}, every(500*ms, 20), 50},
		"a late reading":              {1000 * ms, []uint64{60}, []uint64{500 * ms, 1000 * ms, 1500 * ms, 2600 * ms, 2900 * ms, 3000 * ms, 4000 * ms}, 60},
		"idle, then busy":             {1000 * ms, []uint64{0, 0, 0, 0, 100, 100}, every(500*ms, 12), 2 * 100 / 6.},
		"busy, then idle for long":    {1000 * ms, []uint64{100, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, every(500*ms, 22), 10},
		"busy now and then":           {1000 * ms, []uint64{90, 0, 0}, every(500*ms, 26), 5 * 90 / 13.},
		"one that has said nothing":   {1000 * ms, []uint64{0}, every(100*ms, 9), -1},
		"never busy":                  {1000 * ms, []uint64{0}, every(500*ms, 20), 0},
		"busy, and not yet said idle": {500 * ms, []uint64{70, 70, 0}, every(500*ms, 3), 70},
	} {
		t.Run(name, func(t *testing.T) {
			var now uint64
			dev := &fakeDevice{
				answer: func(metric, int) (uint64, error) { return 0, nil },
				memory: func(int) (map[int]uint64, error) { return map[int]uint64{1: 5}, nil },
				samples: func(after uint64) (map[int]processSample, uint64, error) {
					n := now / c.period // periods that are over
					at := n * c.period / 1000
					if n == 0 || at <= after {
						return nil, after, nil
					}
					percent := c.percent[(n-1)%uint64(len(c.percent))]
					if percent == 0 {
						return nil, after, nil
					}
					return map[int]processSample{1: {percent, at}}, at, nil
				},
			}
			s := mustOpen(t, &fakeLibrary{gpus: []*fakeDevice{dev}}).samplers[0]
			s.begin(0)
			for _, now = range c.readings {
				s.sample(now)
			}
			got := s.process(1).UtilizationPct
			switch {
			case got == nil && c.want >= 0:
				t.Errorf("not known, want %v %%", c.want)
			case got != nil && math.Abs(*got-c.want) > 1e-9:
				t.Errorf("got %v %%, want %v", *got, c.want)
			}
		})
	}
}

// What the driver said last holds until it can be expected to say something new.
func TestProcessNow(t *testing.T) {
	var now uint64
	dev := &fakeDevice{answer: func(metric, int) (uint64, error) { return 0, nil }, samples: func(after uint64) (map[int]processSample, uint64, error) {
		if at := uint64(1_000_000); now >= 1000 && after < at { // one sample, after a second
			return map[int]processSample{1: {80, at}}, at, nil
		}
		return nil, after, nil
	}}
	s := mustOpen(t, &fakeLibrary{gpus: []*fakeDevice{dev}}).samplers[0]
	s.begin(0)
	var got []float64
	for now = 500; now <= 3000; now += 500 {
		s.sample(now * uint64(time.Millisecond))
		if p := s.now(1).Process; p != nil {
			got = append(got, *p.UtilizationPct)
		} else {
			got = append(got, -1)
		}
	}
	if diff := cmp.Diff([]float64{-1, 80, 80, 80, -1, -1}, got); diff != "" {
		t.Errorf("in each half second (-want +got):\n%s", diff)
	}
}

// What a device does not tell of its processes is left out, and named.
func TestProcessesAreNotTold(t *testing.T) {
	unsupported := func(uint64) (map[int]processSample, uint64, error) { return nil, 0, errUnsupported }
	dev := &fakeDevice{answer: ramp, samples: unsupported, memory: func(int) (map[int]uint64, error) { return map[int]uint64{1: 5}, nil }}
	p := mustOpen(t, &fakeLibrary{gpus: []*fakeDevice{dev}})
	p.samplers[0].sample(1)
	if got := p.Latest(1).Devices[0].Process; got == nil || *got.MemoryUsed != 5 || got.UtilizationPct != nil {
		t.Errorf("got %+v, want 5 bytes and no utilization", got)
	}
	if diff := cmp.Diff([]string{"GPU 0 has no utilization by process"}, p.samplers[0].notes()); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

// Trouble with processes leaves the device's own numbers alone.
func TestProcessesFail(t *testing.T) {
	dev := &fakeDevice{answer: ramp, memory: func(before int) (map[int]uint64, error) {
		if before == 2 {
			return nil, errors.New("Unknown Error")
		}
		return map[int]uint64{1: 5}, nil
	}}
	p := mustOpen(t, &fakeLibrary{gpus: []*fakeDevice{dev}})
	for at := range uint64(3) {
		p.samplers[0].sample(at)
	}
	if d := p.Of(p.Inventory(), 1).Devices[0]; d.Samples != 3 || d.Process == nil || *d.Process.MemoryUsed != 5 {
		t.Errorf("got %+v, want three samples and the process", d)
	}
	if diff := cmp.Diff([]string{"GPU 0 did not tell of its processes 1 of 3 times, the last: Unknown Error"}, p.samplers[0].notes()); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

// Processes that come and go for days leave a bounded number behind: the latest.
func TestProcessesAreForgotten(t *testing.T) {
	dev := &fakeDevice{answer: func(metric, int) (uint64, error) { return 0, nil }, memory: func(before int) (map[int]uint64, error) {
		return map[int]uint64{7: 1, 1000 + before: 1}, nil
	}}
	p := mustOpen(t, &fakeLibrary{gpus: []*fakeDevice{dev}})
	const readings = 5 * mostProcesses
	for at := range uint64(readings) {
		p.samplers[0].sample(at)
	}
	s := &p.samplers[0].processes
	if len(s.of) != mostProcesses || s.of[7] == nil || s.of[1000+readings] == nil || s.of[1001] != nil {
		t.Errorf("%d processes are remembered, want the %d latest and the one that stays", len(s.of), mostProcesses)
	}
}

// Latest names each reason for lower clocks, whether it holds or not.
func TestLatestClockLimits(t *testing.T) {
	p := mustOpen(t, &fakeLibrary{gpus: []*fakeDevice{{answer: ramp}}})
	if limits := p.Latest(1).Devices[0].ClockLimits; limits != nil {
		t.Errorf("before the first sample: %v", limits)
	}
	for at := range uint64(2) {
		p.samplers[0].sample(at)
	}
	d := p.Latest(1).Devices[0]
	holding := map[string]int{}
	for _, l := range d.ClockLimits {
		holding[l.Reason] = l.Samples
	}
	if len(holding) != len(limitNames) || holding["gpu_idle"] != 1 || holding["sw_power_cap"] != 1 || holding["hw_slowdown"] != 0 || d.SMClockMHz != 1200 {
		t.Errorf("got %+v", d)
	}
}

func TestPollerEnergyCounterRestarts(t *testing.T) {
	g, _ := record(t, time.Second/2, func(m metric, before int) (uint64, error) {
		if m == energy {
			return uint64(1000 - 100*before), nil
		}
		return ramp(m, before)
	})
	if d := g.Devices[0]; d.EnergyJ != 0 {
		t.Errorf("EnergyJ = %v after the counter went backwards, want 0", d.EnergyJ)
	}
}

func TestPollerEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := &fakeDevice{answer: ramp}
		p := mustOpen(t, &fakeLibrary{gpus: []*fakeDevice{dev}})
		ctx, cancel := context.WithCancel(t.Context())
		p.Start(ctx)
		cancel()
		synctest.Wait()
		time.Sleep(time.Hour)
		if g, _ := p.Stop(); g.Devices[0].Samples != 1 {
			t.Errorf("%d samples, want the one at the end of the context", g.Devices[0].Samples)
		}
	})
}

func TestPollerSurvivesNVMLThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		lib := &fakeLibrary{gpus: []*fakeDevice{{answer: func(m metric, before int) (uint64, error) {
			if before > 0 {
				<-release
			}
			return ramp(m, before)
		}}}}
		p := mustOpen(t, lib)
		p.Start(t.Context())
		g, note := p.Stop()
		if g != nil || !strings.Contains(note, "did not answer for 2s") {
			t.Errorf("got %+v and note %q, want nothing and the reason", g, note)
		}
		if err := p.Close(); err != nil || lib.closed != 0 {
			t.Errorf("Close: %v, library closed %d times; want it left alone", err, lib.closed)
		}
		close(release)
	})
}

func TestPollerStopWithoutStart(t *testing.T) {
	p := mustOpen(t, &fakeLibrary{})
	if g, note := p.Stop(); g != nil || note == "" {
		t.Errorf("got %+v and note %q, want nothing and the reason", g, note)
	}
}

func TestOpenErrors(t *testing.T) {
	cases := map[string]struct {
		load func() (library, error)
		want error
		text string
	}{
		"not built": {
			load: func() (library, error) { return nil, ErrNotBuilt },
			want: ErrNotBuilt,
			text: "NVML is not built into this stageprof (it was built without cgo)",
		},
		"no library": {
			load: func() (library, error) { return nil, errors.New("libnvidia-ml.so.1 can't be loaded") },
			want: ErrNotAvailable,
			text: "NVML is not available: libnvidia-ml.so.1 can't be loaded",
		},
		"broken driver": {
			load: func() (library, error) { return &fakeLibrary{err: errors.New("driver mismatch")}, nil },
			want: ErrNotAvailable,
			text: "NVML is not available: reading the driver's version: driver mismatch",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := open(t.Context(), 0, c.load)
			if !errors.Is(err, c.want) || err.Error() != c.text {
				t.Errorf("got %q, want %q wrapping %q", err, c.text, c.want)
			}
		})
	}
}

func TestOpenGivesUpOnNVMLThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		_, err := open(t.Context(), 0, func() (library, error) {
			<-release
			return nil, errors.New("too late")
		})
		if !errors.Is(err, ErrNotAvailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want %v by the deadline", err, ErrNotAvailable)
		}
		close(release)
	})
}

func TestPeriodHasAFloor(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{
		0: DefaultPeriod, time.Millisecond: MinPeriod, 3 * time.Second: 3 * time.Second,
	} {
		p, err := open(t.Context(), given, func() (library, error) { return &fakeLibrary{}, nil })
		if err != nil {
			t.Fatal(err)
		}
		if p.period != want {
			t.Errorf("period %v for %v, want %v", p.period, given, want)
		}
	}
}
