// SPDX-License-Identifier: Apache-2.0
//
// Copies and fills. The runtime's one function with a direction becomes the driver's function for
// that direction; a copy of nothing calls nothing.
#include "runtime.h"

static rt_error copy(void *to, const void *from, size_t size, int kind) {
    switch (kind) {
    case COPY_HOST_TO_DEVICE:
        return driver.cuMemcpyHtoD(to, from, size);
    case COPY_DEVICE_TO_HOST:
        return driver.cuMemcpyDtoH(to, from, size);
    case COPY_DEVICE_TO_DEVICE:
        return driver.cuMemcpyDtoD(to, from, size);
    default:
        return driver.cuMemcpy(to, from, size);
    }
}

static rt_error copy_async(void *to, const void *from, size_t size, int kind, handle stream) {
    switch (kind) {
    case COPY_HOST_TO_DEVICE:
        return driver.cuMemcpyHtoDAsync(to, from, size, stream);
    case COPY_DEVICE_TO_HOST:
        return driver.cuMemcpyDtoHAsync(to, from, size, stream);
    case COPY_DEVICE_TO_DEVICE:
        return driver.cuMemcpyDtoDAsync(to, from, size, stream);
    default:
        return driver.cuMemcpyAsync(to, from, size, stream);
    }
}

RUNTIME_API rt_error cudaMemcpy(void *to, const void *from, size_t size, int kind) {
    return ON_DEVICE(size ? copy(to, from, size, kind) : RT_SUCCESS);
}

RUNTIME_API rt_error cudaMemcpyAsync(void *to, const void *from, size_t size, int kind,
                                     handle stream) {
    return ON_DEVICE(size ? copy_async(to, from, size, kind, stream) : RT_SUCCESS);
}

// CUmemorytype
enum { DRIVER_HOST = 1, DRIVER_DEVICE = 2, DRIVER_UNIFIED = 4 };

static struct copy_side side(const void *address, size_t pitch, int kind, int device_kind) {
    struct copy_side s = {.host = address, .device = address, .pitch = pitch};
    if (kind == COPY_BY_ADDRESS)
        s.type = DRIVER_UNIFIED;
    else if (kind == device_kind || kind == COPY_DEVICE_TO_DEVICE)
        s.type = DRIVER_DEVICE;
    else
        s.type = DRIVER_HOST;
    return s;
}

RUNTIME_API rt_error cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from,
                                       size_t from_pitch, size_t width, size_t height, int kind,
                                       handle stream) {
    struct driver_copy2d plan = {
        .source = side(from, from_pitch, kind, COPY_DEVICE_TO_HOST),
        .destination = side(to, to_pitch, kind, COPY_HOST_TO_DEVICE),
        .width_bytes = width,
        .height = height,
    };
    return ON_DEVICE(width && height ? driver.cuMemcpy2DAsync(&plan, stream) : RT_SUCCESS);
}

RUNTIME_API rt_error cudaMemset(void *address, int value, size_t count) {
    return ON_DEVICE(count ? driver.cuMemsetD8(address, (unsigned char)value, count) : RT_SUCCESS);
}

RUNTIME_API rt_error cudaMemsetAsync(void *address, int value, size_t count, handle stream) {
    return ON_DEVICE(count ? driver.cuMemsetD8Async(address, (unsigned char)value, count, stream)
                           : RT_SUCCESS);
}
