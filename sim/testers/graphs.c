// SPDX-License-Identifier: Apache-2.0
// graphs: --calls cuGraphLaunch of a graph of three kernels captured from a stream, and no launch
// of a kernel by itself after the ready file: graph launches are a function of their own. Prints
// how long before it waits for them the first one began.
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "tester.h"

static long calls = 500;

static void *capture(void *stream) {
    void *graph, *exec;
    MUST(cu.cuStreamBeginCapture_v2(stream, 0), 0);
    for (int i = 0; i < 3; i++)
        MUST(cu.cuLaunchKernel(tester_function(), 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), 0);
    MUST(cu.cuStreamEndCapture(stream, &graph), 0);
    MUST(cu.cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
    return exec;
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int main(int argc, char **argv) {
    const struct number_option own[] = {
        {"calls", "launches of the graph", &calls},
        {NULL, NULL, NULL},
    };
    tester_options(argc, argv, "Launches a graph many times.", own);
    tester_context();
    void *stream;
    MUST(cu.cuStreamCreate(&stream, 1), 0);
    void *exec = capture(stream);
    tester_ready();
    stage_begin("replay");
    uint64_t begin = now_ns();
    for (long i = 0; i < calls; i++)
        MUST(cu.cuGraphLaunch(exec, stream), 0);
    uint64_t before = now_ns() - begin;
    MUST(cu.cuStreamSynchronize(stream), 0);
    printf("before %" PRIu64 "\n", before);
    expect("cuGraphLaunch", (uint64_t)calls, 0, 0);
    expect("cuStreamSynchronize", 1, 0, 0);
    stage_end();
    tester_done();
    return 0;
}
