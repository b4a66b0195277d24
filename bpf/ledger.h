/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The ledger: every nanosecond of a thread's life in the window goes to one
 * part of one stage. At each event (a switch, a marker, a call's begin or end)
 * the time since the previous one is charged to what the thread was doing, in
 * the innermost open stage: so the parts of a span sum to its wall time by
 * construction.
 */
#ifndef STAGEPROF_LEDGER_H
#define STAGEPROF_LEDGER_H

#include "offcpu.h"
#include "thread.h"

static __always_inline struct open_stage *stage_at(struct thread_state *state, u32 depth)
{
    u64 i = depth;

    if (i >= MAX_DEPTH)
        return NULL;
    barrier_var(i); /* keeps the mask, by which the verifier knows the bound */
    return &state->open[i & (MAX_DEPTH - 1)];
}

/* The innermost open stage that is remembered, or what stands for none. */
static __always_inline struct open_stage *stage_current(struct thread_state *state)
{
    u32 depth = state->depth;
    struct open_stage *stage;

    if (!depth)
        return &state->outside;
    stage = stage_at(state, depth > MAX_DEPTH ? MAX_DEPTH - 1 : depth - 1);
    return stage ? stage : &state->outside;
}

static __always_inline void add_part(struct thread_state *state, u32 part, u64 time)
{
    u64 i = part;

    if (i >= PARTS)
        return;
    barrier_var(i);
    if (i < PARTS)
        stage_current(state)->parts[i] += time;
}

/* Charges the time up to `now`, or up to the window's end. */
static __always_inline void charge(struct thread_state *state, u64 now, u32 part)
{
    u64 since = in_window_since(state->mark);

    now = until_window_end(now);
    if (now <= state->mark)
        return;
    state->mark = now;
    if (window_start && now > since)
        add_part(state, part, now - since);
}

/*
 * Our uprobe programs can be preempted, and the scheduler's program then sees
 * the same thread's record. Between ledger_enter and ledger_leave it only notes
 * how long the thread was off the CPU; that time counts as runnable.
 *
 * ledger_enter charges the time up to `now` and returns it, or a later time, if
 * more has been charged already; never a time after the window.
 */
static __always_inline u64 ledger_enter(struct thread_state *state, u64 now)
{
    u64 deferred;

    state->busy = 1;
    barrier();
    now = until_window_end(now);
    if (now < state->mark)
        return state->mark;
    deferred = state->deferred;
    state->deferred = 0;
    if (deferred && window_start && state->mark + deferred <= now) {
        state->mark += deferred;
        add_part(state, state->sp ? PART_CUDA_BLOCKED : PART_RUNNABLE, deferred);
    }
    charge(state, now, state->sp ? PART_CUDA_CPU : PART_RUNNING);
    return now;
}

static __always_inline void ledger_leave(struct thread_state *state)
{
    barrier();
    state->busy = 0;
}

/* What the thread, which is off the CPU, has been waiting for. */
static __always_inline void charge_off(struct thread_state *state, u64 now)
{
    if (state->sp) {
        charge(state, now, PART_CUDA_BLOCKED);
        return;
    }
    if (state->woken)
        charge(state, state->woken < now ? state->woken : now, state->off_part);
    charge(state, now, state->woken ? PART_RUNNABLE : state->off_part);
}

static __always_inline void switched_out(struct thread_state *state, struct task_struct *task,
                                         bool preempted)
{
    u64 now = bpf_ktime_get_ns();

    state->woken = 0;
    if (!state->busy) {
        charge(state, now, state->sp ? PART_CUDA_CPU : PART_RUNNING);
        state->off_part = off_cpu_part(task, preempted);
    }
    barrier();
    state->off_since = now;
}

/* Also called on behalf of a thread that is off the CPU when the window ends. */
static __always_inline void off_until(struct thread_state *state, u64 now)
{
    u64 since = in_window_since(state->off_since);

    now = until_window_end(now);
    if (!window_start || now <= since)
        return;
    state->off_total += now - since;
    if (state->busy)
        state->deferred += now - since;
    else
        charge_off(state, now);
}

static __always_inline void switched_in(struct thread_state *state)
{
    if (!state->off_since)
        return;
    off_until(state, bpf_ktime_get_ns());
    barrier();
    state->off_since = 0;
    state->woken = 0;
}

static __always_inline void woken_up(struct thread_state *state)
{
    if (state->off_since && !state->woken)
        state->woken = bpf_ktime_get_ns();
}

/* Adds a call that has ended to the kinds of calls of the innermost stage.
 * These lie on top of the thread's stack of kinds. */
static __always_inline void ledger_call(struct thread_state *state, u64 cpu, u64 blocked)
{
    u32 base = stage_current(state)->calls_base, len = state->calls_len;
    struct span_call *call;

    if (!state->depth) /* nobody asks for the kinds outside any stage */
        return;
    for (u32 i = 0; i < SPAN_CALLS; i++) {
        u64 at = base + i;

        if (at >= CALL_STACK)
            return;
        barrier_var(at);
        call = &state->calls[at & (CALL_STACK - 1)];
        if (base + i >= len) { /* a new kind */
            call->symbol = state->symbol;
            call->gil = state->gil;
            call->count = 0;
            call->cpu = 0;
            call->blocked = 0;
            state->calls_len = base + i + 1;
        } else if (call->symbol != state->symbol || call->gil != state->gil) {
            continue;
        }
        call->count++;
        call->cpu += cpu;
        call->blocked += blocked;
        return;
    }
}

#endif
