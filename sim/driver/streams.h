// SPDX-License-Identifier: Apache-2.0
// The table of streams, for the files that make and end them.
#ifndef SIMCUDA_STREAMS_H
#define SIMCUDA_STREAMS_H

#include "handle.h"
#include "stream.h"

extern struct handle_table streams;

// A stream of a context, or NULL if there are too many.
struct stream *stream_make(struct context *context, unsigned flags, int priority);

// How waits in a context spend their time: CU_CTX_SCHED_SPIN, _YIELD or _BLOCKING_SYNC.
unsigned context_sched(const struct context *context);

#endif
