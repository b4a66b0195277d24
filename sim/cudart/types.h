// SPDX-License-Identifier: Apache-2.0
//
// The public types of the CUDA runtime's C interface that we take or fill, declared anew so that
// the build needs no CUDA toolkit. Only layouts matter: abi_check.c compares every one of them
// with the real headers (`make check-abi CUDA_INCLUDE=...`).
#ifndef SIM_CUDART_TYPES_H
#define SIM_CUDART_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifndef CUDART_VERSION
#error "CUDART_VERSION selects the interface: 12040 or 13020"
#endif
#define CUDART_MAJOR (CUDART_VERSION / 1000)

// cudaError_t has CUresult's values wherever both have the same error.
typedef int rt_error;
enum {
    RT_SUCCESS = 0,
    RT_INVALID_VALUE = 1,
    RT_INVALID_SYMBOL = 13,
    RT_INSUFFICIENT_DRIVER = 35,
    RT_CALL_REQUIRES_NEWER_DRIVER = 36,
    RT_MISSING_CONFIGURATION = 52,
    RT_INVALID_DEVICE_FUNCTION = 98,
    RT_NO_DEVICE = 100,
    RT_INVALID_DEVICE = 101,
    RT_SYMBOL_NOT_FOUND = 500,
    RT_NOT_SUPPORTED = 801,
};

// Streams, events, graphs, pools, kernels: pointers that only the driver looks behind.
typedef void *handle;

typedef struct {
    unsigned x, y, z;
} dim3;

// cudaMemcpyKind
enum copy_kind {
    COPY_HOST_TO_HOST = 0,
    COPY_HOST_TO_DEVICE = 1,
    COPY_DEVICE_TO_HOST = 2,
    COPY_DEVICE_TO_DEVICE = 3,
    COPY_BY_ADDRESS = 4,
};

// The cudaMemoryType values that differ in meaning from the driver's CUmemorytype
enum memory_type { MEMORY_UNREGISTERED = 0, MEMORY_MANAGED = 3 };

// cudaPointerAttributes
struct pointer_attributes {
    int type;
    int device;
    void *device_pointer;
    void *host_pointer;
#if CUDART_MAJOR >= 13
    long reserved[8];
#endif
};

// cudaFuncAttributes
struct function_attributes {
    size_t shared_bytes;
    size_t constant_bytes;
    size_t local_bytes;
    int max_threads_per_block;
    int registers;
    int ptx_version;
    int binary_version;
    int cache_mode_ca;
    int max_dynamic_shared_bytes;
    int preferred_shared_carveout;
    int cluster_dim_must_be_set;
    int required_cluster[3];
    int cluster_scheduling_policy;
    int non_portable_cluster_allowed;
    int reserved[16];
};

// cudaLaunchConfig_t
struct launch_config {
    dim3 grid;
    dim3 block;
    size_t shared_bytes;
    handle stream;
    void *attributes;
    unsigned attribute_count;
};

// CUlaunchConfig: what cuLaunchKernelEx takes
struct driver_launch_config {
    dim3 grid;
    dim3 block;
    unsigned shared_bytes;
    handle stream;
    void *attributes;
    unsigned attribute_count;
};

// One side of CUDA_MEMCPY2D
struct copy_side {
    size_t x_bytes;
    size_t y;
    unsigned type;
    const void *host;
    const void *device;
    handle array;
    size_t pitch;
};

// CUDA_MEMCPY2D: what cuMemcpy2DAsync takes
struct driver_copy2d {
    struct copy_side source;
    struct copy_side destination;
    size_t width_bytes;
    size_t height;
};

// cudaIpcMemHandle_t and cudaIpcEventHandle_t, passed by value
typedef struct {
    char bytes[64];
} ipc_handle;

// __fatBinC_Wrapper_t: what nvcc's stubs register for each object file with device code
struct fat_binary_wrapper {
    int magic;
    int version;
    const void *data;
    void *file_name;
};

// cudaDeviceProp; its fields are in device_props.inc, except for the name, which comes first.
enum {
    DEVICE_PROP_SIZE = CUDART_MAJOR >= 13 ? 1008 : 1032,
    DEVICE_NAME_SIZE = 256,
    DEVICE_UUID_OFFSET = 256,
    DEVICE_TOTAL_MEMORY_OFFSET = 288,
};

#endif
