// SPDX-License-Identifier: Apache-2.0
//
// Device, host and managed memory, memory pools, what a pointer points to, and sharing it with
// other processes.
#include "runtime.h"

#include <string.h>

RUNTIME_API rt_error cudaMalloc(void **address, size_t size) {
    if (size == 0) {
        *address = NULL;
        return finish(enter_device());
    }
    return ON_DEVICE(driver.cuMemAlloc(address, size));
}

// cudaFree(NULL) is the customary way to create the context early.
RUNTIME_API rt_error cudaFree(void *address) {
    return ON_DEVICE(address ? driver.cuMemFree(address) : RT_SUCCESS);
}

RUNTIME_API rt_error cudaMallocAsync(void **address, size_t size, handle stream) {
    return ON_DEVICE(driver.cuMemAllocAsync(address, size, stream));
}

RUNTIME_API rt_error cudaFreeAsync(void *address, handle stream) {
    return ON_DEVICE(driver.cuMemFreeAsync(address, stream));
}

RUNTIME_API rt_error cudaMallocManaged(void **address, size_t size, unsigned flags) {
    return ON_DEVICE(driver.cuMemAllocManaged(address, size, flags));
}

RUNTIME_API rt_error cudaHostAlloc(void **address, size_t size, unsigned flags) {
    return ON_DEVICE(driver.cuMemHostAlloc(address, size, flags));
}

RUNTIME_API rt_error cudaMallocHost(void **address, size_t size) {
    return ON_DEVICE(driver.cuMemHostAlloc(address, size, 0));
}

RUNTIME_API rt_error cudaFreeHost(void *address) {
    return ON_DEVICE(address ? driver.cuMemFreeHost(address) : RT_SUCCESS);
}

RUNTIME_API rt_error cudaHostRegister(void *address, size_t size, unsigned flags) {
    return ON_DEVICE(driver.cuMemHostRegister(address, size, flags));
}

RUNTIME_API rt_error cudaHostUnregister(void *address) {
    return ON_DEVICE(driver.cuMemHostUnregister(address));
}

RUNTIME_API rt_error cudaHostGetDevicePointer(void **device, void *host, unsigned flags) {
    return ON_DEVICE(driver.cuMemHostGetDevicePointer(device, host, flags));
}

RUNTIME_API rt_error cudaMemGetInfo(size_t *free, size_t *total) {
    return ON_DEVICE(driver.cuMemGetInfo(free, total));
}

RUNTIME_API rt_error cudaMemPoolGetAttribute(handle pool, int attribute, void *value) {
    return ON_DEVICE(driver.cuMemPoolGetAttribute(pool, attribute, value));
}

RUNTIME_API rt_error cudaMemPoolSetAttribute(handle pool, int attribute, void *value) {
    return ON_DEVICE(driver.cuMemPoolSetAttribute(pool, attribute, value));
}

RUNTIME_API rt_error cudaMemPoolSetAccess(handle pool, const void *access, size_t count) {
    return ON_DEVICE(driver.cuMemPoolSetAccess(pool, access, count));
}

RUNTIME_API rt_error cudaMemPoolTrimTo(handle pool, size_t keep) {
    return ON_DEVICE(driver.cuMemPoolTrimTo(pool, keep));
}

// CUpointer_attribute
enum {
    POINTER_MEMORY_TYPE = 2,
    POINTER_DEVICE_POINTER = 3,
    POINTER_HOST_POINTER = 4,
    POINTER_IS_MANAGED = 8,
    POINTER_DEVICE_ORDINAL = 9,
};

// Memory that CUDA doesn't know is no error: it is of type "unregistered".
RUNTIME_API rt_error cudaPointerGetAttributes(struct pointer_attributes *out, const void *address) {
    unsigned type = MEMORY_UNREGISTERED, managed = 0;
    memset(out, 0, sizeof(*out));
    int asked[] = {POINTER_MEMORY_TYPE, POINTER_IS_MANAGED, POINTER_DEVICE_ORDINAL,
                   POINTER_DEVICE_POINTER, POINTER_HOST_POINTER};
    void *answers[] = {&type, &managed, &out->device, &out->device_pointer, &out->host_pointer};
    rt_error error = enter_device() ?: driver.cuPointerGetAttributes(5, asked, answers, address);
    out->type = managed ? MEMORY_MANAGED : (int)type;
    if (out->type == MEMORY_UNREGISTERED) {
        out->device = -2; // cudaInvalidDeviceId
        out->host_pointer = (void *)address;
    }
    return finish(error);
}

RUNTIME_API rt_error cudaIpcGetMemHandle(ipc_handle *out, void *address) {
    return ON_DEVICE(driver.cuIpcGetMemHandle(out, address));
}

RUNTIME_API rt_error cudaIpcOpenMemHandle(void **address, ipc_handle memory, unsigned flags) {
    return ON_DEVICE(driver.cuIpcOpenMemHandle(address, memory, flags));
}

RUNTIME_API rt_error cudaIpcCloseMemHandle(void *address) {
    return ON_DEVICE(driver.cuIpcCloseMemHandle(address));
}
