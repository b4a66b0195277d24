// SPDX-License-Identifier: Apache-2.0
// flood: more distinct stages than anybody has room for. Each of --threads threads opens, in each
// of --outer stages, each of --inner stages once and launches a kernel in it, --rounds times. Names
// are the threads' own with --own 1, else common to all.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "tester.h"

enum { MAX_THREADS = 64 };

static long threads = 1, outer = 100, inner = 100, rounds = 1, own_names;
static void *context;

__attribute__((noinline)) static void launch(void) {
    MUST(cu.cuLaunchKernel(tester_function(), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 0);
}

static void begin(const char *kind, long thread, long number) {
    char name[64];
    if (own_names)
        snprintf(name, sizeof(name), "%s%ld of %ld", kind, number, thread);
    else
        snprintf(name, sizeof(name), "%s%ld", kind, number);
    stage_begin(name);
}

static void *flood(void *argument) {
    long thread = (long)argument;
    MUST(cu.cuCtxSetCurrent(context), 0);
    for (long n = 0; n < rounds * outer; n++) {
        long i = n % outer;
        begin("outer", thread, i);
        for (long j = 0; j < inner; j++) {
            begin("inner", thread, j);
            launch();
            stage_end();
        }
        stage_end();
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t started[MAX_THREADS];
    const struct number_option own[] = {
        {"threads", "threads", &threads},
        {"outer", "outer stages", &outer},
        {"inner", "stages in each of them", &inner},
        {"rounds", "times that all of it is done", &rounds},
        {"own", "1: each thread has names of its own", &own_names},
        {NULL, NULL, NULL},
    };
    tester_options(argc, argv, "Opens very many distinct stages.", own);
    if (threads > MAX_THREADS)
        tester_fail("up to %d threads", MAX_THREADS);
    context = tester_context();
    tester_ready();
    for (long i = 0; i < threads; i++)
        if (pthread_create(&started[i], NULL, flood, (void *)i))
            tester_fail("starting a thread: %m");
    for (long i = 0; i < threads; i++)
        pthread_join(started[i], NULL);
    tester_done();
    return 0;
}
