// Package pprofout turns a Ledger into a pprof profile. It is pure, and its
// output depends on the Ledger and the Options alone: the same Recording gives
// the same bytes.
//
// # Values
//
// Every sample has four values, always in this order:
//
//	calls/count       driver calls
//	wall/nanoseconds  host time inside them, the probes' own time taken out
//	cpu/nanoseconds   the part of it in which the thread was running
//	bytes/bytes       what successful calls asked for; 0 where a call has no size
//
// The default is wall. The period is always one call, so that any two profiles
// can be merged and compared.
//
// # Stack
//
// The leaf is the driver function in its exact spelling, in the mapping of the
// driver library that was called. Above it stands the immediate caller, if it
// could be read; without a symbol it is called by module and offset, e.g.
// "libfoo.so+0x1a40". Callers' addresses point into the call instruction, not
// behind it. The first mapping is the target's executable.
//
// Above the caller stand the Python frames of the calling thread, innermost
// first, in the mapping [python], with file and line. Only some calls' frames are
// read: the exact totals of the calls that look alike otherwise (one thread,
// stage, function, caller, state of the GIL) are divided over the stacks that
// were seen under them. Values still sum to the exact totals. Calls of rows of
// which no stack was read have no Python frames, as those of threads that run
// none; a stack that is deeper than 32 ends in "(more Python frames)".
//
// # Labels
//
// Every sample has every label:
//
//	stage        name of the innermost open stage
//	stage_path   names of all open stages, joined with "/"
//	gil          held, free, none, disabled or unknown
//	thread       the thread's name
//	attribution  own, autograd, process or none
//	pid, rank, device  numbers, with the unit "count"
//
// A call outside any stage has stage, stage_path and attribution "none". The
// device is the GPU by NVML's index, if NVML saw the process on one only, else 0. A name with "/" in it looks in stage_path
// like two stages; a stage that is called "none" is told apart by attribution.
//
// pprof takes a number in -tagfocus=rank=0 for a range and says so on its
// standard error. That is no fault of the file.
//
// # Stages as frames
//
// With Options.StageFrames the stages also are the outermost frames, each
// called e.g. "stage:forward", for viewers that can't make frames of labels.
// Use it or -tagroot=stage_path, not both.
//
// # Losses
//
// Lost calls are samples of a frame "stageprof lost: <reason>" in the mapping
// [stageprof], with a value in the calls column only. The calls column thus
// sums to all calls that were seen. Other losses (of spans, of names) are no
// calls; like all losses they are in the comments.
//
// # Comments
//
// pprof prints comments above its reports, except those that start with "#";
// those are shown by pprof -comments. So the first kind holds what nobody
// should miss (losses, warnings, cost), the second how the profile was made.
//
// # Stages
//
// Stages and WriteStages make another profile: of the wall time of stages
// instead of driver calls. Its flame graph shows what every stage did with all
// of its wall time. Every sample has three values:
//
//	spans/count       complete spans
//	wall/nanoseconds  wall time inside the window
//	cpu/nanoseconds   the part of it in which the thread was running
//
// The outer frames are the stages of the path, outermost first, always, called
// e.g. "stage:forward"; time of threads outside any stage is below
// "stage:none". Regions that were open stand below them, where functions were
// followed as regions. The leaf is the part: "cuda: cuLaunchKernel" by api, on the CPU
// and blocked together, "cuda: other" for driver time of no recorded call,
// "stageprof" for the probes, "gil wait", "runnable", "blocked: futex" and so
// on, "running", "child stages", "unknown". Package correlate says what they
// mean. All parts of a stage sum to its wall time to the nanosecond. The spans
// of a stage are the flat count of its own frame; lost ones are frames
// "stageprof lost: <reason>".
//
// The labels are the same. gil is the state at the calls of the leaf; parts
// that are no calls have gil none. attribution is own inside a stage: calls on
// behalf of another thread's stage are part of their own thread's time, outside
// any. Stages of the whole process are on no thread and have no wall time here.
//
// # Merging
//
// Merged profiles add their durations up: two ranks, recorded for 30 s each,
// make a profile of 60 s. WriteSeveral makes one profile of processes that were
// recorded at the same time: its duration is from the first window's start to the
// last one's end, each comment names its process, and samples keep the labels
// pid and rank.
package pprofout
