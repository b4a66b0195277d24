// SPDX-License-Identifier: Apache-2.0
// The protocol of workers.py for C programs, with one more thread that does nothing at all; its id
// comes last. The program defines prepare, hold and release.
#ifndef WORKERS_H
#define WORKERS_H

#define _GNU_SOURCE 1
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static void prepare(long k);
static void hold(long k);
static void release(long k);

static long count;
static long tids[65];
static pthread_barrier_t ready;

static void check(int ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "%s\n", what);
        exit(1);
    }
}

static void *work(void *arg) {
    long k = (long)arg;
    char byte;
    tids[k] = syscall(SYS_gettid);
    pthread_barrier_wait(&ready); // every thread exists: libraries may be loaded now
    pthread_barrier_wait(&ready);
    prepare(k);
    pthread_barrier_wait(&ready);
    while (read(3 + 2 * k, &byte, 1) == 1) {
        hold(k);
        if (read(4 + 2 * k, &byte, 1) != 1) {
            break;
        }
        release(k);
    }
    return NULL;
}

static void *idle(void *arg) {
    tids[count] = syscall(SYS_gettid);
    pthread_barrier_wait(&ready);
    pause();
    return arg;
}

// start makes threads 1 to n-1 and the idle one; the caller is thread 0 and goes on to run().
static void start(long n) {
    check(n >= 1 && n <= 64, "1 to 64 threads");
    count = n;
    pthread_t thread;
    pthread_barrier_init(&ready, NULL, 2);
    check(pthread_create(&thread, NULL, idle, NULL) == 0, "pthread_create");
    pthread_barrier_wait(&ready);
    pthread_barrier_destroy(&ready);
    pthread_barrier_init(&ready, NULL, (unsigned)n);
    for (long k = 1; k < n; k++) {
        check(pthread_create(&thread, NULL, work, (void *)k) == 0, "pthread_create");
        pthread_detach(thread);
    }
    tids[0] = syscall(SYS_gettid);
    pthread_barrier_wait(&ready);
}

static void run(void) {
    char byte;
    pthread_barrier_wait(&ready);
    prepare(0);
    pthread_barrier_wait(&ready);
    for (long k = 0; k <= count; k++) {
        printf("%ld%c", tids[k], k == count ? '\n' : ' ');
    }
    fflush(stdout);
    while (read(3, &byte, 1) == 1) {
        hold(0);
        if (read(4, &byte, 1) != 1) {
            break;
        }
        release(0);
    }
    _exit(0);
}

#endif
