package gpu

import (
	"errors"
	"fmt"
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
	s := &sampler{dev: dev, row: row}
	for m := range metricCount {
		_, err := dev.read(m)
		s.unsupported[m] = errors.Is(err, errUnsupported)
	}
	return s, nil
}

// begin takes the energy counter at the start of the window. The gauges are
// left alone: what they say now was measured before it.
func (s *sampler) begin() {
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
func (s *sampler) sample() {
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
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest = now
	for m, v := range now {
		s.sums[m] += v
	}
	s.lastEnergy = now[energy]
	s.row.MemoryUsed = max(s.row.MemoryUsed, now[memoryUsed])
	s.good++
}

func (s *sampler) fail(m metric, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed++
	s.lastErr = fmt.Errorf("reading the %s: %w", m, err)
}

// now is the last good sample in place of means; the energy is that since the
// beginning.
func (s *sampler) now() recording.Device {
	row := s.summary()
	s.mu.Lock()
	defer s.mu.Unlock()
	row.UtilizationPct = float64(s.latest[utilization])
	row.PowerW = float64(s.latest[power]) / 1e3
	row.MemoryUsed = s.latest[memoryUsed]
	return row
}

// summary is the device's row of the Recording.
func (s *sampler) summary() recording.Device {
	s.mu.Lock()
	defer s.mu.Unlock()
	row := s.row
	row.Samples = s.good
	if s.good > 0 {
		row.UtilizationPct = float64(s.sums[utilization]) / float64(s.good)
		row.PowerW = float64(s.sums[power]) / float64(s.good) / 1e3
	}
	// The counter starts again when the driver is reloaded.
	if s.energyKnown && s.lastEnergy >= s.firstEnergy {
		row.EnergyJ = float64(s.lastEnergy-s.firstEnergy) / 1e3
	}
	return row
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
	if len(missing) > 0 {
		notes = append(notes, fmt.Sprintf("GPU %d has no %s", s.row.Index, strings.Join(missing, ", ")))
	}
	if s.failed > 0 {
		notes = append(notes, fmt.Sprintf("GPU %d missed %d of %d readings, the last by %v",
			s.row.Index, s.failed, s.failed+s.good, s.lastErr))
	}
	return notes
}
