// SPDX-License-Identifier: Apache-2.0
// What a puppet can be told to do with streams, events and contexts. It makes them by name.
//
//   stream NAME           makes a stream; "null" is the null stream, "own" the thread's own one
//   destroy NAME          ends it
//   stream-again NAME     makes one that has the handle of the one that was ended
//   event NAME            makes an event
//   device N              device N's context becomes the thread's current one
//   push-device N, pop-device
//   kernel-ns N           how long the kernels take that the thread launches from here on
//   enqueue STREAM N      N kernels
//   enqueue-every STREAM  one operation by each function that can give work to a stream
//   enqueue-own N         N kernels on the null stream, through cuLaunchKernel_ptsz
//   refuse STREAM N       N launches that fail
//   copy N                N copies to the host, each of which waits
//   sync STREAM, sync-own, sync-event EVENT, sync-context
//   record EVENT STREAM, follow STREAM EVENT
//   ask STREAM, ask-event EVENT   until the answer is "over"
//   capture STREAM, end-capture STREAM
//   many-streams N, many-events N, many-contexts N   that nobody needs, each used once
//   passing-streams N     each made, used and ended before the next one
//   passing-threads N     threads that use their own stream once, one after the other
#ifndef TESTERS_STREAMS_H
#define TESTERS_STREAMS_H

#include "command.h"

// Ends with a null name.
extern const struct command stream_commands[];

#endif
