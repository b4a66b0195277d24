// SPDX-License-Identifier: Apache-2.0
//
// Devices and their properties.
#include "runtime.h"

#include <string.h>

enum { NO_FIELD = -1 };

static const struct {
    int offset;
    int bytes;
    int attribute;
} properties[] = {
#if CUDART_MAJOR >= 13
#define DEVICE_PROP(field, offset_12, offset_13, bytes, attribute) {offset_13, bytes, attribute},
#else
#define DEVICE_PROP(field, offset_12, offset_13, bytes, attribute) {offset_12, bytes, attribute},
#endif
#include "device_props.inc"
#undef DEVICE_PROP
};

// An attribute that the driver doesn't know leaves its field at zero.
static void fill_from_attributes(char *prop, int device) {
    for (size_t i = 0; i < sizeof(properties) / sizeof(properties[0]); i++) {
        int value = 0;
        if (properties[i].offset == NO_FIELD ||
            driver.cuDeviceGetAttribute(&value, properties[i].attribute, device))
            continue;
        size_t wide = (size_t)value;
        if (properties[i].bytes == sizeof(wide))
            memcpy(prop + properties[i].offset, &wide, sizeof(wide));
        else
            memcpy(prop + properties[i].offset, &value, sizeof(value));
    }
}

static rt_error fill_properties(char *prop, int device) {
    if (device < 0 || device >= device_count())
        return RT_INVALID_DEVICE;
    memset(prop, 0, DEVICE_PROP_SIZE);
    size_t total = 0;
    rt_error error = driver.cuDeviceGetName(prop, DEVICE_NAME_SIZE, device)
                         ?: driver.cuDeviceGetUuid(prop + DEVICE_UUID_OFFSET, device)
                         ?: driver.cuDeviceTotalMem(&total, device);
    memcpy(prop + DEVICE_TOTAL_MEMORY_OFFSET, &total, sizeof(total));
    fill_from_attributes(prop, device);
    return error;
}

#if CUDART_MAJOR >= 13
RUNTIME_API rt_error cudaGetDeviceProperties(void *prop, int device) {
#else
RUNTIME_API rt_error cudaGetDeviceProperties_v2(void *prop, int device) {
#endif
    return ON_DRIVER(fill_properties(prop, device));
}

RUNTIME_API rt_error cudaGetDeviceCount(int *count) {
    rt_error error = enter_driver();
    *count = error ? 0 : device_count();
    return finish(error);
}

RUNTIME_API rt_error cudaDriverGetVersion(int *version) {
    *version = driver_version();
    return RT_SUCCESS;
}

RUNTIME_API rt_error cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return RT_SUCCESS;
}

// cudaDeviceAttr has CUdevice_attribute's values.
RUNTIME_API rt_error cudaDeviceGetAttribute(int *value, int attribute, int device) {
    return ON_DRIVER(driver.cuDeviceGetAttribute(value, attribute, device));
}

RUNTIME_API rt_error cudaDeviceGetPCIBusId(char *id, int size, int device) {
    return ON_DRIVER(driver.cuDeviceGetPCIBusId(id, size, device));
}

RUNTIME_API rt_error cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    return ON_DRIVER(driver.cuDeviceCanAccessPeer(can, device, peer));
}

RUNTIME_API rt_error cudaDeviceGetDefaultMemPool(handle *pool, int device) {
    return ON_DRIVER(driver.cuDeviceGetDefaultMemPool(pool, device));
}

RUNTIME_API rt_error cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    return ON_DEVICE(driver.cuCtxGetStreamPriorityRange(least, greatest));
}

RUNTIME_API rt_error cudaDeviceSynchronize(void) {
    return ON_DEVICE(driver.cuCtxSynchronize());
}

RUNTIME_API rt_error cudaProfilerStart(void) {
    return ON_DEVICE(driver.cuProfilerStart());
}

RUNTIME_API rt_error cudaProfilerStop(void) {
    return ON_DEVICE(driver.cuProfilerStop());
}
