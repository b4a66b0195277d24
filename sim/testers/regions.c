// SPDX-License-Identifier: Apache-2.0
// regions: spends time in a stage, in a function `outer` that the stage calls, and in a function
// `inner` that both call: each spins and sleeps for times of its own, and waits for the device. For
// the four places, inner in outer being one of its own, it prints, summed over all rounds,
//
//   inside, around  how long it took by the clock that is read first and last in it, and before and
//                   after it, with the places in it; the truth lies between the two
//   cpu, asleep     how long it has at least been on the CPU and in nanosleep, without these
#include <stdio.h>
#include <time.h>

#include "tester.h"

enum { MS = 1000000 };

struct place {
    const char *name;
    uint64_t inside, around, cpu, asleep;
};

static long rounds = 5;
static struct place step = {.name = ""}, in_outer = {.name = "outer"}, in_inner = {.name = "inner"},
                    in_both = {.name = "outer>inner"};
static struct place *inner_place;

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    if (clock_gettime(clock, &t))
        tester_fail("reading the clock: %m");
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void spin(struct place *in, uint64_t ns) {
    uint64_t end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + ns;
    while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end)
        ;
    in->cpu += ns;
}

static void nap(struct place *in, uint64_t ns) {
    const struct timespec pause = {0, (long)ns};
    if (clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL))
        tester_fail("sleeping: %m");
    in->asleep += ns;
}

static void launch_and_wait(void) {
    MUST(cu.cuLaunchKernel(tester_function(), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 0);
    MUST(cu.cuStreamSynchronize(NULL), 0);
}

__attribute__((noinline)) void inner(void) {
    uint64_t begin = clock_ns(CLOCK_MONOTONIC);
    spin(inner_place, 5 * MS);
    launch_and_wait();
    nap(inner_place, 12 * MS);
    inner_place->inside += clock_ns(CLOCK_MONOTONIC) - begin;
}

static void call_inner(struct place *as) {
    inner_place = as;
    uint64_t begin = clock_ns(CLOCK_MONOTONIC);
    inner();
    as->around += clock_ns(CLOCK_MONOTONIC) - begin;
}

__attribute__((noinline)) void outer(void) {
    uint64_t begin = clock_ns(CLOCK_MONOTONIC);
    spin(&in_outer, 15 * MS);
    call_inner(&in_both);
    nap(&in_outer, 4 * MS);
    in_outer.inside += clock_ns(CLOCK_MONOTONIC) - begin;
}

static void call_outer(void) {
    uint64_t begin = clock_ns(CLOCK_MONOTONIC);
    outer();
    in_outer.around += clock_ns(CLOCK_MONOTONIC) - begin;
}

static void one_round(void) {
    uint64_t around = clock_ns(CLOCK_MONOTONIC);
    stage_begin("step");
    uint64_t inside = clock_ns(CLOCK_MONOTONIC);
    spin(&step, 10 * MS);
    call_outer();
    launch_and_wait();
    nap(&step, 8 * MS);
    call_inner(&in_inner);
    step.inside += clock_ns(CLOCK_MONOTONIC) - inside;
    stage_end();
    step.around += clock_ns(CLOCK_MONOTONIC) - around;
}

static void print(const struct place *p) {
    printf("{\"place\":\"%s\",\"inside\":%lu,\"around\":%lu,\"cpu\":%lu,\"asleep\":%lu}\n", p->name,
           p->inside, p->around, p->cpu, p->asleep);
}

int main(int argc, char **argv) {
    const struct number_option own[] = {{"rounds", "how often", &rounds}, {NULL, NULL, NULL}};
    tester_options(argc, argv, "Spends time in and outside of functions and measures it.", own);
    tester_context();
    cu.simcuda_set_kernel_ns(3 * MS);
    tester_ready();
    for (long i = 0; i < rounds; i++)
        one_round();
    print(&step);
    print(&in_outer);
    print(&in_inner);
    print(&in_both);
    tester_done();
    return 0;
}
