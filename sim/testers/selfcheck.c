// SPDX-License-Identifier: Apache-2.0
// selfcheck NAME: checks one side of the simulated driver beside this program and exits with 1 at
// the first thing that is wrong. `selfcheck --list` prints the names. Run by sim/selfcheck_test.go,
// which also sets the environment: two devices of 64 MiB.
//
// Nothing here measures durations: what must not have happened yet waits for a kernel of an hour.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tester.h"

enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    ILLEGAL_STATE = 401,
    NOT_FOUND = 500,
    NOT_READY = 600,
    CONTEXT_IS_DESTROYED = 709,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
};

enum { NON_BLOCKING = 1, SPIN = 1, YIELD = 2, BLOCK = 4, MEMORY = 64 << 20, SEGMENT = 2 << 20 };

static const uint64_t HOUR_NS = 3600ull * 1000000000;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            tester_fail("%s:%d: not true: %s", __FILE__, __LINE__, #condition);                    \
    } while (0)

static CUresult launch(void *function, void *stream) {
    return cu.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
}

// A kernel that outlasts the test.
static void launch_endless(void *stream) {
    cu.simcuda_set_kernel_ns(HOUR_NS);
    MUST(launch(tester_function(), stream), OK);
    cu.simcuda_set_kernel_ns(0);
}

static void *make_stream(unsigned flags) {
    void *stream;
    MUST(cu.cuStreamCreate(&stream, flags), OK);
    return stream;
}

static void *make_event(void) {
    void *event;
    MUST(cu.cuEventCreate(&event, 0), OK);
    return event;
}

static void before_init(void) {
    int value;
    void *p;
    CUdeviceptr d;
    MUST(cu.cuDriverGetVersion(&value), OK);
    MUST(cu.cuDeviceGetCount(&value), NOT_INITIALIZED);
    MUST(cu.cuDevicePrimaryCtxRetain(&p, 0), NOT_INITIALIZED);
    MUST(cu.cuCtxGetCurrent(&p), NOT_INITIALIZED);
    MUST(cu.cuMemAlloc_v2(&d, 1), NOT_INITIALIZED);
    MUST(launch(NULL, NULL), NOT_INITIALIZED);
    MUST(cu.cuStreamSynchronize(NULL), NOT_INITIALIZED);
    MUST(cu.cuGLInit(), NOT_SUPPORTED);
    MUST(cu.cuInit(7), INVALID_VALUE);
    MUST(cu.cuInit(0), OK);
    MUST(cu.cuDeviceGetCount(&value), OK);
    CHECK(value == 2);
}

static void contexts(void) {
    void *context, *other, *current;
    CUdeviceptr d;
    MUST(cu.cuInit(0), OK);
    MUST(cu.cuDevicePrimaryCtxRetain(&context, 2), INVALID_DEVICE);
    MUST(cu.cuDevicePrimaryCtxRetain(&context, -1), INVALID_DEVICE);
    MUST(cu.cuDevicePrimaryCtxRetain(NULL, 0), INVALID_VALUE);
    MUST(launch(NULL, NULL), INVALID_CONTEXT);
    MUST(cu.cuMemAlloc_v2(&d, 1), INVALID_CONTEXT);
    MUST(cu.cuCtxSynchronize(), INVALID_CONTEXT);
    MUST(cu.cuDevicePrimaryCtxRetain(&context, 0), OK);
    MUST(cu.cuDevicePrimaryCtxRetain(&other, 1), OK);
    CHECK(context != other);
    MUST(cu.cuCtxSetCurrent((void *)0x1230), INVALID_CONTEXT);
    MUST(cu.cuCtxSetCurrent(context), OK);
    MUST(cu.cuCtxGetCurrent(&current), OK);
    CHECK(current == context);
    MUST(cu.cuCtxSynchronize(), OK);
    MUST(cu.cuDevicePrimaryCtxRelease_v2(0), OK);
    MUST(cu.cuCtxSynchronize(), CONTEXT_IS_DESTROYED);
    MUST(cu.cuDevicePrimaryCtxRelease_v2(0), INVALID_CONTEXT);
}

static void handles(void) {
    tester_context();
    void *stream = make_stream(0), *event = make_event(), *graph, *exec;
    char local[256];
    void *const garbage[] = {(void *)3,           (void *)0x1234,      local,
                             (char *)stream + 1,  (char *)event + 8,   (void *)handles,
                             (void *)UINTPTR_MAX, (void *)(1ull << 47)};
    for (size_t i = 0; i < sizeof(garbage) / sizeof(*garbage); i++) {
        MUST(launch(garbage[i], stream), INVALID_HANDLE);
        MUST(launch(tester_function(), garbage[i]), INVALID_HANDLE);
        MUST(cu.cuStreamSynchronize(garbage[i]), INVALID_HANDLE);
        MUST(cu.cuStreamDestroy_v2(garbage[i]), INVALID_HANDLE);
        MUST(cu.cuEventRecord(garbage[i], stream), INVALID_HANDLE);
        MUST(cu.cuEventQuery(garbage[i]), INVALID_HANDLE);
        MUST(cu.cuEventDestroy_v2(garbage[i]), INVALID_HANDLE);
        MUST(cu.cuGraphLaunch(garbage[i], stream), INVALID_VALUE);
        MUST(cu.cuMemRelease(garbage[i]), INVALID_VALUE);
    }
    MUST(launch(NULL, stream), INVALID_HANDLE);
    MUST(launch(stream, stream), INVALID_HANDLE); // a handle of another kind
    MUST(cu.cuGraphCreate(&graph, 0), OK);
    MUST(cu.cuGraphInstantiateWithFlags(&exec, graph, 0), OK);
    MUST(cu.cuGraphExecDestroy(exec), OK);
    MUST(cu.cuGraphLaunch(exec, stream), INVALID_VALUE);
    MUST(cu.cuEventDestroy_v2(event), OK);
    MUST(cu.cuEventDestroy_v2(event), INVALID_HANDLE);
    MUST(cu.cuEventRecord(event, stream), INVALID_HANDLE);
    MUST(cu.cuStreamDestroy_v2(stream), OK);
    MUST(cu.cuStreamDestroy_v2(stream), INVALID_HANDLE);
    MUST(launch(tester_function(), stream), INVALID_HANDLE);
    for (int i = 0; i < 1000; i++) // new streams do not bring the old handle back
        CHECK(make_stream(0) != stream);
}

static void launches(void) {
    tester_context();
    void *f = tester_function();
    struct launch_config config = {.grid = {1, 1, 1}, .block = {0, 1, 1}};
    MUST(cu.cuLaunchKernel(f, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), INVALID_VALUE);
    MUST(cu.cuLaunchKernel(f, 1, 1, 65536, 1, 1, 1, 0, NULL, NULL, NULL), INVALID_VALUE);
    MUST(cu.cuLaunchKernel(f, 1, 1, 1, 1024, 2, 1, 0, NULL, NULL, NULL), INVALID_VALUE);
    MUST(cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 49153, NULL, NULL, NULL), INVALID_VALUE);
    MUST(cu.cuLaunchKernelEx(&config, f, NULL, NULL), INVALID_VALUE);
    MUST(cu.cuLaunchKernelEx(NULL, f, NULL, NULL), INVALID_VALUE);
    config.block[0] = 1;
    MUST(cu.cuLaunchKernelEx(&config, f, NULL, NULL), OK);
    MUST(cu.cuLaunchCooperativeKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL), OK);
}

static void allocation(void) {
    tester_context();
    CUdeviceptr p, q;
    void *host;
    size_t free_bytes, total;
    MUST(cu.cuMemAlloc_v2(&p, 0), INVALID_VALUE);
    MUST(cu.cuMemAlloc_v2(NULL, 1), INVALID_VALUE);
    MUST(cu.cuMemAlloc_v2(&p, MEMORY + 1), OUT_OF_MEMORY);
    MUST(cu.cuMemAlloc_v2(&p, MEMORY), OK);
    MUST(cu.cuMemGetInfo_v2(&free_bytes, &total), OK);
    CHECK(free_bytes == 0 && total == MEMORY);
    MUST(cu.cuMemAlloc_v2(&q, 1), OUT_OF_MEMORY);
    MUST(cu.cuMemAllocAsync(&q, 1, NULL), OUT_OF_MEMORY);
    MUST(cu.cuMemHostAlloc(&host, 1, 0), OK); // of the host, not of the device
    MUST(cu.cuMemFree_v2(p + 1), INVALID_VALUE);
    MUST(cu.cuMemFree_v2((CUdeviceptr)host), INVALID_VALUE);
    MUST(cu.cuMemFreeHost((void *)p), INVALID_VALUE);
    MUST(cu.cuMemFree_v2(p), OK);
    MUST(cu.cuMemFree_v2(p), INVALID_VALUE);
    MUST(cu.cuMemFree_v2(0), OK);
    MUST(cu.cuMemFreeHost(host), OK);
    MUST(cu.cuMemAllocAsync(&q, 1000, NULL), OK);
    MUST(cu.cuMemFreeAsync(q, NULL), OK);
    MUST(cu.cuMemFreeAsync(q, NULL), INVALID_VALUE);
    MUST(cu.cuMemGetInfo_v2(&free_bytes, &total), OK);
    CHECK(free_bytes == MEMORY);
}

static void fill(unsigned char *bytes, size_t size, unsigned seed) {
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)((seed = seed * 1103515245u + 12345u) >> 8);
}

static void copies(void) {
    enum { SIZE = 300000 };
    static unsigned char in[SIZE], out[SIZE];
    tester_context();
    CUdeviceptr p, q;
    fill(in, SIZE, 1);
    MUST(cu.cuMemAlloc_v2(&p, SIZE), OK);
    MUST(cu.cuMemAlloc_v2(&q, SIZE), OK);
    MUST(cu.cuMemcpyHtoD_v2(p, in, SIZE), OK);
    MUST(cu.cuMemcpyDtoDAsync_v2(q, p, SIZE, NULL), OK);
    MUST(cu.cuMemcpyDtoHAsync_v2(out, q, SIZE, NULL), OK);
    MUST(cu.cuStreamSynchronize(NULL), OK);
    CHECK(!memcmp(in, out, SIZE));
    MUST(cu.cuMemcpyHtoD_v2(p + 1, in, SIZE), INVALID_VALUE);
    MUST(cu.cuMemcpyHtoD_v2((CUdeviceptr)out, in, SIZE), INVALID_VALUE);
    MUST(cu.cuMemcpyDtoH_v2(out, q, 0), OK);
    MUST(cu.cuMemsetD16_v2(q, 0x1234, 10), OK);
    MUST(cu.cuMemsetD16_v2(q + 1, 0x1234, 10), INVALID_VALUE);
    MUST(cu.cuMemsetD32_v2(q + 20, 0xabcdef01, 5), OK);
    MUST(cu.cuMemcpyDtoH_v2(out, q, 40), OK);
    for (int i = 0; i < 10; i++)
        CHECK(((uint16_t *)out)[i] == 0x1234);
    for (int i = 5; i < 10; i++)
        CHECK(((uint32_t *)out)[i] == 0xabcdef01);
}

static void boxes(void) {
    enum { PITCH = 64, WIDTH = 10, HEIGHT = 7 };
    unsigned char in[PITCH * HEIGHT], out[WIDTH * HEIGHT];
    tester_context();
    CUdeviceptr p;
    fill(in, sizeof(in), 2);
    MUST(cu.cuMemAlloc_v2(&p, sizeof(in)), OK);
    MUST(cu.cuMemcpyHtoD_v2(p, in, sizeof(in)), OK);
    struct memcpy_2d m = {.from_x = 3,
                          .from_y = 2,
                          .from_type = 2,
                          .from_device = p,
                          .from_pitch = PITCH,
                          .to_type = 1,
                          .to_host = out,
                          .to_pitch = WIDTH,
                          .width = WIDTH,
                          .height = HEIGHT - 2};
    MUST(cu.cuMemcpy2D_v2(&m), OK);
    for (int y = 0; y < HEIGHT - 2; y++)
        CHECK(!memcmp(out + y * WIDTH, in + (y + 2) * PITCH + 3, WIDTH));
    m.height = HEIGHT - 1; // one row behind the allocation
    MUST(cu.cuMemcpy2D_v2(&m), INVALID_VALUE);
    MUST(cu.cuMemcpy2D_v2(NULL), INVALID_VALUE);
}

static void *make_physical(size_t size) {
    const struct allocation_prop prop = {.type = 1, .location_type = 1};
    void *handle;
    MUST(cu.cuMemCreate(&handle, size, &prop, 0), OK);
    return handle;
}

static void virtual_memory(void) {
    const struct allocation_prop prop = {.type = 1, .location_type = 1};
    const struct access_desc access = {.location_type = 1, .flags = 3};
    tester_context();
    CUdeviceptr p;
    void *handle;
    unsigned value = 0;
    size_t free_bytes, total;
    MUST(cu.cuMemAddressReserve(&p, SEGMENT + 1, 0, 0, 0), INVALID_VALUE);
    MUST(cu.cuMemAddressReserve(&p, 4 * SEGMENT, 0, 0, 0), OK);
    CHECK(p % SEGMENT == 0);
    MUST(cu.cuMemCreate(&handle, 1000, &prop, 0), INVALID_VALUE);
    MUST(cu.cuMemCreate(&handle, 2 * MEMORY, &prop, 0), OUT_OF_MEMORY);
    handle = make_physical(SEGMENT);
    MUST(cu.cuMemMap(p + 8 * SEGMENT, SEGMENT, 0, handle, 0), INVALID_VALUE); // not reserved
    MUST(cu.cuMemMap(p, 2 * SEGMENT, 0, handle, 0), INVALID_VALUE);           // larger
    MUST(cu.cuMemMap(p, SEGMENT, 0, handle, 0), OK);
    MUST(cu.cuMemMap(p, SEGMENT, 0, handle, 0), INVALID_VALUE); // again
    MUST(cu.cuMemcpyHtoD_v2(p, "x", 1), INVALID_VALUE);         // no access yet
    MUST(cu.cuMemSetAccess(p, 2 * SEGMENT, &access, 1), INVALID_VALUE);
    MUST(cu.cuMemSetAccess(p, SEGMENT, &access, 1), OK);
    MUST(cu.cuMemMap(p + SEGMENT, SEGMENT, 0, handle, 0), OK); // the same memory a second time
    MUST(cu.cuMemSetAccess(p + SEGMENT, SEGMENT, &access, 1), OK);
    MUST(cu.cuMemRelease(handle), OK); // lives on in its mappings
    MUST(cu.cuMemsetD32_v2(p, 0x5eed, 4), OK);
    MUST(cu.cuMemcpyDtoH_v2(&value, p + SEGMENT, 4), OK);
    CHECK(value == 0x5eed);
    MUST(cu.cuMemcpyDtoD_v2(p + SEGMENT - 8, p, 16), OK);     // over the seam of two mappings
    MUST(cu.cuMemAddressFree(p, 4 * SEGMENT), INVALID_VALUE); // still mapped
    MUST(cu.cuMemUnmap(p, 4 * SEGMENT), INVALID_VALUE);       // not all mapped
    MUST(cu.cuMemUnmap(p, 2 * SEGMENT), OK);
    MUST(cu.cuMemUnmap(p, SEGMENT), INVALID_VALUE);
    MUST(cu.cuMemAddressFree(p, SEGMENT), INVALID_VALUE); // not what was reserved
    MUST(cu.cuMemAddressFree(p, 4 * SEGMENT), OK);
    MUST(cu.cuMemGetInfo_v2(&free_bytes, &total), OK);
    CHECK(free_bytes == total);
}

static void timelines(void) {
    tester_context();
    void *busy = make_stream(NON_BLOCKING), *idle = make_stream(NON_BLOCKING);
    void *before = make_event(), *after = make_event(), *other = make_event();
    float ms;
    MUST(cu.cuStreamQuery(busy), OK);
    MUST(cu.cuEventQuery(before), OK); // never recorded
    MUST(cu.cuEventElapsedTime(&ms, before, after), INVALID_HANDLE);
    MUST(cu.cuEventRecord(before, busy), OK);
    launch_endless(busy); // and returns
    MUST(cu.cuEventRecord(after, busy), OK);
    MUST(cu.cuStreamQuery(busy), NOT_READY);
    MUST(cu.cuEventQuery(before), OK);
    MUST(cu.cuEventQuery(after), NOT_READY);
    MUST(cu.cuEventElapsedTime(&ms, before, after), NOT_READY);
    MUST(cu.cuStreamQuery(idle), OK);
    MUST(cu.cuStreamWaitEvent(idle, before, 0), OK);
    MUST(cu.cuStreamQuery(idle), OK);
    MUST(cu.cuStreamWaitEvent(idle, after, 0), OK);
    MUST(cu.cuEventRecord(other, idle), OK);
    MUST(cu.cuEventQuery(other), NOT_READY);
}

static void elapsed(void) {
    tester_context();
    void *stream = make_stream(NON_BLOCKING), *a = make_event(), *b = make_event();
    float ms;
    cu.simcuda_set_kernel_ns(3000000);
    MUST(cu.cuEventRecord(a, stream), OK);
    for (int i = 0; i < 4; i++)
        MUST(launch(tester_function(), stream), OK);
    MUST(cu.cuEventRecord(b, stream), OK);
    MUST(cu.cuEventSynchronize(b), OK);
    MUST(cu.cuEventElapsedTime(&ms, a, b), OK);
    CHECK(ms >= 12);
    MUST(cu.cuStreamQuery(stream), OK);
}

// The null stream and ordinary streams wait for each other; the others do not.
static void null_stream(void) {
    tester_context();
    void *ordinary = make_stream(0), *independent = make_stream(NON_BLOCKING);
    void *event = make_event();
    launch_endless(ordinary);
    MUST(cu.cuStreamQuery(independent), OK);
    MUST(cu.cuEventRecord(event, NULL), OK);
    MUST(cu.cuEventQuery(event), NOT_READY);
    MUST(launch(tester_function(), independent), OK);
    MUST(cu.cuStreamQuery(independent), OK);
    // The per-thread null stream is another one than the null stream, and ordinary.
    MUST(cu.cuStreamQuery((void *)2), OK);
    MUST(cu.cuStreamQuery((void *)1), NOT_READY);
}

static void twins(void) {
    tester_context();
    cu.simcuda_set_kernel_ns(HOUR_NS);
    MUST(cu.cuLaunchKernel_ptsz(tester_function(), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), OK);
    MUST(cu.cuStreamQuery((void *)2), NOT_READY);
    MUST(cu.cuStreamQuery(make_stream(NON_BLOCKING)), OK);
}

static atomic_int host_tid, host_may_end;
static unsigned host_saw;
static CUdeviceptr host_buffer;

static void host_function(void *argument) {
    host_saw = *(unsigned *)host_buffer; // simulated device memory is readable
    while (!host_may_end)
        usleep(100);
    *(unsigned *)argument = 77;
    host_tid = gettid();
}

static void host_functions(void) {
    tester_context();
    unsigned argument = 0, result = 0;
    void *stream = make_stream(NON_BLOCKING), *event = make_event(),
         *follower = make_stream(NON_BLOCKING);
    MUST(cu.cuMemAlloc_v2(&host_buffer, 4), OK);
    MUST(cu.cuMemsetD32Async(host_buffer, 5, 1, stream), OK);
    MUST(cu.cuLaunchHostFunc(stream, NULL, NULL), INVALID_VALUE);
    MUST(cu.cuLaunchHostFunc(stream, host_function, &argument), OK);
    MUST(cu.cuMemsetD32Async(host_buffer, 6, 1, stream), OK); // behind the function
    MUST(cu.cuEventRecord(event, stream), OK);
    MUST(cu.cuStreamWaitEvent(follower, event, 0), OK);
    MUST(cu.cuStreamQuery(stream), NOT_READY);
    MUST(cu.cuEventQuery(event), NOT_READY);
    MUST(cu.cuStreamQuery(follower), NOT_READY);
    host_may_end = 1;
    MUST(cu.cuStreamSynchronize(follower), OK);
    MUST(cu.cuStreamSynchronize(stream), OK);
    MUST(cu.cuEventQuery(event), OK);
    CHECK(argument == 77 && host_saw == 5);
    CHECK(host_tid != gettid());
    MUST(cu.cuMemcpyDtoH_v2(&result, host_buffer, 4), OK);
    CHECK(result == 6);
    host_may_end = 0;
    MUST(cu.cuLaunchHostFunc(stream, host_function, &argument), OK);
    host_may_end = 1;
    MUST(cu.cuCtxSynchronize(), OK);
    CHECK(host_saw == 6);
}

static long sleeps_in_wait(unsigned flags) {
    struct rusage before, after;
    void *stream = make_stream(NON_BLOCKING);
    MUST(cu.cuDevicePrimaryCtxSetFlags_v2(0, flags), OK);
    cu.simcuda_set_kernel_ns(5000000);
    MUST(launch(tester_function(), stream), OK);
    getrusage(RUSAGE_THREAD, &before);
    MUST(cu.cuStreamSynchronize(stream), OK);
    getrusage(RUSAGE_THREAD, &after);
    MUST(cu.cuStreamQuery(stream), OK);
    return after.ru_nvcsw - before.ru_nvcsw;
}

static void waiting(void) {
    tester_context();
    MUST(cu.cuDevicePrimaryCtxSetFlags_v2(0, SPIN | BLOCK), INVALID_VALUE);
    CHECK(sleeps_in_wait(BLOCK) > 0);
    CHECK(sleeps_in_wait(SPIN) == 0);
    sleeps_in_wait(YIELD); // whether a yield switches is the scheduler's choice
}

static void capture(void) {
    tester_context();
    void *stream = make_stream(NON_BLOCKING), *graph, *exec;
    CUdeviceptr p;
    int status;
    unsigned value = 0;
    MUST(cu.cuMemAlloc_v2(&p, 4), OK);
    MUST(cu.cuMemsetD32_v2(p, 1, 1), OK);
    MUST(cu.cuStreamBeginCapture_v2(NULL, 0), CAPTURE_UNSUPPORTED);
    MUST(cu.cuStreamEndCapture(stream, &graph), ILLEGAL_STATE);
    MUST(cu.cuStreamBeginCapture_v2(stream, 0), OK);
    MUST(cu.cuStreamBeginCapture_v2(stream, 0), ILLEGAL_STATE);
    MUST(cu.cuStreamIsCapturing(stream, &status), OK);
    CHECK(status == 1);
    MUST(cu.cuMemsetD32Async(p, 9, 1, stream), OK);
    MUST(launch(tester_function(), stream), OK);
    MUST(cu.cuStreamEndCapture(stream, &graph), OK);
    MUST(cu.cuMemcpyDtoH_v2(&value, p, 4), OK);
    CHECK(value == 1); // captured, not done
    MUST(cu.cuGraphInstantiateWithFlags(&exec, graph, 0), OK);
    MUST(cu.cuGraphLaunch(exec, stream), OK);
    MUST(cu.cuMemcpyDtoH_v2(&value, p, 4), OK);
    CHECK(value == 9);
    MUST(cu.cuStreamBeginCapture_v2(stream, 0), OK);
    MUST(cu.cuStreamSynchronize(stream), CAPTURE_UNSUPPORTED);
    MUST(launch(tester_function(), stream), CAPTURE_INVALIDATED);
    MUST(cu.cuStreamEndCapture(stream, &graph), CAPTURE_INVALIDATED);
    MUST(cu.cuStreamSynchronize(stream), OK);
}

// A stream that waits for an event of a captured one is captured with it.
static void capture_fork(void) {
    tester_context();
    void *stream = make_stream(NON_BLOCKING), *side = make_stream(NON_BLOCKING);
    void *event = make_event(), *graph, *exec;
    int status;
    MUST(cu.cuStreamBeginCapture_v2(stream, 0), OK);
    MUST(cu.cuEventRecord(event, stream), OK);
    MUST(cu.cuStreamWaitEvent(side, event, 0), OK);
    MUST(cu.cuStreamIsCapturing(side, &status), OK);
    CHECK(status == 1);
    launch_endless(side);
    MUST(cu.cuStreamEndCapture(side, &graph), ILLEGAL_STATE);
    MUST(cu.cuStreamEndCapture(stream, &graph), OK);
    MUST(cu.cuStreamQuery(side), OK);
    MUST(cu.cuGraphInstantiateWithFlags(&exec, graph, 0), OK);
    MUST(cu.cuGraphLaunch(exec, stream), OK);
    MUST(cu.cuStreamQuery(stream), NOT_READY);
}

static void *proc(const char *name, int version, uint64_t flags, int wanted_status) {
    void *address = &address;
    int status = -1;
    MUST(cu.cuGetProcAddress_v2(name, &address, version, flags, &status), OK);
    if (status != wanted_status)
        tester_fail("%s, version %d, flags %lu: status %d, want %d", name, version, flags, status,
                    wanted_status);
    return address;
}

// The answers of a real driver 535 (CUDA 12.2); sim/driver/compare_procs.py compares all of them.
static void proc_addresses(void) {
    enum { FOUND = 0, UNKNOWN = 1, TOO_LOW = 2, LEGACY = 1, PER_THREAD = 2 };
    void *address = NULL;
    CHECK(proc("cuMemAlloc", 2000, 0, FOUND) == (void *)cu.cuMemAlloc);
    CHECK(proc("cuMemAlloc", 3010, 0, FOUND) == (void *)cu.cuMemAlloc);
    CHECK(proc("cuMemAlloc", 3020, 0, FOUND) == (void *)cu.cuMemAlloc_v2);
    CHECK(proc("cuMemAlloc", 13000, 0, FOUND) == (void *)cu.cuMemAlloc_v2);
    CHECK(proc("cuMemAlloc", 1000, 0, TOO_LOW) == NULL);
    CHECK(proc("cuMemAlloc_v2", 12000, 0, UNKNOWN) == NULL);
    CHECK(proc("cuLaunchKernel", 4000, 0, FOUND) == (void *)cu.cuLaunchKernel);
    CHECK(proc("cuLaunchKernel", 7000, LEGACY, FOUND) == (void *)cu.cuLaunchKernel);
    CHECK(proc("cuLaunchKernel", 7000, PER_THREAD, FOUND) == (void *)cu.cuLaunchKernel_ptsz);
    CHECK(proc("cuLaunchKernel", 4000, PER_THREAD, TOO_LOW) == NULL);
    CHECK(proc("cuMemAlloc", 7000, PER_THREAD, FOUND) == (void *)cu.cuMemAlloc_v2);
    CHECK(proc("cuGetProcAddress", 11030, 0, FOUND) == (void *)cu.cuGetProcAddress);
    CHECK(proc("cuGetProcAddress", 12000, 0, FOUND) == (void *)cu.cuGetProcAddress_v2);
    CHECK(proc("cuCtxSynchronize", 13000, 0, FOUND) ==
          (void *)cu.cuCtxSynchronize); // 13.0's: newer
    CHECK(proc("cuNothing", 12000, 0, UNKNOWN) == NULL);
    MUST(cu.cuGetProcAddress("cuNothing", &address, 12000, 0), NOT_FOUND);
    MUST(cu.cuGetProcAddress("cuInit", &address, 12000, 0), OK);
    CHECK(address == (void *)cu.cuInit);
    MUST(cu.cuGetProcAddress("cuInit", &address, 12000, 4), INVALID_VALUE);
}

static void nvml(void) {
    char path[PATH_MAX], name[64];
    void *device;
    unsigned count, percent[2], milliwatts;
    unsigned long long memory[3], energy[2];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 64);
    CHECK(n > 0);
    path[n] = 0;
    strcpy(strrchr(path, '/'), "/../libnvidia-ml.so.1");
    void *library = dlopen(path, RTLD_NOW);
    if (!library)
        tester_fail("opening NVML: %s", dlerror());
#define NVML(function, ...) ((int (*)())dlsym(library, #function))(__VA_ARGS__)
    MUST(NVML(nvmlDeviceGetCount_v2, &count), 1); // uninitialised
    MUST(NVML(nvmlInit_v2), 0);
    MUST(NVML(nvmlDeviceGetCount_v2, &count), 0);
    CHECK(count == 2);
    MUST(NVML(nvmlDeviceGetHandleByIndex_v2, 2, &device), 2);
    MUST(NVML(nvmlDeviceGetHandleByIndex_v2, 1, &device), 0);
    MUST(NVML(nvmlDeviceGetName, device, name, 3), 7); // too small
    MUST(NVML(nvmlDeviceGetName, device, name, (unsigned)sizeof(name)), 0);
    MUST(NVML(nvmlDeviceGetUUID, device, name, (unsigned)sizeof(name)), 0);
    CHECK(!strncmp(name, "GPU-", 4) && strlen(name) == 40);
    setenv("SIMNVML_GPU_PERCENT", "10,90", 1);
    MUST(NVML(nvmlDeviceGetUtilizationRates, device, percent), 0);
    CHECK(percent[0] == 10);
    MUST(NVML(nvmlDeviceGetUtilizationRates, device, percent), 0);
    CHECK(percent[0] == 90);
    MUST(NVML(nvmlDeviceGetMemoryInfo, device, memory), 0);
    CHECK(memory[0] == memory[1] + memory[2]);
    MUST(NVML(nvmlDeviceGetPowerUsage, device, &milliwatts), 0);
    MUST(NVML(nvmlDeviceGetTotalEnergyConsumption, device, &energy[0]), 0);
    MUST(NVML(nvmlDeviceGetTotalEnergyConsumption, device, &energy[1]), 0);
    CHECK(energy[1] - energy[0] == 1000);
    MUST(NVML(nvmlDeviceGetPowerUsage, name, &milliwatts), 2); // no device
    setenv("SIMNVML_FAIL", "nvmlOther=9,nvmlDeviceGetPowerUsage=3", 1);
    MUST(NVML(nvmlDeviceGetPowerUsage, device, &milliwatts), 3);
    MUST(NVML(nvmlShutdown), 0);
    MUST(NVML(nvmlShutdown), 1);
}

static const struct {
    const char *name;
    void (*run)(void);
} checks[] = {
    {"before_init", before_init},
    {"contexts", contexts},
    {"handles", handles},
    {"launches", launches},
    {"allocation", allocation},
    {"copies", copies},
    {"boxes", boxes},
    {"virtual_memory", virtual_memory},
    {"timelines", timelines},
    {"elapsed", elapsed},
    {"null_stream", null_stream},
    {"twins", twins},
    {"host_functions", host_functions},
    {"waiting", waiting},
    {"capture", capture},
    {"capture_fork", capture_fork},
    {"proc_addresses", proc_addresses},
    {"nvml", nvml},
};

enum { CHECKS = sizeof(checks) / sizeof(*checks) };

int main(int argc, char **argv) {
    const struct number_option none[] = {{NULL, NULL, NULL}};
    if (argc == 2 && !strcmp(argv[1], "--list")) {
        for (int i = 0; i < CHECKS; i++)
            puts(checks[i].name);
        return 0;
    }
    for (int i = 0; argc >= 2 && i < CHECKS; i++)
        if (!strcmp(argv[1], checks[i].name)) {
            argv[1] = argv[0];
            tester_options(argc - 1, argv + 1, "Checks the simulated driver.", none);
            checks[i].run();
            return 0;
        }
    fprintf(stderr, "usage: selfcheck --list | NAME\n");
    return 2;
}
