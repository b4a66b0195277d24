// SPDX-License-Identifier: Apache-2.0
// churn: thousands of threads that live for a few calls each, --at-once of them at a time. Thread
// IDs are likely to be used again; each thread still has rows of its own in the truth.
//
// Prints one expectation per thread and stage: --calls launches in "short", and in as many stages
// more as --stages asks for.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "tester.h"

enum { MAX_AT_ONCE = 256 };

static long threads = 2000, at_once = 8, stages = 1, calls = 3, times;
static void *context;

static void work(const char *stage) {
    stage_begin(stage);
    for (long i = 0; i < calls; i++)
        MUST(cu.cuLaunchKernel(tester_function(), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 0);
    expect("cuLaunchKernel", (uint64_t)calls, 0, 0);
    stage_end();
}

static void *live(void *argument) {
    (void)argument;
    MUST(cu.cuCtxSetCurrent(context), 0);
    work("short");
    for (long i = 1; i < stages; i++) {
        char name[32];
        sprintf(name, "short-%ld", i);
        work(name);
    }
    expect("cuCtxSetCurrent", 1, 0, 0);
    return NULL;
}

int main(int argc, char **argv) {
    const struct number_option own[] = {
        {"threads", "threads in all", &threads},
        {"at-once", "threads alive at one time", &at_once},
        {"stages", "stages of each thread", &stages},
        {"calls", "launches in each stage", &calls},
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
