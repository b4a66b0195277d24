// SPDX-License-Identifier: Apache-2.0
// Truth at process exit: the numbers written must be the number of calls that returned, although
// other threads go on calling until the kernel ends them. So once exit began, calls of other
// threads are held.
#ifndef SIMCUDA_EXIT_H
#define SIMCUDA_EXIT_H

#include <stdbool.h>

#include "thread.h"

extern bool exit_flag;

static inline bool exit_began(void) {
    return __atomic_load_n(&exit_flag, __ATOMIC_RELAXED);
}

// Holds the calling thread's call once exit began, unless it is the exiting thread itself.
void exit_hold(struct thread *t);

// A returning call counts itself between these two. After exit began it is held before it counts,
// or, where holding is not possible, written to the truth file at once.
void exit_window_begun(struct thread *t);
void exit_window_ended(struct thread *t);

static inline void exit_enter_window(struct thread *t) {
    __atomic_store_n(&t->returning, true, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST); // the exiting thread's membarrier does the rest
    if (__builtin_expect(exit_began(), 0))
        exit_window_begun(t);
}

static inline void exit_leave_window(struct thread *t) {
    __atomic_store_n(&t->returning, false, __ATOMIC_RELEASE);
    if (__builtin_expect(exit_began(), 0))
        exit_window_ended(t);
}

#endif
