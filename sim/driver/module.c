// SPDX-License-Identifier: Apache-2.0
// Modules and libraries. Images are not read: every name that is asked of a loaded one exists in
// it.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "context.h"
#include "function.h"
#include "lock.h"
#include "memory.h"

enum { ATTRIBUTES = 16, ATTRIBUTE_MAX_THREADS = 0, ATTRIBUTE_MAX_DYNAMIC_SHARED = 8 };

struct function {
    struct handle handle;
    struct library *library;
    struct function *next; // of the library
    char *name;
    int attributes[ATTRIBUTES]; // CU_FUNC_ATTRIBUTE_*
};

struct variable {
    struct variable *next;
    char *name;
    CUdeviceptr address;
};

enum { VARIABLE_SIZE = 1 << 20 };

struct library {
    struct handle handle;
    struct function *functions;
    struct variable *variables;
};

static struct handle_table libraries = HANDLE_TABLE(struct library, 1 << 16);
static struct handle_table functions = HANDLE_TABLE(struct function, 1 << 18);

bool function_live(CUfunction f) {
    return handle_live(&functions, f);
}

unsigned function_shared(CUfunction f) {
    return (unsigned)f->attributes[ATTRIBUTE_MAX_DYNAMIC_SHARED];
}

// Libraries

static CUresult make(CUlibrary *library) {
    struct library *l = handle_make(&libraries);
    if (!l)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *library = l;
    return CUDA_SUCCESS;
}

static CUresult load(CUlibrary *library, const void *image) {
    if (!library || !image)
        return CUDA_ERROR_INVALID_VALUE;
    return make(library);
}

static CUresult load_file(CUlibrary *library, const char *path) {
    if (!library || !path)
        return CUDA_ERROR_INVALID_VALUE;
    return access(path, R_OK) ? CUDA_ERROR_FILE_NOT_FOUND : make(library);
}

static void end_functions(struct function *f) {
    while (f) {
        struct function *next = f->next;
        free(f->name);
        handle_free(&functions, f);
        f = next;
    }
}

static void end_variables(struct variable *v) {
    while (v) {
        struct variable *next = v->next;
        memory_free(v->address, KINDS_DEVICE);
        free(v->name);
        free(v);
        v = next;
    }
}

static CUresult unload(CUlibrary library) {
    CUresult result = driver_ready();
    if (result)
        return result;
    if (!handle_free(&libraries, library))
        return CUDA_ERROR_INVALID_HANDLE;
    end_functions(library->functions);
    end_variables(library->variables);
    return CUDA_SUCCESS;
}

API(cuLibraryLoadData)
(CUlibrary *library, const void *image, void *jit UNUSED, void *values UNUSED, unsigned jits UNUSED,
 void *options UNUSED, void *option_values UNUSED, unsigned count UNUSED) {
    CUresult result = driver_ready();
    return result ? result : load(library, image);
}

API(cuLibraryLoadFromFile)
(CUlibrary *library, const char *path, void *jit UNUSED, void *values UNUSED, unsigned jits UNUSED,
 void *options UNUSED, void *option_values UNUSED, unsigned count UNUSED) {
    CUresult result = driver_ready();
    return result ? result : load_file(library, path);
}

API(cuLibraryUnload)(CUlibrary library) {
    return unload(library);
}

static CUresult in_context(void) {
    struct context *c;
    return current_context(&c);
}

API(cuModuleLoad)(CUlibrary *module, const char *path) {
    CUresult result = in_context();
    return result ? result : load_file(module, path);
}

API(cuModuleLoadData)(CUlibrary *module, const void *image) {
    CUresult result = in_context();
    return result ? result : load(module, image);
}
ALIAS(cuModuleLoadFatBinary, cuModuleLoadData);

API(cuModuleLoadDataEx)
(CUlibrary *module, const void *image, unsigned count UNUSED, void *options UNUSED,
 void *values UNUSED) {
    return sim_cuModuleLoadData(module, image);
}

API(cuModuleUnload)(CUlibrary module) {
    return unload(module);
}

API(cuModuleGetLoadingMode)(int *mode) {
    CUresult result = driver_ready();
    if (result || !mode)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *mode = 2; // CU_MODULE_LAZY_LOADING
    return CUDA_SUCCESS;
}

// Functions

static struct function *find(struct library *library, const char *name) {
    struct function *f = __atomic_load_n(&library->functions, __ATOMIC_ACQUIRE);
    while (f && strcmp(f->name, name))
        f = f->next;
    return f;
}

static struct function *make_function(struct library *library, const char *name) {
    struct function *f = handle_make(&functions);
    if (!f)
        return NULL;
    const int start[ATTRIBUTES] = {1024, 0, 0, 0, 32, config.sm, config.sm, 0, 49152, -1};
    memcpy(f->attributes, start, sizeof(start));
    f->name = strdup(name);
    f->library = library;
    sim_lock();
    struct function *other = find(library, name);
    if (!other) {
        f->next = library->functions;
        __atomic_store_n(&library->functions, f, __ATOMIC_RELEASE);
    }
    sim_unlock();
    if (!other)
        return f;
    free(f->name);
    handle_free(&functions, f);
    return other;
}

static CUresult get_function(CUfunction *function, CUlibrary library, const char *name) {
    CUresult result = driver_ready();
    if (result)
        return result;
    if (!handle_live(&libraries, library))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!function || !name || !*name)
        return CUDA_ERROR_INVALID_VALUE;
    struct function *f = find(library, name);
    *function = f ? f : make_function(library, name);
    return *function ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API(cuLibraryGetKernel)(CUfunction *kernel, CUlibrary library, const char *name) {
    return get_function(kernel, library, name);
}

API(cuModuleGetFunction)(CUfunction *function, CUlibrary module, const char *name) {
    return get_function(function, module, name);
}

API(cuLibraryGetModule)(CUlibrary *module, CUlibrary library) {
    CUresult result = in_context();
    if (result)
        return result;
    if (!handle_live(&libraries, library))
        return CUDA_ERROR_INVALID_HANDLE;
    *module = library;
    return CUDA_SUCCESS;
}

static CUresult function_ready(CUfunction f) {
    CUresult result = driver_ready();
    if (result)
        return result;
    return function_live(f) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

#define FUNCTION_GET(name, type, expression)                                                       \
    API(name)(type * value, CUfunction f) {                                                        \
        CUresult result = function_ready(f);                                                       \
        if (result)                                                                                \
            return result;                                                                         \
        if (!value)                                                                                \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        *value = expression;                                                                       \
        return CUDA_SUCCESS;                                                                       \
    }

FUNCTION_GET(cuKernelGetFunction, CUfunction, f)
FUNCTION_GET(cuKernelGetLibrary, CUlibrary, f->library)
FUNCTION_GET(cuKernelGetName, const char *, f->name)
FUNCTION_GET(cuFuncGetModule, CUlibrary, f->library)
FUNCTION_GET(cuFuncGetName, const char *, f->name)
FUNCTION_GET(cuFuncIsLoaded, int, 1)

API(cuFuncLoad)(CUfunction f) {
    return function_ready(f);
}

static CUresult get_attribute(int *value, unsigned attribute, CUfunction f) {
    CUresult result = function_ready(f);
    if (result)
        return result;
    if (!value || attribute >= ATTRIBUTES)
        return CUDA_ERROR_INVALID_VALUE;
    *value = f->attributes[attribute];
    return CUDA_SUCCESS;
}

static CUresult set_attribute(CUfunction f, unsigned attribute, int value) {
    CUresult result = function_ready(f);
    if (result)
        return result;
    if (attribute < ATTRIBUTE_MAX_DYNAMIC_SHARED || attribute >= ATTRIBUTES)
        return CUDA_ERROR_INVALID_VALUE;
    f->attributes[attribute] = value;
    return CUDA_SUCCESS;
}

API(cuFuncGetAttribute)(int *value, int attribute, CUfunction f) {
    return get_attribute(value, (unsigned)attribute, f);
}

API(cuFuncSetAttribute)(CUfunction f, int attribute, int value) {
    return set_attribute(f, (unsigned)attribute, value);
}

API(cuKernelGetAttribute)(int *value, int attribute, CUfunction f, CUdevice device) {
    CUresult result = device_ready(device);
    return result ? result : get_attribute(value, (unsigned)attribute, f);
}

API(cuKernelSetAttribute)(int attribute, int value, CUfunction f, CUdevice device) {
    CUresult result = device_ready(device);
    return result ? result : set_attribute(f, (unsigned)attribute, value);
}

API(cuFuncSetCacheConfig)(CUfunction f, int config UNUSED) {
    return function_ready(f);
}

API(cuFuncSetSharedMemConfig)(CUfunction f, int config UNUSED) {
    return function_ready(f);
}

API(cuKernelSetCacheConfig)(CUfunction f, int config UNUSED, CUdevice device UNUSED) {
    return function_ready(f);
}

static CUresult count_functions(unsigned *count, CUlibrary library) {
    CUresult result = driver_ready();
    if (result)
        return result;
    if (!handle_live(&libraries, library))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = 0;
    for (const struct function *f = library->functions; f; f = f->next)
        ++*count;
    return CUDA_SUCCESS;
}

API(cuModuleGetFunctionCount)(unsigned *count, CUlibrary module) {
    return count_functions(count, module);
}

API(cuLibraryGetKernelCount)(unsigned *count, CUlibrary library) {
    return count_functions(count, library);
}

// Variables

static struct variable *find_variable(struct library *library, const char *name) {
    struct variable *v = __atomic_load_n(&library->variables, __ATOMIC_ACQUIRE);
    while (v && strcmp(v->name, name))
        v = v->next;
    return v;
}

// Two threads that ask first at the same time could make it twice; the later one stays in front.
static struct variable *make_variable(struct library *library, const char *name) {
    struct context *c;
    struct variable *v = calloc(1, sizeof(*v));
    if (!v || current_context(&c) ||
        memory_make(RANGE_DEVICE, c, NULL, VARIABLE_SIZE, 0, &v->address)) {
        free(v);
        return NULL;
    }
    v->name = strdup(name);
    sim_lock();
    v->next = library->variables;
    __atomic_store_n(&library->variables, v, __ATOMIC_RELEASE);
    sim_unlock();
    return v;
}

static CUresult get_variable(CUdeviceptr *address, size_t *size, CUlibrary library,
                             const char *name) {
    CUresult result = in_context();
    if (result)
        return result;
    if (!handle_live(&libraries, library))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!name || !*name)
        return CUDA_ERROR_INVALID_VALUE;
    struct variable *v = find_variable(library, name);
    if (!v)
        v = make_variable(library, name);
    if (!v)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (address)
        *address = v->address;
    if (size)
        *size = VARIABLE_SIZE;
    return CUDA_SUCCESS;
}

API(cuModuleGetGlobal)(CUdeviceptr *address, size_t *size, CUlibrary module, const char *name) {
    return get_variable(address, size, module, name);
}
ALIAS(cuModuleGetGlobal_v2, cuModuleGetGlobal);
ALIAS(cuLibraryGetGlobal, cuModuleGetGlobal);
ALIAS(cuLibraryGetManaged, cuModuleGetGlobal);

// Occupancy

enum { SM_THREADS = 2048, SM_BLOCKS = 32, SM_SHARED = 166912 };

static CUresult active_blocks(int *blocks, CUfunction f, int threads, size_t shared) {
    CUresult result = function_ready(f);
    if (result)
        return result;
    if (!blocks || threads <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    size_t n = (size_t)(SM_THREADS / threads);
    if (n > SM_BLOCKS)
        n = SM_BLOCKS;
    if (shared && n > SM_SHARED / shared)
        n = SM_SHARED / shared;
    *blocks = (int)n;
    return CUDA_SUCCESS;
}

API(cuOccupancyMaxActiveBlocksPerMultiprocessor)
(int *blocks, CUfunction f, int threads, size_t shared) {
    return active_blocks(blocks, f, threads, shared);
}

API(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)
(int *blocks, CUfunction f, int threads, size_t shared, unsigned flags UNUSED) {
    return active_blocks(blocks, f, threads, shared);
}

// The caller's function says how much memory a block of so many threads takes. It runs on the
// caller's thread, before the driver returns.
typedef size_t (*memory_of_block)(int threads);

static CUresult potential_block(int *grid, int *block, CUfunction f, memory_of_block memory,
                                int limit) {
    CUresult result = function_ready(f);
    if (result)
        return result;
    if (!grid || !block)
        return CUDA_ERROR_INVALID_VALUE;
    int threads = limit > 0 && limit < 1024 ? limit : 1024;
    if (memory)
        memory(threads);
    *block = threads;
    *grid = 2 * 108;
    return CUDA_SUCCESS;
}

API(cuOccupancyMaxPotentialBlockSize)
(int *grid, int *block, CUfunction f, memory_of_block memory, size_t shared UNUSED, int limit) {
    return potential_block(grid, block, f, memory, limit);
}

API(cuOccupancyMaxPotentialBlockSizeWithFlags)
(int *grid, int *block, CUfunction f, memory_of_block memory, size_t shared UNUSED, int limit,
 unsigned flags UNUSED) {
    return potential_block(grid, block, f, memory, limit);
}

API(cuOccupancyAvailableDynamicSMemPerBlock)
(size_t *shared, CUfunction f, int blocks, int threads UNUSED) {
    CUresult result = function_ready(f);
    if (result)
        return result;
    if (!shared || blocks <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    *shared = SM_SHARED / (size_t)blocks;
    return CUDA_SUCCESS;
}

static CUresult clusters(int *count, CUfunction f) {
    CUresult result = function_ready(f);
    if (result)
        return result;
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = 8;
    return CUDA_SUCCESS;
}

API(cuOccupancyMaxActiveClusters)(int *count, CUfunction f, const void *config UNUSED) {
    return clusters(count, f);
}

API(cuOccupancyMaxPotentialClusterSize)(int *count, CUfunction f, const void *config UNUSED) {
    return clusters(count, f);
}
