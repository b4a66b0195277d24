package gpu

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"stageprof/recording"
)

// sampler gathers one device's numbers over the window.
type sampler struct {
	dev         device
	row         recording.Device // identity, later the summary
	unsupported [metricCount]bool

	mu          sync.Mutex          // guards what follows
	latest      [metricCount]uint64 // the last good sample
	sums        [metricCount]uint64 // over good samples, for the means
	energyKnown bool                // the counter was read when the window began
	firstEnergy uint64
	lastEnergy  uint64
	good        int
	failed      int
	lastErr     error
	limits      []int // samples that found each of limitNames
	processes   processes
	intervals   []recording.DeviceInterval
	lastAt      uint64 // when the latest interval ended
}

// newSampler reads the device's identity and finds out which metrics it has.
// A metric that fails for another reason is kept: its failures will be
// counted where they happen.
func newSampler(index int, dev device) (*sampler, error) {
	row, err := dev.describe()
	if err != nil {
		return nil, fmt.Errorf("GPU %d: %w", index, err)
	}
	row.Index = index
	s := &sampler{dev: dev, row: row, limits: make([]int, len(limitNames))}
	for m := range metricCount {
		_, err := dev.read(m)
		s.unsupported[m] = errors.Is(err, errUnsupported)
	}
	s.processes.find(dev)
	return s, nil
}

// begin takes the energy counter at the start of the window, which is `at` on
// the monotonic clock. The gauges are left alone: what they say now was measured
// before it.
func (s *sampler) begin(at uint64) {
	s.lastAt, s.processes.at = at, at
	if s.unsupported[energy] {
		return
	}
	v, err := s.dev.read(energy)
	if err != nil {
		s.fail(energy, err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.energyKnown = true
	s.firstEnergy, s.lastEnergy = v, v
}

// sample takes one reading of everything; it counts whole or not at all, so
// that all means are over the same samples.
func (s *sampler) sample(at uint64) {
	var now [metricCount]uint64
	for m := range metricCount {
		if s.unsupported[m] {
			continue
		}
		v, err := s.dev.read(m)
		if err != nil {
			s.fail(m, err)
			return
		}
		now[m] = v
	}
	ofProcesses := s.processes.read(s.dev)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes.add(ofProcesses, at)
	s.addInterval(at, now)
	s.latest = now
	for m, v := range now {
		s.sums[m] += v
	}
	s.lastEnergy = now[energy]
	s.row.MemoryUsed = max(s.row.MemoryUsed, now[memoryUsed])
	for bit := range s.limits {
		s.limits[bit] += int(now[clockLimits] >> bit & 1)
	}
	s.good++
}

// addInterval keeps a sample as what the device did since the one before.
func (s *sampler) addInterval(at uint64, now [metricCount]uint64) {
	i := recording.DeviceInterval{
		BeginNS: s.lastAt, EndNS: at,
		UtilizationPct: float64(now[utilization]), PowerW: float64(now[power]) / 1e3,
	}
	if s.energyKnown && now[energy] >= s.lastEnergy {
		i.EnergyJ = float64(now[energy]-s.lastEnergy) / 1e3
	}
	s.intervals, s.lastAt = append(s.intervals, i), at
	if len(s.intervals) >= mostIntervals {
		s.intervals = mergePairs(s.intervals)
	}
}

// mostIntervals bounds what is kept of a long window: half an hour or more at
// the default period, and always at least half as many intervals.
const mostIntervals = 4096

// mergePairs makes one interval of each two.
func mergePairs(intervals []recording.DeviceInterval) []recording.DeviceInterval {
	merged := intervals[:0]
	for i := 0; i+1 < len(intervals); i += 2 {
		a, b := intervals[i], intervals[i+1]
		first, second := float64(a.EndNS-a.BeginNS), float64(b.EndNS-b.BeginNS)
		mean := func(x, y float64) float64 { return (x*first + y*second) / max(first+second, 1) }
		merged = append(merged, recording.DeviceInterval{
			BeginNS: a.BeginNS, EndNS: b.EndNS,
			UtilizationPct: mean(a.UtilizationPct, b.UtilizationPct), PowerW: mean(a.PowerW, b.PowerW),
			EnergyJ: a.EnergyJ + b.EnergyJ,
		})
	}
	return merged
}

func (s *sampler) fail(m metric, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed++
	s.lastErr = fmt.Errorf("reading the %s: %w", m, err)
}

// now is the last good sample in place of means, with all reasons for lower
// clocks; the energy is that since the beginning.
func (s *sampler) now(pid int) recording.Device {
	row := s.summary()
	s.mu.Lock()
	defer s.mu.Unlock()
	row.UtilizationPct = float64(s.latest[utilization])
	row.PowerW = float64(s.latest[power]) / 1e3
	row.MemoryUsed = s.latest[memoryUsed]
	row.Intervals = nil
	row.GraphicsClockMHz, row.SMClockMHz, row.MemoryClockMHz = clocks(func(m metric) float64 { return float64(s.latest[m]) })
	row.ClockLimits = nil
	if s.good > 0 && !s.unsupported[clockLimits] {
		for bit, name := range limitNames {
			row.ClockLimits = append(row.ClockLimits, recording.ClockLimit{Reason: name, Samples: int(s.latest[clockLimits] >> bit & 1)})
		}
	}
	row.Process = s.processes.now(pid)
	return row
}

func clocks(of func(metric) float64) (graphics, sm, memory float64) {
	return of(graphicsClock), of(smClock), of(memoryClock)
}

// summary is the device's row of the Recording.
func (s *sampler) summary() recording.Device {
	s.mu.Lock()
	defer s.mu.Unlock()
	row := s.row
	row.Intervals = slices.Clone(s.intervals)
	row.Samples = s.good
	if s.good > 0 {
		mean := func(m metric) float64 { return float64(s.sums[m]) / float64(s.good) }
		row.UtilizationPct = mean(utilization)
		row.PowerW = mean(power) / 1e3
		row.GraphicsClockMHz, row.SMClockMHz, row.MemoryClockMHz = clocks(mean)
	}
	for bit, n := range s.limits {
		if n > 0 {
			row.ClockLimits = append(row.ClockLimits, recording.ClockLimit{Reason: limitNames[bit], Samples: n})
		}
	}
	// The counter starts again when the driver is reloaded.
	if s.energyKnown && s.lastEnergy >= s.firstEnergy {
		row.EnergyJ = float64(s.lastEnergy-s.firstEnergy) / 1e3
	}
	return row
}

// process is what the device says of one process, nil where it does not know it.
func (s *sampler) process(pid int) *recording.DeviceProcess {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.processes.summary(pid)
}

// notes says what is missing from the summary, in plain clauses.
func (s *sampler) notes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var notes, missing []string
	for m := range metricCount {
		if s.unsupported[m] {
			missing = append(missing, m.String())
		}
	}
	missing = append(missing, s.processes.missing()...)
	if len(missing) > 0 {
		notes = append(notes, fmt.Sprintf("GPU %d has no %s", s.row.Index, strings.Join(missing, ", ")))
	}
	if s.failed > 0 {
		notes = append(notes, fmt.Sprintf("GPU %d missed %d of %d readings, the last by %v",
			s.row.Index, s.failed, s.failed+s.good, s.lastErr))
	}
	return append(notes, s.processes.notes(s.row.Index)...)
}
