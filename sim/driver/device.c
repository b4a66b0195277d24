// SPDX-License-Identifier: Apache-2.0
// Devices: what the simulated cards are.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "context.h"

// CU_DEVICE_ATTRIBUTE_* by number. An A100; compute capability 9.0 and later differ below.
// clang-format off
static const int attributes[] = {
    [1] = 1024,       // max threads per block
    [2] = 1024,       // max block dimensions
    [3] = 1024,
    [4] = 64,
    [5] = 2147483647, // max grid dimensions
    [6] = 65535,
    [7] = 65535,
    [8] = 49152,      // shared memory per block
    [9] = 65536,      // constant memory
    [10] = 32,        // warp size
    [11] = 2147483647, // max pitch
    [12] = 65536,     // registers per block
    [13] = 1410000,   // clock, kHz
    [14] = 512,       // texture alignment
    [15] = 1,         // copies overlap kernels
    [16] = 108,       // multiprocessors
    [19] = 1,         // can map host memory
    [21] = 131072,    // texture widths and heights: 1D, 2D, 3D, layered
    [22] = 131072,
    [23] = 65536,
    [24] = 16384,
    [25] = 16384,
    [26] = 16384,
    [27] = 32768,
    [28] = 32768,
    [29] = 2048,
    [30] = 512,       // surface alignment
    [31] = 1,         // concurrent kernels
    [32] = 1,         // ECC
    [33] = 7,         // PCI bus; the device's ordinal is added
    [36] = 1512000,   // memory clock, kHz
    [37] = 5120,      // memory bus width
    [38] = 41943040,  // L2 cache
    [39] = 2048,      // max threads per multiprocessor
    [40] = 3,         // copy engines
    [41] = 1,         // unified addressing
    [42] = 32768,     // layered textures
    [43] = 2048,
    [45] = 32768,
    [46] = 32768,
    [47] = 8192,
    [48] = 8192,
    [49] = 32768,
    [51] = 32,        // texture pitch alignment
    [52] = 32768,     // cubemaps and surfaces
    [53] = 32768,
    [54] = 2046,
    [55] = 32768,
    [56] = 131072,
    [57] = 65536,
    [58] = 16384,
    [59] = 16384,
    [60] = 16384,
    [61] = 32768,
    [62] = 2048,
    [63] = 32768,
    [64] = 32768,
    [65] = 2048,
    [66] = 32768,
    [67] = 32768,
    [68] = 2046,
    [69] = 268435456, // linear textures
    [70] = 131072,
    [71] = 65000,
    [72] = 2097120,
    [73] = 32768,
    [74] = 32768,
    [77] = 32768,     // mipmapped textures
    [78] = 1,         // stream priorities
    [79] = 1,         // L1 for globals
    [80] = 1,         // L1 for locals
    [81] = 167936,    // shared memory per multiprocessor
    [82] = 65536,     // registers per multiprocessor
    [83] = 1,         // managed memory
    [86] = 1,         // native host atomics
    [87] = 2,         // single to double performance
    [88] = 1,         // pageable memory access
    [89] = 1,         // concurrent managed access
    [90] = 1,         // compute preemption
    [91] = 1,         // host pointers of registered memory
    [95] = 1,         // cooperative launch
    [97] = 166912,    // shared memory per block, opt-in
    [99] = 1,         // host register
    [100] = 1,        // pageable memory through the host's page tables
    [101] = 1,        // managed memory directly from the host
    [102] = 1,        // virtual memory management
    [106] = 32,       // blocks per multiprocessor
    [107] = 1,        // generic compression
    [108] = 31457280, // persisting L2
    [109] = 134213632, // access policy window
    [110] = 1,        // RDMA with virtual memory management
    [111] = 1024,     // reserved shared memory per block
    [112] = 1,        // sparse arrays
    [113] = 1,        // read-only host registration
    [115] = 1,        // memory pools
    [116] = 1,        // GPUDirect RDMA
    [122] = 1,        // unified function pointers
};
// clang-format on

enum {
    ATTRIBUTE_COUNT = sizeof(attributes) / sizeof(*attributes),
    ATTRIBUTE_LAST_KNOWN = 170, // up to here a number of no meaning to us is "no"
    ATTRIBUTE_MULTIPROCESSORS = 16,
    ATTRIBUTE_PCI_BUS = 33,
    ATTRIBUTE_MAJOR = 75,
    ATTRIBUTE_MINOR = 76,
    BUS = 7,
};

static bool is_hopper(void) {
    return config.sm >= 90;
}

static int attribute_of(int attribute, CUdevice device) {
    switch (attribute) {
    case ATTRIBUTE_PCI_BUS:
        return BUS + device;
    case ATTRIBUTE_MAJOR:
        return config.sm / 10;
    case ATTRIBUTE_MINOR:
        return config.sm % 10;
    }
    if (is_hopper())
        switch (attribute) {
        case 13:
            return 1980000;
        case ATTRIBUTE_MULTIPROCESSORS:
            return 132;
        case 38:
            return 52428800;
        case 81:
            return 233472;
        case 97:
            return 232448;
        case 120: // cluster launch
        case 127: // tensor maps
            return 1;
        }
    return attribute < ATTRIBUTE_COUNT ? attributes[attribute] : 0;
}

API(cuDeviceGetAttribute)(int *value, int attribute, CUdevice device) {
    CUresult result = device_ready(device);
    if (result)
        return result;
    if (!value || attribute < 1 || attribute > ATTRIBUTE_LAST_KNOWN)
        return CUDA_ERROR_INVALID_VALUE;
    *value = attribute_of(attribute, device);
    return CUDA_SUCCESS;
}

API(cuDeviceGetCount)(int *count) {
    CUresult result = driver_ready();
    if (result || !count)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *count = config.devices;
    return CUDA_SUCCESS;
}

API(cuDeviceGet)(CUdevice *device, int ordinal) {
    CUresult result = device_ready(ordinal);
    if (result || !device)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

API(cuDeviceGetName)(char *name, int size, CUdevice device) {
    CUresult result = device_ready(device);
    if (result || !name || size < 1)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    snprintf(name, (size_t)size, "Simulated %s", is_hopper() ? "H100 80GB HBM3" : "A100-SXM4-80GB");
    return CUDA_SUCCESS;
}

API(cuDeviceTotalMem)(size_t *bytes, CUdevice device) {
    CUresult result = device_ready(device);
    if (result || !bytes)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *bytes = config.memory;
    return CUDA_SUCCESS;
}
ALIAS(cuDeviceTotalMem_v2, cuDeviceTotalMem);

API(cuDeviceGetUuid)(unsigned char *uuid, CUdevice device) {
    CUresult result = device_ready(device);
    if (result || !uuid)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    static const unsigned char start[16] = "simcuda device ";
    memcpy(uuid, start, sizeof(start));
    uuid[15] = (unsigned char)device;
    return CUDA_SUCCESS;
}
ALIAS(cuDeviceGetUuid_v2, cuDeviceGetUuid);

API(cuDeviceGetPCIBusId)(char *text, int size, CUdevice device) {
    CUresult result = device_ready(device);
    if (result || !text || size < 1)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    snprintf(text, (size_t)size, "0000:%02X:00.0", BUS + device);
    return CUDA_SUCCESS;
}

API(cuDeviceGetByPCIBusId)(CUdevice *device, const char *text) {
    unsigned domain, bus, slot;
    CUresult result = driver_ready();
    if (result || !device || !text)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    if (sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3)
        return CUDA_ERROR_INVALID_VALUE;
    *device = (CUdevice)bus - BUS;
    return device_ready(*device);
}

API(cuDeviceComputeCapability)(int *major, int *minor, CUdevice device) {
    CUresult result = device_ready(device);
    if (result || !major || !minor)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *major = config.sm / 10;
    *minor = config.sm % 10;
    return CUDA_SUCCESS;
}

API(cuDeviceGetProperties)(int *properties, CUdevice device) {
    CUresult result = device_ready(device);
    if (result || !properties)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < 14; i++) // CUdevprop is the first attributes in order
        properties[i] = attribute_of(i + 1, device);
    return CUDA_SUCCESS;
}

static CUresult pair_ready(CUdevice a, CUdevice b) {
    CUresult result = device_ready(a);
    return result ? result : device_ready(b);
}

API(cuDeviceCanAccessPeer)(int *can, CUdevice device, CUdevice peer) {
    CUresult result = pair_ready(device, peer);
    if (result || !can)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *can = device != peer;
    return CUDA_SUCCESS;
}

API(cuDeviceGetP2PAttribute)(int *value, int attribute UNUSED, CUdevice device, CUdevice peer) {
    CUresult result = pair_ready(device, peer);
    if (result || !value || device == peer)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *value = 1;
    return CUDA_SUCCESS;
}

API(cuDeviceGetTexture1DLinearMaxWidth)
(size_t *width, int format UNUSED, unsigned channels UNUSED, CUdevice device) {
    CUresult result = device_ready(device);
    if (result || !width)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *width = 268435456;
    return CUDA_SUCCESS;
}

API(cuDeviceGetExecAffinitySupport)(int *supported, int type UNUSED, CUdevice device) {
    CUresult result = device_ready(device);
    if (result || !supported)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *supported = 0;
    return CUDA_SUCCESS;
}
