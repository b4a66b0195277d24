// SPDX-License-Identifier: Apache-2.0
// calls: N threads, each doing M operations of a mix over the whole API at full speed or at a rate,
// inside stages nested up to 16 deep. Prints per thread, stage path and symbol what the truth must
// hold.
//
// One step opens the stages s0 … s(D-1), does --per-stage operations after each begin, and closes
// them; steps repeat until M operations are done. Without stages all operations are done at depth
// 0.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tester.h"

enum { MAX_STAGES = 16, MAX_THREADS = 1024, BUFFER = 4096, SEGMENT = 2 << 20 };

static long threads = 1, calls = 10000, stages, per_stage = 100, rate, launches_only, bad_every;

// Every function whose calls are expected, by the name of its member in `cu`.
// clang-format off
#define COUNTED(F)                                                                                 \
    F(cuLaunchKernel) F(cuLaunchKernel_ptsz) F(cuLaunchKernelEx) F(cuLaunchKernelEx_ptsz)          \
    F(cuLaunchCooperativeKernel) F(cuStreamSynchronize) F(cuStreamQuery) F(cuStreamWaitEvent)      \
    F(cuEventRecord) F(cuEventQuery) F(cuEventSynchronize) F(cuCtxSynchronize) F(cuMemAlloc)       \
    F(cuMemAlloc_v2) F(cuMemFree) F(cuMemFree_v2) F(cuMemAllocAsync) F(cuMemFreeAsync)             \
    F(cuMemHostAlloc) F(cuMemFreeHost) F(cuMemcpyHtoD_v2) F(cuMemcpyDtoH_v2)                       \
    F(cuMemcpyHtoDAsync_v2) F(cuMemcpyDtoHAsync_v2) F(cuMemcpyDtoDAsync_v2) F(cuMemcpy2D_v2)       \
    F(cuMemsetD8_v2) F(cuMemsetD16_v2) F(cuMemsetD32Async) F(cuMemAddressReserve)                  \
    F(cuMemAddressFree) F(cuMemCreate) F(cuMemRelease) F(cuMemMap) F(cuMemUnmap)                   \
    F(cuMemSetAccess) F(cuGraphLaunch) F(cuGLInit) F(cuCtxSetCurrent) F(cuStreamCreate)            \
    F(cuEventCreate)
// clang-format on

enum counted {
#define NUMBER(name) COUNTED_##name,
    COUNTED(NUMBER)
#undef NUMBER
        COUNTED_END
};

static const char *const counted_names[] = {
#define NAME(name) #name,
    COUNTED(NAME)
#undef NAME
};

struct expected {
    uint64_t calls, errors, bytes;
};

struct worker {
    pthread_t thread;
    int tid;
    unsigned random;
    unsigned depth;
    long done;
    uint64_t started_ns;
    void *stream, *event;
    CUdeviceptr buffer, other;
    char *host;
    uint64_t spans[MAX_STAGES + 1];
    struct expected expected[MAX_STAGES + 1][COUNTED_END];
};

static void *context, *graph_exec;
static struct worker workers[MAX_THREADS];

static CUresult counted(struct worker *w, enum counted which, uint64_t bytes, CUresult result) {
    struct expected *e = &w->expected[w->depth][which];
    e->calls++;
    e->errors += result != 0;
    e->bytes += result ? 0 : bytes;
    return result;
}

// Calls a driver function and expects it to be counted.
#define CALL(name, bytes, ...) counted(w, COUNTED_##name, (bytes), cu.name(__VA_ARGS__))

// Operations: each makes one or more calls, and none if the driver lacks a function that it needs.

static void launch(struct worker *w) {
    if (cu.cuLaunchKernel)
        CALL(cuLaunchKernel, 0, tester_function(), 1, 2, 3, 4, 5, 6, 7, w->stream, NULL, NULL);
}

static void launch_ptsz(struct worker *w) {
    if (cu.cuLaunchKernel_ptsz)
        CALL(cuLaunchKernel_ptsz, 0, tester_function(), 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
}

static void launch_ex(struct worker *w) {
    struct launch_config c = {.grid = {1, 1, 1}, .block = {32, 1, 1}, .stream = w->stream};
    if (cu.cuLaunchKernelEx)
        CALL(cuLaunchKernelEx, 0, &c, tester_function(), NULL, NULL);
    if (cu.cuLaunchKernelEx_ptsz)
        CALL(cuLaunchKernelEx_ptsz, 0, &c, tester_function(), NULL, NULL);
}

static void launch_cooperative(struct worker *w) {
    if (cu.cuLaunchCooperativeKernel)
        CALL(cuLaunchCooperativeKernel, 0, tester_function(), 1, 1, 1, 32, 1, 1, 0, w->stream,
             NULL);
}

static void launch_bad(struct worker *w) {
    if (cu.cuLaunchKernel)
        CALL(cuLaunchKernel, 0, (void *)0x1234, 1, 1, 1, 1, 1, 1, 0, w->stream, NULL, NULL);
}

static void launch_graph(struct worker *w) {
    if (cu.cuGraphLaunch && graph_exec)
        CALL(cuGraphLaunch, 0, graph_exec, w->stream);
}

static void synchronize(struct worker *w) {
    if (cu.cuStreamSynchronize && cu.cuStreamQuery) {
        CALL(cuStreamSynchronize, 0, w->stream);
        CALL(cuStreamQuery, 0, w->stream);
    }
}

static void synchronize_context(struct worker *w) {
    if (cu.cuCtxSynchronize)
        CALL(cuCtxSynchronize, 0);
}

static void events(struct worker *w) {
    if (!cu.cuEventRecord || !cu.cuStreamWaitEvent)
        return;
    CALL(cuEventRecord, 0, w->event, w->stream);
    CALL(cuStreamWaitEvent, 0, w->stream, w->event, 0);
    CALL(cuEventQuery, 0, w->event);
    CALL(cuEventSynchronize, 0, w->event);
}

static void allocate(struct worker *w) {
    CUdeviceptr p;
    size_t size = 1 + w->random % 100000;
    if (cu.cuMemAlloc_v2 && !CALL(cuMemAlloc_v2, size, &p, size))
        CALL(cuMemFree_v2, 0, p);
}

static void allocate_plain(struct worker *w) {
    CUdeviceptr p;
    size_t size = 1 + w->random % 1000;
    if (cu.cuMemAlloc && cu.cuMemFree && !CALL(cuMemAlloc, size, &p, size))
        CALL(cuMemFree, 0, p);
}

static void allocate_async(struct worker *w) {
    CUdeviceptr p;
    size_t size = 1 + w->random % 10000;
    if (cu.cuMemAllocAsync && !CALL(cuMemAllocAsync, size, &p, size, w->stream))
        CALL(cuMemFreeAsync, 0, p, w->stream);
}

static void allocate_host(struct worker *w) {
    void *p;
    size_t size = 1 + w->random % 10000;
    if (cu.cuMemHostAlloc && !CALL(cuMemHostAlloc, size, &p, size, 0))
        CALL(cuMemFreeHost, 0, p);
}

static void allocate_nothing(struct worker *w) {
    CUdeviceptr p;
    if (cu.cuMemAlloc_v2)
        CALL(cuMemAlloc_v2, 0, &p, 0);
}

static void copies(struct worker *w) {
    size_t size = 1 + w->random % BUFFER;
    if (!cu.cuMemcpyHtoD_v2)
        return;
    CALL(cuMemcpyHtoD_v2, size, w->buffer, w->host, size);
    CALL(cuMemcpyDtoH_v2, size, w->host, w->buffer, size);
}

static void copies_async(struct worker *w) {
    size_t size = 1 + w->random % BUFFER;
    if (!cu.cuMemcpyHtoDAsync_v2)
        return;
    CALL(cuMemcpyHtoDAsync_v2, size, w->buffer, w->host, size, w->stream);
    CALL(cuMemcpyDtoDAsync_v2, size, w->other, w->buffer, size, w->stream);
    CALL(cuMemcpyDtoHAsync_v2, size, w->host, w->other, size, w->stream);
}

static void copy_rows(struct worker *w) {
    struct memcpy_2d m = {.from_type = 2,
                          .from_device = w->buffer,
                          .from_pitch = 64,
                          .to_type = 1,
                          .to_host = w->host,
                          .to_pitch = 32,
                          .width = 1 + w->random % 32,
                          .height = 10};
    if (cu.cuMemcpy2D_v2)
        CALL(cuMemcpy2D_v2, m.width * m.height, &m);
}

static void sets(struct worker *w) {
    size_t count = 1 + w->random % 1000;
    if (!cu.cuMemsetD8_v2)
        return;
    CALL(cuMemsetD8_v2, count, w->buffer, 7, count);
    CALL(cuMemsetD16_v2, 2 * count, w->buffer, 7, count);
    if (cu.cuMemsetD32Async)
        CALL(cuMemsetD32Async, 4 * count, w->buffer, 7, count, w->stream);
}

static void segment(struct worker *w) {
    struct allocation_prop prop = {.type = 1, .location_type = 1};
    struct access_desc access = {.location_type = 1, .flags = 3};
    CUdeviceptr p;
    void *handle;
    if (!cu.cuMemAddressReserve || CALL(cuMemAddressReserve, SEGMENT, &p, SEGMENT, 0, 0, 0))
        return;
    if (!CALL(cuMemCreate, SEGMENT, &handle, SEGMENT, &prop, 0)) {
        CALL(cuMemMap, SEGMENT, p, SEGMENT, 0, handle, 0);
        CALL(cuMemSetAccess, SEGMENT, p, SEGMENT, &access, 1);
        CALL(cuMemUnmap, SEGMENT, p, SEGMENT);
        CALL(cuMemRelease, 0, handle);
    }
    CALL(cuMemAddressFree, SEGMENT, p, SEGMENT);
}

static void unsupported(struct worker *w) {
    if (cu.cuGLInit)
        CALL(cuGLInit, 0);
}

// Launches come often, as in training.
static void (*const operations[])(struct worker *) = {
    launch,           launch,
    launch,           launch,
    launch,           launch_ptsz,
    launch,           launch_ex,
    launch,           launch_ptsz,
    copies_async,     synchronize,
    launch,           events,
    allocate,         launch,
    copies,           allocate_async,
    launch,           sets,
    launch_graph,     allocate_host,
    launch_ex,        synchronize_context,
    copy_rows,        launch_cooperative,
    unsupported,      allocate_plain,
    allocate_nothing, segment,
};

enum { OPERATIONS = sizeof(operations) / sizeof(*operations) };

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// Keeps the worker to --rate operations a second.
static void pace(const struct worker *w) {
    if (!rate)
        return;
    uint64_t due = w->started_ns + (uint64_t)w->done * 1000000000u / (uint64_t)rate;
    uint64_t now = now_ns();
    if (now < due) {
        struct timespec t = {0, (long)(due - now) % 1000000000};
        nanosleep(&t, NULL);
    }
}

static void operate(struct worker *w, long count) {
    for (; count > 0 && w->done < calls; count--, w->done++) {
        w->random = w->random * 1103515245u + 12345u;
        unsigned pick = w->random >> 16;
        if (bad_every && w->done % bad_every == 0)
            launch_bad(w);
        else if (launches_only)
            launch(w);
        else
            operations[pick % OPERATIONS](w);
        pace(w);
    }
}

static void step(struct worker *w) {
    for (long i = 0; i < stages; i++) {
        char name[24];
        snprintf(name, sizeof(name), "s%ld", i);
        stage_begin(name);
        w->depth++;
        w->spans[w->depth]++;
        operate(w, per_stage);
    }
    for (; w->depth; w->depth--)
        stage_end();
    if (!stages)
        operate(w, calls);
}

static void *work(void *argument) {
    struct worker *w = argument;
    w->tid = gettid();
    w->random = (unsigned)(w - workers) + 1;
    w->started_ns = now_ns();
    CALL(cuCtxSetCurrent, 0, context);
    CALL(cuStreamCreate, 0, &w->stream, 1);
    CALL(cuEventCreate, 0, &w->event, 0);
    if (cu.cuMemAlloc_v2) {
        CALL(cuMemAlloc_v2, BUFFER, &w->buffer, BUFFER);
        CALL(cuMemAlloc_v2, BUFFER, &w->other, BUFFER);
    } else if (cu.cuMemAlloc) {
        CALL(cuMemAlloc, BUFFER, &w->buffer, BUFFER);
        CALL(cuMemAlloc, BUFFER, &w->other, BUFFER);
    }
    w->host = malloc(BUFFER);
    while (w->done < calls)
        step(w);
    return NULL;
}

static void print_expected(const struct worker *w) {
    char path[128] = "";
    for (long depth = 0; depth <= stages; depth++) {
        if (depth) {
            size_t n = strlen(path);
            snprintf(path + n, sizeof(path) - n, "%ss%ld", n ? "/" : "", depth - 1);
            expect_spans(w->tid, path, w->spans[depth]);
        }
        for (int i = 0; i < COUNTED_END; i++) {
            const struct expected *e = &w->expected[depth][i];
            expect_at(w->tid, path, counted_names[i], e->calls, e->errors, e->bytes);
        }
    }
}

static void make_graph(void) {
    void *graph;
    if (!cu.cuGraphCreate || !cu.cuGraphInstantiateWithFlags || cu.cuGraphCreate(&graph, 0) ||
        cu.cuGraphInstantiateWithFlags(&graph_exec, graph, 0))
        graph_exec = NULL;
}

int main(int argc, char **argv) {
    const struct number_option own[] = {
        {"threads", "threads that call", &threads},
        {"calls", "operations of each thread", &calls},
        {"stages", "stages open at the deepest, up to 16", &stages},
        {"per-stage", "operations after each begin", &per_stage},
        {"rate", "operations a second of each thread, 0 for full speed", &rate},
        {"launches-only", "1: every operation is one cuLaunchKernel", &launches_only},
        {"bad-every", "every Nth operation is a launch of a bad handle, 0 for never", &bad_every},
        {NULL, NULL, NULL},
    };
    tester_options(argc, argv, "Calls the driver from several threads.", own);
    if (threads < 1 || threads > MAX_THREADS || stages > MAX_STAGES || !per_stage)
        tester_fail("1 to %d threads, up to %d stages, at least one operation in each", MAX_THREADS,
                    MAX_STAGES);
    context = tester_context();
    make_graph();
    tester_ready();
    for (long i = 0; i < threads; i++)
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
            tester_fail("starting a thread: %m");
    for (long i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    for (long i = 0; i < threads; i++)
        print_expected(&workers[i]);
    tester_done();
    return 0;
}
