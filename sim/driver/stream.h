// SPDX-License-Identifier: Apache-2.0
// Streams. Each is a timeline: the time at which everything submitted to it will be over.
// Submitting moves that time on and returns; waiting waits for it. See README.md, "Time".
#ifndef SIMCUDA_STREAM_H
#define SIMCUDA_STREAM_H

#include <pthread.h>

#include "api.h"
#include "handle.h"
#include "work.h"

struct context;
struct capture;

struct stream {
    struct handle handle;
    struct context *context;
    unsigned flags;
    int priority;
    uint64_t id;
    struct capture *capture;
    pthread_mutex_t lock; // timeline and capture
    uint64_t end;
    // Deferred work (deferred.h). These go on when a place in the table is reused: events may still
    // ask.
    uint64_t deferred, completed;
    uint64_t delay; // by which deferred work overran its time so far, in all
};

// A point on a stream's timeline: what an event records.
struct stream_point {
    struct stream *stream;
    uint64_t end, deferred, delay;
};

// The stream of a handle, NULL, CU_STREAM_LEGACY or CU_STREAM_PER_THREAD, and that its context is
// usable.
CUresult stream_of(CUstream handle, struct stream **stream);

void stream_init(struct stream *stream, struct context *context, unsigned flags, int priority);

// Puts work on the stream (or into the graph that it is captured into).
CUresult stream_submit(struct stream *stream, const struct work *work);
// The same for a kernel.
CUresult stream_launch(struct stream *stream);

// The point at which all that was submitted is over.
struct stream_point stream_now(struct stream *stream);
// The same, but not before now: where an idle stream is when something is recorded on it.
struct stream_point stream_mark(struct stream *stream);
bool stream_reached(const struct stream_point *point);
// Waits until the point is reached; sched is CU_CTX_SCHED_*: how.
void stream_wait(const struct stream_point *point, unsigned sched);
// Later work on the stream starts after the point.
void stream_follow(struct stream *stream, const struct stream_point *point);

// All work of a context.
bool context_idle(struct context *context);
void context_wait(struct context *context, unsigned sched);

// Ends the streams of a context that ends.
void streams_end(struct context *context);

#endif
