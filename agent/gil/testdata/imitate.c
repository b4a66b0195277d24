// SPDX-License-Identifier: Apache-2.0
// imitate N [IMITATION [LIB...]]: N threads that obey the protocol of workers.py, with an imitation
// of Python, linked in or loaded by dlopen after the LIBs.
#include "workers.h"

#include <dlfcn.h>

#ifdef LINKED
extern void set_tstate(void *to);
static void (*set)(void *) = set_tstate;
#else
static void (*set)(void *);
#endif

static void prepare(long k) {
    (void)k;
}
static void hold(long k) {
    set(&tids[k]);
}
static void release(long k) {
    (void)k;
    set(NULL);
}

int main(int argc, char **argv) {
    check(argc >= 2, "usage: imitate N [IMITATION [LIB...]]");
    start(atol(argv[1]));
    for (int i = 3; i < argc; i++) {
        check(dlopen(argv[i], RTLD_NOW) != NULL, argv[i]);
    }
#ifndef LINKED
    check(argc > 2, "no imitation");
    void *library = dlopen(argv[2], RTLD_NOW);
    check(library != NULL, argv[2]);
    set = (void (*)(void *))dlsym(library, "set_tstate");
    check(set != NULL, "set_tstate");
#endif
    run();
}
