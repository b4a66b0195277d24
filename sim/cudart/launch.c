// SPDX-License-Identifier: Apache-2.0
//
// Kernel launches and what can be asked about a kernel.
#include "runtime.h"

// nvcc's stubs pass the <<<…>>> of a call through a small per-thread stack.
enum { MAX_PENDING = 16 };

static __thread struct {
    dim3 grid;
    dim3 block;
    size_t shared_bytes;
    handle stream;
} pending[MAX_PENDING];
static __thread int pending_count;

RUNTIME_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                                 handle stream) {
    if (pending_count == MAX_PENDING)
        return RT_INVALID_VALUE; // the stub then skips the launch
    pending[pending_count].grid = grid;
    pending[pending_count].block = block;
    pending[pending_count].shared_bytes = shared_bytes;
    pending[pending_count].stream = stream;
    pending_count++;
    return RT_SUCCESS;
}

RUNTIME_API rt_error __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes,
                                                handle *stream) {
    if (pending_count == 0)
        return finish(RT_MISSING_CONFIGURATION);
    pending_count--;
    *grid = pending[pending_count].grid;
    *block = pending[pending_count].block;
    *shared_bytes = pending[pending_count].shared_bytes;
    *stream = pending[pending_count].stream;
    return RT_SUCCESS;
}

// A CUkernel may be launched in place of a CUfunction since CUDA 12.0.
static rt_error launch(handle kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                       handle stream) {
    return driver.cuLaunchKernel(kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                 (unsigned)shared_bytes, stream, arguments, NULL);
}

RUNTIME_API rt_error cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **arguments,
                                      size_t shared_bytes, handle stream) {
    handle kernel;
    return finish(enter_device() ?: find_kernel(host, &kernel)
                      ?: launch(kernel, grid, block, arguments, shared_bytes, stream));
}

RUNTIME_API rt_error __cudaLaunchKernel(handle kernel, dim3 grid, dim3 block, void **arguments,
                                        size_t shared_bytes, handle stream) {
    return ON_DEVICE(launch(kernel, grid, block, arguments, shared_bytes, stream));
}

RUNTIME_API rt_error cudaLaunchKernelExC(const struct launch_config *config, const void *host,
                                         void **arguments) {
    struct driver_launch_config plan = {
        .grid = config->grid,
        .block = config->block,
        .shared_bytes = (unsigned)config->shared_bytes,
        .stream = config->stream,
        .attributes = config->attributes,
        .attribute_count = config->attribute_count,
    };
    handle kernel;
    return finish(enter_device() ?: find_kernel(host, &kernel)
                      ?: driver.cuLaunchKernelEx(&plan, kernel, arguments, NULL));
}

RUNTIME_API rt_error cudaLaunchCooperativeKernel(const void *host, dim3 grid, dim3 block,
                                                 void **arguments, size_t shared_bytes,
                                                 handle stream) {
    handle kernel;
    return finish(enter_device() ?: find_kernel(host, &kernel)
                      ?: driver.cuLaunchCooperativeKernel(kernel, grid.x, grid.y, grid.z, block.x,
                                                          block.y, block.z,
                                                          (unsigned)shared_bytes, stream,
                                                          arguments));
}

// The context's own function, which the attribute calls want.
static rt_error find_function(const void *host, handle *function) {
    handle kernel;
    return find_kernel(host, &kernel) ?: driver.cuKernelGetFunction(function, kernel);
}

// CUfunction_attribute
enum {
    FUNCTION_MAX_THREADS = 0,
    FUNCTION_SHARED_BYTES,
    FUNCTION_CONSTANT_BYTES,
    FUNCTION_LOCAL_BYTES,
    FUNCTION_REGISTERS,
    FUNCTION_PTX_VERSION,
    FUNCTION_BINARY_VERSION,
    FUNCTION_CACHE_MODE_CA,
    FUNCTION_MAX_DYNAMIC_SHARED_BYTES,
    FUNCTION_SHARED_CARVEOUT,
    FUNCTION_ATTRIBUTES,
};

RUNTIME_API rt_error cudaFuncGetAttributes(struct function_attributes *out, const void *host) {
    handle function;
    int values[FUNCTION_ATTRIBUTES] = {0};
    rt_error error = enter_device() ?: find_function(host, &function);
    for (int i = 0; !error && i < FUNCTION_ATTRIBUTES; i++)
        error = driver.cuFuncGetAttribute(&values[i], i, function);
    *out = (struct function_attributes){
        .shared_bytes = (size_t)values[FUNCTION_SHARED_BYTES],
        .constant_bytes = (size_t)values[FUNCTION_CONSTANT_BYTES],
        .local_bytes = (size_t)values[FUNCTION_LOCAL_BYTES],
        .max_threads_per_block = values[FUNCTION_MAX_THREADS],
        .registers = values[FUNCTION_REGISTERS],
        .ptx_version = values[FUNCTION_PTX_VERSION],
        .binary_version = values[FUNCTION_BINARY_VERSION],
        .cache_mode_ca = values[FUNCTION_CACHE_MODE_CA],
        .max_dynamic_shared_bytes = values[FUNCTION_MAX_DYNAMIC_SHARED_BYTES],
        .preferred_shared_carveout = values[FUNCTION_SHARED_CARVEOUT],
    };
    return finish(error);
}

// cudaFuncAttribute has CUfunction_attribute's values.
RUNTIME_API rt_error cudaFuncSetAttribute(const void *host, int attribute, int value) {
    handle function;
    return finish(enter_device() ?: find_function(host, &function)
                      ?: driver.cuFuncSetAttribute(function, attribute, value));
}

RUNTIME_API rt_error cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, const void *host, int block_size, size_t shared_bytes, unsigned flags) {
    handle kernel;
    return finish(enter_device() ?: find_kernel(host, &kernel)
                      ?: driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                             blocks, kernel, block_size, shared_bytes, flags));
}

RUNTIME_API rt_error cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *host,
                                                                   int block_size,
                                                                   size_t shared_bytes) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, block_size,
                                                                  shared_bytes, 0);
}
