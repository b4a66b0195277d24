package recordingtest

import (
	"time"

	"stageprof/recording"
)

// Pipeline is what a recording of the training pipeline that stageprof was
// made for looks like: two target loops whose copy_to_cpu stage synchronises
// its stream, one of their call sites holding the GIL; a drafter loop whose
// backward runs on an autograd thread; a post-processing worker; an allocator
// thread without stages. Markers are missing in places, some calls were lost,
// and not all spans of post_wait were kept.
func Pipeline() *recording.Recording {
	b := New()
	p := pipeline{Builder: b}
	p.torch = b.Module("/opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so", "dd44ee55", 0x7f2000000000)
	p.stripped = b.Module("/opt/vendor/libfastcopy.so", "", 0x7f3000000000)
	p.anon = b.Module("//anon", "", 0x7f4000000000)

	p.targetLoop(4250, "target-0", 400)
	p.targetLoop(4251, "target-1", 390)
	p.drafterLoop(4252, "drafter-0", 4260, 320)
	p.postprocess(4253)
	p.allocator(4254)
	p.Outside()
	p.Divide()
	p.Unroll(700) // of post_wait's spans some are missing

	b.Loss("calls", "lost_return", 3, "the return of a call was not seen")
	b.Loss("spans", "unmatched_end", 1, "an end marker without a begin")
	p.describe()
	return b.Recording()
}

type pipeline struct {
	*Builder
	torch, stripped, anon int
}

// bias is what the probes of every symbol of the pipeline add.
const bias = 612.5

// calls adds a row whose durations are spread around the given one: one call
// in a hundred takes four times as long, as many more are half as long as to
// keep the row's sum.
func (p pipeline) calls(thread int, path, symbol string, caller int, count uint64, wall, cpu time.Duration) *recording.Call {
	c := p.Call(thread, path, p.SymbolIn(1, symbol, bias), count, wall, cpu)
	c.Caller = caller
	long := count / 100
	short := 6 * long
	c.Hist = recording.Hist{}
	c.Hist[Bucket(wall)] = count - long - short
	c.Hist[Bucket(4*wall)] += long
	c.Hist[Bucket(wall/2)] += short
	if long > 0 {
		c.MinNS, c.MaxNS = uint64(wall/2), uint64(4*wall)
	}
	return c
}

func (p pipeline) targetLoop(tid int, name string, n uint64) {
	const us, ms = time.Microsecond, time.Millisecond
	t := p.Thread(tid, name)
	launch := p.Frame(p.torch, 0x41230, "_ZN2at6native13launch_kernelILi4EEEvT_")
	copied := p.Frame(p.stripped, 0x1a40, "")

	p.Spans(t, "target_wait", n, 6*ms, 0)
	forward := p.Spans(t, "target_forward", n, 24*ms, 9*ms)
	p.Spans(t, "target_forward/attention", n, 9*ms, 0)
	p.Spans(t, "pack_hidden", n, 5*ms, 0)
	copying := p.Spans(t, "copy_to_cpu", n, 33*ms, 0)
	p.Spans(t, "queue_put", n, 2*ms, 0)
	if tid == 4250 { // the window began in a forward and ended in a copy
		forward.PartialCount, forward.PartialWallNS, forward.PartialChildNS = 1, uint64(11*ms), uint64(9*ms)
		copying.PartialCount, copying.PartialWallNS = 1, uint64(20*ms)
	}

	p.calls(t, "target_forward", "cuLaunchKernel", launch, 310*n, 9*us, 8*us)
	p.calls(t, "target_forward", "cuMemsetD8Async", launch, 12*n, 7*us, 6*us)
	p.calls(t, "target_forward/attention", "cuLaunchKernel", launch, 96*n, 11*us, 9*us)
	p.calls(t, "target_forward/attention", "cuLaunchKernelEx", launch, 32*n, 12*us, 9*us)
	p.calls(t, "pack_hidden", "cuLaunchKernel", launch, 40*n, 8*us, 7*us)
	p.calls(t, "pack_hidden", "cuMemAllocAsync", launch, n, 40*us, 30*us).Bytes = n * 64 << 20
	p.calls(t, "copy_to_cpu", "cuMemcpyDtoHAsync_v2", copied, n, 90*us, 60*us).Bytes = n * 64 << 20
	held := p.calls(t, "copy_to_cpu", "cuStreamSynchronize", copied, n, 28*ms, 1*ms)
	held.GIL = recording.GILHeld
	held.GILWaitCausedNS = n * uint64(21*ms)
	p.calls(t, "queue_put", "cuEventRecord", launch, n, 4*us, 4*us)
}

func (p pipeline) drafterLoop(tid int, name string, autogradTID int, n uint64) {
	const us, ms = time.Microsecond, time.Millisecond
	t := p.Thread(tid, name)
	worker := p.Thread(autogradTID, "pt_autograd_0")
	launch := p.Frame(p.torch, 0x41230, "_ZN2at6native13launch_kernelILi4EEEvT_")
	jit := p.Frame(p.anon, 0x280, "")

	p.Spans(t, "drafter_step", n, 92*ms, 88*ms)
	p.Spans(t, "drafter_step/drafter_wait", n, 41*ms, 0)
	p.Spans(t, "drafter_step/drafter_forward", n, 14*ms, 0)
	p.Spans(t, "drafter_step/drafter_backward", n, 25*ms, 0)
	p.Spans(t, "drafter_step/optimizer_step", n, 8*ms, 0)

	p.calls(t, "drafter_step", "cuEventQuery", launch, 3*n, 2*us, 2*us)
	p.calls(t, "drafter_step/drafter_wait", "cuStreamWaitEvent", launch, n, 5*us, 5*us)
	p.calls(t, "drafter_step/drafter_forward", "cuLaunchKernel", jit, 220*n, 9*us, 8*us)
	p.calls(t, "drafter_step/drafter_forward", "cuMemcpyHtoDAsync_v2", launch, n, 700*us, 90*us).Bytes = n * 64 << 20
	p.calls(t, "drafter_step/drafter_backward", "cuEventRecord", launch, n, 4*us, 4*us)
	p.calls(worker, "drafter_step/drafter_backward", "cuLaunchKernel", launch, 470*n, 10*us, 9*us).
		Attribution = recording.AttributionAutograd
	// Gradient norms are read back with the GIL free; this waits.
	p.calls(t, "drafter_step/optimizer_step", "cuLaunchKernel", launch, 64*n, 8*us, 8*us)
	p.calls(t, "drafter_step/optimizer_step", "cuStreamSynchronize", launch, n, 5*ms, 200*us)
	failed := p.calls(t, "drafter_step/optimizer_step", "cuStreamQuery", launch, 2*n, 3*us, 3*us)
	failed.Errors = n // not ready
}

func (p pipeline) postprocess(tid int) {
	const us, ms = time.Microsecond, time.Millisecond
	t := p.Thread(tid, "postprocess")
	p.Spans(t, "post_wait", 790, 25*ms, 0)
	// The end markers of post_copy were lost: it has calls but no spans.
	p.calls(t, "post_copy", "cuMemcpyDtoHAsync_v2", p.Frame(p.stripped, 0x1a40, ""), 790, 80*us, 50*us).Bytes = 790 << 20
	p.calls(t, "post_copy", "cuEventSynchronize", -1, 790, 9*ms, 300*us)
}

func (p pipeline) allocator(tid int) {
	const us = time.Microsecond
	t := p.Thread(tid, "python3")
	for _, symbol := range []string{"cuMemMap", "cuMemSetAccess", "cuMemUnmap"} {
		p.calls(t, "", symbol, -1, 61, 350*us, 340*us).GIL = recording.GILUnknown
	}
}

func (p pipeline) describe() {
	r := p.Recording()
	var calls uint64
	for _, c := range r.Calls {
		calls += c.Count
	}
	r.Seen = &recording.Seen{Calls: calls + 3}
	r.Absent = []string{"cuLaunchKernelEx_ptsz", "cuMemBatchDecompressAsync"}
	r.Warnings = []string{"the stack of 2 threads was not readable at attach: their first spans are missing"}
	r.Overhead = recording.Overhead{
		CallCostNS: 1140, AddedNS: calls * 1140,
		AgentCPU: 210 * time.Millisecond, AgentRSS: 41 << 20,
		Attach: 310 * time.Millisecond, Detach: 90 * time.Millisecond,
		Calibration: "median of 20 runs of 1000 calls of an empty function, probed the same way",
		Calibrated:  true, ProbedSites: 148, KernelBytes: 14 << 20,
	}
	used, busy := uint64(60)<<30, 41.5
	r.GPU = &recording.GPU{Driver: "535.261.03", Devices: []recording.Device{
		{Index: 0, Name: "NVIDIA H100 80GB HBM3", UUID: "GPU-0", UtilizationPct: 43.2, MemoryUsed: 61 << 30,
			MemoryTotal: 80 << 30, PowerW: 412.5, EnergyJ: 12375, Samples: 300,
			GraphicsClockMHz: 1755, SMClockMHz: 1755, MemoryClockMHz: 2619,
			ClockLimits: []recording.ClockLimit{{Reason: "gpu_idle", Samples: 9}, {Reason: "sw_power_cap", Samples: 120}},
			Process:     &recording.DeviceProcess{MemoryUsed: &used, UtilizationPct: &busy}},
		{Index: 1, Name: "NVIDIA H100 80GB HBM3", UUID: "GPU-1", UtilizationPct: 18, MemoryUsed: 22 << 30,
			MemoryTotal: 80 << 30, PowerW: 240, Samples: 300},
	}}
}
