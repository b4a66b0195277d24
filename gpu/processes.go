package gpu

import (
	"errors"
	"fmt"
	"time"

	"stageprof/recording"
)

// mostProcesses bounds the processes of a device that are remembered: those that
// were seen last.
const mostProcesses = 64

// longestPeriod is how long NVML documents the driver to sample at most, before it
// says what a process has done. Of a process that it has said nothing of for longer
// nothing was to be said.
const longestPeriod = time.Second

// processes are what a device says of single processes.
type processes struct {
	noMemory, noUtilization bool
	after                   uint64 // the latest of the driver's samples
	at                      uint64 // the latest reading, in nanoseconds
	readings                int
	of                      map[int]*processSums
	failed                  int
	lastErr                 error
}

// processSums are the numbers of one process since it was seen first. The driver
// samples at its own pace, which can be slower than ours: a reading without a sample
// may say that the process is idle, or nothing yet. So a sample counts for the time
// since the one before, and time without any for idle once it is too long for the
// driver to be still sampling.
type processSums struct {
	last           int // reading
	used, mostUsed uint64
	told           bool // the memory

	percent uint64  // of the latest sample
	sampled uint64  // when that was taken, in microseconds on the driver's clock; 0: never
	busy    float64 // percent x nanoseconds
	span    uint64  // nanoseconds up to the latest sample
	open    uint64  // nanoseconds since then
}

// take takes up a sample. Behind the first one the driver's clock knows how long it
// is for; we only look now and then.
func (s *processSums) take(sample processSample) {
	passed := s.open
	if s.sampled != 0 {
		passed = (sample.at - s.sampled) * 1000
	}
	s.busy += float64(sample.percent) * float64(min(passed, uint64(longestPeriod)))
	s.span += passed
	s.percent, s.sampled, s.open = sample.percent, sample.at, 0
}

// known is the time of which the driver has said what the process did, if only by
// saying nothing for long.
func (s *processSums) known() uint64 {
	return s.span + s.open - min(s.open, uint64(longestPeriod))
}

// mean is what the process did on average in that time, in percent.
func (s *processSums) mean() float64 { return s.busy / float64(max(s.known(), 1)) }

// holds reports whether the latest sample still says what the process does.
func (s *processSums) holds() bool { return s.sampled != 0 && s.open <= uint64(longestPeriod) }

// now is what the process does, in percent.
func (s *processSums) now() float64 {
	if !s.holds() {
		return 0
	}
	return float64(s.percent)
}

// find finds out what the device tells.
func (p *processes) find(dev device) {
	p.of = map[int]*processSums{}
	_, err := dev.memoryByProcess()
	p.noMemory = errors.Is(err, errUnsupported)
	var latest uint64
	_, latest, err = dev.utilizationByProcess(0)
	p.noUtilization = errors.Is(err, errUnsupported)
	p.after = latest
}

// processReading is what one reading found.
type processReading struct {
	used  map[int]uint64
	busy  map[int]processSample
	after uint64
	err   error
}

// read asks the device.
func (p *processes) read(dev device) (now processReading) {
	now.after = p.after
	if !p.noMemory {
		if now.used, now.err = dev.memoryByProcess(); now.err != nil {
			return now
		}
	}
	if !p.noUtilization {
		now.busy, now.after, now.err = dev.utilizationByProcess(p.after)
	}
	return now
}

// add takes up a reading, at a time in nanoseconds.
func (p *processes) add(now processReading, at uint64) {
	if now.err != nil {
		p.failed++
		p.lastErr = now.err
		return
	}
	passed := at - p.at
	p.after, p.at = now.after, at
	p.readings++
	for _, s := range p.of {
		s.used = 0
	}
	for pid, used := range now.used {
		s := p.seen(pid)
		s.used, s.mostUsed, s.told = used, max(s.mostUsed, used), true
	}
	for pid := range now.busy {
		p.seen(pid)
	}
	for pid, s := range p.of {
		s.open += passed
		if sample, ok := now.busy[pid]; ok {
			s.take(sample)
		}
	}
}

// seen is a process that is there now. It takes the place of the one that was seen
// longest ago, if there are too many.
func (p *processes) seen(pid int) *processSums {
	s := p.of[pid]
	if s == nil {
		if len(p.of) >= mostProcesses {
			p.forget()
		}
		s = &processSums{}
		p.of[pid] = s
	}
	s.last = p.readings
	return s
}

func (p *processes) forget() {
	oldest, at := 0, p.readings+1
	for pid, s := range p.of {
		if s.last < at || s.last == at && pid < oldest {
			oldest, at = pid, s.last
		}
	}
	delete(p.of, oldest)
}

// summary is a process over all readings since it was seen first, nil where it was
// not seen.
func (p *processes) summary(pid int) *recording.DeviceProcess {
	s := p.of[pid]
	if s == nil {
		return nil
	}
	return p.tell(s, s.mostUsed, s.mean())
}

// now is a process in the last reading, nil where it is not there.
func (p *processes) now(pid int) *recording.DeviceProcess {
	s := p.of[pid]
	if s == nil || s.last < p.readings && !s.holds() {
		return nil
	}
	return p.tell(s, s.used, s.now())
}

func (p *processes) tell(s *processSums, used uint64, percent float64) *recording.DeviceProcess {
	row := &recording.DeviceProcess{}
	if s.told {
		row.MemoryUsed = &used
	}
	if !p.noUtilization && s.known() > 0 {
		row.UtilizationPct = &percent
	}
	return row
}

// missing names what the device does not tell.
func (p *processes) missing() (names []string) {
	if p.noMemory {
		names = append(names, "memory use by process")
	}
	if p.noUtilization {
		names = append(names, "utilization by process")
	}
	return names
}

func (p *processes) notes(index int) []string {
	if p.failed == 0 {
		return nil
	}
	return []string{fmt.Sprintf("GPU %d did not tell of its processes %d of %d times, the last: %v", index, p.failed, p.failed+p.readings, p.lastErr)}
}
