// SPDX-License-Identifier: Apache-2.0
// Work: one thing that a stream or a graph does.
#ifndef SIMCUDA_WORK_H
#define SIMCUDA_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api.h"

enum work_kind {
    WORK_NOTHING,
    WORK_KERNEL,
    WORK_COPY,
    WORK_FILL,
    WORK_FREE,
    WORK_HOST,
    WORK_CALLBACK
};

// A box of bytes; one row of `width` bytes is height = depth = 1.
struct copy {
    char *to;
    const char *from;
    size_t to_pitch, from_pitch; // between rows
    size_t to_slice, from_slice; // between planes
    size_t width, height, depth;
};

struct fill {
    char *to;
    size_t pitch;
    size_t width, height; // in elements
    uint64_t value;
    unsigned size; // of an element: 1, 2, 4, 8
};

struct host {
    CUhostFn function;
    CUstreamCallback callback;
    CUstream stream; // as the callback is told
    void *argument;
};

struct work {
    enum work_kind kind;
    uint64_t ns; // stream time
    union {
        struct copy copy;
        struct fill fill;
        struct host host;
        CUdeviceptr freed;
    };
};

// True if it must run at its time on the driver's own thread, not when it is submitted.
static inline bool work_deferred(const struct work *w) {
    return w->kind == WORK_HOST || w->kind == WORK_CALLBACK;
}

// Has its effect now.
void work_run(const struct work *work);

// Stream time of a kernel that the calling thread launches.
uint64_t kernel_ns(void);
struct work kernel_work(void);
struct work copy_work(CUdeviceptr to, CUdeviceptr from, size_t bytes);
struct work box_work(const struct copy *box);
struct work fill_work(const struct fill *fill);

#endif
