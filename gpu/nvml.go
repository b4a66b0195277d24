//go:build cgo

package gpu

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"stageprof/recording"
)

// functions are the NVML entry points that this file can't do without. go-nvml
// binds lazily: calling one that the installed library lacks would end the
// process, so all are looked up first.
var functions = []string{
	"nvmlDeviceGetCount",
	"nvmlDeviceGetHandleByIndex",
	"nvmlDeviceGetMemoryInfo",
	"nvmlDeviceGetName",
	"nvmlDeviceGetPowerUsage",
	"nvmlDeviceGetTotalEnergyConsumption",
	"nvmlDeviceGetUUID",
	"nvmlDeviceGetUtilizationRates",
	"nvmlErrorString",
	"nvmlShutdown",
	"nvmlSystemGetDriverVersion",
}

// Those that older libraries may lack: what they tell is then not supported.
const (
	getClockInfo          = "nvmlDeviceGetClockInfo"
	getClockEventReasons  = "nvmlDeviceGetCurrentClocksEventReasons" // as it is called since driver 535
	getThrottleReasons    = "nvmlDeviceGetCurrentClocksThrottleReasons"
	getComputeProcesses   = "nvmlDeviceGetComputeRunningProcesses" // go-nvml takes the newest version
	getProcessUtilization = "nvmlDeviceGetProcessUtilization"
)

// nvmlLibrary is NVML itself.
type nvmlLibrary struct {
	api nvml.Interface
	has map[string]bool // of the functions that may be lacking
}

// openLibrary loads and initialises libnvidia-ml.so.1 as the dynamic linker
// finds it.
func openLibrary() (library, error) {
	api := nvml.New()
	if err := initialise(api); err != nil {
		return nil, err
	}
	for _, name := range functions {
		if err := api.Extensions().LookupSymbol(name); err != nil {
			return nil, fmt.Errorf("libnvidia-ml.so.1 lacks %q", name)
		}
	}
	has := map[string]bool{}
	for _, name := range []string{getClockInfo, getClockEventReasons, getThrottleReasons, getComputeProcesses, getProcessUtilization} {
		has[name] = api.Extensions().LookupSymbol(name) == nil
	}
	return &nvmlLibrary{api, has}, nil
}

func initialise(api nvml.Interface) error {
	switch ret := api.Init(); ret {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return errors.New("libnvidia-ml.so.1 can't be loaded")
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return errors.New("the NVIDIA kernel driver is not loaded")
	default:
		return fmt.Errorf("initialising libnvidia-ml.so.1: %w", ret)
	}
}

func (l *nvmlLibrary) driver() (string, error) {
	version, ret := l.api.SystemGetDriverVersion()
	return version, result(ret)
}

func (l *nvmlLibrary) devices() ([]device, error) {
	n, ret := l.api.DeviceGetCount()
	if err := result(ret); err != nil {
		return nil, fmt.Errorf("counting devices: %w", err)
	}
	devices := make([]device, n)
	for i := range devices {
		handle, ret := l.api.DeviceGetHandleByIndex(i)
		if err := result(ret); err != nil {
			return nil, fmt.Errorf("opening GPU %d: %w", i, err)
		}
		devices[i] = nvmlDevice{handle, l.has}
	}
	return devices, nil
}

func (l *nvmlLibrary) close() error { return result(l.api.Shutdown()) }

type nvmlDevice struct {
	handle nvml.Device
	has    map[string]bool
}

func (d nvmlDevice) describe() (recording.Device, error) {
	name, ret := d.handle.GetName()
	if err := result(ret); err != nil {
		return recording.Device{}, fmt.Errorf("reading its name: %w", err)
	}
	uuid, ret := d.handle.GetUUID()
	if err := result(ret); err != nil {
		return recording.Device{}, fmt.Errorf("reading its uuid: %w", err)
	}
	memory, ret := d.handle.GetMemoryInfo()
	// Integrated GPUs have no memory of their own.
	if err := result(ret); err != nil && !errors.Is(err, errUnsupported) {
		return recording.Device{}, fmt.Errorf("reading its memory: %w", err)
	}
	return recording.Device{Name: name, UUID: uuid, MemoryTotal: memory.Total}, nil
}

func (d nvmlDevice) read(m metric) (uint64, error) {
	switch m {
	case utilization:
		u, ret := d.handle.GetUtilizationRates()
		return uint64(u.Gpu), result(ret)
	case memoryUsed:
		info, ret := d.handle.GetMemoryInfo()
		return info.Used, result(ret)
	case power:
		mw, ret := d.handle.GetPowerUsage()
		return uint64(mw), result(ret)
	case energy:
		mj, ret := d.handle.GetTotalEnergyConsumption()
		return mj, result(ret)
	case graphicsClock:
		return d.clock(nvml.CLOCK_GRAPHICS)
	case smClock:
		return d.clock(nvml.CLOCK_SM)
	case memoryClock:
		return d.clock(nvml.CLOCK_MEM)
	case clockLimits:
		return d.clockLimits()
	}
	return 0, errUnsupported
}

func (d nvmlDevice) clock(kind nvml.ClockType) (uint64, error) {
	if !d.has[getClockInfo] {
		return 0, errUnsupported
	}
	mhz, ret := d.handle.GetClockInfo(kind)
	return uint64(mhz), result(ret)
}

func (d nvmlDevice) clockLimits() (uint64, error) {
	switch {
	case d.has[getClockEventReasons]:
		bits, ret := d.handle.GetCurrentClocksEventReasons()
		return bits, result(ret)
	case d.has[getThrottleReasons]:
		bits, ret := d.handle.GetCurrentClocksThrottleReasons()
		return bits, result(ret)
	}
	return 0, errUnsupported
}

// notTold is what NVML says where it can't tell the memory, as on devices that are
// divided by MIG.
const notTold = ^uint64(0)

func (d nvmlDevice) memoryByProcess() (map[int]uint64, error) {
	if !d.has[getComputeProcesses] {
		return nil, errUnsupported
	}
	list, ret := d.handle.GetComputeRunningProcesses()
	if err := result(ret); err != nil {
		return nil, err
	}
	used := map[int]uint64{}
	for _, p := range list {
		if p.UsedGpuMemory != notTold {
			used[int(p.Pid)] += p.UsedGpuMemory
		}
	}
	return used, nil
}

func (d nvmlDevice) utilizationByProcess(after uint64) (map[int]processSample, uint64, error) {
	if !d.has[getProcessUtilization] {
		return nil, after, errUnsupported
	}
	samples, ret := d.handle.GetProcessUtilization(after)
	switch ret {
	case nvml.ERROR_NOT_FOUND: // no process has done anything since
		return nil, after, nil
	case nvml.ERROR_NO_PERMISSION: // nor will there be later
		return nil, after, errUnsupported
	}
	if err := result(ret); err != nil {
		return nil, after, err
	}
	busy, latest := map[int]processSample{}, after
	for _, s := range samples {
		// Entries that are none have the time 0. There should be one of each process.
		if s.TimeStamp > max(after, busy[int(s.Pid)].at) {
			busy[int(s.Pid)] = processSample{uint64(s.SmUtil), s.TimeStamp}
		}
		latest = max(latest, s.TimeStamp)
	}
	return busy, latest, nil
}

// result turns NVML's return code into an error.
func result(ret nvml.Return) error {
	switch ret {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND:
		return errUnsupported
	}
	return ret
}
