/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Functions that are stages or regions while they run. A probe on the entry
 * notes the stack pointer; a probe on each exit finds it there again. What
 * leaves a function another way is noticed where a C++ exception is caught, and
 * else (longjmp) at the thread's next event, if that is further up the stack or
 * finds that the return address has been written over. So nothing is put onto the target's stack,
 * and what unwinds it meets nothing unusual.
 *
 * A function's time begins and ends where the ledger is charged for it: at the
 * entry when its probe is done, at an exit when its probe begins, and where it was
 * left another way when that is noticed. What went by until then is the function's.
 */
#ifndef STAGEPROF_FUNCTION_H
#define STAGEPROF_FUNCTION_H

#include "autograd.h"
#include "gil.h"

/* Stands for a function's name in paths and names, with its number; the agent
 * has put the text there. No text has the second bit. */
#define FUNCTION_NAME (3ULL << 62)

static __always_inline struct frame *frame_at(struct thread_state *state, u32 number)
{
    u64 i = number;

    if (i >= MAX_FRAMES)
        return NULL;
    barrier_var(i);
    return &state->frame[i & (MAX_FRAMES - 1)];
}

static __always_inline struct region_row *region_row(const struct region_key *key)
{
    static const struct region_row zero = {.min = ~0ULL};
    struct region_row *row = bpf_map_lookup_elem(&regions, key);

    if (row)
        return row;
    bpf_map_update_elem(&regions, key, &zero, BPF_NOEXIST);
    return bpf_map_lookup_elem(&regions, key);
}

static __always_inline void region_row_sums(struct region_row *row, u64 wall, u64 child,
                                            bool partial)
{
    if (partial) {
        row->partial_count++;
        row->partial_wall += wall;
        row->partial_child += child;
        return;
    }
    row->count++;
    row->wall += wall;
    row->child += child;
    if (wall < row->min)
        row->min = wall;
    if (wall > row->max)
        row->max = wall;
}

static __always_inline void region_row_add(struct region_row *row, u64 wall, u64 child,
                                           bool partial)
{
    region_row_sums(row, wall, child, partial);
    barrier();
    row->done++;
}

/* Regions around a region are told of its time by the next frame outwards,
 * whether that is a region or not. */
static __always_inline void region_close(struct thread_state *state, struct frame *frame,
                                         struct frame *around, u64 end, bool cut)
{
    u64 begin = in_window_since(frame->begin), wall;
    struct region_key key = {
        .thread = state->serial,
        .path = frame->path,
        .region = state->region,
        .attribution = frame->attribution,
    };
    struct region_row *row;

    regions_settle(state);
    state->region = frame->outer;
    if (!window_start || end < begin)
        return;
    wall = end - begin;
    if (around)
        around->child += wall;
    row = region_row(&key);
    if (row)
        region_row_add(row, wall, frame->child, cut || begin != frame->begin);
    else
        count(LOST_REGION_ROW);
}

/* Closes the innermost open function at `end`. `cut` says that it was not seen
 * to be left. */
__noinline int frame_close(struct thread_state *state, u64 end, bool cut)
{
    struct frame *frame, *around = NULL;
    u32 number;

    if (!state || !state->frames)
        return 0;
    number = state->frames - 1;
    state->frames = number;
    frame = frame_at(state, number);
    if (number)
        around = frame_at(state, number - 1);
    state->frame_sp = around ? around->sp : 0;
    state->frame_back = around ? around->back : 0;
    if (!frame)
        return 0;
    if (frame->roles & ROLE_REGION)
        region_close(state, frame, around, end, cut);
    else if (around)
        around->child += frame->child;
    if (frame->roles & ROLE_STAGE)
        stage_close(state, end, SOURCE_FUNCTION, cut);
    return 0;
}

/* What the kernel puts in place of the return addresses of probed functions,
 * the same for all of a process. */
static __always_inline u64 return_trampoline(struct task_struct *task)
{
    return BPF_CORE_READ(task, mm, uprobes_state.xol_area, vaddr);
}

/* Whether the innermost open function is over, at an event at this stack
 * pointer. Whoever called it has called another function since, or this is
 * further up. */
static __always_inline bool frame_is_gone(struct task_struct *task, struct thread_state *state,
                                          u64 sp)
{
    u64 word;

    if (state->frame_sp < sp)
        return true;
    return !read_user_u64(&word, state->frame_sp) && word != state->frame_back &&
           word != return_trampoline(task);
}

__noinline int frames_heal_slow(struct thread_state *state, u64 sp)
{
    struct task_struct *task = bpf_get_current_task_btf();
    u64 now;

    if (!state)
        return 0;
    now = ledger_enter(state, bpf_ktime_get_ns());
    for (int i = 0; i < MAX_FRAMES && state->frame_sp; i++) {
        if (!frame_is_gone(task, state, sp))
            break;
        if (window_start)
            count(LOST_FUNCTION_EXIT);
        frame_close(state, now, true);
    }
    ledger_leave(state);
    return 0;
}

/* Closes the functions that are over and were not seen to be left. */
static __always_inline void frames_heal(struct task_struct *task, struct thread_state *state,
                                        u64 sp)
{
    if (state->frame_sp && frame_is_gone(task, state, sp))
        frames_heal_slow(state, sp);
}

/* At the end of a thread or of the window. */
static __always_inline void frames_cut_all(struct thread_state *state, u64 end)
{
    for (int i = 0; i < MAX_FRAMES && state->frames; i++)
        frame_close(state, end, true);
}

static __always_inline void function_enter(struct pt_regs *ctx, struct task_struct *task,
                                           struct thread_state *state, u64 cookie)
{
    u64 sp = PT_REGS_SP(ctx), name = FUNCTION_NAME | COOKIE_FUNCTION(cookie), now;
    u32 number = COOKIE_FUNCTION(cookie);
    struct function *function = bpf_map_lookup_elem(&functions, &number);
    struct frame *frame;
    u8 attribution;

    /* One at the same place has jumped here: what it was called for is this
     * function's business now. */
    frames_heal(task, state, sp + 1);
    stage_seed(state);
    frame = frame_at(state, state->frames);
    if (!function || !frame) {
        count(LOST_FUNCTION_DEPTH);
        return;
    }
    frame->sp = sp;
    frame->back = 0;
    read_user_u64(&frame->back, sp);
    frame->start = PT_REGS_IP(ctx) - function->skip;
    frame->child = 0;
    frame->function = number;
    frame->roles = COOKIE_ROLES(cookie);
    frame->outer = state->region;
    now = bpf_ktime_get_ns();
    if (frame->roles & ROLE_STAGE) {
        now = ledger_enter(state, now);
        stage_push(state, name, now, SOURCE_FUNCTION);
        stage_begun(state, now);
        ledger_leave(state);
    }
    if (frame->roles & ROLE_REGION) {
        frame->path = attributed_path(state, &attribution);
        frame->attribution = attribution;
        now = ledger_enter(state, now);
        regions_settle(state);
        state->region = path_child(state->region, name);
        ledger_leave(state);
    }
    frame->begin = now;
    state->frames++;
    state->frame_sp = sp;
    state->frame_back = frame->back;
}

#if defined(__TARGET_ARCH_x86)

#define FLAG_CARRY 0
#define FLAG_PARITY 2
#define FLAG_ZERO 6
#define FLAG_SIGN 7
#define FLAG_OVERFLOW 11

/* Whether a conditional jump with this condition code is taken. */
static __always_inline bool condition_holds(u64 flags, u8 code)
{
    bool zero = flags >> FLAG_ZERO & 1, carry = flags >> FLAG_CARRY & 1;
    bool sign = flags >> FLAG_SIGN & 1, overflow = flags >> FLAG_OVERFLOW & 1;
    bool parity = flags >> FLAG_PARITY & 1, holds = false;

    switch (code >> 1) {
    case 0:
        holds = overflow;
        break;
    case 1:
        holds = carry;
        break;
    case 2:
        holds = zero;
        break;
    case 3:
        holds = carry || zero;
        break;
    case 4:
        holds = sign;
        break;
    case 5:
        holds = parity;
        break;
    case 6:
        holds = sign != overflow;
        break;
    case 7:
        holds = zero || sign != overflow;
        break;
    }
    return holds != (code & 1);
}

static __always_inline bool function_holds(const struct frame *frame, u64 address)
{
    u32 number = frame->function;
    struct function *function = bpf_map_lookup_elem(&functions, &number);
    u64 at = address - frame->start;

    return function && (at < function->size || at - function->cold_start < function->cold_size);
}

/* Whether the instruction under the probe is about to leave the function. */
static __always_inline bool leaves(struct pt_regs *ctx, const struct frame *frame, u64 cookie)
{
    switch (COOKIE_LEAVING(cookie)) {
    case LEAVES_IF:
        return condition_holds(ctx->flags, COOKIE_NUMBER(cookie));
    case LEAVES_BY_REGISTER:
        return !function_holds(frame, register_value(ctx, COOKIE_NUMBER(cookie)));
    }
    return true;
}

#else /* the agent puts no probes there */

static __always_inline bool leaves(struct pt_regs *ctx, const struct frame *frame, u64 cookie)
{
    return true;
}

#endif

static __always_inline void function_leave(struct pt_regs *ctx, struct thread_state *state,
                                           u64 cookie, u64 now)
{
    u64 sp = PT_REGS_SP(ctx);
    struct frame *frame;

    if (state->frame_sp && state->frame_sp < sp)
        frames_heal_slow(state, sp);
    /* Not the innermost one's: it was entered before the probes were in, or too
     * deep to be kept. */
    if (state->frame_sp != sp)
        return;
    frame = frame_at(state, state->frames - 1);
    if (!frame || frame->function != COOKIE_FUNCTION(cookie) || !leaves(ctx, frame, cookie))
        return;
    now = ledger_enter(state, now);
    frame_close(state, now, false);
    ledger_leave(state);
}

#endif
