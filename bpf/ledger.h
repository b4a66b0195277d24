/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The ledger: every nanosecond of a thread's life in the window goes to one
 * part of one stage. At each event (a switch, a marker, a call's begin or end)
 * the time since the previous one is charged to what the thread was doing, in
 * the innermost open stage: so the parts of a span sum to its wall time by
 * construction. The same piece of time is charged to the regions that are open,
 * if there are any: what is left of a stage's parts was outside of them.
 *
 * Snapshots are made of copies of threads' records, and charge the time up to
 * the moment that `peeked_until` names. So each change is announced first, and
 * only then does it look at that moment: either whoever makes the copy sees that
 * a change is under way, or the change counts from that moment on. However long
 * it takes from reading the clock to writing down what happened then, no
 * snapshot tells more of something than there will have been.
 */
#ifndef STAGEPROF_LEDGER_H
#define STAGEPROF_LEDGER_H

#include "gilwait.h"
#include "offcpu.h"
#include "thread.h"
#include "timeline.h"

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
    if (i >= PARTS)
        return;
    stage_current(state)->parts[i] += time;
    if (regions_followed)
        state->region_parts[i] += time;
}

/* The regions that the thread's time belongs to. That of a driver call is with
 * those that were open when it began, as the call is, whatever runs inside it. */
static __always_inline u32 region_current(const struct thread_state *state)
{
    return state->sp ? state->call_region : state->region;
}

static __always_inline struct region_parts_row *region_parts_row(struct thread_state *state)
{
    static const struct region_parts_row zero = {};
    struct region_parts_key key = {
        .thread = state->serial,
        .path = stage_current(state)->path,
        .region = region_current(state),
    };
    struct region_parts_row *row = bpf_map_lookup_elem(&region_parts, &key);

    if (row)
        return row;
    bpf_map_update_elem(&region_parts, &key, &zero, BPF_NOEXIST);
    return bpf_map_lookup_elem(&region_parts, &key);
}

/* Gives the regions that are open, and the innermost stage, what was charged since
 * one of them changed. A global function, for the verifier to check it once. */
__noinline int regions_settle(struct thread_state *state)
{
    struct region_parts_row *row;

    if (!state)
        return 0;
    if (region_current(state) && state->region_since != state->mark) {
        row = region_parts_row(state);
        if (row) {
            row->first = state->mark;
            barrier();
            for (int i = 0; i < PARTS; i++)
                row->parts[i] += state->region_parts[i];
            barrier();
            row->last = state->mark;
        } else {
            count(LOST_REGION_PARTS);
        }
    }
    for (int i = 0; i < PARTS; i++)
        state->region_parts[i] = 0;
    state->region_since = state->mark;
    return 0;
}

/* Comes before each change of the innermost stage, after the time up to it was
 * charged. Outside of regions nothing is kept apart. */
static __always_inline void regions_before_stage(struct thread_state *state)
{
    if (regions_followed && region_current(state))
        regions_settle(state);
}

/* The call in progress is over: from here on the thread's regions are its own. */
static __always_inline void call_over(struct thread_state *state)
{
    if (regions_followed && state->call_region != state->region)
        regions_settle(state);
    state->sp = 0;
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

static __always_inline bool is_changing(const struct thread_state *state)
{
    return *(const volatile u32 *)&state->changes & 1;
}

/* Announces a change. The result is used so that this is a full barrier. */
static __always_inline void change_begin(struct thread_state *state)
{
    u32 changes = __sync_fetch_and_add(&state->changes, 1);

    barrier_var(changes);
}

static __always_inline void change_end(struct thread_state *state)
{
    barrier();
    state->changes++;
}

/* From when on a change counts that has been announced and was seen at `now`. */
static __always_inline u64 change_time(u64 now)
{
    return until_window_end(later(now, peeked_until));
}

/* Charges the time up to `now` to a thread that has been on the CPU, but for `off`
 * in a program of ours. */
static __always_inline void charge_on(struct thread_state *state, u64 now, u64 off)
{
    if (off) {
        charge(state, in_window_since(state->mark) + off,
               state->sp ? PART_CUDA_BLOCKED : PART_RUNNABLE);
        state->off_charged += off;
    }
    charge(state, now, state->sp ? PART_CUDA_CPU : PART_RUNNING);
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

/* Also called on behalf of a thread that is off the CPU when the window ends. */
static __always_inline void off_until(struct thread_state *state, u64 now, bool in_program)
{
    u64 since = in_window_since(state->off_since);

    now = until_window_end(now);
    if (!window_start || now <= since)
        return;
    state->off_total += now - since;
    if (in_program)
        return;
    state->off_charged += now - since;
    charge_off(state, now);
}

/* The thread is on the CPU again, since `now`. A program in which it has ended has
 * charged all of its time already. */
static __always_inline void back_on(struct thread_state *state, u64 now, bool in_program)
{
    off_until(state, now, in_program);
    gil_wait_end(state, now);
    if (timeline && !(in_program && state->ended))
        timeline_off(state, now);
    state->off_since = 0;
    state->woken = 0;
}

/* When a thread came back that is on the CPU now. From when on it was ready to run
 * has to be known; how long it then waited for a CPU the scheduler tells. */
static __always_inline u64 back_time(struct thread_state *state)
{
    u64 ready = state->off_part == PART_RUNNABLE ? state->off_since : state->woken;
    u64 now = bpf_ktime_get_ns(), back;

    if (!ready) /* nobody has said in the window that it was woken */
        return window_over() ? window_end : state->off_since;
    back = ready + (u32)(run_delay(bpf_get_current_task_btf()) - state->run_delay);
    return back < now ? back : now;
}

/* Before the thread left the CPU it was on it. Everything up to there has been charged
 * already, unless it left in one of our programs. */
static __always_inline void charge_until_off(struct thread_state *state)
{
    charge_on(state, state->off_since, state->off_total - state->off_charged);
}

/*
 * The thread is on the CPU, and nobody has said so: some kernels pass single switches
 * without their tracepoint. What snapshots have told of its absence stays as it is;
 * what comes after the time at which it is known to have been away counts as time on
 * the CPU. Global, so that the verifier checks it once.
 */
__noinline int back_unseen(struct thread_state *state, bool in_program)
{
    if (!state)
        return 0;
    if (!in_program)
        charge_until_off(state);
    back_on(state, later(later(back_time(state), state->off_since), peeked_until), in_program);
    return 0;
}

/*
 * Our uprobe programs can be preempted, and the scheduler's program then sees
 * the same thread's record. Between ledger_enter and ledger_leave it only notes
 * how long the thread was off the CPU; that time counts as runnable, or blocked.
 *
 * ledger_enter charges the time up to `now` and returns it, or a later time, if
 * more has been charged already; never a time after the window.
 */
static __always_inline u64 ledger_enter(struct thread_state *state, u64 now)
{
    /* What comes from here on is not of the time before `now`. */
    u64 off = *(volatile u64 *)&state->off_total;

    change_begin(state);
    if (state->off_since)
        back_unseen(state, false);
    now = change_time(now);
    if (now < state->mark)
        return state->mark;
    /* Less, if the thread was switched since: everything was charged then. */
    charge_on(state, now, off > state->off_charged ? off - state->off_charged : 0);
    return now;
}

static __always_inline void ledger_leave(struct thread_state *state)
{
    change_end(state);
}

/* The clocks of two processors, and of the agent, may differ by a little. What happened
 * at `now` has been announced. */
static __always_inline u64 switch_time(u64 now)
{
    return later(now, peeked_until);
}

static __always_inline void switched_out(struct thread_state *state, struct task_struct *task,
                                         bool preempted, u64 now)
{
    bool in_program = is_changing(state);

    if (!in_program)
        change_begin(state);
    now = switch_time(now);
    if (state->off_since)
        back_unseen(state, in_program);
    if (!in_program) {
        charge_on(state, now, state->off_total - state->off_charged);
        now = later(now, state->mark);
    }
    state->off_part = off_cpu_part(task, preempted);
    if (!in_program)
        gil_wait_begin(state, now);
    state->run_delay = run_delay(task);
    state->woken = 0;
    state->off_since = now;
    if (!in_program)
        change_end(state);
}

static __always_inline void switched_in(struct thread_state *state, u64 now)
{
    bool in_program = is_changing(state);

    if (!state->off_since)
        return;
    if (!in_program)
        change_begin(state);
    back_on(state, switch_time(now), in_program);
    if (!in_program)
        change_end(state);
}

static __always_inline void woken_up(struct thread_state *state)
{
    bool in_program = is_changing(state);

    if (!state->off_since || state->woken)
        return;
    if (!in_program)
        change_begin(state);
    state->woken = switch_time(bpf_ktime_get_ns());
    gil_wait_end(state, state->woken);
    if (!in_program)
        change_end(state);
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
