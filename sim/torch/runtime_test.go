package torch

import (
	"strings"
	"testing"

	"stageprof/sim/simtest"
)

// What sim/cudart/tester/runtime.c calls, function by function, must come to:
// the exports that a process with NVIDIA's runtime would call.
var runtimeCalls = map[string]simtest.Count{
	"cuMemAlloc_v2":              {Calls: 2, Bytes: 2 * 4096}, // cudaMalloc
	"cuMemFree_v2":               {Calls: 2},                  // cudaFree; of nothing: no call
	"cuMemHostAlloc":             {Calls: 1, Bytes: 4096},     // cudaHostAlloc
	"cuMemFreeHost":              {Calls: 1},
	"cuMemAllocAsync":            {Calls: 1, Bytes: 4096},
	"cuMemFreeAsync":             {Calls: 1},
	"cuMemGetInfo_v2":            {Calls: 1},
	"cuPointerGetAttributes":     {Calls: 3},
	"cuMemcpyHtoD_v2":            {Calls: 1, Bytes: 4096}, // cudaMemcpy, by its direction
	"cuMemcpyDtoD_v2":            {Calls: 1, Bytes: 2048},
	"cuMemcpyDtoH_v2":            {Calls: 2, Bytes: 4096 + 17},
	"cuMemcpyHtoDAsync_v2":       {Calls: 1, Bytes: 4096}, // cudaMemcpyAsync, by its direction
	"cuMemcpyDtoDAsync_v2":       {Calls: 1, Bytes: 8},
	"cuMemcpyDtoHAsync_v2":       {Calls: 1, Bytes: 16},
	"cuMemcpy2DAsync_v2":         {Calls: 1, Bytes: 8},
	"cuMemcpyPeerAsync":          {Calls: 1, Bytes: 64},
	"cuMemsetD8_v2":              {Calls: 1, Bytes: 16},
	"cuMemsetD8Async":            {Calls: 1, Bytes: 32},
	"cuStreamCreateWithPriority": {Calls: 1},
	"cuStreamSynchronize":        {Calls: 1},
	"cuStreamWaitEvent":          {Calls: 1},
	"cuStreamDestroy_v2":         {Calls: 1},
	"cuEventCreate":              {Calls: 1},
	"cuEventRecord":              {Calls: 1},
	"cuEventSynchronize":         {Calls: 1},
	"cuEventQuery":               {Calls: 1},
	"cuEventDestroy_v2":          {Calls: 1},
	"cuCtxSynchronize":           {Calls: 1}, // cudaDeviceSynchronize
	"cuLibraryLoadData":          {Calls: 1}, // once, by the first launch
	"cuLibraryGetKernel":         {Calls: 1},
	"cuLaunchKernel":             {Calls: 3}, // cudaLaunchKernel twice, __cudaLaunchKernel
	"cuLaunchKernelEx":           {Calls: 1},
	"cuKernelGetFunction":        {Calls: 1}, // cudaFuncGetAttributes
	"cuFuncGetAttribute":         {Calls: 10},
	"cuGetProcAddress_v2":        {Calls: 1}, // cudaGetDriverEntryPointByVersion
}

func TestRuntimeCallsTheDriver(t *testing.T) {
	want := simtest.Counts{}
	for symbol, count := range runtimeCalls {
		want.Add(simtest.Key{Symbol: symbol}, count)
	}
	for _, c := range []struct{ tester, driver string }{
		{"runtime-12", "12040"},
		{"runtime-13", "13020"},
	} {
		t.Run(c.tester, func(t *testing.T) {
			p := simtest.Start(t, simtest.Tester(t, c.tester).With("LD_LIBRARY_PATH="+simtest.Build(t, "sim"),
				"SIMCUDA_VERSION="+c.driver, "SIMCUDA_DEVICES=2"))
			p.WaitLine("done")
			p.Wait()
			if diff := simtest.Diff(want, p.Truth().Counts().By(simtest.BySymbol)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRuntimeWithoutDevice(t *testing.T) {
	p := simtest.Start(t, simtest.Tester(t, "runtime-12").With("LD_LIBRARY_PATH="+simtest.Build(t, "sim"),
		"SIMCUDA_VERSION=12040", "SIMCUDA_DEVICES=0"))
	if err := p.Exit(); err == nil {
		t.Error("the tester ran without a device")
	}
	if refused := "cudaGetDeviceCount"; !strings.Contains(p.Stderr(), refused) {
		t.Errorf("the first refusal is not of %s:\n%s", refused, p.Stderr())
	}
}
