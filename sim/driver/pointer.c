// SPDX-License-Identifier: Apache-2.0
// What the driver knows of an address.
#include "context.h"
#include "memory.h"

// CU_POINTER_ATTRIBUTE_*
enum attribute {
    ATTRIBUTE_CONTEXT = 1,
    ATTRIBUTE_MEMORY_TYPE = 2,
    ATTRIBUTE_DEVICE_POINTER = 3,
    ATTRIBUTE_HOST_POINTER = 4,
    ATTRIBUTE_SYNC_MEMOPS = 6,
    ATTRIBUTE_BUFFER_ID = 7,
    ATTRIBUTE_IS_MANAGED = 8,
    ATTRIBUTE_DEVICE_ORDINAL = 9,
    ATTRIBUTE_IS_LEGACY_IPC_CAPABLE = 10,
    ATTRIBUTE_RANGE_START = 11,
    ATTRIBUTE_RANGE_SIZE = 12,
    ATTRIBUTE_MAPPED = 13,
    ATTRIBUTE_ALLOWED_HANDLE_TYPES = 14,
    ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE = 15,
    ATTRIBUTE_ACCESS_FLAGS = 16,
    ATTRIBUTE_MEMPOOL_HANDLE = 17,
};

static bool on_host(const struct range *r) {
    return r->kind == RANGE_PINNED || r->kind == RANGE_REGISTERED;
}

static bool host_reads(const struct range *r) {
    return on_host(r) || r->kind == RANGE_MANAGED;
}

// Writes one attribute of an address in a range; false if the range has no such thing.
static bool write_known(void *out, enum attribute attribute, CUdeviceptr address,
                        const struct range *r) {
    switch (attribute) {
    case ATTRIBUTE_CONTEXT:
        *(CUcontext *)out = r->context;
        return true;
    case ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)out = on_host(r) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return true;
    case ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)out = address;
        return true;
    case ATTRIBUTE_HOST_POINTER:
        *(CUdeviceptr *)out = host_reads(r) ? address : 0;
        return host_reads(r);
    case ATTRIBUTE_SYNC_MEMOPS:
        *(int *)out = 0;
        return true;
    case ATTRIBUTE_BUFFER_ID:
        *(uint64_t *)out = r->id;
        return true;
    case ATTRIBUTE_IS_MANAGED:
        *(unsigned *)out = r->kind == RANGE_MANAGED;
        return true;
    case ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)out = r->device;
        return true;
    case ATTRIBUTE_IS_LEGACY_IPC_CAPABLE:
        *(unsigned *)out = 0;
        return true;
    case ATTRIBUTE_RANGE_START:
        *(CUdeviceptr *)out = r->start;
        return true;
    case ATTRIBUTE_RANGE_SIZE:
        *(size_t *)out = r->size;
        return true;
    case ATTRIBUTE_MAPPED:
        *(unsigned *)out = 1;
        return true;
    case ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(uint64_t *)out = 0;
        return true;
    case ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(unsigned *)out = 1;
        return true;
    case ATTRIBUTE_ACCESS_FLAGS:
        *(unsigned *)out = 3; // read and write
        return true;
    case ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)out = r->pool;
        return true;
    }
    return false;
}

// The same for an address that the driver does not know.
static void write_unknown(void *out, enum attribute attribute) {
    switch (attribute) {
    case ATTRIBUTE_CONTEXT:
    case ATTRIBUTE_DEVICE_POINTER:
    case ATTRIBUTE_HOST_POINTER:
    case ATTRIBUTE_BUFFER_ID:
    case ATTRIBUTE_RANGE_START:
    case ATTRIBUTE_RANGE_SIZE:
    case ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case ATTRIBUTE_MEMPOOL_HANDLE:
        *(uint64_t *)out = 0;
        break;
    case ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)out = -2; // CU_DEVICE_INVALID
        break;
    default:
        *(unsigned *)out = 0;
    }
}

API(cuPointerGetAttribute)(void *out, int attribute, CUdeviceptr address) {
    struct range r;
    CUresult result = driver_ready();
    if (result)
        return result;
    if (!out || !range_find(address, &r) ||
        !write_known(out, (enum attribute)attribute, address, &r))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

// Unlike the single form, this one answers for any address.
API(cuPointerGetAttributes)
(unsigned count, const int *attributes, void **out, CUdeviceptr address) {
    struct range r;
    CUresult result = driver_ready();
    if (result)
        return result;
    if (!count || !attributes || !out)
        return CUDA_ERROR_INVALID_VALUE;
    bool known = range_find(address, &r);
    for (unsigned i = 0; i < count; i++)
        if (!known || !write_known(out[i], (enum attribute)attributes[i], address, &r))
            write_unknown(out[i], (enum attribute)attributes[i]);
    return CUDA_SUCCESS;
}

API(cuPointerSetAttribute)(const void *value, int attribute, CUdeviceptr address) {
    struct range r;
    CUresult result = driver_ready();
    if (result)
        return result;
    return value && attribute == ATTRIBUTE_SYNC_MEMOPS && range_find(address, &r)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}
