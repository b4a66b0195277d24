// SPDX-License-Identifier: Apache-2.0
// Allocation: device, managed, pinned and registered memory.
#define _GNU_SOURCE
#include "memory.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "clock.h"
#include "config.h"
#include "context.h"
#include "streams.h"
#include "truth.h"

enum {
    PAGE = 4096,
    ALIGNMENT = 512,  // of every allocation, as the real driver's
    SMALL = 64 << 10, // from the heap; larger ones are pages of their own
    PITCH_ALIGNMENT = 512,
};

static uint64_t charged[MAX_DEVICES];

bool memory_charge(CUdevice device, size_t size) {
    uint64_t old = __atomic_load_n(&charged[device], __ATOMIC_RELAXED);
    do
        if (size > config.memory - old)
            return false;
    while (!__atomic_compare_exchange_n(&charged[device], &old, old + size, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED));
    return true;
}

void memory_discharge(CUdevice device, size_t size) {
    __atomic_sub_fetch(&charged[device], size, __ATOMIC_RELAXED);
}

uint64_t memory_used(CUdevice device) {
    return __atomic_load_n(&charged[device], __ATOMIC_RELAXED);
}

static size_t whole_pages(size_t size) {
    return (size + PAGE - 1) & ~(size_t)(PAGE - 1);
}

static void *get_bytes(size_t size) {
    void *bytes;
    if (size < SMALL)
        return posix_memalign(&bytes, ALIGNMENT, size) ? NULL : bytes;
    bytes = mmap(NULL, whole_pages(size), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return bytes == MAP_FAILED ? NULL : bytes;
}

static void put_bytes(void *bytes, size_t size) {
    if (size < SMALL)
        free(bytes);
    else
        munmap(bytes, whole_pages(size));
}

static bool on_device(enum range_kind kind) {
    return kind == RANGE_DEVICE || kind == RANGE_MANAGED;
}

CUresult memory_make(enum range_kind kind, struct context *context, struct pool *pool, size_t size,
                     unsigned flags, CUdeviceptr *address) {
    truth_bytes(size);
    if (!address || !size)
        return CUDA_ERROR_INVALID_VALUE;
    spend_ns(config.alloc_ns);
    if (on_device(kind) && !memory_charge(context->device, size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    void *bytes = get_bytes(size);
    struct range range = {.start = (CUdeviceptr)bytes,
                          .size = size,
                          .kind = kind,
                          .accessible = true,
                          .device = context->device,
                          .flags = flags,
                          .context = context,
                          .pool = pool};
    if (!bytes || !range_add(&range)) {
        if (on_device(kind))
            memory_discharge(context->device, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = range.start;
    return CUDA_SUCCESS;
}

static void end_range(const struct range *r) {
    if (on_device(r->kind))
        memory_discharge(r->device, r->size);
    if (r->kind != RANGE_REGISTERED)
        put_bytes((void *)r->start, r->size);
}

CUresult memory_free(CUdeviceptr address, unsigned kinds) {
    struct range r;
    spend_ns(config.free_ns);
    if (!range_take(address, kinds, &r))
        return CUDA_ERROR_INVALID_VALUE;
    end_range(&r);
    return CUDA_SUCCESS;
}

void memory_end(struct context *context) {
    for (struct range r; range_take_of(context, &r);)
        end_range(&r);
}

static CUresult make(enum range_kind kind, size_t size, unsigned flags, CUdeviceptr *address) {
    struct context *c;
    CUresult result = current_context(&c);
    return result ? result : memory_make(kind, c, NULL, size, flags, address);
}

// Freeing waits for all work of the context: it may still use the memory.
static CUresult free_waiting(CUdeviceptr address, unsigned kinds) {
    struct context *c;
    CUresult result = current_context(&c);
    if (result)
        return result;
    context_wait(c, context_sched(c));
    return memory_free(address, kinds);
}

API(cuMemAlloc)(CUdeviceptr *address, size_t size) {
    return make(RANGE_DEVICE, size, 0, address);
}
ALIAS(cuMemAlloc_v2, cuMemAlloc);

API(cuMemAllocPitch)
(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element UNUSED) {
    CUresult result = driver_ready();
    if (result || !pitch || !width || !height)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *pitch = (width + PITCH_ALIGNMENT - 1) & ~(size_t)(PITCH_ALIGNMENT - 1);
    result = make(RANGE_DEVICE, *pitch * height, 0, address);
    truth_bytes(0); // the function has no argument that is a size in bytes
    return result;
}
ALIAS(cuMemAllocPitch_v2, cuMemAllocPitch);

API(cuMemAllocManaged)(CUdeviceptr *address, size_t size, unsigned flags) {
    return make(RANGE_MANAGED, size, flags, address);
}

API(cuMemFree)(CUdeviceptr address) {
    return address ? free_waiting(address, KINDS_DEVICE) : driver_ready();
}
ALIAS(cuMemFree_v2, cuMemFree);

API(cuMemHostAlloc)(void **address, size_t size, unsigned flags) {
    return make(RANGE_PINNED, size, flags, (CUdeviceptr *)address);
}

API(cuMemAllocHost)(void **address, size_t size) {
    return make(RANGE_PINNED, size, 0, (CUdeviceptr *)address);
}
ALIAS(cuMemAllocHost_v2, cuMemAllocHost);

API(cuMemFreeHost)(void *address) {
    return free_waiting((CUdeviceptr)address, KINDS_HOST);
}

API(cuMemHostRegister)(void *address, size_t size, unsigned flags) {
    struct context *c;
    truth_bytes(size);
    CUresult result = current_context(&c);
    if (result)
        return result;
    if (!address || !size)
        return CUDA_ERROR_INVALID_VALUE;
    struct range range = {.start = (CUdeviceptr)address,
                          .size = size,
                          .kind = RANGE_REGISTERED,
                          .accessible = true,
                          .device = c->device,
                          .flags = flags,
                          .context = c};
    return range_add(&range) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}
ALIAS(cuMemHostRegister_v2, cuMemHostRegister);

API(cuMemHostUnregister)(void *address) {
    struct range r;
    CUresult result = driver_ready();
    if (result)
        return result;
    return range_take((CUdeviceptr)address, 1 << RANGE_REGISTERED, &r)
               ? CUDA_SUCCESS
               : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

static CUresult host_range(const void *address, struct range *r) {
    CUresult result = driver_ready();
    if (result)
        return result;
    return range_find((CUdeviceptr)address, r) && r->kind != RANGE_DEVICE && r->kind != RANGE_MAPPED
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

API(cuMemHostGetDevicePointer)(CUdeviceptr *device, void *host, unsigned flags) {
    struct range r;
    CUresult result = host_range(host, &r);
    if (result || !device || flags)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *device = (CUdeviceptr)host;
    return CUDA_SUCCESS;
}
ALIAS(cuMemHostGetDevicePointer_v2, cuMemHostGetDevicePointer);

API(cuMemHostGetFlags)(unsigned *flags, void *host) {
    struct range r;
    CUresult result = host_range(host, &r);
    if (result || !flags)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *flags = r.flags;
    return CUDA_SUCCESS;
}

API(cuMemGetInfo)(size_t *free, size_t *total) {
    struct context *c;
    CUresult result = current_context(&c);
    if (result)
        return result;
    if (!free || !total)
        return CUDA_ERROR_INVALID_VALUE;
    *total = config.memory;
    *free = config.memory - memory_used(c->device);
    return CUDA_SUCCESS;
}
ALIAS(cuMemGetInfo_v2, cuMemGetInfo);

API(cuMemGetAddressRange)(CUdeviceptr *start, size_t *size, CUdeviceptr address) {
    struct range r;
    CUresult result = driver_ready();
    if (result)
        return result;
    if (!range_find(address, &r))
        return CUDA_ERROR_NOT_FOUND;
    if (start)
        *start = r.start;
    if (size)
        *size = r.size;
    return CUDA_SUCCESS;
}
ALIAS(cuMemGetAddressRange_v2, cuMemGetAddressRange);
