// SPDX-License-Identifier: Apache-2.0
//
// Streams, what can be put into them, and their capture into graphs.
#include "runtime.h"

RUNTIME_API rt_error cudaStreamCreate(handle *stream) {
    return ON_DEVICE(driver.cuStreamCreate(stream, 0));
}

RUNTIME_API rt_error cudaStreamCreateWithFlags(handle *stream, unsigned flags) {
    return ON_DEVICE(driver.cuStreamCreate(stream, flags));
}

RUNTIME_API rt_error cudaStreamCreateWithPriority(handle *stream, unsigned flags, int priority) {
    return ON_DEVICE(driver.cuStreamCreateWithPriority(stream, flags, priority));
}

RUNTIME_API rt_error cudaStreamDestroy(handle stream) {
    return ON_DEVICE(driver.cuStreamDestroy(stream));
}

RUNTIME_API rt_error cudaStreamSynchronize(handle stream) {
    return ON_DEVICE(driver.cuStreamSynchronize(stream));
}

RUNTIME_API rt_error cudaStreamQuery(handle stream) {
    return ON_DEVICE(driver.cuStreamQuery(stream));
}

RUNTIME_API rt_error cudaStreamWaitEvent(handle stream, handle event, unsigned flags) {
    return ON_DEVICE(driver.cuStreamWaitEvent(stream, event, flags));
}

RUNTIME_API rt_error cudaStreamGetPriority(handle stream, int *priority) {
    return ON_DEVICE(driver.cuStreamGetPriority(stream, priority));
}

RUNTIME_API rt_error cudaStreamAddCallback(handle stream, void (*function)(handle, int, void *),
                                           void *data, unsigned flags) {
    return ON_DEVICE(driver.cuStreamAddCallback(stream, function, data, flags));
}

RUNTIME_API rt_error cudaLaunchHostFunc(handle stream, void (*function)(void *), void *data) {
    return ON_DEVICE(driver.cuLaunchHostFunc(stream, function, data));
}

RUNTIME_API rt_error cudaStreamIsCapturing(handle stream, int *status) {
    return ON_DEVICE(driver.cuStreamIsCapturing(stream, status));
}

RUNTIME_API rt_error cudaStreamBeginCapture(handle stream, int mode) {
    return ON_DEVICE(driver.cuStreamBeginCapture(stream, mode));
}

RUNTIME_API rt_error cudaStreamEndCapture(handle stream, handle *graph) {
    return ON_DEVICE(driver.cuStreamEndCapture(stream, graph));
}

RUNTIME_API rt_error cudaThreadExchangeStreamCaptureMode(int *mode) {
    return ON_DRIVER(driver.cuThreadExchangeStreamCaptureMode(mode));
}

// CUDA 13 added data on the edges between a graph's nodes. Plain edges have none.
#if CUDART_MAJOR >= 13
RUNTIME_API rt_error cudaStreamGetCaptureInfo(handle stream, int *status, unsigned long long *id,
                                              handle *graph, const handle **dependencies,
                                              const void **edges, size_t *count) {
    if (edges)
        *edges = NULL;
    return ON_DEVICE(driver.cuStreamGetCaptureInfo(stream, status, id, graph, dependencies, count));
}

RUNTIME_API rt_error cudaStreamUpdateCaptureDependencies(handle stream, handle *dependencies,
                                                         const void *edges, size_t count,
                                                         unsigned flags) {
    (void)edges;
    return ON_DEVICE(driver.cuStreamUpdateCaptureDependencies(stream, dependencies, count, flags));
}
#else
RUNTIME_API rt_error cudaStreamGetCaptureInfo_v2(handle stream, int *status, unsigned long long *id,
                                                 handle *graph, const handle **dependencies,
                                                 size_t *count) {
    return ON_DEVICE(driver.cuStreamGetCaptureInfo(stream, status, id, graph, dependencies, count));
}
#endif
