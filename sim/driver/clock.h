// SPDX-License-Identifier: Apache-2.0
#ifndef SIMCUDA_CLOCK_H
#define SIMCUDA_CLOCK_H

#include <stdint.h>
#include <time.h>

// CLOCK_MONOTONIC in nanoseconds, the clock of every time in the simulator.
static inline uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// Moves a time on to a later one; never back.
static inline void raise_to(uint64_t *time, uint64_t value) {
    uint64_t old = __atomic_load_n(time, __ATOMIC_RELAXED);
    while (old < value &&
           !__atomic_compare_exchange_n(time, &old, value, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

// Says that the thread spins.
static inline void cpu_relax(void) {
#ifdef __x86_64__
    __builtin_ia32_pause();
#else
    __asm__ volatile("yield");
#endif
}

// Host time that a call costs: spent running.
static inline void spend_ns(uint64_t ns) {
    if (!ns)
        return;
    for (uint64_t end = now_ns() + ns; now_ns() < end;)
        cpu_relax();
}

#endif
