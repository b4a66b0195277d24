// SPDX-License-Identifier: Apache-2.0
// Events: a point on a stream's timeline, kept for later.
#include "event.h"

#include "capture.h"
#include "context.h"
#include "streams.h"

struct event {
    struct handle handle;
    struct context *context;
    unsigned flags;
    bool recorded;
    struct stream_point point;
    struct capture *capture; // recorded while its stream was captured
};

static struct handle_table events = HANDLE_TABLE(struct event, 1 << 20);

static CUresult event_ready(CUevent event) {
    CUresult result = driver_ready();
    if (result)
        return result;
    if (!handle_live(&events, event))
        return CUDA_ERROR_INVALID_HANDLE;
    return event->context->destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

API(cuEventCreate)(CUevent *event, unsigned flags) {
    struct context *c;
    CUresult result = current_context(&c);
    if (result)
        return result;
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (!event || flags & ~known)
        return CUDA_ERROR_INVALID_VALUE;
    struct event *e = handle_make(&events);
    if (!e)
        return CUDA_ERROR_OUT_OF_MEMORY;
    e->context = c;
    e->flags = flags;
    *event = e;
    return CUDA_SUCCESS;
}

API(cuEventDestroy)(CUevent event) {
    CUresult result = driver_ready();
    if (result)
        return result;
    return handle_free(&events, event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
ALIAS(cuEventDestroy_v2, cuEventDestroy);

static CUresult record(CUevent event, CUstream handle) {
    struct stream *s;
    CUresult result = event_ready(event);
    if (!result)
        result = stream_of(handle, &s);
    if (result)
        return result;
    if (event->context != s->context)
        return CUDA_ERROR_INVALID_HANDLE;
    event->capture = s->capture;
    if (s->capture)
        return CUDA_SUCCESS;
    event->point = stream_mark(s);
    event->recorded = true;
    return CUDA_SUCCESS;
}

API(cuEventRecord)(CUevent event, CUstream stream) {
    return record(event, stream);
}

API(cuEventRecordWithFlags)(CUevent event, CUstream stream, unsigned flags) {
    CUresult result = event_ready(event);
    if (!result && flags > 1)
        result = CUDA_ERROR_INVALID_VALUE;
    return result ? result : record(event, stream);
}

API(cuEventQuery)(CUevent event) {
    CUresult result = event_ready(event);
    if (result)
        return result;
    return !event->recorded || stream_reached(&event->point) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API(cuEventSynchronize)(CUevent event) {
    CUresult result = event_ready(event);
    if (result || !event->recorded)
        return result;
    bool block = event->flags & CU_EVENT_BLOCKING_SYNC;
    struct stream_point point = event->point;
    stream_wait(&point, block ? CU_CTX_SCHED_BLOCKING_SYNC : context_sched(event->context));
    return CUDA_SUCCESS;
}

static bool has_time(const struct event *e) {
    return e->recorded && !(e->flags & CU_EVENT_DISABLE_TIMING);
}

API(cuEventElapsedTime)(float *ms, CUevent start, CUevent end) {
    CUresult result = event_ready(start);
    if (!result)
        result = event_ready(end);
    if (result)
        return result;
    if (!ms)
        return CUDA_ERROR_INVALID_VALUE;
    if (!has_time(start) || !has_time(end))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!stream_reached(&start->point) || !stream_reached(&end->point))
        return CUDA_ERROR_NOT_READY;
    *ms = (float)((double)(int64_t)(end->point.end - start->point.end) / 1e6);
    return CUDA_SUCCESS;
}
ALIAS(cuEventElapsedTime_v2, cuEventElapsedTime);

CUresult event_followed(CUevent event, struct stream *stream) {
    CUresult result = event_ready(event);
    if (result)
        return result;
    if (event->capture)
        capture_join(event->capture, stream);
    else if (event->recorded)
        stream_follow(stream, &event->point);
    return CUDA_SUCCESS;
}
