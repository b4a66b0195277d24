package gpu

import (
	"errors"
	"fmt"

	"stageprof/recording"
)

// mostProcesses bounds the processes of a device that are remembered: those that
// were seen last.
const mostProcesses = 64

// processes are what a device says of single processes.
type processes struct {
	noMemory, noUtilization bool
	after                   uint64 // the latest of the driver's samples
	readings                int
	of                      map[int]*processSums
	failed                  int
	lastErr                 error
}

// processSums are the numbers of one process since it was seen first.
type processSums struct {
	first, last       int // readings
	used, mostUsed    uint64
	told              bool // the memory
	percent, sumOfAll uint64
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
	used, percent map[int]uint64
	after         uint64
	err           error
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
		now.percent, now.after, now.err = dev.utilizationByProcess(p.after)
	}
	return now
}

// add takes up a reading.
func (p *processes) add(now processReading) {
	if now.err != nil {
		p.failed++
		p.lastErr = now.err
		return
	}
	p.after = now.after
	p.readings++
	for _, s := range p.of {
		s.used, s.percent = 0, 0
	}
	for pid, used := range now.used {
		s := p.at(pid)
		s.used, s.mostUsed, s.told = used, max(s.mostUsed, used), true
	}
	for pid, percent := range now.percent {
		s := p.at(pid)
		s.percent = percent
		s.sumOfAll += percent
	}
}

// at is a process that is there now. It takes the place of the one that was seen
// longest ago, if there are too many.
func (p *processes) at(pid int) *processSums {
	s := p.of[pid]
	if s == nil {
		if len(p.of) >= mostProcesses {
			p.forget()
		}
		s = &processSums{first: p.readings}
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
	return p.tell(s, s.mostUsed, float64(s.sumOfAll)/float64(p.readings-s.first+1))
}

// now is a process in the last reading, nil where it is not there.
func (p *processes) now(pid int) *recording.DeviceProcess {
	s := p.of[pid]
	if s == nil || s.last < p.readings {
		return nil
	}
	return p.tell(s, s.used, float64(s.percent))
}

func (p *processes) tell(s *processSums, used uint64, percent float64) *recording.DeviceProcess {
	row := &recording.DeviceProcess{}
	if s.told {
		row.MemoryUsed = &used
	}
	if !p.noUtilization {
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
