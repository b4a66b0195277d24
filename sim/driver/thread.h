// SPDX-License-Identifier: Apache-2.0
// What the driver remembers of a thread: its truth, its calls in progress, its current contexts.
// The object outlives the thread, because its rows do.
#ifndef SIMCUDA_THREAD_H
#define SIMCUDA_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "api.h"
#include "config.h"

enum { CONTEXT_DEPTH = 32 };

struct rows; // truth.c

// One execution of an export that has not returned.
struct call {
    struct row *row;
    uintptr_t sp;   // dispatch's frame: tells a live call from one that longjmp left behind
    uint64_t start; // CLOCK_MONOTONIC, or 0 where time is left out
    uint64_t bytes; // what the behaviour said it was asked for
    bool outermost;
    bool per_thread; // entered through a twin: the null stream is the thread's own
};

struct thread {
    struct thread *next; // all threads ever seen, newest first
    int tid;
    unsigned number; // 1, 2, … in order of first sight; tells apart two threads that had one tid
    char name[16];

    unsigned tag; // index into the tags of truth.c
    struct rows *rows;
    struct call *calls; // calls[0] is the outermost
    unsigned depth, capacity;
    void (*hook)(void); // run inside the next call, once
    bool returning;     // between deciding to count a call and having counted it (exit.h)
    bool held;          // has been held once since exit began

    struct context *contexts[CONTEXT_DEPTH];
    unsigned context_depth;
    struct stream
        *own_streams[MAX_DEVICES]; // CU_STREAM_PER_THREAD, of the context last used on a device
    int capture_mode;
    bool has_kernel_ns;
    uint64_t kernel_ns;
};

// The calling thread's object; made at its first use.
struct thread *thread_self(void);

#endif
