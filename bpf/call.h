/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Calls: an entry is paired with its return by the stack pointer, not by a
 * counter, so that lost returns (longjmp, exceptions, more than 64 pending
 * return probes) spoil one call and heal at the next one.
 */
#ifndef STAGEPROF_CALL_H
#define STAGEPROF_CALL_H

#include "debt.h"
#include "function.h"
#include "python.h"

#if defined(__TARGET_ARCH_x86)
/* At entry the stack pointer points at the return address; the return has
 * popped it. */
#define RETURN_ADDRESS_SIZE 8
#else
#define RETURN_ADDRESS_SIZE 0
#endif

/* Offsets of WidthInBytes, after which Height and Depth follow, in the public
 * structures CUDA_MEMCPY2D and CUDA_MEMCPY3D. */
#define COPY_2D_WIDTH 112
#define COPY_3D_WIDTH 176

static __always_inline u64 copy_size(u64 parameters, bool three)
{
    u64 extent[3] = {0, 0, 1};
    u32 n = three ? 24 : 16;

    if (bpf_probe_read_user(extent, n,
                            (void *)parameters + (three ? COPY_3D_WIDTH : COPY_2D_WIDTH)))
        return 0;
    return extent[0] * extent[1] * extent[2];
}

static __always_inline u64 call_size(struct pt_regs *ctx, u64 cookie)
{
    u64 value;

    switch (COOKIE_SIZE_KIND(cookie)) {
    case SIZE_ARGUMENT:
        value = argument(ctx, COOKIE_SIZE_ARGUMENT(cookie));
        if (COOKIE_SIZE_32BIT(cookie))
            value = (u32)value;
        return value << COOKIE_SIZE_SHIFT(cookie);
    case SIZE_COPY_2D:
        return copy_size(PT_REGS_PARM1(ctx), false);
    case SIZE_COPY_3D:
        return copy_size(PT_REGS_PARM1(ctx), true);
    }
    return 0;
}

/*
 * A function entered below the recorded call's frame is nested in it, and so is
 * one at the same place that the recorded one has jumped to; unless that frame
 * is gone: then its return address is no longer the kernel's.
 */
#if defined(__TARGET_ARCH_x86)
static __always_inline bool call_is_nested(struct pt_regs *ctx, struct task_struct *task,
                                           struct thread_state *state, u64 sp)
{
    u64 word;

    return sp <= state->sp && (read_user_u64(&word, state->sp) || word == return_trampoline(task));
}
#else
#define FRAME_RECORDS 32
/* Above, return addresses may be signed: from where the user's addresses end, which is
 * here or higher. */
#define ADDRESS_BITS ((1ULL << 36) - 1)

/* Return addresses come in a register. A function that calls others keeps its own
 * in a record, which the frame pointer leads to, and that to the next one. A chain
 * that leads nowhere says nothing: nested. */
static __always_inline bool call_is_nested(struct pt_regs *ctx, struct task_struct *task,
                                           struct thread_state *state, u64 sp)
{
    struct {
        u64 next, back;
    } record = {PT_REGS_FP(ctx), PT_REGS_RET(ctx)};
    u64 trampoline = return_trampoline(task);

    if (sp > state->sp)
        return false;
    for (int i = 0; i < FRAME_RECORDS; i++) {
        u64 at = record.next;

        if (!((record.back ^ trampoline) & ADDRESS_BITS))
            return true;
        if (at >= state->sp)
            return false;
        if (bpf_probe_read_user(&record, sizeof(record), (void *)at) || record.next <= at)
            return true;
    }
    return true;
}
#endif

/* The call was left without return; when, nobody knows: it gets the time up to now. */
__noinline int call_drop(struct thread_state *state)
{
    if (!state)
        return 0;
    ledger_enter(state, bpf_ktime_get_ns());
    call_over(state);
    ledger_leave(state);
    if (in_window())
        count(LOST_RETURN);
    return 0;
}

/* A marker above the recorded call's frame: the call was left without return. */
static __always_inline void call_abandon(struct thread_state *state, u64 sp)
{
    if (state->sp && sp > state->sp)
        call_drop(state);
}

static __always_inline void call_enter(struct pt_regs *ctx, struct task_struct *task)
{
    struct thread_state *state = thread_get(task);
    u64 sp = PT_REGS_SP(ctx), cookie, waits = 0;

    if (!state) {
        count(COUNT_ENTERED);
        count(LOST_THREAD);
        return;
    }
    frames_heal(task, state, sp);
    if (state->sp) {
        if (call_is_nested(ctx, task, state, sp)) {
            if (metered)
                count(COUNT_IDLE);
            return;
        }
        call_drop(state);
    }
    count(COUNT_ENTERED);
    cookie = bpf_get_attach_cookie(ctx);
    state->symbol = COOKIE_SYMBOL(cookie);
    state->size = call_size(ctx, cookie);
    state->gil = gil_read(task, state);
    state->path = attributed_path(state, &state->attribution);
    state->call_region = state->region;
    debt_enter(ctx, state, cookie);
    if (state->gil == GIL_HELD)
        waits = gil_waits;
    state->begin = ledger_enter(state, bpf_ktime_get_ns());
    if (state->gil == GIL_HELD)
        gil_held_begin(waits, state->begin);
    state->sp = sp;
    state->off_base = state->off_charged;
    ledger_leave(state);
}

static __always_inline struct call_row *call_row(struct thread_state *state, u64 caller)
{
    static const struct call_row zero = {.min = ~0ULL};
    struct call_key key = call_key(state, caller);
    struct call_row *row = bpf_map_lookup_elem(&calls, &key);

    if (row)
        return row;
    bpf_map_update_elem(&calls, &key, &zero, BPF_NOEXIST);
    return bpf_map_lookup_elem(&calls, &key);
}

/* A row belongs to one thread, so it is written without atomics. */
static __always_inline void call_row_add(struct call_row *row, struct thread_state *state, u64 wall,
                                         u64 off, bool failed)
{
    row->count++;
    row->wall += wall;
    row->cpu += wall - off;
    row->gil_wait += state->gil_wait;
    if (failed)
        row->errors++;
    else
        row->bytes += state->size;
    if (wall < row->min)
        row->min = wall;
    if (wall > row->max)
        row->max = wall;
    row->hist[log2_bucket(wall)]++;
}

/* CUresult is 32 bits wide: the upper half of the register is noise. */
static __always_inline bool call_failed(struct pt_regs *ctx)
{
    return (u32)PT_REGS_RC(ctx) != 0;
}

/* Returns the weight with which the call is sampled, see python.h. */
static __always_inline u32 call_count(struct pt_regs *ctx, struct thread_state *state, u64 wall,
                                      u64 off)
{
    struct call_row *row;

    state->gil_wait = state->gil == GIL_HELD ? gil_held_end(state->begin + wall) : 0;
    ledger_call(state, wall - off, off);
    /* The kernel has put the return address back: the caller is known without
     * reading the stack. */
    row = call_row(state, PT_REGS_IP(ctx));
    if (row)
        call_row_add(row, state, wall, off, call_failed(ctx));
    else
        count(LOST_ROW);
    debt_leave(state, wall, call_failed(ctx));
    if (!row)
        return 0;
    if (timeline)
        timeline_call(state, wall, off, PT_REGS_RC(ctx), call_stream(state));
    return python_weight(row, wall);
}

/* The thread ends inside the call. */
static __always_inline void call_cut(struct thread_state *state, u64 now)
{
    u64 wall = now - state->begin, off = state->off_total - state->off_base;

    count(in_window() ? LOST_AT_EXIT : LOST_IN_FLIGHT);
    if (timeline && now >= state->begin)
        timeline_call(state, wall, off < wall ? off : wall, RESULT_NONE, 0);
    call_over(state);
}

static __always_inline void call_leave(struct pt_regs *ctx, struct task_struct *task, u64 now)
{
    struct thread_state *state = thread_find(task);
    u64 sp = PT_REGS_SP(ctx) - RETURN_ADDRESS_SIZE, wall, off;
    u32 weight = 0;

    /* No call in progress: it was entered before the window. */
    if (!state || !state->sp || sp < state->sp) {
        if (metered)
            count(COUNT_IDLE);
        return;
    }
    if (sp > state->sp) {
        /* A frame above the recorded one returns, so that one is gone. */
        call_drop(state);
        return;
    }
    now = ledger_enter(state, now);
    call_over(state);
    wall = now - state->begin;
    off = state->off_charged - state->off_base;
    if (off > wall) /* the clock went back */
        off = wall;
    if (now < state->begin)
        count(LOST_IMPOSSIBLE);
    else
        weight = call_count(ctx, state, wall, off);
    ledger_leave(state);
    if (weight)
        python_take(task, state, PT_REGS_IP(ctx), wall, wall - off, weight);
}

#endif
