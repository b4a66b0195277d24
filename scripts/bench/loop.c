// SPDX-License-Identifier: Apache-2.0
//
// The benchmark's inner loops: calls of a function with cuLaunchKernel's arguments, pairs of
// markers, and context switches.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

typedef int launch(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **params, void **extra);

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void *kernel, *stream;

// use sets what is launched where; without it each launch is an error.
void use(void *kernel_to_launch, void *on_stream) {
    kernel = kernel_to_launch;
    stream = on_stream;
}

static void burst(launch *f, long calls) {
    for (long i = 0; i < calls; i++)
        f(kernel, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0);
}

// best returns the nanoseconds per call of the quietest batch.
double best(launch *f, long calls, int batches) {
    double least = 0;
    for (int i = 0; i < batches; i++) {
        int64_t begin = now();
        burst(f, calls);
        double each = (double)(now() - begin) / (double)calls;
        if (i == 0 || each < least)
            least = each;
    }
    return least;
}

// paced makes rate calls a second, in bursts every millisecond, and returns how
// many it made.
long paced(launch *f, long rate, double seconds) {
    long made = 0;
    int64_t begin = now(), end = begin + (int64_t)(seconds * 1e9);
    for (int64_t next = begin; next < end; next += 1000000) {
        struct timespec until = {next / 1000000000, next % 1000000000};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, 0);
        burst(f, rate / 1000);
        made += rate / 1000;
    }
    return made;
}

static int64_t own_cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

// worked calls and works in turn and returns how often in each second of the thread's own CPU time:
// unlike the time on the wall, that has nothing of what else runs on the machine.
double worked(launch *f, long work, double seconds) {
    long calls = 0;
    int64_t end = now() + (int64_t)(seconds * 1e9), before = own_cpu();
    while (now() < end)
        for (int i = 0; i < 100; i++, calls++) {
            burst(f, 1);
            for (volatile long n = 0; n < work; n++)
                ;
        }
    return (double)calls * 1e9 / (double)(own_cpu() - before);
}

// best_pair returns the nanoseconds per begin and end of a stage in the quietest batch.
double best_pair(void (*begin)(const char *), void (*end)(void), long pairs, int batches) {
    double least = 0;
    for (int i = 0; i < batches; i++) {
        int64_t start = now();
        for (long n = 0; n < pairs; n++) {
            begin("pair");
            end();
        }
        double each = (double)(now() - start) / (double)pairs;
        if (i == 0 || each < least)
            least = each;
    }
    return least;
}

// Two threads on one processor hand a byte to and fro.
struct court {
    int there[2], back[2];
    long rounds;
};

static bool pass(int from, int to) {
    char ball = 0;
    return read(from, &ball, 1) == 1 && write(to, &ball, 1) == 1;
}

static void *return_balls(void *argument) {
    struct court *c = argument;
    for (long n = 0; n < c->rounds && pass(c->there[0], c->back[1]); n++)
        ;
    return NULL;
}

static double switches(struct court *c) {
    pthread_t other;
    char ball = 0;
    if (pthread_create(&other, NULL, return_balls, c) || write(c->there[1], &ball, 1) != 1)
        return -1;
    int64_t start = now();
    for (long n = 1; n < c->rounds && pass(c->back[0], c->there[1]); n++)
        ;
    int64_t took = now() - start;
    if (read(c->back[0], &ball, 1) != 1)
        return -1;
    pthread_join(other, NULL);
    return (double)took / (double)(2 * (c->rounds - 1));
}

// best_switch returns the nanoseconds per context switch, with the pipe that brings it about, in
// the quietest batch; -1 on error.
double best_switch(long rounds, int batches) {
    struct court c = {.rounds = rounds};
    cpu_set_t one, all;
    double least = -1;
    sched_getaffinity(0, sizeof(all), &all);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof(one), &one); // the other thread inherits it
    if (pipe(c.there) || pipe(c.back))
        return -1;
    for (int i = 0; i < batches; i++) {
        double each = switches(&c);
        if (i == 0 || each < least)
            least = each;
    }
    for (int i = 0; i < 2; i++) {
        close(c.there[i]);
        close(c.back[i]);
    }
    sched_setaffinity(0, sizeof(all), &all);
    return least;
}
