// SPDX-License-Identifier: Apache-2.0
// The exports that make, end, query and wait for streams.
#include <string.h>

#include "capture.h"
#include "clock.h"
#include "context.h"
#include "event.h"
#include "streams.h"
#include "work.h"

static CUresult create(CUstream *stream, unsigned flags, int priority) {
    struct context *c;
    CUresult result = current_context(&c);
    if (result)
        return result;
    if (!stream || flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    if (priority > LEAST_PRIORITY)
        priority = LEAST_PRIORITY;
    if (priority < GREATEST_PRIORITY)
        priority = GREATEST_PRIORITY;
    *stream = stream_make(c, flags, priority);
    return *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API(cuStreamCreate)(CUstream *stream, unsigned flags) {
    return create(stream, flags, 0);
}

API(cuStreamCreateWithPriority)(CUstream *stream, unsigned flags, int priority) {
    return create(stream, flags, priority);
}

// Returns at once: work on the stream goes on.
API(cuStreamDestroy)(CUstream stream) {
    CUresult result = driver_ready();
    if (result)
        return result;
    if (stream <= CU_STREAM_PER_THREAD)
        return CUDA_ERROR_INVALID_HANDLE;
    return handle_free(&streams, stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
ALIAS(cuStreamDestroy_v2, cuStreamDestroy);

API(cuStreamSynchronize)(CUstream handle) {
    struct stream *s;
    CUresult result = stream_of(handle, &s);
    if (!result)
        result = capture_forbids(s);
    if (result)
        return result;
    struct stream_point point = stream_now(s);
    stream_wait(&point, context_sched(s->context));
    return CUDA_SUCCESS;
}

API(cuStreamQuery)(CUstream handle) {
    struct stream *s;
    CUresult result = stream_of(handle, &s);
    if (!result)
        result = capture_forbids(s);
    if (result)
        return result;
    struct stream_point point = stream_now(s);
    return stream_reached(&point) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API(cuStreamWaitEvent)(CUstream handle, CUevent event, unsigned flags UNUSED) {
    struct stream *s;
    CUresult result = stream_of(handle, &s);
    return result ? result : event_followed(event, s);
}

// A property of a stream, through a valid pointer.
#define STREAM_GET(name, type, expression)                                                         \
    API(name)(CUstream handle, type * value) {                                                     \
        struct stream *s;                                                                          \
        CUresult result = stream_of(handle, &s);                                                   \
        if (result)                                                                                \
            return result;                                                                         \
        if (!value)                                                                                \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        *value = expression;                                                                       \
        return CUDA_SUCCESS;                                                                       \
    }

STREAM_GET(cuStreamGetPriority, int, s->priority)
STREAM_GET(cuStreamGetFlags, unsigned, s->flags)
STREAM_GET(cuStreamGetId, uint64_t, s->id)
STREAM_GET(cuStreamGetCtx, CUcontext, s->context)
STREAM_GET(cuStreamGetDevice, CUdevice, s->context->device)

API(cuStreamGetCtx_v2)(CUstream handle, CUcontext *context, void **green) {
    if (!green)
        return CUDA_ERROR_INVALID_VALUE;
    *green = NULL;
    return sim_cuStreamGetCtx(handle, context);
}

// Attributes (access policy, synchronisation policy, …) steer caches and waits that are not
// simulated.
enum { ATTRIBUTE_SIZE = 64 };

API(cuStreamGetAttribute)(CUstream handle, int attribute UNUSED, void *value) {
    struct stream *s;
    CUresult result = stream_of(handle, &s);
    if (result)
        return result;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    memset(value, 0, ATTRIBUTE_SIZE);
    return CUDA_SUCCESS;
}

API(cuStreamSetAttribute)(CUstream handle, int attribute UNUSED, const void *value) {
    struct stream *s;
    CUresult result = stream_of(handle, &s);
    return result || value ? result : CUDA_ERROR_INVALID_VALUE;
}

API(cuStreamCopyAttributes)(CUstream to, CUstream from) {
    struct stream *s;
    CUresult result = stream_of(to, &s);
    return result ? result : stream_of(from, &s);
}

API(cuStreamAttachMemAsync)
(CUstream handle, CUdeviceptr address UNUSED, size_t size UNUSED, unsigned flags UNUSED) {
    struct stream *s;
    return stream_of(handle, &s);
}

// Host functions

static CUresult submit_host(CUstream handle, const struct work *work, bool valid) {
    struct stream *s;
    CUresult result = stream_of(handle, &s);
    if (result)
        return result;
    return valid ? stream_submit(s, work) : CUDA_ERROR_INVALID_VALUE;
}

API(cuLaunchHostFunc)(CUstream stream, CUhostFn function, void *argument) {
    struct work work = {.kind = WORK_HOST,
                        .host = {.function = function, .argument = argument, .stream = stream}};
    return submit_host(stream, &work, function != NULL);
}

API(cuLaunchHostFunc_v2)(CUstream stream, CUhostFn function, void *argument, unsigned mode UNUSED) {
    return sim_cuLaunchHostFunc(stream, function, argument);
}

API(cuStreamAddCallback)
(CUstream stream, CUstreamCallback callback, void *argument, unsigned flags) {
    struct work work = {.kind = WORK_CALLBACK,
                        .host = {.callback = callback, .argument = argument, .stream = stream}};
    return submit_host(stream, &work, callback && !flags);
}

// Values in memory, written in stream order

static CUresult write_value(CUstream handle, CUdeviceptr address, uint64_t value, unsigned size) {
    struct stream *s;
    CUresult result = stream_of(handle, &s);
    if (result)
        return result;
    if (!address || address % size)
        return CUDA_ERROR_INVALID_VALUE;
    struct fill fill = {
        .to = (char *)address, .width = 1, .height = 1, .value = value, .size = size};
    struct work work = fill_work(&fill);
    return stream_submit(s, &work);
}

API(cuStreamWriteValue32)
(CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags UNUSED) {
    return write_value(stream, address, value, 4);
}
ALIAS(cuStreamWriteValue32_v2, cuStreamWriteValue32);

API(cuStreamWriteValue64)
(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags UNUSED) {
    return write_value(stream, address, value, 8);
}
ALIAS(cuStreamWriteValue64_v2, cuStreamWriteValue64);
