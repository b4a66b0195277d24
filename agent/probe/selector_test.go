package probe_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"stageprof/agent/probe"
)

// callsBack: functions that call one of their caller's, which get no probes.
func callsBack(symbol string) bool {
	return strings.HasPrefix(symbol, "cuOccupancyMaxPotentialBlockSize")
}

func TestSelector(t *testing.T) {
	tests := []struct {
		expression string
		match      []string
		refuse     []string
	}{
		{"launch",
			[]string{"cuLaunchKernel", "cuLaunchKernel_ptsz", "cuLaunchKernelEx", "cuLaunchKernelEx_ptsz", "cuLaunchCooperativeKernel", "cuLaunchHostFunc"},
			[]string{"cuGraphLaunch", "cuMemAlloc_v2"}},
		{"cuLaunchKernel",
			[]string{"cuLaunchKernel", "cuLaunchKernel_ptsz"},
			[]string{"cuLaunchKernelEx", "cuLaunchKernelEx_ptsz"}},
		{"cuLaunchKernel_ptsz",
			[]string{"cuLaunchKernel_ptsz"},
			[]string{"cuLaunchKernel", "cuLaunchKernelEx_ptsz"}},
		{"cuMemAlloc", []string{"cuMemAlloc", "cuMemAlloc_v2"}, []string{"cuMemAllocAsync", "cuMemAllocHost"}},
		{"cuMemAlloc_v2", []string{"cuMemAlloc_v2"}, []string{"cuMemAlloc"}},
		{" sync , cuMemAlloc_v2 ", []string{"cuStreamSynchronize", "cuStreamSynchronize_ptsz", "cuMemAlloc_v2"}, []string{"cuLaunchKernel"}},
		{"default",
			[]string{"cuLaunchKernel", "cuGraphLaunch", "cuStreamSynchronize", "cuEventRecord", "cuMemMap", "cuMemAlloc_v2", "cuMemcpyHtoD_v2"},
			[]string{"cuDriverGetVersion", "cuCtxGetCurrent", "cuGetProcAddress_v2"}},
		{"default,cuDriverGetVersion", []string{"cuDriverGetVersion", "cuLaunchKernel"}, []string{"cuCtxGetCurrent"}},
		{"all", slices.DeleteFunc(probe.Known(), callsBack), []string{"cuOccupancyMaxPotentialBlockSize", "cuOccupancyMaxPotentialBlockSizeWithFlags"}},
		// Whatever is selected, only the driver's names are.
		{"all", []string{"cuSomethingOfTomorrow_v7"}, []string{"cublasCreate_v2", "cudaMalloc", "cu", "custom", "main", "", "simcuda_tag"}},
		// A function that a newer driver adds finds its group.
		{"launch", []string{"cuLaunchKernelOfTomorrow"}, []string{"cuSomethingOfTomorrow"}},
	}
	for _, test := range tests {
		t.Run(test.expression, func(t *testing.T) {
			s, err := probe.ParseSelector(test.expression)
			if err != nil {
				t.Fatal(err)
			}
			if s.String() != test.expression {
				t.Errorf("it calls itself %q", s)
			}
			for _, name := range test.match {
				if !s.Matches(name) {
					t.Errorf("%q is not selected", name)
				}
			}
			for _, name := range test.refuse {
				if s.Matches(name) {
					t.Errorf("%q is selected", name)
				}
			}
		})
	}
}

func TestSelectorSuggestsTheNearest(t *testing.T) {
	tests := map[string]string{
		"cuLaunchKernl":        "cuLaunchKernel",
		"culaunchkernel":       "cuLaunchKernel",
		"cuStreamSyncronise":   "cuStreamSynchronize",
		"lunch":                "launch",
		"memory_map":           "memory-map",
		"defaults":             "default",
		"al":                   "all",
		"cuMemcpyHtoDAsync_v3": "cuMemcpyHtoDAsync_v2",
		"launch,copi":          "copy",
	}
	for expression, want := range tests {
		t.Run(expression, func(t *testing.T) {
			_, err := probe.ParseSelector(expression)
			if !errors.Is(err, probe.ErrSelector) || !strings.Contains(err.Error(), `nearest is "`+want+`"`) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

// Nothing is suggested that nobody can have meant.
func TestSelectorSuggestsNothingFar(t *testing.T) {
	for _, expression := range []string{"nope", "x", "launch,python", "cudaLaunchKernelSomewhere"} {
		_, err := probe.ParseSelector(expression)
		if !errors.Is(err, probe.ErrSelector) || strings.Contains(err.Error(), "nearest") || !strings.Contains(err.Error(), "memory-map") {
			t.Errorf("%q: got %v, want the groups and no suggestion", expression, err)
		}
	}
}

func TestSelectorRefuses(t *testing.T) {
	for _, expression := range []string{"", ",", "launch,", ",launch", "launch,,sync", "cuLaunchKernel*", "launch sync", "cuLaunchKernel_v9",
		"cuOccupancyMaxPotentialBlockSize"} {
		if s, err := probe.ParseSelector(expression); !errors.Is(err, probe.ErrSelector) {
			t.Errorf("%q selects %+v, %v", expression, s, err)
		}
	}
}

func TestAPI(t *testing.T) {
	tests := map[string]string{
		"cuLaunchKernel":               "cuLaunchKernel",
		"cuLaunchKernel_ptsz":          "cuLaunchKernel",
		"cuLaunchKernelEx":             "cuLaunchKernelEx",
		"cuLaunchKernelEx_ptsz":        "cuLaunchKernelEx",
		"cuMemAlloc_v2":                "cuMemAlloc",
		"cuMemcpyHtoDAsync_v2_ptsz":    "cuMemcpyHtoDAsync",
		"cuMemcpyDtoH_v2_ptds":         "cuMemcpyDtoH",
		"cuMemcpy_ptds":                "cuMemcpy",
		"cuCtxCreate_v3":               "cuCtxCreate",
		"cuGetProcAddress_v2":          "cuGetProcAddress",
		"cuMemcpy2D_v2":                "cuMemcpy2D",
		"cuStreamGetCaptureInfo_v2":    "cuStreamGetCaptureInfo",
		"cuArray3DCreate_v2":           "cuArray3DCreate",
		"cuMemcpyDtoHAsync_v12":        "cuMemcpyDtoHAsync",
		"cuGraphAddNode_ptsz_v2":       "cuGraphAddNode_ptsz", // no spelling that exists: only the end counts
		"cuDevicePrimaryCtxRelease_v2": "cuDevicePrimaryCtxRelease",
	}
	for symbol, want := range tests {
		if got := probe.API(symbol); got != want {
			t.Errorf("API(%q) = %q, want %q", symbol, got, want)
		}
	}
	for _, name := range probe.Known() {
		if api := probe.API(name); !probe.IsDriverName(api) || probe.API(api) != api {
			t.Errorf("API(%q) = %q", name, api)
		}
	}
}

func TestGroupOf(t *testing.T) {
	tests := map[probe.Group][]string{
		probe.Launch:    {"cuLaunch", "cuLaunchGrid", "cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel", "cuLaunchHostFunc"},
		probe.Sync:      {"cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize", "cuStreamWaitEvent", "cuStreamWaitValue32"},
		probe.Event:     {"cuEventRecord", "cuEventQuery", "cuEventElapsedTime", "cuStreamQuery"},
		probe.MemoryMap: {"cuMemAddressReserve", "cuMemAddressFree", "cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemMapArrayAsync", "cuMemUnmap", "cuMemSetAccess"},
		probe.Memory:    {"cuMemAlloc", "cuMemAllocAsync", "cuMemAllocPitch", "cuMemFree", "cuMemFreeHost", "cuMemHostAlloc", "cuMemHostRegister", "cuMemHostUnregister", "cuMemGetInfo"},
		probe.Copy:      {"cuMemcpy", "cuMemcpyHtoDAsync", "cuMemcpy2D", "cuMemcpy3DPeerAsync", "cuMemsetD8", "cuMemsetD2D32Async", "cuMemPrefetchAsync"},
		probe.Graph:     {"cuGraphLaunch", "cuGraphInstantiate", "cuGraphInstantiateWithFlags", "cuStreamBeginCapture", "cuStreamEndCapture"},
		probe.Other:     {"cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuCtxGetCurrent", "cuCtxSetCurrent", "cuGetProcAddress", "cuPointerGetAttribute", "cuGraphAddKernelNode", "cuSomethingOfTomorrow"},
	}
	for group, apis := range tests {
		for _, api := range apis {
			if got := probe.GroupOf(api); got != group {
				t.Errorf("GroupOf(%q) = %q, want %q", api, got, group)
			}
		}
	}
	if len(tests) != len(probe.Groups()) {
		t.Errorf("%d groups are tested of %d", len(tests), len(probe.Groups()))
	}
	members := map[probe.Group]int{}
	for _, name := range probe.Known() {
		members[probe.GroupOf(probe.API(name))]++
	}
	for _, group := range probe.Groups() {
		if members[group] == 0 {
			t.Errorf("no known function is in group %q", group)
		}
	}
}

// Every spelling of a function is in one group.
func TestKnown(t *testing.T) {
	known := probe.Known()
	if !slices.IsSorted(known) || len(slices.Compact(slices.Clone(known))) != len(known) {
		t.Error("the known names are not sorted or not distinct")
	}
	if len(known) < 600 {
		t.Errorf("%d known names", len(known))
	}
	for _, name := range known {
		if !probe.IsDriverName(name) {
			t.Errorf("%q can't be a driver's name", name)
		}
	}
	for _, name := range []string{"cuLaunchKernel", "cuLaunchKernel_ptsz", "cuLaunchKernelEx", "cuMemAlloc_v2", "cuGraphLaunch", "cuMemMap"} {
		if !slices.Contains(known, name) {
			t.Errorf("%q is not known", name)
		}
	}
}

// FuzzParseSelector: an expression is refused with ErrSelector, or it selects
// only driver names and at least one known one.
func FuzzParseSelector(f *testing.F) {
	for _, expression := range []string{"all", "default", "launch,sync", "cuLaunchKernel", " cuMemAlloc_v2 ,event", "", ",,", "cuLaunchKernl", "\xff", "all\x00"} {
		f.Add(expression, "cuLaunchKernel")
	}
	f.Fuzz(func(t *testing.T, expression, symbol string) {
		s, err := probe.ParseSelector(expression)
		if err != nil {
			if !errors.Is(err, probe.ErrSelector) {
				t.Errorf("%q: %v", expression, err)
			}
			return
		}
		if s.Matches(symbol) && !probe.IsDriverName(symbol) {
			t.Errorf("%q selects %q", expression, symbol)
		}
		if !slices.ContainsFunc(probe.Known(), s.Matches) {
			t.Errorf("%q selects nothing", expression)
		}
	})
}
