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
	utilization metric = iota // percent
	memoryUsed                // bytes
	power                     // milliwatts
	energy                    // millijoules since the driver was loaded
	metricCount
)

// String gives the metric's name as it stands in notes.
func (m metric) String() string {
	return [metricCount]string{"utilization", "memory use", "power", "energy counter"}[m]
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
}
