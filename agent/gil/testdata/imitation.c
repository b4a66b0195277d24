// SPDX-License-Identifier: Apache-2.0
// The little that is looked at of CPython 3.12, to be compiled in each way to reach a thread-local
// variable.
char _PyRuntime[4096];
const unsigned long Py_Version = 0x030c01f0;

static __thread long other = 1;
static __thread void *tstate;

void *_PyThreadState_GetCurrent(void) {
    return tstate;
}

void set_tstate(void *to) {
    tstate = to;
    other++;
}
