// Package calibrate measures, on this machine and just before a recording,
// what a pair of probes costs and what it adds to the durations that it
// measures.
//
// The time between the two timestamps of a call holds, besides the call, the
// way out of the entry probe, the way into the return probe, and for code that
// the kernel must single-step the step itself: several hundred nanoseconds or
// several microseconds, the same for every call of one class of code. A child
// process (this program again, see Target) calls functions of a few
// instructions, one of each class, with the same programs on them as the
// recording's; what they report beyond the functions' own time is the bias.
//
// A child, because probes replace return addresses on the stack, which the Go
// runtime must never see while it looks at stacks: the child runs without
// garbage collection and preemption, for a few milliseconds.
package calibrate
