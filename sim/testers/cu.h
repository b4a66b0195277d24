// SPDX-License-Identifier: Apache-2.0
// The driver functions that testers call, loaded by name from whatever driver they were given. A
// driver that lacks one leaves a null pointer here.
#ifndef TESTERS_CU_H
#define TESTERS_CU_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef uint64_t CUdeviceptr;
typedef void (*host_fn)(void *);

struct launch_config {
    unsigned grid[3], block[3], shared;
    void *stream, *attributes;
    unsigned attribute_count;
};

struct allocation_prop {
    unsigned type, handle_types, location_type;
    int device;
    void *win32;
    unsigned char flags[8];
};

struct access_desc {
    unsigned location_type;
    int device;
    unsigned flags;
};

struct memcpy_2d {
    size_t from_x, from_y;
    unsigned from_type;
    const void *from_host;
    CUdeviceptr from_device;
    void *from_array;
    size_t from_pitch, to_x, to_y;
    unsigned to_type;
    void *to_host;
    CUdeviceptr to_device;
    void *to_array;
    size_t to_pitch, width, height;
};

#define LAUNCH_ARGUMENTS                                                                           \
    (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,         \
     void **, void **)

#define CU_FUNCTIONS(F)                                                                            \
    F(cuInit, (unsigned))                                                                          \
    F(cuDriverGetVersion, (int *))                                                                 \
    F(cuDeviceGetCount, (int *))                                                                   \
    F(cuDevicePrimaryCtxRetain, (void **, int))                                                    \
    F(cuDevicePrimaryCtxSetFlags_v2, (int, unsigned))                                              \
    F(cuDevicePrimaryCtxSetFlags, (int, unsigned))                                                 \
    F(cuDevicePrimaryCtxRelease_v2, (int))                                                         \
    F(cuCtxCreate_v2, (void **, unsigned, int))                                                    \
    F(cuCtxSetCurrent, (void *))                                                                   \
    F(cuCtxPushCurrent_v2, (void *))                                                               \
    F(cuCtxPopCurrent_v2, (void **))                                                               \
    F(cuCtxGetCurrent, (void **))                                                                  \
    F(cuCtxSynchronize, (void))                                                                    \
    F(cuModuleLoadData, (void **, const void *))                                                   \
    F(cuModuleGetFunction, (void **, void *, const char *))                                        \
    F(cuGetProcAddress, (const char *, void **, int, uint64_t))                                    \
    F(cuGetProcAddress_v2, (const char *, void **, int, uint64_t, int *))                          \
    F(cuLaunchKernel, LAUNCH_ARGUMENTS)                                                            \
    F(cuLaunchKernel_ptsz, LAUNCH_ARGUMENTS)                                                       \
    F(cuLaunchKernelEx, (const struct launch_config *, void *, void **, void **))                  \
    F(cuLaunchKernelEx_ptsz, (const struct launch_config *, void *, void **, void **))             \
    F(cuLaunchCooperativeKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned,        \
                                  unsigned, unsigned, void *, void **))                            \
    F(cuLaunchHostFunc, (void *, host_fn, void *))                                                 \
    F(cuStreamCreate, (void **, unsigned))                                                         \
    F(cuStreamDestroy_v2, (void *))                                                                \
    F(cuStreamSynchronize, (void *))                                                               \
    F(cuStreamSynchronize_ptsz, (void *))                                                          \
    F(cuStreamQuery, (void *))                                                                     \
    F(cuStreamWaitEvent, (void *, void *, unsigned))                                               \
    F(cuStreamIsCapturing, (void *, int *))                                                        \
    F(cuStreamBeginCapture_v2, (void *, int))                                                      \
    F(cuStreamEndCapture, (void *, void **))                                                       \
    F(cuEventCreate, (void **, unsigned))                                                          \
    F(cuEventDestroy_v2, (void *))                                                                 \
    F(cuEventRecord, (void *, void *))                                                             \
    F(cuEventQuery, (void *))                                                                      \
    F(cuEventSynchronize, (void *))                                                                \
    F(cuEventElapsedTime, (float *, void *, void *))                                               \
    F(cuMemAlloc, (CUdeviceptr *, size_t))                                                         \
    F(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                      \
    F(cuMemFree, (CUdeviceptr))                                                                    \
    F(cuMemFree_v2, (CUdeviceptr))                                                                 \
    F(cuMemAllocAsync, (CUdeviceptr *, size_t, void *))                                            \
    F(cuMemFreeAsync, (CUdeviceptr, void *))                                                       \
    F(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned))                                        \
    F(cuMemHostAlloc, (void **, size_t, unsigned))                                                 \
    F(cuMemFreeHost, (void *))                                                                     \
    F(cuMemHostRegister_v2, (void *, size_t, unsigned))                                            \
    F(cuMemHostUnregister, (void *))                                                               \
    F(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t))                                        \
    F(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t))                                              \
    F(cuMemcpyDtoD_v2, (CUdeviceptr, CUdeviceptr, size_t))                                         \
    F(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, void *))                           \
    F(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, void *))                                 \
    F(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, void *))                            \
    F(cuMemcpyAsync, (CUdeviceptr, CUdeviceptr, size_t, void *))                                   \
    F(cuMemcpy2D_v2, (const struct memcpy_2d *))                                                   \
    F(cuMemcpy2DAsync_v2, (const struct memcpy_2d *, void *))                                      \
    F(cuMemsetD8_v2, (CUdeviceptr, unsigned char, size_t))                                         \
    F(cuMemsetD16_v2, (CUdeviceptr, unsigned short, size_t))                                       \
    F(cuMemsetD32_v2, (CUdeviceptr, unsigned, size_t))                                             \
    F(cuMemsetD32Async, (CUdeviceptr, unsigned, size_t, void *))                                   \
    F(cuMemsetD2D8Async, (CUdeviceptr, size_t, unsigned char, size_t, size_t, void *))             \
    F(cuMemPrefetchAsync, (CUdeviceptr, size_t, int, void *))                                      \
    F(cuMemPrefetchAsync_v2, (CUdeviceptr, size_t, uint64_t, unsigned, void *))                    \
    F(cuMemGetInfo_v2, (size_t *, size_t *))                                                       \
    F(cuMemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, uint64_t))                 \
    F(cuMemAddressFree, (CUdeviceptr, size_t))                                                     \
    F(cuMemCreate, (void **, size_t, const struct allocation_prop *, uint64_t))                    \
    F(cuMemRelease, (void *))                                                                      \
    F(cuMemMap, (CUdeviceptr, size_t, size_t, void *, uint64_t))                                   \
    F(cuMemUnmap, (CUdeviceptr, size_t))                                                           \
    F(cuMemSetAccess, (CUdeviceptr, size_t, const struct access_desc *, size_t))                   \
    F(cuOccupancyMaxPotentialBlockSize, (int *, int *, void *, size_t (*)(int), size_t, int))      \
    F(cuGraphCreate, (void **, unsigned))                                                          \
    F(cuGraphDestroy, (void *))                                                                    \
    F(cuGraphInstantiateWithFlags, (void **, void *, uint64_t))                                    \
    F(cuGraphExecDestroy, (void *))                                                                \
    F(cuGraphLaunch, (void *, void *))                                                             \
    F(cuGLInit, (void))

// How the simulator is steered (sim/README.md); null on any other driver.
#define CONTROL_FUNCTIONS(F)                                                                       \
    F(simcuda_tag, (const char *))                                                                 \
    F(simcuda_reset_truth, (void))                                                                 \
    F(simcuda_write_truth, (const char *))                                                         \
    F(simcuda_set_hook, (void (*)(void)))                                                          \
    F(simcuda_set_kernel_ns, (uint64_t))

struct cu {
#define MEMBER(name, arguments) CUresult(*name) arguments;
    CU_FUNCTIONS(MEMBER)
#undef MEMBER
#define MEMBER(name, arguments) void(*name) arguments;
    CONTROL_FUNCTIONS(MEMBER)
#undef MEMBER
};

extern struct cu cu;

#endif
