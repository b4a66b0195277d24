//go:build cgo

package gpu

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"stageprof/recording"
)

// functions are the NVML entry points that this file calls. go-nvml binds them
// lazily: calling one that the installed library lacks would end the process,
// so all are looked up first.
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

// nvmlLibrary is NVML itself.
type nvmlLibrary struct{ api nvml.Interface }

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
	return &nvmlLibrary{api}, nil
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
		devices[i] = nvmlDevice{handle}
	}
	return devices, nil
}

func (l *nvmlLibrary) close() error { return result(l.api.Shutdown()) }

type nvmlDevice struct{ handle nvml.Device }

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
	}
	return 0, errUnsupported
}

// result turns NVML's return code into an error.
func result(ret nvml.Return) error {
	switch ret {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_NOT_SUPPORTED:
		return errUnsupported
	}
	return ret
}
