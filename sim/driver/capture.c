// SPDX-License-Identifier: Apache-2.0
#include "capture.h"

#include "context.h"
#include "graph.h"
#include "streams.h"
#include "thread.h"

enum { MODE_GLOBAL = 0, MODE_THREAD_LOCAL = 1, MODE_RELAXED = 2 };

// CU_STREAM_CAPTURE_STATUS_*
enum { STATUS_NONE = 0, STATUS_ACTIVE = 1, STATUS_INVALIDATED = 2 };

static struct handle_table captures = HANDLE_TABLE(struct capture, 1 << 12);

CUresult capture_add(struct capture *capture, const struct work *work) {
    return capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                            : graph_add(capture->graph, work, NULL);
}

CUresult capture_forbids(struct stream *stream) {
    struct capture *capture = stream->capture;
    if (!capture)
        return CUDA_SUCCESS;
    capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static void set_capture(struct stream *stream, struct capture *capture) {
    pthread_mutex_lock(&stream->lock);
    stream->capture = capture;
    pthread_mutex_unlock(&stream->lock);
}

void capture_join(struct capture *capture, struct stream *stream) {
    if (handle_live(&captures, capture) && !stream->capture)
        set_capture(stream, capture);
}

static bool capturable(const struct stream *s) {
    return s != &s->context->legacy && !s->capture;
}

static CUresult begin(CUstream handle, struct graph *graph, int mode) {
    struct stream *s;
    CUresult result = stream_of(handle, &s);
    if (result)
        return result;
    if (mode < MODE_GLOBAL || mode > MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (!capturable(s))
        return s->capture ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    struct capture *capture = handle_make(&captures);
    if (!graph)
        graph = graph_make();
    if (!capture || !graph)
        return CUDA_ERROR_OUT_OF_MEMORY;
    capture->origin = s;
    capture->graph = graph;
    capture->id = next_id();
    capture->mode = mode;
    capture->thread = thread_self()->number;
    set_capture(s, capture);
    return CUDA_SUCCESS;
}

// The first form took no mode.
API(cuStreamBeginCapture)(CUstream stream) {
    return begin(stream, NULL, MODE_GLOBAL);
}

API(cuStreamBeginCapture_v2)(CUstream stream, int mode) {
    return begin(stream, NULL, mode);
}

API(cuStreamBeginCaptureToGraph)
(CUstream stream, CUgraph graph, const CUgraphNode *dependencies UNUSED, const void *edges UNUSED,
 size_t count UNUSED, int mode) {
    return graph ? begin(stream, graph, mode) : CUDA_ERROR_INVALID_VALUE;
}

static void leave_all(const struct capture *capture) {
    for (struct stream *s = NULL; (s = handle_next(&streams, s));)
        if (s->capture == capture)
            set_capture(s, NULL);
}

API(cuStreamEndCapture)(CUstream handle, CUgraph *graph) {
    struct stream *s;
    CUresult result = stream_of(handle, &s);
    if (result)
        return result;
    struct capture *capture = s->capture;
    if (!capture || capture->origin != s)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->mode != MODE_RELAXED && capture->thread != thread_self()->number)
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    leave_all(capture);
    if (graph)
        *graph = capture->invalid ? NULL : capture->graph;
    bool invalid = capture->invalid;
    handle_free(&captures, capture);
    return invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

static int status_of(const struct stream *s) {
    if (!s->capture)
        return STATUS_NONE;
    return s->capture->invalid ? STATUS_INVALIDATED : STATUS_ACTIVE;
}

API(cuStreamIsCapturing)(CUstream handle, int *status) {
    struct stream *s;
    CUresult result = stream_of(handle, &s);
    if (result)
        return result;
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    *status = status_of(s);
    return CUDA_SUCCESS;
}

struct info {
    int *status;
    uint64_t *id;
    CUgraph *graph;
    const CUgraphNode **dependencies;
    const void **edges;
    size_t *count;
};

static CUresult capture_info(CUstream handle, const struct info *out) {
    struct stream *s;
    CUresult result = stream_of(handle, &s);
    if (result)
        return result;
    if (!out->status)
        return CUDA_ERROR_INVALID_VALUE;
    *out->status = status_of(s);
    if (!s->capture)
        return CUDA_SUCCESS;
    if (out->id)
        *out->id = s->capture->id;
    if (out->graph)
        *out->graph = s->capture->graph;
    if (out->dependencies)
        *out->dependencies = NULL;
    if (out->edges)
        *out->edges = NULL;
    if (out->count)
        *out->count = 0;
    return CUDA_SUCCESS;
}

API(cuStreamGetCaptureInfo)(CUstream stream, int *status, uint64_t *id) {
    return capture_info(stream, &(struct info){.status = status, .id = id});
}

API(cuStreamGetCaptureInfo_v2)
(CUstream stream, int *status, uint64_t *id, CUgraph *graph, const CUgraphNode **dependencies,
 size_t *count) {
    return capture_info(stream, &(struct info){.status = status,
                                               .id = id,
                                               .graph = graph,
                                               .dependencies = dependencies,
                                               .count = count});
}

API(cuStreamGetCaptureInfo_v3)
(CUstream stream, int *status, uint64_t *id, CUgraph *graph, const CUgraphNode **dependencies,
 const void **edges, size_t *count) {
    return capture_info(stream, &(struct info){status, id, graph, dependencies, edges, count});
}

// Nodes follow each other in order of addition: there is nothing to update.
API(cuStreamUpdateCaptureDependencies)
(CUstream handle, CUgraphNode *dependencies UNUSED, size_t count UNUSED, unsigned flags UNUSED) {
    struct stream *s;
    CUresult result = stream_of(handle, &s);
    if (result)
        return result;
    return s->capture ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}

API(cuStreamUpdateCaptureDependencies_v2)
(CUstream stream, CUgraphNode *dependencies, const void *edges UNUSED, size_t count,
 unsigned flags) {
    return sim_cuStreamUpdateCaptureDependencies(stream, dependencies, count, flags);
}

API(cuThreadExchangeStreamCaptureMode)(int *mode) {
    CUresult result = driver_ready();
    if (result)
        return result;
    if (!mode || *mode < MODE_GLOBAL || *mode > MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    struct thread *t = thread_self();
    int old = t->capture_mode;
    t->capture_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}
