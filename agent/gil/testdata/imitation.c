// SPDX-License-Identifier: Apache-2.0
// The little that is looked at of CPython 3.12, to be compiled in each way to reach a thread-local
// variable; with FREE_THREADED=minor of a free-threaded CPython 3.13 or newer, whose lock is on if
// IMITATION_GIL is set in the environment.
#include <stdint.h>
#include <stdlib.h>

#ifdef FREE_THREADED
enum { HEAD = 640, GIL = 16, ENABLED = 4, TABLE = FREE_THREADED == 13 ? 14 : 15 };

static uint32_t lock[64];
static uint64_t interpreter[64] = {[GIL / 8] = (uintptr_t)lock};

uint64_t _PyRuntime[512] = {
    [0] = 0x7970677562656478, // "xdebugpy"
    [1] = 0x030000f0 + (FREE_THREADED << 16),
    [2] = 1, // free-threaded
    [5] = HEAD,
    [8] = 8, // next interpreter
    [TABLE] = GIL,
    [TABLE + 2] = ENABLED,
    [HEAD / 8] = (uintptr_t)interpreter,
};

__attribute__((constructor)) static void enable(void) {
    lock[ENABLED / 4] = getenv("IMITATION_GIL") ? INT32_MAX : 0;
}
#else
char _PyRuntime[4096];
const unsigned long Py_Version = 0x030c01f0;
#endif

static __thread long other = 1;
static __thread void *tstate;

void *_PyThreadState_GetCurrent(void) {
    return tstate;
}

void set_tstate(void *to) {
    tstate = to;
    other++;
}
