// SPDX-License-Identifier: Apache-2.0
// sizes: every export of the driver that is asked for a number of bytes, in every spelling that the
// driver has, each with a size that no other one is called with, in the stage "sizes".
//
// Left out are the first versions, of the time of 32-bit addresses, of the copies that take a
// structure (cuMemcpy2D and cuMemcpy3D without _v2): its layout was another one.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tester.h"

enum { BUFFER = 1 << 20, GRANULE = 2 << 20 };

typedef CUresult function(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

struct memcpy_3d {
    size_t from_x, from_y, from_z, from_lod;
    unsigned from_type;
    const void *from_host;
    CUdeviceptr from_device;
    void *from_array, *from_reserved;
    size_t from_pitch, from_height;
    size_t to_x, to_y, to_z, to_lod;
    unsigned to_type;
    void *to_host;
    CUdeviceptr to_device;
    void *to_array, *to_reserved;
    size_t to_pitch, to_height;
    size_t width, height, depth;
};

enum { HOST_TYPE = 1, DEVICE_TYPE = 2 };

static void *library, *context, *stream;
static CUdeviceptr device, other;
static char *host;
static unsigned called;

// A number that no earlier call had.
static size_t unique(void) {
    return 0x1001 + 4 * called++;
}

static void did(const char *symbol, CUresult result, uint64_t bytes) {
    if (result)
        tester_fail("%s = %d", symbol, result);
    expect(symbol, 1, 0, bytes);
}

// A way to call a function: its arguments, the number of bytes, and what must follow.
typedef void shape(const char *symbol, function *f);

static void copy(const char *symbol, function *f, uint64_t to, uint64_t from) {
    size_t size = unique();
    did(symbol, f(to, from, size, (uint64_t)stream, 0, 0), size);
}

static void to_device(const char *symbol, function *f) {
    copy(symbol, f, device, (uint64_t)host);
}

static void to_host(const char *symbol, function *f) {
    copy(symbol, f, (uint64_t)host, device);
}

static void on_device(const char *symbol, function *f) {
    copy(symbol, f, other, device);
}

static void peer(const char *symbol, function *f) {
    size_t size = unique();
    uint64_t c = (uint64_t)context;
    did(symbol, f(other, c, device, c, size, (uint64_t)stream), size);
}

static void set(const char *symbol, function *f, unsigned element) {
    size_t count = unique();
    did(symbol, f(device, 0xa5, count, (uint64_t)stream, 0, 0), count * element);
}

static void set_8(const char *symbol, function *f) {
    set(symbol, f, 1);
}

static void set_16(const char *symbol, function *f) {
    set(symbol, f, 2);
}

static void set_32(const char *symbol, function *f) {
    set(symbol, f, 4);
}

static void copy_2d(const char *symbol, function *f) {
    const struct memcpy_2d m = {
        .from_type = DEVICE_TYPE,
        .from_device = device,
        .from_pitch = 128,
        .to_type = HOST_TYPE,
        .to_host = host,
        .to_pitch = 256,
        .width = 37 + called++,
        .height = 11,
    };
    did(symbol, f((uint64_t)&m, (uint64_t)stream, 0, 0, 0, 0), m.width * m.height);
}

static void copy_3d(const char *symbol, function *f) {
    const struct memcpy_3d m = {
        .from_type = DEVICE_TYPE,
        .from_device = device,
        .from_pitch = 256,
        .from_height = 16,
        .to_type = HOST_TYPE,
        .to_host = host,
        .to_pitch = 128,
        .to_height = 32,
        .width = 31 + called++,
        .height = 7,
        .depth = 5,
    };
    did(symbol, f((uint64_t)&m, (uint64_t)stream, 0, 0, 0, 0), m.width * m.height * m.depth);
}

// Allocates with f(&p, size, third, fourth) and frees what it gave.
static void allocate(const char *symbol, function *f, uint64_t third, const char *release) {
    CUdeviceptr p;
    size_t size = unique();
    did(symbol, f((uint64_t)&p, size, third, (uint64_t)stream, 0, 0), size);
    function *free_it;
    *(void **)&free_it = dlsym(library, release);
    did(release, free_it(p, (uint64_t)stream, 0, 0, 0, 0), 0);
}

static void on_heap(const char *symbol, function *f) {
    allocate(symbol, f, 0, "cuMemFree_v2");
}

static void managed(const char *symbol, function *f) {
    allocate(symbol, f, 1, "cuMemFree_v2");
}

static void on_stream(const char *symbol, function *f) {
    allocate(symbol, f, (uint64_t)stream, "cuMemFreeAsync");
}

static void pinned(const char *symbol, function *f) {
    allocate(symbol, f, 0, "cuMemFreeHost");
}

static void registered(const char *symbol, function *f) {
    size_t size = unique();
    did(symbol, f((uint64_t)host, size, 0, 0, 0, 0), size);
    did("cuMemHostUnregister", cu.cuMemHostUnregister(host), 0);
}

static void reserved(const char *symbol, function *f) {
    const struct allocation_prop prop = {.type = 1, .location_type = 1};
    const struct access_desc access = {.location_type = 1, .flags = 3};
    CUdeviceptr p;
    void *handle;
    did(symbol, f((uint64_t)&p, 5 * GRANULE, 0, 0, 0, 0), 5 * GRANULE);
    did("cuMemCreate", cu.cuMemCreate(&handle, 3 * GRANULE, &prop, 0), 3 * GRANULE);
    did("cuMemMap", cu.cuMemMap(p, 3 * GRANULE, 0, handle, 0), 3 * GRANULE);
    did("cuMemSetAccess", cu.cuMemSetAccess(p, 3 * GRANULE, &access, 1), 3 * GRANULE);
    did("cuMemUnmap", cu.cuMemUnmap(p, 3 * GRANULE), 3 * GRANULE);
    did("cuMemRelease", cu.cuMemRelease(handle), 0);
    did("cuMemAddressFree", cu.cuMemAddressFree(p, 5 * GRANULE), 5 * GRANULE);
}

static const struct {
    const char *name; // without a version or twin
    shape *call;
    bool versioned; // only with _v2
} sized[] = {
    {"cuMemcpy", on_device, false},
    {"cuMemcpyAsync", on_device, false},
    {"cuMemcpyHtoD", to_device, false},
    {"cuMemcpyHtoDAsync", to_device, false},
    {"cuMemcpyDtoH", to_host, false},
    {"cuMemcpyDtoHAsync", to_host, false},
    {"cuMemcpyDtoD", on_device, false},
    {"cuMemcpyDtoDAsync", on_device, false},
    {"cuMemcpyPeer", peer, false},
    {"cuMemcpyPeerAsync", peer, false},
    {"cuMemcpy2D", copy_2d, true},
    {"cuMemcpy2DUnaligned", copy_2d, true},
    {"cuMemcpy2DAsync", copy_2d, true},
    {"cuMemcpy3D", copy_3d, true},
    {"cuMemcpy3DAsync", copy_3d, true},
    {"cuMemsetD8", set_8, false},
    {"cuMemsetD8Async", set_8, false},
    {"cuMemsetD16", set_16, false},
    {"cuMemsetD16Async", set_16, false},
    {"cuMemsetD32", set_32, false},
    {"cuMemsetD32Async", set_32, false},
    {"cuMemAlloc", on_heap, false},
    {"cuMemAllocManaged", managed, false},
    {"cuMemAllocAsync", on_stream, false},
    {"cuMemAllocHost", pinned, false},
    {"cuMemHostAlloc", pinned, false},
    {"cuMemHostRegister", registered, false},
    {"cuMemAddressReserve", reserved, false},
};

static const char *const spellings[] = {"", "_v2", "_ptds", "_ptsz", "_v2_ptds", "_v2_ptsz"};

static void call_all(void) {
    for (size_t i = 0; i < sizeof(sized) / sizeof(*sized); i++)
        for (size_t j = 0; j < sizeof(spellings) / sizeof(*spellings); j++) {
            char symbol[64];
            function *f;
            snprintf(symbol, sizeof(symbol), "%s%s", sized[i].name, spellings[j]);
            *(void **)&f = dlsym(library, symbol);
            if (f && (!sized[i].versioned || !strncmp(spellings[j], "_v2", 3)))
                sized[i].call(symbol, f);
        }
}

static void set_up(void) {
    Dl_info driver;
    if (!dladdr((void *)cu.cuInit, &driver))
        tester_fail("the driver has no file");
    library = dlopen(driver.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    context = tester_context();
    host = malloc(BUFFER);
    MUST(cu.cuStreamCreate(&stream, 1), 0);
    MUST(cu.cuMemAlloc_v2(&device, BUFFER), 0);
    MUST(cu.cuMemAlloc_v2(&other, BUFFER), 0);
}

int main(int argc, char **argv) {
    const struct number_option own[] = {{NULL, NULL, NULL}};
    tester_options(argc, argv, "Calls everything that has a size.", own);
    set_up();
    tester_ready();
    stage_begin("sizes");
    call_all();
    stage_end();
    tester_done();
    return 0;
}
