// SPDX-License-Identifier: Apache-2.0
// nested: driver calls inside driver calls, which are not calls of their own, and calls that never
// return.
//
//   inner      a hook runs inside each cuStreamQuery and calls cuDriverGetVersion there: --calls
//   outer calls,
//              as many inner executions that must not be counted as calls
//   deep       one cuStreamQuery with --depth further ones inside each other
//   callback   cuLaunchHostFunc: the driver's own thread runs a function that calls
//   cuDriverGetVersion; there
//              it is outermost, so it is a call of that thread
//   longjmp    --calls times a cuStreamQuery that is left by longjmp from inside: it began and did
//   not return;
//              after each a normal cuStreamQuery, which is outermost again
// Each runs in a stage of its name.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "tester.h"

static long calls = 100, depth = 50;

static void inner_call(void) {
    int version;
    MUST(cu.cuDriverGetVersion(&version), 0);
}

static void inner(void) {
    stage_begin("inner");
    for (long i = 0; i < calls; i++) {
        cu.simcuda_set_hook(inner_call);
        MUST(cu.cuStreamQuery(NULL), 0);
    }
    expect("cuStreamQuery", (uint64_t)calls, 0, 0);
    stage_end();
}

static long left;

static void descend(void) {
    if (--left > 0)
        cu.simcuda_set_hook(descend);
    MUST(cu.cuStreamQuery(NULL), 0);
}

static void deep(void) {
    stage_begin("deep");
    left = depth;
    cu.simcuda_set_hook(descend);
    MUST(cu.cuStreamQuery(NULL), 0);
    expect("cuStreamQuery", 1, 0, 0);
    stage_end();
}

static atomic_int driver_tid;

static void host_function(void *argument) {
    (void)argument;
    cu.simcuda_tag("callback");
    inner_call();
    driver_tid = gettid();
}

static void callback(void) {
    stage_begin("callback");
    for (long i = 0; i < calls; i++)
        MUST(cu.cuLaunchHostFunc(NULL, host_function, NULL), 0);
    MUST(cu.cuStreamSynchronize(NULL), 0);
    expect("cuLaunchHostFunc", (uint64_t)calls, 0, 0);
    expect("cuStreamSynchronize", 1, 0, 0);
    expect_at(driver_tid, stage_path(), "cuDriverGetVersion", (uint64_t)calls, 0, 0);
    stage_end();
}

static jmp_buf out;

static void leave(void) {
    longjmp(out, 1);
}

static void jump(void) {
    stage_begin("longjmp");
    for (volatile long i = 0; i < calls; i++) {
        if (!setjmp(out)) {
            cu.simcuda_set_hook(leave);
            cu.cuStreamQuery(NULL);
            tester_fail("a call that longjmp leaves has returned");
        }
        MUST(cu.cuStreamQuery(NULL), 0);
    }
    expect("cuStreamQuery", (uint64_t)calls, 0, 0);
    stage_end();
}

int main(int argc, char **argv) {
    const struct number_option own[] = {
        {"calls", "times that each kind is done", &calls},
        {"depth", "driver calls inside each other", &depth},
        {NULL, NULL, NULL},
    };
    tester_options(argc, argv, "Driver calls inside driver calls, and calls that never return.",
                   own);
    if (!cu.simcuda_set_hook)
        tester_fail("the driver has no hooks: it is not the simulated one");
    tester_context();
    tester_ready();
    inner();
    deep();
    callback();
    jump();
    tester_done();
    return 0;
}
