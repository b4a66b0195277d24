// SPDX-License-Identifier: Apache-2.0
// idle: --threads threads that sleep from start to end beside one that launches --calls kernels.
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>

#include "tester.h"

static long threads = 160, calls = 10000;

static void *sleep_for_ever(void *argument) {
    (void)argument;
    for (;;)
        pause();
    return NULL;
}

int main(int argc, char **argv) {
    const struct number_option own[] = {
        {"threads", "sleeping threads", &threads},
        {"calls", "launches", &calls},
        {NULL, NULL, NULL},
    };
    tester_options(argc, argv, "Many sleeping threads and one that launches.", own);
    tester_context();
    for (long i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, sleep_for_ever, NULL))
            tester_fail("starting a thread: %m");
    }
    tester_ready();
    stage_begin("launch");
    for (long i = 0; i < calls; i++)
        MUST(cu.cuLaunchKernel(tester_function(), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 0);
    expect("cuLaunchKernel", (uint64_t)calls, 0, 0);
    stage_end();
    tester_done();
    return 0;
}
