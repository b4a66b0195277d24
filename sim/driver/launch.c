// SPDX-License-Identifier: Apache-2.0
// Kernel launches, in every spelling.
#include "clock.h"
#include "config.h"
#include "context.h"
#include "function.h"
#include "stream.h"

struct dimensions {
    unsigned x, y, z;
};

enum { BLOCK_THREADS = 1024, BLOCK_XY = 1024, BLOCK_Z = 64, GRID_YZ = 65535, GRID_X = 2147483647 };

static bool grid_valid(struct dimensions d) {
    return d.x && d.y && d.z && d.x <= GRID_X && d.y <= GRID_YZ && d.z <= GRID_YZ;
}

static bool block_valid(struct dimensions d) {
    return d.x && d.y && d.z && d.x <= BLOCK_XY && d.y <= BLOCK_XY && d.z <= BLOCK_Z &&
           (uint64_t)d.x * d.y * d.z <= BLOCK_THREADS;
}

static CUresult launch(CUfunction function, struct dimensions grid, struct dimensions block,
                       unsigned shared, CUstream handle) {
    struct stream *stream;
    CUresult result = stream_of(handle, &stream);
    if (result)
        return result;
    if (!function_live(function))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!grid_valid(grid) || !block_valid(block) || shared > function_shared(function))
        return CUDA_ERROR_INVALID_VALUE;
    spend_ns(config.launch_ns);
    return stream_launch(stream);
}

API(cuLaunchKernel)
(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
 unsigned shared, CUstream stream, void **params UNUSED, void **extra UNUSED) {
    return launch(function, (struct dimensions){gx, gy, gz}, (struct dimensions){bx, by, bz},
                  shared, stream);
}

API(cuLaunchCooperativeKernel)
(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
 unsigned shared, CUstream stream, void **params UNUSED) {
    return launch(function, (struct dimensions){gx, gy, gz}, (struct dimensions){bx, by, bz},
                  shared, stream);
}

struct launch_config {
    struct dimensions grid, block;
    unsigned shared;
    CUstream stream;
    void *attributes;
    unsigned attribute_count;
};
_Static_assert(sizeof(struct launch_config) == 56, "CUlaunchConfig");

API(cuLaunchKernelEx)
(const struct launch_config *c, CUfunction function, void **params UNUSED, void **extra UNUSED) {
    CUresult result = driver_ready();
    if (result || !c)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    return launch(function, c->grid, c->block, c->shared, c->stream);
}

struct cooperative_params {
    CUfunction function;
    struct dimensions grid, block;
    unsigned shared;
    CUstream stream;
    void **params;
};

API(cuLaunchCooperativeKernelMultiDevice)
(const struct cooperative_params *list, unsigned count, unsigned flags UNUSED) {
    CUresult result = driver_ready();
    if (result || !list || !count)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count && !result; i++)
        result =
            launch(list[i].function, list[i].grid, list[i].block, list[i].shared, list[i].stream);
    return result;
}
