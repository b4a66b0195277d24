// SPDX-License-Identifier: Apache-2.0
//
// Events.
#include "runtime.h"

RUNTIME_API rt_error cudaEventCreate(handle *event) {
    return ON_DEVICE(driver.cuEventCreate(event, 0));
}

RUNTIME_API rt_error cudaEventCreateWithFlags(handle *event, unsigned flags) {
    return ON_DEVICE(driver.cuEventCreate(event, flags));
}

RUNTIME_API rt_error cudaEventDestroy(handle event) {
    return ON_DEVICE(driver.cuEventDestroy(event));
}

RUNTIME_API rt_error cudaEventRecord(handle event, handle stream) {
    return ON_DEVICE(driver.cuEventRecord(event, stream));
}

RUNTIME_API rt_error cudaEventRecordWithFlags(handle event, handle stream, unsigned flags) {
    return ON_DEVICE(driver.cuEventRecordWithFlags(event, stream, flags));
}

RUNTIME_API rt_error cudaEventQuery(handle event) {
    return ON_DEVICE(driver.cuEventQuery(event));
}

RUNTIME_API rt_error cudaEventSynchronize(handle event) {
    return ON_DEVICE(driver.cuEventSynchronize(event));
}

RUNTIME_API rt_error cudaEventElapsedTime(float *milliseconds, handle start, handle end) {
    return ON_DEVICE(driver.cuEventElapsedTime(milliseconds, start, end));
}

RUNTIME_API rt_error cudaIpcGetEventHandle(ipc_handle *out, handle event) {
    return ON_DEVICE(driver.cuIpcGetEventHandle(out, event));
}

RUNTIME_API rt_error cudaIpcOpenEventHandle(handle *event, ipc_handle from) {
    return ON_DEVICE(driver.cuIpcOpenEventHandle(event, from));
}
