// SPDX-License-Identifier: Apache-2.0
//
// Device code. nvcc's stubs register, while a library is being loaded, one fat binary per object
// file and, per kernel and device variable, the host address that stands for it. The driver gets
// a fat binary when something in it is used for the first time (lazy loading).
#include "runtime.h"

#include <pthread.h>
#include <stdlib.h>

struct fat_binary {
    const struct fat_binary_wrapper *image;
    handle library; // NULL until used
};

struct symbol {
    const void *host; // NULL: a free slot
    struct fat_binary *in;
    const char *name; // the mangled device name
    handle kernel;    // NULL until used
};

// Open addressing, at most half full, keyed by host address. Big from the start: libtorch_cuda
// alone registers more than 40 000 kernels.
enum { INITIAL_SLOTS = 1 << 17 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct symbol *slots;
static size_t slot_count;
static size_t used;

static struct symbol *find_slot(const void *host) {
    size_t i = ((uintptr_t)host >> 4) * 0x9E3779B97F4A7C15u;
    for (;; i++) {
        struct symbol *slot = &slots[i & (slot_count - 1)];
        if (!slot->host || slot->host == host)
            return slot;
    }
}

static void grow(void) {
    struct symbol *old = slots;
    size_t old_count = slot_count;
    slot_count = old_count ? old_count * 2 : INITIAL_SLOTS;
    slots = calloc(slot_count, sizeof(*slots));
    if (!slots)
        abort(); // as the real runtime: registration has no way to report an error
    for (size_t i = 0; i < old_count; i++)
        if (old[i].host)
            *find_slot(old[i].host) = old[i];
    free(old);
}

static void add(void **fat_binary, const void *host, const char *name) {
    pthread_mutex_lock(&lock);
    if (used * 2 >= slot_count)
        grow();
    struct symbol *slot = find_slot(host);
    if (!slot->host)
        used++;
    *slot = (struct symbol){.host = host, .in = (struct fat_binary *)fat_binary, .name = name};
    pthread_mutex_unlock(&lock);
}

static rt_error load_library(struct fat_binary *binary) {
    if (binary->library)
        return RT_SUCCESS;
    return driver.cuLibraryLoadData(&binary->library, binary->image, NULL, NULL, 0, NULL, NULL, 0);
}

static rt_error load_kernel(const void *host, handle *kernel) {
    struct symbol *symbol = slot_count ? find_slot(host) : NULL;
    if (!symbol || !symbol->host)
        return RT_INVALID_DEVICE_FUNCTION;
    rt_error error = RT_SUCCESS;
    if (!symbol->kernel)
        error =
            load_library(symbol->in)
                ?: driver.cuLibraryGetKernel(&symbol->kernel, symbol->in->library, symbol->name);
    *kernel = symbol->kernel;
    return error;
}

rt_error find_kernel(const void *host, handle *kernel) {
    pthread_mutex_lock(&lock);
    rt_error error = load_kernel(host, kernel);
    pthread_mutex_unlock(&lock);
    return error;
}

static rt_error find_variable(const void *host, void **address) {
    pthread_mutex_lock(&lock);
    struct symbol *symbol = slot_count ? find_slot(host) : NULL;
    size_t size;
    rt_error error =
        symbol && symbol->host
            ? load_library(symbol->in)
                  ?: driver.cuLibraryGetGlobal(address, &size, symbol->in->library, symbol->name)
            : RT_INVALID_SYMBOL;
    pthread_mutex_unlock(&lock);
    return error;
}

RUNTIME_API void **__cudaRegisterFatBinary(const struct fat_binary_wrapper *image) {
    struct fat_binary *binary = calloc(1, sizeof(*binary));
    if (!binary)
        abort();
    binary->image = image;
    return (void **)binary;
}

RUNTIME_API void __cudaRegisterFatBinaryEnd(void **fat_binary) {
    (void)fat_binary;
}

// Runs while the process exits, when the driver may already be gone: nothing is unloaded.
RUNTIME_API void __cudaUnregisterFatBinary(void **fat_binary) {
    (void)fat_binary;
}

RUNTIME_API char __cudaInitModule(void **fat_binary) {
    (void)fat_binary;
    return 1;
}

RUNTIME_API void __cudaRegisterFunction(void **fat_binary, const char *host, char *device,
                                        const char *name, int thread_limit, void *thread_id,
                                        void *block_id, void *block, void *grid, int *warp_size) {
    (void)device, (void)thread_limit, (void)thread_id, (void)block_id, (void)block, (void)grid;
    (void)warp_size;
    add(fat_binary, host, name);
}

RUNTIME_API void __cudaRegisterVar(void **fat_binary, const char *host, char *device,
                                   const char *name, int external, size_t size, int constant,
                                   int global) {
    (void)device, (void)external, (void)size, (void)constant, (void)global;
    add(fat_binary, host, name);
}

RUNTIME_API rt_error __cudaGetKernel(handle *kernel, const void *host) {
    return ON_DRIVER(find_kernel(host, kernel));
}

RUNTIME_API rt_error cudaGetSymbolAddress(void **address, const void *symbol) {
    return ON_DEVICE(find_variable(symbol, address));
}

extern rt_error cudaMemcpy(void *to, const void *from, size_t size, int kind);

RUNTIME_API rt_error cudaMemcpyToSymbol(const void *symbol, const void *from, size_t size,
                                        size_t offset, int kind) {
    void *address = NULL;
    return cudaGetSymbolAddress(&address, symbol)
               ?: cudaMemcpy((char *)address + offset, from, size, kind);
}
