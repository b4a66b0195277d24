// SPDX-License-Identifier: Apache-2.0
// Timelines: submitting and waiting. The exports are in stream_api.c.
#define _GNU_SOURCE
#include "stream.h"

#include <errno.h>
#include <sched.h>

#include "capture.h"
#include "clock.h"
#include "context.h"
#include "deferred.h"
#include "streams.h"
#include "thread.h"
#include "truth.h"

struct handle_table streams = {
    .size = sizeof(struct stream),
    .fresh = offsetof(struct stream, lock),
    .capacity = 1 << 16,
};

void stream_init(struct stream *s, struct context *context, unsigned flags, int priority) {
    s->context = context;
    s->flags = flags;
    s->priority = priority;
    s->id = next_id();
    pthread_mutex_init(&s->lock, NULL);
}

struct stream *stream_make(struct context *context, unsigned flags, int priority) {
    struct stream *s = handle_make(&streams);
    if (s)
        stream_init(s, context, flags, priority);
    return s;
}

static bool is_legacy(const struct stream *s) {
    return s == &s->context->legacy;
}

static bool is_blocking(const struct stream *s) {
    return !(s->flags & CU_STREAM_NON_BLOCKING);
}

static CUresult own_stream(struct context *context, struct stream **stream) {
    struct stream **own = &thread_self()->own_streams[context->device];
    if (!handle_live(&streams, *own) || (*own)->context != context)
        *own = stream_make(context, 0, 0);
    *stream = *own;
    return *own ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult stream_of(CUstream handle, struct stream **stream) {
    struct context *context;
    CUresult result = current_context(&context);
    if (result)
        return result;
    if (!handle)
        handle = truth_per_thread() ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    if (handle == CU_STREAM_LEGACY) {
        *stream = &context->legacy;
        return CUDA_SUCCESS;
    }
    if (handle == CU_STREAM_PER_THREAD)
        return own_stream(context, stream);
    if (!handle_live(&streams, handle))
        return CUDA_ERROR_INVALID_HANDLE;
    *stream = handle;
    return handle->context->destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

static uint64_t later(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static uint64_t load(const uint64_t *time) {
    return __atomic_load_n(time, __ATOMIC_RELAXED);
}

// The null stream waits for all blocking streams, and they for it.
static uint64_t others_end(const struct stream *s) {
    if (is_legacy(s))
        return load(&s->context->blocking_end);
    return is_blocking(s) ? load(&s->context->legacy.end) : 0;
}

static bool has_deferred(const struct stream *s) {
    return s->deferred != __atomic_load_n(&s->completed, __ATOMIC_ACQUIRE);
}

// Behind deferred work the timeline goes on from its end, even if that is past: what the deferred
// work overruns is added when it is known (deferred.c).
static void extend(struct stream *s, uint64_t ns) {
    uint64_t start = has_deferred(s) ? s->end : later(now_ns(), s->end);
    uint64_t end = later(start, others_end(s)) + ns;
    __atomic_store_n(&s->end, end, __ATOMIC_RELAXED);
    raise_to(&s->context->end, end);
    if (is_blocking(s) && !is_legacy(s))
        raise_to(&s->context->blocking_end, end);
}

CUresult stream_submit(struct stream *s, const struct work *w) {
    pthread_mutex_lock(&s->lock);
    if (s->capture) {
        CUresult result = capture_add(s->capture, w);
        pthread_mutex_unlock(&s->lock);
        return result;
    }
    bool defer = has_deferred(s) || work_deferred(w);
    extend(s, w->ns);
    if (defer)
        deferred_add(s, w, s->end);
    pthread_mutex_unlock(&s->lock);
    if (!defer)
        work_run(w);
    return CUDA_SUCCESS;
}

// A kernel that takes no time has nothing to order and no effect: no clock is read and no lock
// taken.
CUresult stream_launch(struct stream *s) {
    uint64_t ns = kernel_ns();
    if (!ns && !s->capture)
        return CUDA_SUCCESS;
    struct work work = kernel_work();
    return stream_submit(s, &work);
}

static struct stream_point point_of(struct stream *s) {
    return (struct stream_point){
        .stream = s,
        .end = is_legacy(s) ? later(s->end, load(&s->context->blocking_end)) : s->end,
        .deferred = s->deferred,
        .delay = s->delay,
    };
}

struct stream_point stream_now(struct stream *s) {
    pthread_mutex_lock(&s->lock);
    struct stream_point point = point_of(s);
    pthread_mutex_unlock(&s->lock);
    return point;
}

struct stream_point stream_mark(struct stream *s) {
    pthread_mutex_lock(&s->lock);
    extend(s, 0);
    struct stream_point point = point_of(s);
    pthread_mutex_unlock(&s->lock);
    return point;
}

static uint64_t point_end(const struct stream_point *p) {
    return p->end + load(&p->stream->delay) - p->delay;
}

static bool deferred_done(const struct stream_point *p) {
    return __atomic_load_n(&p->stream->completed, __ATOMIC_ACQUIRE) >= p->deferred;
}

bool stream_reached(const struct stream_point *p) {
    return deferred_done(p) && now_ns() >= point_end(p);
}

static void sleep_until(uint64_t ns) {
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (now_ns() < ns && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

static void relax(unsigned sched) {
    if (sched == CU_CTX_SCHED_YIELD)
        sched_yield();
    else
        cpu_relax();
}

void stream_wait(const struct stream_point *p, unsigned sched) {
    if (sched == CU_CTX_SCHED_BLOCKING_SYNC) {
        deferred_wait(&p->stream->completed, p->deferred);
        sleep_until(point_end(p));
    }
    while (!stream_reached(p))
        relax(sched);
}

void stream_follow(struct stream *s, const struct stream_point *p) {
    pthread_mutex_lock(&s->lock);
    uint64_t end = later(s->end, point_end(p));
    __atomic_store_n(&s->end, end, __ATOMIC_RELAXED);
    raise_to(&s->context->end, end);
    // The driver's thread goes by time, so this runs after the deferred work that the point stands
    // behind.
    if (!deferred_done(p) && p->stream != s)
        deferred_add(s, &(struct work){.kind = WORK_NOTHING}, end);
    pthread_mutex_unlock(&s->lock);
}

static bool context_deferred_done(const struct context *c, uint64_t deferred) {
    return __atomic_load_n(&c->completed, __ATOMIC_ACQUIRE) >= deferred;
}

bool context_idle(struct context *c) {
    return context_deferred_done(c, load(&c->deferred)) && now_ns() >= load(&c->end);
}

void context_wait(struct context *c, unsigned sched) {
    uint64_t deferred = load(&c->deferred);
    if (sched == CU_CTX_SCHED_BLOCKING_SYNC)
        deferred_wait(&c->completed, deferred);
    while (!context_deferred_done(c, deferred))
        relax(sched);
    uint64_t end = load(&c->end);
    if (sched == CU_CTX_SCHED_BLOCKING_SYNC)
        sleep_until(end);
    while (now_ns() < end)
        relax(sched);
}

void streams_end(struct context *context) {
    for (struct stream *s = NULL; (s = handle_next(&streams, s));)
        if (s->context == context)
            handle_free(&streams, s);
}
