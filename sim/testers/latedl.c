// SPDX-License-Identifier: Apache-2.0
// latedl: runs without a driver until the ready file appears and --delay-ms more, then opens it,
// prints "opened" and calls it in the stage "early"; it waits for a second file, the ready file's
// name with ".late" behind it, prints "late" and calls on in the stage "late". What an agent that
// is attached from the start misses is "early" at most.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "tester.h"

static long delay_ms = 100, calls = 1000;

static void launch(const char *stage) {
    stage_begin(stage);
    for (long i = 0; i < calls; i++)
        MUST(cu.cuLaunchKernel(tester_function(), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 0);
    expect("cuLaunchKernel", (uint64_t)calls, 0, 0);
    stage_end();
}

static void wait_for_late(void) {
    const char *ready = getenv("STAGEPROF_READY");
    char path[4096];
    if (!ready)
        return;
    snprintf(path, sizeof(path), "%s.late", ready);
    wait_for_file(path);
}

int main(int argc, char **argv) {
    const struct number_option own[] = {
        {"delay-ms", "milliseconds between the ready file and opening the driver", &delay_ms},
        {"calls", "launches in each of the two stages", &calls},
        {NULL, NULL, NULL},
    };
    tester_opens_late = true;
    tester_options(argc, argv, "Opens the driver long after it has started.", own);
    tester_ready();
    sleep_ms(delay_ms);
    tester_open();
    puts("opened");
    tester_context();
    expect_context();
    launch("early");
    wait_for_late();
    puts("late");
    launch("late");
    tester_done();
    return 0;
}
