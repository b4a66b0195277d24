// SPDX-License-Identifier: Apache-2.0
// Counters of one thread, keyed by (tag, export). Only the thread itself writes; anyone may read at
// any time.
#ifndef SIMCUDA_ROWS_H
#define SIMCUDA_ROWS_H

#include <stdint.h>

struct counters {
    uint64_t started; // outermost executions that began
    uint64_t calls;   // … and returned
    uint64_t inner;   // executions inside another one, returned
    uint64_t errors, bytes, wall_ns;
};

struct row {
    unsigned tag, symbol;
    struct counters now;
    struct counters base; // value of now at the last reset; written by whoever resets
};

struct rows {
    unsigned mask, used;
    struct rows *retired; // the smaller table that this one replaced: a reader may still be in it
    struct row *slots[];
};

// The row of (tag, symbol), made at its first use. *table may be replaced by a larger one.
struct row *rows_get(struct rows **table, unsigned tag, unsigned symbol);

// Owner's increment that a concurrent reader sees whole.
static inline void count(uint64_t *counter, uint64_t n) {
    __atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

#endif
