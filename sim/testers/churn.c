// SPDX-License-Identifier: Apache-2.0
// churn: thousands of threads that live for a few calls each, --at-once of them at a time. Thread
// IDs are likely to be used again; each thread still has rows of its own in the truth.
//
// Prints one expectation per thread: --calls launches in the stage "short".
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>

#include "tester.h"

enum { MAX_AT_ONCE = 256 };

static long threads = 2000, at_once = 8, calls = 3, times;
static void *context;

static void *live(void *argument) {
    (void)argument;
    MUST(cu.cuCtxSetCurrent(context), 0);
    stage_begin("short");
    for (long i = 0; i < calls; i++)
        MUST(cu.cuLaunchKernel(tester_function(), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 0);
    expect("cuLaunchKernel", (uint64_t)calls, 0, 0);
    stage_end();
    expect("cuCtxSetCurrent", 1, 0, 0);
    return NULL;
}

int main(int argc, char **argv) {
    const struct number_option own[] = {
        {"threads", "threads in all", &threads},
        {"at-once", "threads alive at one time", &at_once},
        {"calls", "launches of each thread", &calls},
        {"times", "1: say how long each round of --at-once threads took", &times},
        {NULL, NULL, NULL},
    };
    tester_options(argc, argv, "Starts and ends many short-lived threads that call the driver.",
                   own);
    if (at_once < 1 || at_once > MAX_AT_ONCE)
        tester_fail("--at-once is 1 to %d", MAX_AT_ONCE);
    context = tester_context();
    tester_ready();
    pthread_t alive[MAX_AT_ONCE];
    struct rounds rounds;
    rounds_begin(&rounds, threads);
    for (long done = 0; done < threads;) {
        long n = threads - done < at_once ? threads - done : at_once;
        round_begin(&rounds);
        for (long i = 0; i < n; i++)
            if (pthread_create(&alive[i], NULL, live, NULL))
                tester_fail("starting a thread: %m");
        for (long i = 0; i < n; i++)
            pthread_join(alive[i], NULL);
        round_end(&rounds);
        done += n;
    }
    if (times)
        rounds_print(&rounds);
    tester_done();
    return 0;
}
