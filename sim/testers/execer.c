// SPDX-License-Identifier: Apache-2.0
// execer: calls the driver, writes its truth, and replaces itself by another program (exec) without
// exiting. The new program is this one with --after 1: it opens the driver again, calls, and ends
// normally; its truth has the same process ID and is therefore written by the first image under the
// name of the truth file with
// ".before" behind it.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tester.h"

static long calls = 1000, after;

static void launch(const char *stage) {
    stage_begin(stage);
    for (long i = 0; i < calls; i++)
        MUST(cu.cuLaunchKernel(tester_function(), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 0);
    expect("cuLaunchKernel", (uint64_t)calls, 0, 0);
    stage_end();
}

static void write_truth_before(void) {
    const char *truth = getenv("SIMCUDA_TRUTH");
    char path[4096];
    if (!truth || !cu.simcuda_write_truth)
        return;
    snprintf(path, sizeof(path), "%s.before", truth);
    cu.simcuda_write_truth(path);
}

static void become_another(int argc, char **argv) {
    char **again = calloc((size_t)argc + 3, sizeof(*again));
    memcpy(again, argv, (size_t)argc * sizeof(*again));
    again[argc] = "--after";
    again[argc + 1] = "1";
    execv("/proc/self/exe", again);
    tester_fail("executing itself: %m");
}

int main(int argc, char **argv) {
    const struct number_option own[] = {
        {"calls", "launches of each image", &calls},
        {"after", "1: be the second image", &after},
        {NULL, NULL, NULL},
    };
    tester_options(argc, argv, "Calls the driver, then executes another program.", own);
    tester_context();
    tester_ready();
    if (after) {
        launch("after");
        tester_done();
        return 0;
    }
    launch("before");
    write_truth_before();
    become_another(argc, argv);
}
