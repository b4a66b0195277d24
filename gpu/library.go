package gpu

import (
	"errors"

	"stageprof/recording"
)

// errUnsupported says that a device does not have a metric: nor will it
// have it later.
var errUnsupported = errors.New("not supported by the device")

// metric is one number that NVML reads from a device.
type metric int

const (
	utilization   metric = iota // percent
	memoryUsed                  // bytes
	power                       // milliwatts
	energy                      // millijoules since the driver was loaded
	graphicsClock               // MHz
	smClock                     // MHz
	memoryClock                 // MHz
	clockLimits                 // bits, see limitNames
	metricCount
)

// String gives the metric's name as it stands in notes.
func (m metric) String() string {
	return [metricCount]string{
		"utilization", "memory use", "power", "energy counter", "graphics clock", "SM clock", "memory clock", "reasons for lower clocks",
	}[m]
}

// library is what a Poller needs of NVML.
type library interface {
	driver() (string, error) // version of the driver, "535.261.03"
	devices() ([]device, error)
	close() error
}

// device is one GPU, by its NVML index.
type device interface {
	describe() (recording.Device, error) // Name, UUID and MemoryTotal
	read(metric) (uint64, error)
	// memoryByProcess gives what each process has allocated, in bytes, as far as
	// NVML tells.
	memoryByProcess() (map[int]uint64, error)
	// utilizationByProcess gives the driver's samples after a time, which is 0 or
	// what it returned before. Processes that did nothing in the driver's last
	// sampling period are left out, and so are all where none has ended since.
	utilizationByProcess(after uint64) (busy map[int]processSample, latest uint64, err error)
}

// processSample is what the driver says of a process.
type processSample struct {
	percent uint64
	at      uint64 // microseconds, on the driver's clock
}

// limitNames are the reasons for lower clocks, by bit, as nvml.h names them.
var limitNames = []string{
	"gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal_slowdown",
	"hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clock_setting", "board_limit", "reliability",
}
