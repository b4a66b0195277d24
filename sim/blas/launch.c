// SPDX-License-Identifier: Apache-2.0
//
// From an operation to a launch: one module with one empty kernel per operation, loaded on first
// use, through the driver functions at the versions that a CUDA runtime asks for.
#include "blas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#define KERNEL(name) ".visible .entry " #name "() { ret; }\n"

static const char module_text[] = ".version 7.0\n.target sm_50\n.address_size 64\n"
#define BLAS_OP(name) KERNEL(name)
#include "ops.inc"
#undef BLAS_OP
    KERNEL(cublasLtMatmul);

static const char *const kernel_names[OPERATIONS] = {
#define BLAS_OP(name) #name,
#include "ops.inc"
#undef BLAS_OP
    "cublasLtMatmul",
};

static struct {
    int (*library_load)(void **library, const void *code, int *, void **, unsigned, int *, void **,
                        unsigned);
    int (*library_kernel)(void **kernel, void *library, const char *name);
    int (*launch)(void *kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                  unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream,
                  void **arguments, void **extra);
} driver;

static pthread_once_t loaded = PTHREAD_ONCE_INIT;
static status load_status = STATUS_NOT_INITIALIZED;
static void *library;
static _Atomic(void *) kernels[OPERATIONS];

static int (*get_proc_address)(const char *, void **, int, uint64_t, int *);

static int look_up(const char *name, int version, void *function) {
    void *address = NULL;
    int found;
    get_proc_address(name, &address, version, 0, &found);
    memcpy(function, &address, sizeof(address));
    return address != NULL;
}

static int find_driver(void) {
    void *libcuda = dlopen("libcuda.so.1", RTLD_NOW);
    void *address = libcuda ? dlsym(libcuda, "cuGetProcAddress_v2") : NULL;
    memcpy(&get_proc_address, &address, sizeof(address));
    return address && look_up("cuLibraryLoadData", 12000, &driver.library_load) &&
           look_up("cuLibraryGetKernel", 12000, &driver.library_kernel) &&
           look_up("cuLaunchKernel", 4000, &driver.launch);
}

static void load(void) {
    if (find_driver() && !driver.library_load(&library, module_text, NULL, NULL, 0, NULL, NULL, 0))
        load_status = STATUS_SUCCESS;
}

// Two threads may both look a kernel up for the first time; both find the same one.
static void *find_kernel(enum operation operation) {
    void *kernel = kernels[operation];
    if (!kernel && !driver.library_kernel(&kernel, library, kernel_names[operation]))
        kernels[operation] = kernel;
    return kernel;
}

status launch_operation(enum operation operation, void *stream) {
    // The shape means nothing to the simulated driver; any valid one will do.
    enum { GRID = 8, BLOCK = 128 };
    pthread_once(&loaded, load);
    if (load_status)
        return load_status;
    void *kernel = find_kernel(operation);
    if (!kernel || driver.launch(kernel, GRID, GRID, 1, BLOCK, 1, 1, 0, stream, NULL, NULL))
        return STATUS_EXECUTION_FAILED;
    return STATUS_SUCCESS;
}
