// SPDX-License-Identifier: Apache-2.0
// Functions that programs call and that have nothing to do here.
#include <string.h>

#include "context.h"

// The profiler that these steer does not exist.
API(cuProfilerStart)(void) {
    struct context *c;
    return current_context(&c);
}
ALIAS(cuProfilerStop, cuProfilerStart);

// A tensor map is 128 opaque bytes that only kernels read.
enum { TENSOR_MAP_SIZE = 128 };

static CUresult make_map(void *map) {
    CUresult result = driver_ready();
    if (result)
        return result;
    if (!map || (uintptr_t)map % 64)
        return CUDA_ERROR_INVALID_VALUE;
    memset(map, 0, TENSOR_MAP_SIZE);
    return CUDA_SUCCESS;
}

API(cuTensorMapEncodeTiled)(void *map) {
    return make_map(map);
}

API(cuTensorMapEncodeIm2col)(void *map) {
    return make_map(map);
}

API(cuTensorMapReplaceAddress)(void *map, void *address) {
    CUresult result = driver_ready();
    if (result)
        return result;
    return map && address ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// The driver's private tables are not provided: NVIDIA's own runtime does not run on the simulator.
API(cuGetExportTable)(const void **table, const unsigned char *id) {
    if (!table || !id)
        return CUDA_ERROR_INVALID_VALUE;
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
