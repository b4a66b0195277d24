// SPDX-License-Identifier: Apache-2.0
// Counting: dispatch_*.S calls simcuda_enter before a behaviour and simcuda_leave after it.
#include "truth.h"

#include <stdlib.h>

#include "clock.h"
#include "config.h"
#include "entry.h"
#include "exit.h"
#include "rows.h"
#include "tags.h"
#include "threads.h"

volatile uint32_t simcuda_state = 1;

struct entered {
    void *behaviour;
    struct thread *thread;
};

// Names for dispatch_*.S.
struct entered simcuda_enter(unsigned symbol, uintptr_t sp);
CUresult simcuda_leave(struct thread *t, CUresult result, uintptr_t sp);
CONTROL void simcuda_tag(const char *tag);
CONTROL void simcuda_set_hook(void (*hook)(void));
CONTROL void simcuda_set_kernel_ns(uint64_t ns);

static CUresult not_supported(void) {
    return CUDA_ERROR_NOT_SUPPORTED;
}

// The stack grows down: a call whose frame is not above the new one was left by longjmp or an
// exception.
static void drop_abandoned(struct thread *t, uintptr_t sp) {
    while (t->depth && t->calls[t->depth - 1].sp <= sp)
        t->depth--;
}

static struct call *push(struct thread *t) {
    if (__builtin_expect(t->depth == t->capacity, 0)) {
        t->capacity = t->capacity ? 2 * t->capacity : 16;
        t->calls = realloc(t->calls, t->capacity * sizeof(*t->calls));
        if (!t->calls)
            abort();
    }
    return &t->calls[t->depth++];
}

static struct row *row_of(struct thread *t, unsigned symbol) {
    struct row *row = rows_get(&t->rows, t->tag, symbol);
    if (__builtin_expect(row->now.started == 0, 0))
        thread_name(t); // threads are named after they start
    return row;
}

static void run_hook(struct thread *t) {
    void (*hook)(void) = t->hook;
    t->hook = NULL;
    hook();
}

struct entered simcuda_enter(unsigned symbol, uintptr_t sp) {
    struct thread *t = thread_self();
    drop_abandoned(t, sp);
    struct row *row = row_of(t, symbol);
    struct call *call = push(t);
    *call = (struct call){
        .row = row,
        .sp = sp,
        .outermost = t->depth == 1,
        .per_thread = simcuda_twins[symbol],
        .start = config.timed ? now_ns() : 0,
    };
    if (call->outermost)
        count(&row->now.started, 1);
    if (__builtin_expect(exit_began(), 0))
        exit_hold(t);
    if (__builtin_expect(t->hook != NULL, 0))
        run_hook(t);
    void *behaviour = simcuda_behaviours[symbol];
    return (struct entered){behaviour ? behaviour : (void *)not_supported, t};
}

static void count_call(const struct call *call, CUresult result, uint64_t end) {
    struct counters *now = &call->row->now;
    if (!call->outermost) {
        count(&now->inner, 1);
        return;
    }
    count(&now->calls, 1);
    if (call->start)
        count(&now->wall_ns, end - call->start);
    if (result != CUDA_SUCCESS)
        count(&now->errors, 1);
    else if (call->bytes)
        count(&now->bytes, call->bytes);
}

CUresult simcuda_leave(struct thread *t, CUresult result, uintptr_t sp) {
    uint64_t end = config.timed ? now_ns() : 0;
    while (t->depth && t->calls[t->depth - 1].sp < sp)
        t->depth--; // abandoned inside this call
    if (!t->depth || t->calls[t->depth - 1].sp != sp)
        return result; // forked inside the call: the child starts from zero
    exit_enter_window(t);
    count_call(&t->calls[--t->depth], result, end);
    exit_leave_window(t);
    return result;
}

static struct call *running(void) {
    struct thread *t = thread_self();
    return t->depth ? &t->calls[t->depth - 1] : NULL;
}

void truth_bytes(uint64_t bytes) {
    struct call *call = running();
    if (call)
        call->bytes = bytes;
}

bool truth_per_thread(void) {
    const struct call *call = running();
    return call && call->per_thread;
}

void simcuda_tag(const char *tag) {
    thread_self()->tag = tag_number(tag);
}

void simcuda_set_hook(void (*hook)(void)) {
    thread_self()->hook = hook;
}

void simcuda_set_kernel_ns(uint64_t ns) {
    struct thread *t = thread_self();
    t->has_kernel_ns = ns != UINT64_MAX;
    t->kernel_ns = ns;
}
