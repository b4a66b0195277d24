//go:build cgo

package gpu

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stageprof/recording"
	"stageprof/sim/simtest"
)

// asChild makes the test binary load NVML and print what it says. The dynamic
// linker reads LD_LIBRARY_PATH when a process starts, so it takes a child to
// load the simulated library through go-nvml.
const asChild = "STAGEPROF_TEST_NVML"

// answer is what the child prints.
type answer struct {
	Error string
	GPU   *recording.GPU
	Notes []string
}

func TestMain(m *testing.M) {
	if failure, ok := os.LookupEnv(asChild); ok {
		if err := json.NewEncoder(os.Stdout).Encode(child(failure)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// queryMS is the variable that says how far apart the child's samples are, which is
// a second otherwise.
const queryMS = "SIMNVML_QUERY_MS"

// child takes three samples of each device, the second of which meets the
// given failure ("function=code" for the simulated library, "" for none).
func child(failure string) answer {
	p, err := newPoller(0, openLibrary)
	if err != nil {
		return answer{Error: err.Error()}
	}
	defer p.Close()
	step := uint64(second)
	if ms, err := strconv.ParseUint(os.Getenv(queryMS), 10, 64); err == nil {
		step = ms * 1_000_000
	}
	var notes []string
	for _, s := range p.samplers {
		s.begin(step)
		s.sample(2 * step)
		// The library looks at the environment at every call, and with cgo
		// Setenv sets the C library's too.
		os.Setenv("SIMNVML_FAIL", failure)
		s.sample(3 * step)
		os.Unsetenv("SIMNVML_FAIL")
		s.sample(4 * step)
		notes = append(notes, s.notes()...)
	}
	return answer{GPU: p.Of(p.Inventory(), 4242), Notes: notes}
}

const second = 1_000_000_000 // nanoseconds

// ask starts the child with NVML from a folder.
func ask(t *testing.T, folder, failure string, env ...string) answer {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+folder, asChild+"="+failure)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var a answer
	if err := json.Unmarshal(out, &a); err != nil {
		t.Fatalf("child printed %q: %v", out, err)
	}
	return a
}

// simulated is the folder of the simulated library.
func simulated(t *testing.T) string {
	t.Helper()
	return filepath.Dir(simtest.Build(t, "sim/libnvidia-ml.so.1"))
}

// The first value of each list is read when the device is opened, and does not
// count.
var script = []string{
	"SIMNVML_DEVICES=2", "SIMNVML_NAME=Simulated H200", "SIMNVML_DRIVER=550.54.15",
	"SIMNVML_GPU_PERCENT=99,10,20,60",
	"SIMNVML_MEMORY=1000", "SIMNVML_MEMORY_USED=999,999,100,300,200",
	"SIMNVML_POWER_MW=9000000,100000,200000,300000",
	"SIMNVML_ENERGY_STEP_MJ=2500",
	"SIMNVML_GRAPHICS_CLOCK_MHZ=1500", "SIMNVML_SM_CLOCK_MHZ=1,1200,1200,1500", "SIMNVML_MEMORY_CLOCK_MHZ=2619",
	"SIMNVML_CLOCK_EVENTS=0xffff,4,0x45,0", // power; idle, power and heat; nothing
	"SIMNVML_PROCESSES=1:77,4242:600,5:1", "SIMNVML_PROCESS_PERCENT=99,60,0,30",
}

func TestNVML(t *testing.T) {
	used, percent := uint64(600), 30.0
	device := func(index int) recording.Device {
		return recording.Device{
			Index: index, Name: "Simulated H200",
			UUID:           fmt.Sprintf("GPU-73696d63-7564-6120-6465-7669636520%02x", index),
			UtilizationPct: 30,
			MemoryUsed:     300,
			MemoryTotal:    1000,
			PowerW:         200,
			EnergyJ:        7.5, // three steps
			Samples:        3,

			GraphicsClockMHz: 1500, SMClockMHz: 1300, MemoryClockMHz: 2619,
			ClockLimits: []recording.ClockLimit{
				{Reason: "gpu_idle", Samples: 1}, {Reason: "sw_power_cap", Samples: 2}, {Reason: "hw_thermal_slowdown", Samples: 1},
			},
			Process: &recording.DeviceProcess{MemoryUsed: &used, UtilizationPct: &percent},
			Intervals: []recording.DeviceInterval{
				{BeginNS: 1 * second, EndNS: 2 * second, UtilizationPct: 10, PowerW: 100, EnergyJ: 2.5},
				{BeginNS: 2 * second, EndNS: 3 * second, UtilizationPct: 20, PowerW: 200, EnergyJ: 2.5},
				{BeginNS: 3 * second, EndNS: 4 * second, UtilizationPct: 60, PowerW: 300, EnergyJ: 2.5},
			},
		}
	}
	want := answer{GPU: &recording.GPU{Driver: "550.54.15", Devices: []recording.Device{device(0), device(1)}}}
	if diff := cmp.Diff(want, ask(t, simulated(t), "", script...)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A driver that samples more slowly than it is read does not make a process look
// less busy.
func TestNVMLSamplesSlowly(t *testing.T) {
	got := ask(t, simulated(t), "", append(script, "SIMNVML_DEVICES=1", queryMS+"=500", "SIMNVML_PROCESS_QUERIES=2", "SIMNVML_PROCESS_PERCENT=60")...)
	if p := got.GPU.Devices[0].Process; p == nil || p.UtilizationPct == nil || *p.UtilizationPct != 60 {
		t.Errorf("got %+v, want 60 %%", p)
	}
}

func TestNVMLFailsOnce(t *testing.T) {
	got := ask(t, simulated(t), "nvmlDeviceGetPowerUsage=15", append(script, "SIMNVML_DEVICES=1")...)
	if d := got.GPU.Devices[0]; d.Samples != 2 || d.UtilizationPct != 35 {
		t.Errorf("got %+v, want two samples, of 10 %% and 60 %%", d)
	}
	want := []string{"GPU 0 missed 1 of 3 readings, the last by reading the power: GPU is lost"}
	if diff := cmp.Diff(want, got.Notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

func TestNVMLWithoutAMetric(t *testing.T) {
	got := ask(t, simulated(t), "", append(script, "SIMNVML_DEVICES=1", "SIMNVML_FAIL=nvmlDeviceGetTotalEnergyConsumption=3")...)
	if d := got.GPU.Devices[0]; d.Samples != 3 || d.EnergyJ != 0 || d.PowerW != 200 {
		t.Errorf("got %+v, want everything but the energy", d)
	}
	if diff := cmp.Diff([]string{"GPU 0 has no energy counter"}, got.Notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

// What an older driver lacks or a device does not support is left out, and the
// rest is there.
func TestNVMLOfOlderDrivers(t *testing.T) {
	const all = "graphics clock, SM clock, memory clock, reasons for lower clocks, memory use by process, utilization by process"
	for name, c := range map[string]struct {
		folder, fail, note string
		events             bool // are known all the same
	}{
		"no such functions": {folder: without(t, getClockInfo, getClockEventReasons, getThrottleReasons, getComputeProcesses, getProcessUtilization), note: all},
		"not supported": {
			folder: simulated(t), note: all,
			fail: getClockInfo + "=3," + getClockEventReasons + "=3," + getComputeProcesses + "=3," + getProcessUtilization + "=3",
		},
		"not found": {
			folder: simulated(t), note: all,
			fail: getClockInfo + "=13," + getClockEventReasons + "=13," + getComputeProcesses + "=13," + getProcessUtilization + "=13",
		},
		"no right to see processes": {folder: simulated(t), fail: getProcessUtilization + "=4", note: "utilization by process", events: true},
		"before 535":                {folder: without(t, getClockEventReasons), events: true},
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(t, c.folder, "", append(script, "SIMNVML_DEVICES=1", "SIMNVML_FAIL="+c.fail)...)
			if got.Error != "" {
				t.Fatal(got.Error)
			}
			var want []string
			if c.note != "" {
				want = []string{"GPU 0 has no " + c.note}
			}
			if diff := cmp.Diff(want, got.Notes); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
			d := got.GPU.Devices[0]
			if d.Samples != 3 || d.UtilizationPct != 30 || d.PowerW != 200 || (len(d.ClockLimits) > 0) != c.events || c.note == all && (d.SMClockMHz != 0 || d.Process != nil) {
				t.Errorf("got %+v", d)
			}
		})
	}
}

// without builds an NVML without some functions: the simulated one under other
// names for them.
func without(t *testing.T, functions ...string) string {
	t.Helper()
	dir := t.TempDir()
	args := []string{"-shared", "-fPIC", "-fvisibility=hidden", "-o", filepath.Join(dir, "libnvidia-ml.so.1"), filepath.Join(simtest.Root(t), "sim", "nvml", "nvml.c"), "-lpthread"}
	for _, name := range functions {
		for _, spelling := range []string{name, name + "_v2", name + "_v3"} {
			args = append(args, "-D"+spelling+"=no_"+spelling)
		}
	}
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

func TestNVMLNotAvailable(t *testing.T) {
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "libnvidia-ml.so.1"), []byte("no library"), 0o755); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		folder string
		fail   string
		want   string
	}{
		"no driver":    {simulated(t), "nvmlInit=9", "the NVIDIA kernel driver is not loaded"},
		"no right":     {simulated(t), "nvmlInit=4", "initialising libnvidia-ml.so.1: Insufficient Permissions"},
		"no version":   {simulated(t), "nvmlSystemGetDriverVersion=999", "reading the driver's version: Unknown Error"},
		"no devices":   {simulated(t), "nvmlDeviceGetCount=999", "counting devices: Unknown Error"},
		"device lost":  {simulated(t), "nvmlDeviceGetHandleByIndex=15", "opening GPU 0: GPU is lost"},
		"no name":      {simulated(t), "nvmlDeviceGetName=999", "GPU 0: reading its name: Unknown Error"},
		"broken file":  {broken, "", "libnvidia-ml.so.1 can't be loaded"},
		"very old one": {incomplete(t), "", `libnvidia-ml.so.1 lacks "nvmlDeviceGetTotalEnergyConsumption"`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := ask(t, c.folder, "", "SIMNVML_FAIL="+c.fail)
			if want := "NVML is not available: " + c.want; got.Error != want {
				t.Errorf("got %q, want %q", got.Error, want)
			}
		})
	}
}

// incomplete builds an NVML that lacks one function of those that we call.
// Calling it would end the process.
func incomplete(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source := "int nvmlInit_v2(void) { return 0; }\n"
	for _, name := range functions {
		if name != "nvmlDeviceGetTotalEnergyConsumption" {
			source += "int " + name + "(void) { return 0; }\n"
		}
	}
	gcc := exec.Command("gcc", "-shared", "-fPIC", "-o", filepath.Join(dir, "libnvidia-ml.so.1"), "-x", "c", "-")
	gcc.Stdin = strings.NewReader(source)
	if out, err := gcc.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}
