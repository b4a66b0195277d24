// SPDX-License-Identifier: Apache-2.0
// Libraries that pretend to be Python and are broken, one for each macro.
#include <stdint.h>

#ifdef GARBAGE // pointers that lead nowhere
uint64_t _PyRuntime[1024] = {[0 ... 1023] = 0x4141414141414141};
#endif

#ifdef SHORT
uint64_t _PyRuntime[1] = {0};
#endif

#ifdef ENDLESS // an interpreter that is its own successor
uint64_t _PyRuntime[1024] = {[0 ... 1023] = (uintptr_t)_PyRuntime};
#endif

#define COOKIE_TEXT 0x7970677562656478 // "xdebugpy"

#ifdef COOKIE // a table of debug offsets that point far away
uint64_t _PyRuntime[1024] = {COOKIE_TEXT, 0x030d00f0, 1, [3 ... 1023] = 1ull << 60};
#endif

#ifdef ANACHRONISM // such a table in a version that has none
uint64_t _PyRuntime[1024] = {COOKIE_TEXT, 0x030b00f0};
#endif

#ifdef CONTRADICTION // two versions
uint64_t _PyRuntime[1024] = {COOKIE_TEXT, 0x032000f0};
const unsigned long Py_Version = 0x030b00f0;
#endif

#ifdef FREE_THREADED // a free-threaded build without an interpreter
uint64_t _PyRuntime[1024] = {COOKIE_TEXT, 0x030d00f0, 1};
static __thread void *volatile tstate;
void *_PyThreadState_GetCurrent(void) {
    return tstate;
}
#endif

#ifdef CODE // a function that returns something else
uint64_t _PyRuntime[1024];
const unsigned long Py_Version = 0x030c01f0;
void *_PyThreadState_GetCurrent(void) {
    return _PyRuntime;
}
#endif

#ifdef TEXT // a function that is no code
uint64_t _PyRuntime[1024];
const unsigned long Py_Version = 0x030c01f0;
const char _PyThreadState_GetCurrent[16] = "\x06\x06\x06\x06";
#endif

#ifdef OLD // as Python 2
const char *Py_GetVersion(void) {
    return "?";
}
#endif

#ifdef INNOCENT // imports what Python defines
extern uint64_t _PyRuntime[] __attribute__((weak));
uint64_t *runtime(void) {
    return _PyRuntime;
}
#endif
