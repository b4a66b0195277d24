// SPDX-License-Identifier: Apache-2.0
// exiter: threads call the driver at full speed while the main thread exits the process after
// --after-ms.
//
//   --how 0  exit(): destructors run, the truth is written with the calls that have returned
//   --how 1  return from main, the same
//   --how 2  _exit(): no destructors, so the truth is written just before; calls go on until the
//   very end,
//            and the truth is a lower bound
// Prints no expectations: the truth is the only account. "unfinished" in it are calls that the exit
// cut off.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "tester.h"

enum { EXIT = 0, RETURN = 1, UNDERSCORE_EXIT = 2 };

static long threads = 4, after_ms = 100, how;
static void *context;

static void *call_for_ever(void *argument) {
    (void)argument;
    MUST(cu.cuCtxSetCurrent(context), 0);
    for (;;) {
        stage_begin("loop");
        for (int i = 0; i < 100; i++)
            cu.cuLaunchKernel(tester_function(), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        cu.cuStreamSynchronize(NULL);
        stage_end();
    }
    return NULL;
}

int main(int argc, char **argv) {
    const struct number_option own[] = {
        {"threads", "threads that call until the end", &threads},
        {"after-ms", "milliseconds before the exit", &after_ms},
        {"how", "0 exit, 1 return from main, 2 _exit", &how},
        {NULL, NULL, NULL},
    };
    tester_options(argc, argv, "Exits while other threads are in driver calls.", own);
    context = tester_context();
    tester_ready();
    for (long i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, call_for_ever, NULL))
            tester_fail("starting a thread: %m");
    }
    sleep_ms(after_ms);
    tester_done();
    if (how == UNDERSCORE_EXIT) {
        if (getenv("SIMCUDA_TRUTH") && cu.simcuda_write_truth)
            cu.simcuda_write_truth(getenv("SIMCUDA_TRUTH"));
        _exit(0);
    }
    if (how == EXIT)
        exit(0);
    return 0;
}
