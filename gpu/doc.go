// Package gpu summarises what NVML, NVIDIA's management library, says about
// the machine's GPUs during a recording window. It knows nothing of the
// target: NVML speaks of whole devices, so the work of every process on them
// is in these numbers but Process's, and CUDA_VISIBLE_DEVICES does not change the
// list.
//
// What each number of a recording.Device is:
//
//   - UtilizationPct: percent of the driver's own sampling period (between
//     1/6 s and 1 s, depending on the product) in which at least one kernel
//     was executing; the mean over the samples. One small kernel that never
//     ends reads 100 %, so it says "not idle", never "well used".
//   - MemoryUsed: bytes allocated on the device, the driver's own reserve
//     included; the largest of the samples. What was allocated and freed
//     between two samples is not seen.
//   - PowerW: the board's draw; the mean over the samples. Most products
//     since Ampere answer with an average over the last second.
//   - EnergyJ: difference of the device's energy counter between the first
//     and the last good sample, hence exact where PowerW is sampled. Volta and
//     later have the counter.
//   - GraphicsClockMHz, SMClockMHz, MemoryClockMHz: what the clocks were at the
//     moment of the reading; the mean over the samples. A clock that changes in
//     between is not seen.
//   - ClockLimits: the reasons that the driver gives for lower clocks at the
//     moment of the reading, each with the number of samples that found it.
//   - Process: one process's allocated memory, the largest of the samples, and
//     its own part of the utilization, a percentage by the driver's sampling;
//     its mean since the process was seen first. Processes have the ids that
//     NVML gives, which are those of the host. Devices that are divided (MIG) tell
//     no utilization, and containers may hide processes.
//   - Samples: complete readings behind the means. A reading that fails is
//     left out, counted, and told in the note that Stop returns. What a device or
//     an older driver does not have is named there too.
//
// The package builds without cgo too; Open then gives ErrNotBuilt.
package gpu
