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
// device is 0 where it is not known. A name with "/" in it looks in stage_path
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
// Merged profiles add their durations up: two ranks, recorded for 30 s each,
// make a profile of 60 s.
package pprofout
