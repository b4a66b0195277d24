// Package recording defines the Recording: everything one run of the agent
// observed, as plain data. It is the single hand-over between the kernel side
// (package agent, which produces it) and the pure side (packages correlate,
// pprofout and report, which consume it). It can be saved to a file and read
// back on any machine, so the pure side never needs a kernel.
//
// Words, used with exactly these meanings throughout the project:
//
//   - target: one process incarnation, pid + start time.
//   - marker: one event, begin(name) or end, that the target emits on a thread.
//   - stage: a named interval of wall time on one thread; stages nest.
//   - stage path: the names of the open stages from the outermost to the
//     innermost, written joined with "/".
//   - span: one closed stage interval.
//   - call: one outermost execution of a CUDA driver API function on a thread.
//     A driver function entered while another one is running on the same
//     thread is not a call.
//   - api: the driver function's name without its version and stream
//     spelling (cuLaunchKernel); symbol is the exact exported spelling
//     (cuLaunchKernel_ptsz).
//   - gil: whether the calling thread held Python's global interpreter lock
//     when it entered the call.
//   - wall, cpu, blocked: the duration of a call or span; the part of it
//     during which the thread was running; wall - cpu.
//   - attribution: why a call has its stage.
//   - loss: something seen but not accounted, counted by reason.
//
// All durations are host time in nanoseconds of CLOCK_MONOTONIC. A call's
// duration says how long the host thread spent in the driver; it never says
// how long the GPU worked.
package recording
