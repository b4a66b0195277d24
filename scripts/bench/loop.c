// SPDX-License-Identifier: Apache-2.0
//
// The benchmark's inner loop: calls a function with cuLaunchKernel's arguments.
#include <stdint.h>
#include <time.h>

typedef int launch(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **params, void **extra);

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void burst(launch *f, long calls) {
    for (long i = 0; i < calls; i++)
        f(0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);
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
