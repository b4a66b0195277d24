/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Stage stacks. A thread's stack mirrors the one that the marker library keeps
 * in the thread's slot. Each marker says how deep the library's stack is after
 * it; when that does not follow from what is known (the window opened in
 * mid-stage, a marker was missed), the stack is read again from the slot, by
 * the thread itself, which can't change it meanwhile.
 */
#ifndef STAGEPROF_STAGE_H
#define STAGEPROF_STAGE_H

#include "thread.h"

/* The marker library's struct stageprof_open and struct stageprof_thread. */
struct slot_open {
    u64 name;
    u64 begin;
};
struct slot {
    u32 tid;
    u32 depth;
    struct slot_open open[MAX_DEPTH];
};

static __noinline u32 path_new(const struct path_key *key)
{
    u64 address = key->name;
    u32 *known, id;

    if (!bpf_map_lookup_elem(&names, &address)) {
        struct stage_name name = {};
        long n = bpf_probe_read_user_str(name.text, sizeof(name.text), (void *)address);

        if (n < 0) {
            count(LOST_NAME_UNREADABLE);
            return PATH_OTHER;
        }
        n = bpf_map_update_elem(&names, &address, &name, BPF_NOEXIST);
        if (n && n != -EEXIST) {
            count(LOST_NAME_FULL);
            return PATH_OTHER;
        }
    }
    id = __sync_fetch_and_add(&next_path, 1);
    if (!bpf_map_update_elem(&paths, key, &id, BPF_NOEXIST))
        return id;
    /* Another thread was faster, or the table is full. */
    known = bpf_map_lookup_elem(&paths, key);
    if (known)
        return *known;
    count(LOST_PATH);
    return PATH_OTHER;
}

static __always_inline u32 path_child(u32 parent, u64 name)
{
    struct path_key key = {.name = name, .parent = parent};
    u32 *id;

    if (parent == PATH_OTHER)
        return PATH_OTHER;
    id = bpf_map_lookup_elem(&paths, &key);
    return id ? *id : path_new(&key);
}

static __always_inline struct stage_row *stage_row(u32 thread, u32 path)
{
    static const struct stage_row zero = {.min = ~0ULL};
    struct stage_key key = {.thread = thread, .path = path};
    struct stage_row *row = bpf_map_lookup_elem(&stages, &key);

    if (row)
        return row;
    bpf_map_update_elem(&stages, &key, &zero, BPF_NOEXIST);
    row = bpf_map_lookup_elem(&stages, &key);
    if (!row)
        count(LOST_STAGE_ROW);
    return row;
}

struct span {
    u64 wall;
    u64 child;
    u64 cpu;
    bool partial;
};

static __always_inline void stage_row_add(struct stage_row *row, const struct span *span)
{
    if (span->partial) {
        row->partial_count++;
        row->partial_wall += span->wall;
        row->partial_child += span->child;
        row->partial_cpu += span->cpu;
        return;
    }
    row->count++;
    row->wall += span->wall;
    row->child += span->child;
    row->cpu += span->cpu;
    if (span->wall < row->min)
        row->min = span->wall;
    if (span->wall > row->max)
        row->max = span->wall;
    row->hist[log2_bucket(span->wall)]++;
}

static __always_inline struct open_stage *stage_at(struct thread_state *state, u32 depth)
{
    u64 i = depth;

    if (i >= MAX_DEPTH)
        return NULL;
    barrier_var(i); /* keeps the mask, by which the verifier knows the bound */
    return &state->open[i & (MAX_DEPTH - 1)];
}

/* stage_push, stage_pop and stage_resync are global functions so that the
 * verifier checks each of them once instead of at every place in every loop
 * that calls them. That is why they ask whether there is a state. */
__noinline int stage_push(struct thread_state *state, u64 name, u64 begin)
{
    struct open_stage *stage;
    u32 depth;

    if (!state)
        return 0;
    depth = state->depth;
    stage = stage_at(state, depth);
    state->depth = depth + 1;
    if (!stage) {
        count(LOST_STAGE_DEPTH);
        return 0;
    }
    stage->begin = begin;
    stage->child = 0;
    stage->off_base = state->off_total;
    stage->path = path_child(state->stage_path, name);
    state->stage_path = stage->path;
    return 0;
}

/* Closes the innermost stage at `end`. `cut` says that the stage itself did not
 * end there. */
__noinline int stage_pop(struct thread_state *state, u64 end, bool cut)
{
    struct open_stage *stage, *parent;
    struct stage_row *row;
    struct span span;
    u64 begin, off;
    u32 depth;

    if (!state || !state->depth)
        return 0;
    depth = state->depth - 1;
    state->depth = depth;
    stage = stage_at(state, depth);
    if (!stage)
        return 0;
    parent = depth ? stage_at(state, depth - 1) : NULL;
    state->stage_path = parent ? parent->path : PATH_NONE;

    if (!window_start)
        return 0;
    begin = in_window_since(stage->begin);
    if (end <= begin)
        return 0;
    off = state->off_total - stage->off_base;
    span.wall = end - begin;
    span.child = stage->child;
    span.cpu = off < span.wall ? span.wall - off : 0;
    span.partial = cut || begin != stage->begin;
    if (parent)
        parent->child += span.wall;
    row = stage_row(state->serial, stage->path);
    if (row)
        stage_row_add(row, &span);
    return 0;
}

/* Makes the stack `want` deep, with what the slot says. */
__noinline int stage_resync(struct thread_state *state, u64 slot, u32 want, u64 now)
{
    struct slot *s = (void *)slot;
    struct slot_open open;

    if (!state)
        return 0;
    for (int i = 0; i < MAX_DEPTH && state->depth > want; i++) {
        count(LOST_MARKER);
        stage_pop(state, now, true);
    }
    for (int i = 0; i < MAX_DEPTH; i++) {
        u32 depth = state->depth;

        if (depth >= want || depth >= MAX_DEPTH)
            break;
        if (bpf_probe_read_user(&open, sizeof(open), &s->open[depth]))
            break;
        stage_push(state, open.name, open.begin);
    }
    /* Beyond what either side remembers, only the number is kept. */
    state->depth = want;
    return 0;
}

/* A stack that was not followed from the beginning: the thread was in
 * mid-stage when the probes went in and has emitted no marker since. */
static __always_inline void stage_seed(struct thread_state *state)
{
    u32 tid = state->tid, depth;
    u64 *slot;

    if (state->seeded)
        return;
    /* The stack of the process is shared by its threads: one of them seeds it. */
    if (__sync_lock_test_and_set(&state->seeded, 1))
        return;
    slot = bpf_map_lookup_elem(&slots, &tid);
    if (slot)
        state->slot = *slot;
    if (!state->slot)
        return;
    if (bpf_probe_read_user(&depth, sizeof(depth), &((struct slot *)state->slot)->depth))
        return;
    if (depth)
        stage_resync(state, state->slot, depth, 0);
}

/* Brings the stack to the state before the marker. */
static __always_inline void stage_before(struct thread_state *state, u64 slot, u32 want, u64 now)
{
    state->seeded = 1;
    if (!state->slot)
        state->slot = slot;
    if (state->slot != slot)
        return; /* another copy of the library: its depth says nothing about the whole stack */
    want += state->foreign;
    if (state->depth != want)
        stage_resync(state, slot, want, now);
}

static __always_inline void stage_begin(struct thread_state *state, u64 slot, u64 name, u32 depth,
                                        u64 now)
{
    stage_before(state, slot, depth - 1, now);
    stage_push(state, name, now);
    if (state->slot != slot)
        state->foreign++;
}

static __always_inline void stage_end(struct thread_state *state, u64 slot, u32 depth, u64 now)
{
    /* The slot still holds the stage that has just been closed. */
    stage_before(state, slot, depth + 1, now);
    stage_pop(state, now, false);
    if (state->slot != slot && state->foreign)
        state->foreign--;
}

/* At the end of a thread or of the window. */
static __always_inline void stage_cut_all(struct thread_state *state, u64 end)
{
    if (state->depth > MAX_DEPTH)
        state->depth = MAX_DEPTH;
    for (int i = 0; i < MAX_DEPTH && state->depth; i++)
        stage_pop(state, end, true);
}

/* The stages of the process as a whole are kept like those of one more thread. */
static __always_inline struct thread_state *process_state(void)
{
    u32 key = 0;
    struct thread_state *state = bpf_map_lookup_elem(&process_stages, &key);

    if (state && !state->serial) {
        state->serial = THREAD_PROCESS;
        state->slot = process_slot;
    }
    return state;
}

#endif
