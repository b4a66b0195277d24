// Package timeline turns the single events of a Recording into traces that
// viewers of timelines open: Perfetto's own format, and Chrome's JSON. It knows
// Recordings only, so it works on any machine.
//
// # Tracks
//
// The process has a track with the stages of the whole process, if there are
// any. Each thread has three:
//
//   - its stages, nested. A slice is a span; its arguments are the stage path and
//     the parts of the span's own time, in nanoseconds.
//   - calls. A slice is one driver call, named by its symbol. In a call that held
//     the GIL the name ends in " (gil held)", so that viewers, which colour by
//     name, show it in another colour. Its categories are "cuda" and "gil held",
//     "gil free", …; its arguments the stage path, the attribution, the time on
//     the CPU, bytes, the CUresult if it is an error, and the stream's number.
//   - off the CPU. A slice is one time that the thread was not running, named by
//     why: "gil wait", "runnable", "blocked: futex", … What is empty was running,
//     unless events were lost.
//
// A slice that the edge of the recording cut has the argument "partial". Durations
// are those of the Recording, to the nanosecond: as measured.
//
// # Flows
//
// An arrow leads from a call that gave a stream an operation to the first call
// that waited, with success, until this operation was over: through
// cuStreamSynchronize, cuEventSynchronize, cuCtxSynchronize or a copy that waits,
// also through streams that follow others. That is known where sync debt was
// recorded, and where the stream is known; without it there is no arrow. It does
// not say how long the operation took.
//
// # Times
//
// Perfetto's are CLOCK_MONOTONIC in nanoseconds, and called boot time, since
// that is what viewers take as their axis; a snapshot of clocks says what time of
// day that was. Chrome's are microseconds since the window's start.
//
// The same Recording gives the same bytes.
package timeline
