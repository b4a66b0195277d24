// SPDX-License-Identifier: Apache-2.0
//
// Calls the runtime as a program built with nvcc would, on device memory that the simulated driver
// keeps on the host, and checks every answer. Which driver functions that takes is in the driver's
// truth, which the Go test compares with its table; it is reset after the set-up and written at
// the end, both with the driver's own functions.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../types.h"

// Only what is used, as nvcc's headers declare it.
extern rt_error cudaRuntimeGetVersion(int *), cudaDriverGetVersion(int *),
    cudaGetDeviceCount(int *);
extern rt_error cudaSetDevice(int), cudaGetDevice(int *), cudaGetLastError(void);
extern rt_error cudaPeekAtLastError(void), cudaDeviceGetAttribute(int *, int, int);
extern rt_error cudaMalloc(void **, size_t), cudaFree(void *),
    cudaHostAlloc(void **, size_t, unsigned);
extern rt_error cudaFreeHost(void *), cudaMallocAsync(void **, size_t, handle);
extern rt_error cudaFreeAsync(void *, handle), cudaMemGetInfo(size_t *, size_t *);
extern rt_error cudaMemcpy(void *, const void *, size_t, int);
extern rt_error cudaMemcpyAsync(void *, const void *, size_t, int, handle);
extern rt_error cudaMemcpy2DAsync(void *, size_t, const void *, size_t, size_t, size_t, int,
                                  handle);
extern rt_error cudaMemcpyPeerAsync(void *, int, const void *, int, size_t, handle);
extern rt_error cudaMemset(void *, int, size_t), cudaMemsetAsync(void *, int, size_t, handle);
extern rt_error cudaPointerGetAttributes(struct pointer_attributes *, const void *);
extern rt_error cudaStreamCreateWithPriority(handle *, unsigned, int), cudaStreamDestroy(handle);
extern rt_error cudaStreamSynchronize(handle), cudaStreamWaitEvent(handle, handle, unsigned);
extern rt_error cudaEventCreateWithFlags(handle *, unsigned), cudaEventDestroy(handle);
extern rt_error cudaEventRecord(handle, handle), cudaEventSynchronize(handle),
    cudaEventQuery(handle);
extern rt_error cudaDeviceSynchronize(void), cudaGraphAddNode(void);
extern void **__cudaRegisterFatBinary(const struct fat_binary_wrapper *);
extern void __cudaRegisterFatBinaryEnd(void **);
extern void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *,
                                   void *, void *, int *);
extern unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, handle);
extern rt_error __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, handle *);
extern rt_error cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, handle);
extern rt_error cudaLaunchKernelExC(const struct launch_config *, const void *, void **);
extern rt_error __cudaGetKernel(handle *, const void *);
extern rt_error __cudaLaunchKernel(handle, dim3, dim3, void **, size_t, handle);
extern rt_error cudaFuncGetAttributes(struct function_attributes *, const void *);
extern rt_error cudaGetDriverEntryPointByVersion(const char *, void **, unsigned,
                                                 unsigned long long, int *);
extern const char *cudaGetErrorName(rt_error);
#if CUDART_MAJOR >= 13
extern rt_error cudaGetDeviceProperties(void *, int);
#else
extern rt_error cudaGetDeviceProperties_v2(void *, int);
#define cudaGetDeviceProperties cudaGetDeviceProperties_v2
#endif

enum { SIZE = 4096 };

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define OK(call) CHECK((call) == RT_SUCCESS)

static void *driver_symbol(const char *name) {
    void *libcuda = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(libcuda);
    void *address = dlsym(libcuda, name);
    CHECK(address);
    return address;
}

static void devices(void) {
    int version, count, attribute, device = -1;
    OK(cudaRuntimeGetVersion(&version));
    CHECK(version == CUDART_VERSION);
    OK(cudaDriverGetVersion(&version));
    CHECK(version >= CUDART_VERSION);
    OK(cudaGetDeviceCount(&count));
    CHECK(count == 2);

    // A canary behind the structure: we must fill ours and no more.
    char prop[DEVICE_PROP_SIZE + 8];
    memset(prop, 0x5a, sizeof(prop));
    OK(cudaGetDeviceProperties(prop, 0));
    CHECK(memchr(prop, 0, DEVICE_NAME_SIZE) && strlen(prop) > 0);
    CHECK(prop[DEVICE_PROP_SIZE] == 0x5a);
    int values[] = {0, 0};
    memcpy(&values[0], prop + 360, sizeof(int)); // major, the same in CUDA 12 and 13
    memcpy(&values[1], prop + (CUDART_MAJOR >= 13 ? 384 : 388), sizeof(int)); // multiProcessorCount
    OK(cudaDeviceGetAttribute(&attribute, 75, 0));
    CHECK(values[0] == attribute && attribute > 0);
    OK(cudaDeviceGetAttribute(&attribute, 16, 0));
    CHECK(values[1] == attribute && attribute > 0);

    OK(cudaSetDevice(1));
    OK(cudaGetDevice(&device));
    CHECK(device == 1);
    OK(cudaSetDevice(0));
}

static void errors(void) {
    CHECK(cudaSetDevice(2) == RT_INVALID_DEVICE);
    CHECK(cudaPeekAtLastError() == RT_INVALID_DEVICE);
    CHECK(cudaGetLastError() == RT_INVALID_DEVICE);
    CHECK(cudaGetLastError() == RT_SUCCESS);
    CHECK(cudaGraphAddNode() == RT_NOT_SUPPORTED);
    CHECK(cudaGetLastError() == RT_NOT_SUPPORTED);
    CHECK(!strcmp(cudaGetErrorName(2), "cudaErrorMemoryAllocation"));
    CHECK(!strcmp(cudaGetErrorName(12345), "cudaErrorUnknown"));
}

static void memory(void) {
    unsigned char host[SIZE], back[SIZE];
    void *device, *pinned, *nothing = &device;
    for (int i = 0; i < SIZE; i++)
        host[i] = (unsigned char)(i * 7);

    OK(cudaMalloc(&device, SIZE));
    OK(cudaMalloc(&nothing, 0));
    CHECK(!nothing);
    OK(cudaFree(NULL));
    OK(cudaMemcpy(device, host, SIZE, COPY_HOST_TO_DEVICE));
    OK(cudaMemcpy((char *)device + SIZE / 2, device, SIZE / 2, COPY_DEVICE_TO_DEVICE));
    OK(cudaMemcpy(back, device, SIZE, COPY_DEVICE_TO_HOST));
    CHECK(!memcmp(back, host, SIZE / 2) && !memcmp(back + SIZE / 2, host, SIZE / 2));
    OK(cudaMemset(device, 0x3c, 16));
    OK(cudaMemcpy(back, device, 17, COPY_DEVICE_TO_HOST));
    CHECK(back[0] == 0x3c && back[15] == 0x3c && back[16] == host[16]);
    OK(cudaMemcpy(device, host, 0, COPY_HOST_TO_DEVICE)); // nothing: no call

    OK(cudaHostAlloc(&pinned, SIZE, 0));
    struct pointer_attributes attributes;
    OK(cudaPointerGetAttributes(&attributes, device));
    CHECK(attributes.type == 2 && attributes.device == 0 && attributes.device_pointer == device);
    OK(cudaPointerGetAttributes(&attributes, pinned));
    CHECK(attributes.type == 1 && attributes.host_pointer == pinned);
    OK(cudaPointerGetAttributes(&attributes, host));
    CHECK(attributes.type == MEMORY_UNREGISTERED && attributes.device == -2);

    size_t available = 0, total = 0;
    OK(cudaMemGetInfo(&available, &total));
    CHECK(0 < available && available < total);
    OK(cudaFreeHost(pinned));
    OK(cudaFree(device));
}

static void streams(void) {
    handle stream, event;
    void *device, *pooled;
    unsigned char host[SIZE] = {1, 2, 3, 4};
    OK(cudaStreamCreateWithPriority(&stream, 1, 0));
    OK(cudaEventCreateWithFlags(&event, 2));
    OK(cudaMalloc(&device, SIZE));
    OK(cudaMemcpyAsync(device, host, SIZE, COPY_HOST_TO_DEVICE, stream));
    OK(cudaMemcpyAsync((char *)device + 8, device, 8, COPY_DEVICE_TO_DEVICE, stream));
    OK(cudaMemcpyAsync(host, device, 16, COPY_DEVICE_TO_HOST, stream));
    OK(cudaMemsetAsync(device, 0, 32, stream));
    // Two rows of four bytes, from rows eight apart to rows sixteen apart.
    OK(cudaMemcpy2DAsync(device, 16, host, 8, 4, 2, COPY_HOST_TO_DEVICE, stream));
    OK(cudaMemcpyPeerAsync(device, 0, (char *)device + 64, 0, 64, stream));
    OK(cudaEventRecord(event, stream));
    OK(cudaStreamWaitEvent(NULL, event, 0));
    OK(cudaEventSynchronize(event));
    OK(cudaEventQuery(event));
    OK(cudaStreamSynchronize(stream));
    CHECK(host[0] == 1 && host[8] == 1 && host[11] == 4);

    OK(cudaMallocAsync(&pooled, SIZE, stream));
    OK(cudaFreeAsync(pooled, stream));
    OK(cudaDeviceSynchronize());
    OK(cudaFree(device));
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(stream));
}

// What a kernel's stub stands for: its address names the kernel.
static void stub(void) {}
static void unknown_stub(void) {}

static const void *address_of(void (*function)(void)) {
    const void *address;
    memcpy(&address, &function, sizeof(address));
    return address;
}

static void launches(void) {
    static const unsigned long long image[8];
    static const struct fat_binary_wrapper wrapper = {0x466243b1, 1, image, NULL};
    const void *host = address_of(stub);
    void **binary = __cudaRegisterFatBinary(&wrapper);
    __cudaRegisterFunction(binary, host, NULL, "_Z4stubv", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFatBinaryEnd(binary);

    dim3 grid = {4, 1, 1}, block = {32, 1, 1}, popped_grid, popped_block;
    size_t shared_bytes;
    handle stream, kernel;
    CHECK(__cudaPushCallConfiguration(grid, block, 128, NULL) == 0);
    OK(__cudaPopCallConfiguration(&popped_grid, &popped_block, &shared_bytes, &stream));
    CHECK(popped_grid.x == 4 && popped_block.x == 32 && shared_bytes == 128 && !stream);
    CHECK(__cudaPopCallConfiguration(&popped_grid, &popped_block, &shared_bytes, &stream) ==
          RT_MISSING_CONFIGURATION);

    OK(cudaLaunchKernel(host, grid, block, NULL, 0, NULL));
    OK(cudaLaunchKernel(host, grid, block, NULL, 0, NULL));
    struct launch_config config = {.grid = grid, .block = block};
    OK(cudaLaunchKernelExC(&config, host, NULL));
    OK(__cudaGetKernel(&kernel, host));
    OK(__cudaLaunchKernel(kernel, grid, block, NULL, 0, NULL));
    CHECK(cudaLaunchKernel(address_of(unknown_stub), grid, block, NULL, 0, NULL) ==
          RT_INVALID_DEVICE_FUNCTION);

    struct function_attributes attributes;
    OK(cudaFuncGetAttributes(&attributes, host));
    CHECK(attributes.max_threads_per_block > 0);
}

static void entry_point(void) {
    void *address = NULL;
    int found = -1;
    OK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &address, 3020, 0, &found));
    CHECK(found == 0 && address == driver_symbol("cuMemAlloc_v2"));
}

static void unknown_entry_point(void) {
    void *address = NULL;
    int found = -1;
    OK(cudaGetDriverEntryPointByVersion("cuNoSuchName", &address, 12000, 0, &found));
    CHECK(found != 0 && !address);
}

int main(void) {
    void (*reset)(void), (*write)(const char *);
    void *address = driver_symbol("simcuda_reset_truth");
    memcpy(&reset, &address, sizeof(reset));
    address = driver_symbol("simcuda_write_truth");
    memcpy(&write, &address, sizeof(write));

    devices();
    unknown_entry_point();
    reset();
    errors();
    memory();
    streams();
    launches();
    entry_point();
    write(getenv("SIMCUDA_TRUTH"));
    puts("done");
    fflush(stdout);
    _Exit(0); // as written: nothing more is counted
}
