// SPDX-License-Identifier: Apache-2.0
// args: calls whose arguments are all different, so that a reader that takes one for another is
// found out. Each is done --calls times in the stage "args".
//
//   cuLaunchKernel   grid 101 × 102 × 103, block 4 × 5 × 6, 7 bytes shared, the stream
//   cuMemAlloc_v2    0x123456 bytes; then freed
//   cuMemcpyHtoDAsync_v2, cuMemsetD32Async, cuMemMap …: sizes that nothing else has
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "tester.h"

enum {
    ALLOCATED = 0x123456,
    COPIED = 0x1357,
    COPIED_BACK = 0x2468,
    SET = 0x321, // elements of four bytes
    HOST = 0x54321,
    SEGMENT = 6 << 20,
};

static long calls = 10;

static void launch(void *stream) {
    MUST(cu.cuLaunchKernel(tester_function(), 101, 102, 103, 4, 5, 6, 7, stream, (void **)0x8888,
                           (void **)0x9999),
         0);
}

static void memory(void *stream, char *host) {
    CUdeviceptr p;
    void *pinned;
    MUST(cu.cuMemAlloc_v2(&p, ALLOCATED), 0);
    MUST(cu.cuMemcpyHtoDAsync_v2(p, host, COPIED, stream), 0);
    MUST(cu.cuMemcpyDtoHAsync_v2(host, p, COPIED_BACK, stream), 0);
    MUST(cu.cuMemsetD32Async(p, 0xabcdef, SET, stream), 0);
    MUST(cu.cuMemFree_v2(p), 0);
    MUST(cu.cuMemHostAlloc(&pinned, HOST, 0), 0);
    MUST(cu.cuMemFreeHost(pinned), 0);
}

static void segment(void) {
    const struct allocation_prop prop = {.type = 1, .location_type = 1};
    const struct access_desc access = {.location_type = 1, .flags = 3};
    CUdeviceptr p;
    void *handle;
    MUST(cu.cuMemAddressReserve(&p, 2 * SEGMENT, 0, 0, 0), 0);
    MUST(cu.cuMemCreate(&handle, SEGMENT, &prop, 0), 0);
    MUST(cu.cuMemMap(p, SEGMENT, 0, handle, 0), 0);
    MUST(cu.cuMemSetAccess(p, SEGMENT, &access, 1), 0);
    MUST(cu.cuMemUnmap(p, SEGMENT), 0);
    MUST(cu.cuMemRelease(handle), 0);
    MUST(cu.cuMemAddressFree(p, 2 * SEGMENT), 0);
}

static void expect_all(void) {
    const struct {
        const char *symbol;
        uint64_t bytes;
    } all[] = {
        {"cuLaunchKernel", 0},
        {"cuMemAlloc_v2", ALLOCATED},
        {"cuMemcpyHtoDAsync_v2", COPIED},
        {"cuMemcpyDtoHAsync_v2", COPIED_BACK},
        {"cuMemsetD32Async", 4 * SET},
        {"cuMemFree_v2", 0},
        {"cuMemHostAlloc", HOST},
        {"cuMemFreeHost", 0},
        {"cuMemAddressReserve", 2 * SEGMENT},
        {"cuMemCreate", SEGMENT},
        {"cuMemMap", SEGMENT},
        {"cuMemSetAccess", SEGMENT},
        {"cuMemUnmap", SEGMENT},
        {"cuMemRelease", 0},
        {"cuMemAddressFree", 2 * SEGMENT},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        expect(all[i].symbol, (uint64_t)calls, 0, all[i].bytes * (uint64_t)calls);
}

int main(int argc, char **argv) {
    const struct number_option own[] = {
        {"calls", "times that each call is made", &calls},
        {NULL, NULL, NULL},
    };
    tester_options(argc, argv, "Calls with arguments that are all different.", own);
    tester_context();
    void *stream;
    char *host = malloc(COPIED_BACK);
    MUST(cu.cuStreamCreate(&stream, 1), 0);
    tester_ready();
    stage_begin("args");
    for (long i = 0; i < calls; i++) {
        launch(stream);
        memory(stream, host);
        segment();
    }
    expect_all();
    stage_end();
    tester_done();
    return 0;
}
