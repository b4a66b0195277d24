// SPDX-License-Identifier: Apache-2.0
// forker: forks workers that call the driver, as a data loader does; the parent calls too.
//
// By default nobody has initialised the driver before the fork, and each process then does so for
// itself. With
// --initialised 1 the parent has: in the children every call is refused with 3 (not initialised),
// as the real driver does, and counted. Each child prints {"child":PID} and its expectations; the
// parent prints its own after the children have ended. With --early 1 the children are forked
// before the ready file is there, print "up" too, and wait for it. With --stay 1 every process
// prints "worked" when it has called, and the children live until stdin closes. Truth files: one
// per process (SIMCUDA_TRUTH with %p).
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tester.h"

enum { MAX_WORKERS = 64, BYTES = 4096 };

static long workers = 4, calls = 100, initialised, early, stay;

static void allocate(void) {
    stage_begin("pin");
    for (long i = 0; i < calls; i++) {
        void *p;
        MUST(cu.cuMemHostAlloc(&p, BYTES, 0), 0);
        MUST(cu.cuMemFreeHost(p), 0);
    }
    expect("cuMemHostAlloc", (uint64_t)calls, 0, (uint64_t)calls * BYTES);
    expect("cuMemFreeHost", (uint64_t)calls, 0, 0);
    stage_end();
}

static void be_refused(void) {
    stage_begin("pin");
    for (long i = 0; i < calls; i++) {
        void *p;
        MUST(cu.cuMemHostAlloc(&p, BYTES, 0), 3);
    }
    expect("cuMemHostAlloc", (uint64_t)calls, (uint64_t)calls, 0);
    stage_end();
}

static void work(void) {
    tester_context();
    expect_context();
    allocate();
}

static void worked(void) {
    if (stay)
        puts("worked");
}

static _Noreturn void child(void) {
    printf("{\"child\":%d}\n", getpid());
    if (early)
        tester_ready();
    if (initialised)
        be_refused();
    else
        work();
    worked();
    while (stay && getchar() != EOF)
        ;
    exit(0); // not _exit: the child's truth is written too
}

static void fork_children(void) {
    fflush(stdout);
    for (long i = 0; i < workers; i++) {
        pid_t pid = fork();
        if (pid < 0)
            tester_fail("forking: %m");
        if (!pid)
            child();
    }
}

int main(int argc, char **argv) {
    const struct number_option own[] = {
        {"workers", "children", &workers},
        {"calls", "allocations of each process", &calls},
        {"early", "1: fork before the ready file is there", &early},
        {"stay", "1: the children live until stdin closes", &stay},
        {"initialised", "1: the parent initialises the driver before it forks", &initialised},
        {NULL, NULL, NULL},
    };
    tester_options(argc, argv, "Forks workers that call the driver.", own);
    if (workers > MAX_WORKERS)
        tester_fail("up to %d workers", MAX_WORKERS);
    if (initialised)
        tester_context();
    if (early)
        fork_children();
    tester_ready();
    if (!early)
        fork_children();
    if (initialised)
        allocate();
    else
        work();
    worked();
    for (int status; wait(&status) > 0;)
        if (status)
            tester_fail("a child ended with status %#x", status);
    tester_done();
    return 0;
}
