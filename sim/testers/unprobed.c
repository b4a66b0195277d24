// SPDX-License-Identifier: Apache-2.0
// unprobed: a loop over cuDriverGetVersion, which nobody probes by default, in --rounds rounds of
// --calls calls. Prints for each round {"round":N,"ns_per_call":X}, so that the cost with and
// without an agent can be compared.
#define _GNU_SOURCE
#include <stdio.h>
#include <time.h>

#include "tester.h"

static long calls = 1000000, rounds = 5, probed;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void loop(void) {
    int version;
    for (long i = 0; i < calls; i++)
        if (probed)
            cu.cuLaunchKernel(tester_function(), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        else
            cu.cuDriverGetVersion(&version);
}

int main(int argc, char **argv) {
    const struct number_option own[] = {
        {"calls", "calls of a round", &calls},
        {"rounds", "rounds", &rounds},
        {"probed", "1: call cuLaunchKernel instead", &probed},
        {NULL, NULL, NULL},
    };
    tester_options(argc, argv, "Calls a function that is not probed.", own);
    tester_context();
    tester_ready();
    for (long i = 0; i < rounds; i++) {
        double start = now();
        loop();
        printf("{\"round\":%ld,\"ns_per_call\":%.1f}\n", i, (now() - start) / (double)calls);
    }
    expect(probed ? "cuLaunchKernel" : "cuDriverGetVersion", (uint64_t)(calls * rounds), 0, 0);
    tester_done();
    return 0;
}
