// SPDX-License-Identifier: Apache-2.0
//
// Each thread has a current device and a last error; each device has one primary context for the
// whole process.
#include "runtime.h"

#include <pthread.h>
#include <stdbool.h>

enum { MAX_DEVICES = 64 };

static pthread_mutex_t retain_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(handle) primary[MAX_DEVICES];

static __thread struct {
    int device;
    bool bound; // the device's primary context was made current on this thread
    rt_error last_error;
} self;

// Retained on first use and, like the real runtime's, never released.
static rt_error primary_context(int device, handle *context) {
    if (device < 0 || device >= device_count() || device >= MAX_DEVICES)
        return RT_INVALID_DEVICE;
    *context = primary[device];
    if (*context)
        return RT_SUCCESS;
    pthread_mutex_lock(&retain_lock);
    rt_error error = RT_SUCCESS;
    *context = primary[device];
    if (!*context) {
        error = driver.cuDevicePrimaryCtxRetain(context, device);
        if (!error)
            primary[device] = *context;
    }
    pthread_mutex_unlock(&retain_lock);
    return error;
}

static rt_error make_current(int device) {
    handle context;
    rt_error error = primary_context(device, &context) ?: driver.cuCtxSetCurrent(context);
    if (!error) {
        self.device = device;
        self.bound = true;
    }
    return error;
}

rt_error enter_device(void) {
    rt_error error = enter_driver();
    if (error || self.bound)
        return error;
    return make_current(self.device);
}

rt_error finish(rt_error error) {
    if (error)
        self.last_error = error;
    return error;
}

RUNTIME_API rt_error cudaGetLastError(void) {
    rt_error error = self.last_error;
    self.last_error = RT_SUCCESS;
    return error;
}

RUNTIME_API rt_error cudaPeekAtLastError(void) {
    return self.last_error;
}

RUNTIME_API rt_error cudaGetDevice(int *device) {
    *device = self.device;
    return finish(enter_driver());
}

RUNTIME_API rt_error cudaSetDevice(int device) {
    return ON_DRIVER(make_current(device));
}

// The two calls that name other devices' contexts.

RUNTIME_API rt_error cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    handle context;
    return finish(enter_device() ?: primary_context(peer, &context)
                      ?: driver.cuCtxEnablePeerAccess(context, flags));
}

RUNTIME_API rt_error cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                         size_t size, handle stream) {
    handle to_context, from_context;
    return finish(enter_device() ?: primary_context(to_device, &to_context)
                      ?: primary_context(from_device, &from_context)
                      ?: driver.cuMemcpyPeerAsync(to, to_context, from, from_context, size,
                                                  stream));
}
