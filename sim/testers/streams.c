// SPDX-License-Identifier: Apache-2.0
#include "streams.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tester.h"

enum { MAX_NAMED = 4096, BYTES = 4096, NAME = 32, NON_BLOCKING = 1, GLOBAL = 1, NOT_READY = 600 };

static struct named {
    char name[NAME];
    void *handle;
} all_named[MAX_NAMED];

// What a name stands for; a new place for it if it is not known.
static void **place(const char *name) {
    for (struct named *n = all_named; n < all_named + MAX_NAMED; n++) {
        if (!n->name[0])
            snprintf(n->name, sizeof(n->name), "%s", name);
        if (!strcmp(n->name, name))
            return &n->handle;
    }
    tester_fail("up to %d names", MAX_NAMED);
}

static void *handle(const char *name) {
    if (!strcmp(name, "null"))
        return NULL;
    if (!strcmp(name, "own"))
        return (void *)2; // CU_STREAM_PER_THREAD
    void *known = *place(name);
    if (!known)
        tester_fail("nothing is called \"%s\"", name);
    return known;
}

struct pair {
    char first[NAME], second[NAME];
};

static struct pair two(const char *argument) {
    struct pair p;
    if (sscanf(argument, "%31s %31s", p.first, p.second) != 2)
        tester_fail("two words are needed, not \"%s\"", argument);
    return p;
}

static void make_stream(const char *name) {
    MUST(cu.cuStreamCreate(place(name), NON_BLOCKING), 0);
}

// Goes on until the driver gives a handle to a second stream.
static void make_again(const char *name) {
    void **old = place(name), *stream;
    for (;;) {
        MUST(cu.cuStreamCreate(&stream, NON_BLOCKING), 0);
        if (stream == *old)
            return;
        MUST(cu.cuStreamDestroy_v2(stream), 0);
    }
}

static void destroy(const char *name) {
    MUST(cu.cuStreamDestroy_v2(handle(name)), 0);
}

static void make_event(const char *name) {
    MUST(cu.cuEventCreate(place(name), 0), 0);
}

static void *device_context(const char *device) {
    void *context;
    MUST(cu.cuDevicePrimaryCtxRetain(&context, atoi(device)), 0);
    return context;
}

static void set_device(const char *device) {
    MUST(cu.cuCtxSetCurrent(device_context(device)), 0);
}

static void push_device(const char *device) {
    MUST(cu.cuCtxPushCurrent_v2(device_context(device)), 0);
}

static void pop_device(const char *unused) {
    (void)unused;
    void *context;
    MUST(cu.cuCtxPopCurrent_v2(&context), 0);
}

static void kernel_ns(const char *ns) {
    cu.simcuda_set_kernel_ns(strtoull(ns, NULL, 10));
}

static void launch_on(const char *argument, void *function, CUresult wanted) {
    struct pair p = two(argument);
    void *stream = handle(p.first);
    for (long i = atol(p.second); i > 0; i--)
        MUST(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), wanted);
}

static void enqueue(const char *argument) {
    launch_on(argument, tester_function(), 0);
}

// As code does that was compiled for per-thread default streams.
static void enqueue_own(const char *count) {
    for (long i = atol(count); i > 0; i--)
        MUST(cu.cuLaunchKernel_ptsz(tester_function(), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 0);
}

static void refuse(const char *argument) {
    launch_on(argument, NULL, 400);
}

static void nothing(void *unused) {
    (void)unused;
}

static CUdeviceptr memory(size_t bytes) {
    CUdeviceptr address;
    MUST(cu.cuMemAlloc_v2(&address, bytes), 0);
    return address;
}

static void launch_every(void *stream) {
    void *kernel = tester_function();
    struct launch_config config = {.grid = {1, 1, 1}, .block = {1, 1, 1}, .stream = stream};
    MUST(cu.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), 0);
    MUST(cu.cuLaunchCooperativeKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL), 0);
    MUST(cu.cuLaunchKernelEx(&config, kernel, NULL, NULL), 0);
    MUST(cu.cuLaunchHostFunc(stream, nothing, NULL), 0);
}

static void copy_every(void *stream) {
    static char host[BYTES];
    static CUdeviceptr device, managed;
    struct memcpy_2d box = {.from_type = 1,
                            .from_host = host,
                            .from_pitch = 64,
                            .to_type = 2,
                            .to_pitch = 64,
                            .width = 64,
                            .height = 2};
    if (!device) {
        device = memory(BYTES);
        MUST(cu.cuMemAllocManaged(&managed, BYTES, GLOBAL), 0);
    }
    box.to_device = device;
    MUST(cu.cuMemcpyHtoDAsync_v2(device, host, BYTES, stream), 0);
    MUST(cu.cuMemcpyDtoHAsync_v2(host, device, BYTES, stream), 0);
    MUST(cu.cuMemcpyDtoDAsync_v2(device, managed, BYTES, stream), 0);
    MUST(cu.cuMemcpyAsync(device, managed, BYTES, stream), 0);
    MUST(cu.cuMemcpy2DAsync_v2(&box, stream), 0);
    MUST(cu.cuMemsetD32Async(device, 0, BYTES / 4, stream), 0);
    MUST(cu.cuMemsetD2D8Async(device, 64, 0, 64, 2, stream), 0);
    MUST(cu.cuMemPrefetchAsync(managed, BYTES, 0, stream), 0);
    MUST(cu.cuMemPrefetchAsync_v2(managed, BYTES, 1, 0, stream), 0);
}

static void enqueue_every(const char *name) {
    void *stream = handle(name), *graph, *ready;
    launch_every(stream);
    copy_every(stream);
    MUST(cu.cuGraphCreate(&graph, 0), 0);
    MUST(cu.cuGraphInstantiateWithFlags(&ready, graph, 0), 0);
    MUST(cu.cuGraphLaunch(ready, stream), 0);
}

static void copy(const char *count) {
    static char host[BYTES];
    CUdeviceptr device = memory(BYTES);
    for (long i = atol(count); i > 0; i--)
        MUST(cu.cuMemcpyDtoH_v2(host, device, BYTES), 0);
    MUST(cu.cuMemFree_v2(device), 0);
}

static void sync_stream(const char *name) {
    MUST(cu.cuStreamSynchronize(handle(name)), 0);
}

static void sync_own(const char *unused) {
    (void)unused;
    MUST(cu.cuStreamSynchronize_ptsz(NULL), 0);
}

static void sync_event(const char *name) {
    MUST(cu.cuEventSynchronize(handle(name)), 0);
}

static void sync_context(const char *unused) {
    (void)unused;
    MUST(cu.cuCtxSynchronize(), 0);
}

static void record(const char *argument) {
    struct pair p = two(argument);
    MUST(cu.cuEventRecord(handle(p.first), handle(p.second)), 0);
}

static void follow(const char *argument) {
    struct pair p = two(argument);
    MUST(cu.cuStreamWaitEvent(handle(p.first), handle(p.second), 0), 0);
}

static void ask(const char *name) {
    while (cu.cuStreamQuery(handle(name)) == NOT_READY)
        sched_yield();
}

static void ask_event(const char *name) {
    while (cu.cuEventQuery(handle(name)) == NOT_READY)
        sched_yield();
}

static void capture(const char *name) {
    MUST(cu.cuStreamBeginCapture_v2(handle(name), 0), 0);
}

static void end_capture(const char *name) {
    void *graph;
    MUST(cu.cuStreamEndCapture(handle(name), &graph), 0);
}

static void many_streams(const char *count) {
    for (long i = atol(count); i > 0; i--) {
        void *stream;
        MUST(cu.cuStreamCreate(&stream, NON_BLOCKING), 0);
        MUST(cu.cuLaunchKernel(tester_function(), 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), 0);
    }
}

static void many_events(const char *count) {
    for (long i = atol(count); i > 0; i--) {
        void *event;
        MUST(cu.cuEventCreate(&event, 0), 0);
        MUST(cu.cuEventRecord(event, NULL), 0);
    }
}

static void many_contexts(const char *count) {
    void *before, *context;
    MUST(cu.cuCtxGetCurrent(&before), 0);
    for (long i = atol(count); i > 0; i--) {
        MUST(cu.cuCtxCreate_v2(&context, 0, 0), 0);
        MUST(cu.cuCtxPopCurrent_v2(&context), 0); // the stack of contexts is not endless
        MUST(cu.cuCtxSetCurrent(context), 0);
    }
    MUST(cu.cuCtxSetCurrent(before), 0);
}

static void passing_streams(const char *count) {
    for (long i = atol(count); i > 0; i--) {
        void *stream;
        MUST(cu.cuStreamCreate(&stream, NON_BLOCKING), 0);
        MUST(cu.cuLaunchKernel(tester_function(), 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), 0);
        MUST(cu.cuStreamDestroy_v2(stream), 0);
    }
}

static void *use_own(void *context) {
    MUST(cu.cuCtxSetCurrent(context), 0);
    enqueue_own("1");
    return NULL;
}

static void passing_threads(const char *count) {
    void *context;
    MUST(cu.cuCtxGetCurrent(&context), 0);
    for (long i = atol(count); i > 0; i--) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, use_own, context) || pthread_join(thread, NULL))
            tester_fail("a thread: %m");
    }
}

const struct command stream_commands[] = {
    {"stream", make_stream},
    {"stream-again", make_again},
    {"destroy", destroy},
    {"event", make_event},
    {"device", set_device},
    {"push-device", push_device},
    {"pop-device", pop_device},
    {"kernel-ns", kernel_ns},
    {"enqueue", enqueue},
    {"enqueue-every", enqueue_every},
    {"enqueue-own", enqueue_own},
    {"refuse", refuse},
    {"copy", copy},
    {"sync", sync_stream},
    {"sync-own", sync_own},
    {"sync-event", sync_event},
    {"sync-context", sync_context},
    {"record", record},
    {"follow", follow},
    {"ask", ask},
    {"ask-event", ask_event},
    {"capture", capture},
    {"end-capture", end_capture},
    {"many-streams", many_streams},
    {"many-events", many_events},
    {"many-contexts", many_contexts},
    {"passing-streams", passing_streams},
    {"passing-threads", passing_threads},
    {NULL, NULL},
};
