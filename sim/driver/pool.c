// SPDX-License-Identifier: Apache-2.0
// Memory pools and stream-ordered allocation. A pool keeps nothing: freeing gives memory back at
// its time on the stream.
#include "context.h"
#include "memory.h"
#include "stream.h"
#include "truth.h"

struct pool {
    struct handle handle;
    CUdevice device;
    uint64_t threshold;
};

static struct handle_table pools = HANDLE_TABLE(struct pool, 4096);
static struct pool *defaults[MAX_DEVICES], *current[MAX_DEVICES];

static struct pool *make(CUdevice device) {
    struct pool *p = handle_make(&pools);
    if (p)
        p->device = device;
    return p;
}

static struct pool *default_pool(CUdevice device) {
    struct pool *p = __atomic_load_n(&defaults[device], __ATOMIC_ACQUIRE);
    if (p)
        return p;
    struct pool *made = make(device);
    if (__atomic_compare_exchange_n(&defaults[device], &p, made, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        return made;
    handle_free(&pools, made);
    return p;
}

static struct pool *pool_of(CUdevice device) {
    struct pool *p = __atomic_load_n(&current[device], __ATOMIC_ACQUIRE);
    return p && handle_live(&pools, p) ? p : default_pool(device);
}

API(cuDeviceGetDefaultMemPool)(CUmemoryPool *pool, CUdevice device) {
    CUresult result = device_ready(device);
    if (result || !pool)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *pool = default_pool(device);
    return CUDA_SUCCESS;
}

API(cuDeviceGetMemPool)(CUmemoryPool *pool, CUdevice device) {
    CUresult result = device_ready(device);
    if (result || !pool)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *pool = pool_of(device);
    return CUDA_SUCCESS;
}

static CUresult pool_ready(CUmemoryPool pool) {
    CUresult result = driver_ready();
    if (result)
        return result;
    return handle_live(&pools, pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API(cuDeviceSetMemPool)(CUdevice device, CUmemoryPool pool) {
    CUresult result = device_ready(device);
    if (!result)
        result = pool_ready(pool);
    if (!result)
        __atomic_store_n(&current[device], pool, __ATOMIC_RELEASE);
    return result;
}

struct pool_props {
    unsigned type, handle_types;
    struct {
        unsigned type;
        int id;
    } location;
};

API(cuMemPoolCreate)(CUmemoryPool *pool, const struct pool_props *props) {
    CUresult result = driver_ready();
    if (result || !pool || !props)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    result = device_ready(props->location.id);
    if (result)
        return result;
    *pool = make(props->location.id);
    return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API(cuMemPoolDestroy)(CUmemoryPool pool) {
    CUresult result = pool_ready(pool);
    if (result)
        return result;
    if (pool == defaults[pool->device])
        return CUDA_ERROR_INVALID_VALUE;
    return handle_free(&pools, pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// CU_MEMPOOL_ATTR_*: the first three are integers (reuse policies), then 64-bit numbers.
enum {
    REUSE_FIRST = 1,
    REUSE_LAST = 3,
    RELEASE_THRESHOLD = 4,
    RESERVED_CURRENT = 5,
    USED_HIGH = 8,
};

static CUresult pool_attribute(CUmemoryPool pool, int attribute, const void *value) {
    CUresult result = pool_ready(pool);
    if (result)
        return result;
    return value && attribute >= REUSE_FIRST && attribute <= USED_HIGH ? CUDA_SUCCESS
                                                                       : CUDA_ERROR_INVALID_VALUE;
}

API(cuMemPoolSetAttribute)(CUmemoryPool pool, int attribute, void *value) {
    CUresult result = pool_attribute(pool, attribute, value);
    if (!result && attribute == RELEASE_THRESHOLD)
        pool->threshold = *(uint64_t *)value;
    return result;
}

API(cuMemPoolGetAttribute)(CUmemoryPool pool, int attribute, void *value) {
    CUresult result = pool_attribute(pool, attribute, value);
    if (result)
        return result;
    if (attribute <= REUSE_LAST)
        *(int *)value = 1;
    else if (attribute == RELEASE_THRESHOLD)
        *(uint64_t *)value = pool->threshold;
    else
        *(uint64_t *)value = memory_used(pool->device);
    return CUDA_SUCCESS;
}

API(cuMemPoolSetAccess)(CUmemoryPool pool, const void *map, size_t count) {
    CUresult result = pool_ready(pool);
    return result || (map && count) ? result : CUDA_ERROR_INVALID_VALUE;
}

API(cuMemPoolTrimTo)(CUmemoryPool pool, size_t keep UNUSED) {
    return pool_ready(pool);
}

static CUresult allocate(CUdeviceptr *address, size_t size, struct pool *pool, CUstream handle) {
    struct stream *s;
    CUresult result = stream_of(handle, &s);
    if (result)
        return result;
    struct pool *p = pool ? pool : pool_of(s->context->device);
    return memory_make(RANGE_DEVICE, s->context, p, size, 0, address);
}

API(cuMemAllocAsync)(CUdeviceptr *address, size_t size, CUstream stream) {
    return allocate(address, size, NULL, stream);
}

API(cuMemAllocFromPoolAsync)
(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream) {
    CUresult result = pool_ready(pool);
    return result ? result : allocate(address, size, pool, stream);
}

API(cuMemFreeAsync)(CUdeviceptr address, CUstream handle) {
    struct stream *s;
    struct range r;
    CUresult result = stream_of(handle, &s);
    if (result || !address)
        return result;
    if (!range_find(address, &r) || r.start != address || r.kind != RANGE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    struct work work = {.kind = WORK_FREE, .freed = address};
    return stream_submit(s, &work);
}

// Managed memory is where the program touches it.

static CUresult managed(CUdeviceptr address, size_t size, CUstream handle) {
    struct stream *s;
    CUresult result = stream_of(handle, &s);
    return result || range_covers(address, size) ? result : CUDA_ERROR_INVALID_VALUE;
}

API(cuMemPrefetchAsync)(CUdeviceptr address, size_t size, CUdevice device UNUSED, CUstream stream) {
    truth_bytes(size);
    return managed(address, size, stream);
}

struct location {
    unsigned type;
    int id;
};

API(cuMemPrefetchAsync_v2)
(CUdeviceptr address, size_t size, struct location to UNUSED, unsigned flags UNUSED,
 CUstream stream) {
    truth_bytes(size);
    return managed(address, size, stream);
}

API(cuMemAdvise)(CUdeviceptr address, size_t size, int advice UNUSED, CUdevice device UNUSED) {
    return managed(address, size, NULL);
}

API(cuMemAdvise_v2)
(CUdeviceptr address, size_t size, int advice UNUSED, struct location to UNUSED) {
    return managed(address, size, NULL);
}
