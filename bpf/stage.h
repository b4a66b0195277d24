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

#include "ledger.h"
#include "match.h"

/* The marker library's struct stageprof_open and struct stageprof_thread. */
struct slot_open {
    u64 name;
    u64 begin;
};
struct slot {
    u32 tid;
    u32 depth;
    struct slot_open open[SLOT_DEPTH];
};

static __noinline u32 path_new(const struct path_key *key)
{
    u64 address = key->name;
    u32 *known, id;

    if (!bpf_map_lookup_elem(&names, &address)) {
        struct stage_name name = {};

        if (bpf_probe_read_user_str(name.text, sizeof(name.text), (void *)address) < 0) {
            count(LOST_NAME_UNREADABLE);
            return PATH_OTHER;
        }
        if (name_add(address, &name))
            return PATH_OTHER;
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

    if (parent == PATH_OTHER || name == NAME_OTHER)
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
    return bpf_map_lookup_elem(&stages, &key);
}

/* ledger_enter and ledger_leave for a stack that may be the process's: its stages
 * are no thread's time, nothing is charged to them. */
static __always_inline u64 stages_enter(struct thread_state *state, u64 now)
{
    if (state->serial != THREAD_PROCESS)
        return ledger_enter(state, now);
    change_begin(state);
    return change_time(now);
}

static __always_inline void stages_leave(struct thread_state *state)
{
    if (state->serial != THREAD_PROCESS)
        ledger_leave(state);
    else /* maybe several threads at once */
        __sync_fetch_and_add(&state->changes, 1);
}

static __always_inline void add_parts(u64 *sum, const u64 *parts)
{
    for (int i = 0; i < PARTS; i++)
        sum[i] += parts[i];
}

static __always_inline void stage_row_sums(struct stage_row *row, const struct open_stage *stage,
                                           u64 wall, u64 cpu, bool partial)
{
    if (partial) {
        row->partial_count++;
        row->partial_wall += wall;
        row->partial_child += stage->child;
        row->partial_cpu += cpu;
        add_parts(row->partial_parts, stage->parts);
        return;
    }
    row->count++;
    row->wall += wall;
    row->child += stage->child;
    row->cpu += cpu;
    add_parts(row->parts, stage->parts);
    if (wall < row->min)
        row->min = wall;
    if (wall > row->max)
        row->max = wall;
    row->hist[log2_bucket(wall)]++;
}

static __always_inline void stage_row_add(struct stage_row *row, const struct open_stage *stage,
                                          u64 wall, u64 cpu, bool partial)
{
    row->first = stage->begin;
    barrier();
    stage_row_sums(row, stage, wall, cpu, partial);
    barrier();
    row->last = stage->begin;
}

/* The kinds of calls of a span, from the top of the thread's stack of them. */
static __always_inline void span_calls(struct span_record *record, struct thread_state *state,
                                       u32 base)
{
    u32 n = state->calls_len > base ? state->calls_len - base : 0;

    if (n > SPAN_CALLS)
        n = SPAN_CALLS;
    record->calls_len = n;
    for (u32 i = 0; i < SPAN_CALLS; i++) {
        u64 at = base + i;

        if (i >= n)
            break;
        barrier_var(at);
        record->calls[i] = state->calls[at & (CALL_STACK - 1)];
    }
}

/* Which row a stage is added to. No two stages of one row are open at a time: a
 * snapshot tells by the latest span of the row whether a stage has ended. */
static __always_inline u32 stage_row_path(const struct open_stage *stage, u32 depth)
{
    return stage->path == PATH_OTHER ? PATH_OTHER_AT(depth) : stage->path;
}

/* The agent polls, so nobody is woken. */
static __always_inline void span_stream(struct thread_state *state, const struct open_stage *stage,
                                        u32 path, u64 begin, u64 wall, u64 cpu, bool partial)
{
    struct span_record *record = bpf_ringbuf_reserve(&spans, sizeof(*record), 0);

    if (!record) {
        count(LOST_SPAN_RECORD);
        return;
    }
    record->thread = state->serial;
    record->path = path;
    record->begin = begin;
    record->wall = wall;
    record->child = stage->child;
    record->cpu = cpu;
    record->partial = partial;
    for (int i = 0; i < PARTS; i++)
        record->parts[i] = stage->parts[i];
    span_calls(record, state, stage->calls_base);
    bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

/* Hidden ranges are only counted, in the stage in which they begin: they take no
 * room, and how they are nested with each other does not matter. */
static __always_inline u16 *hidden_in(struct open_stage *stage, u8 source)
{
    u64 i = source;

    barrier_var(i);
    return &stage->hidden[i & (SOURCES - 1)];
}

static __always_inline void hidden_push(struct thread_state *state, u8 source)
{
    u16 *hidden = hidden_in(stage_current(state), source);

    if (*hidden == 0xffff) /* ranges that are never ended */
        count(LOST_STAGE_DEPTH);
    else
        ++*hidden;
    if (source == SOURCE_MARKER)
        state->markers++;
}

/* As many as can be counted. */
static __always_inline void hidden_add(struct open_stage *stage, u8 source, u32 n)
{
    u16 *hidden = hidden_in(stage, source);
    u32 room = 0xffff - *hidden;

    *hidden += n < room ? n : room;
}

/* Ends the innermost hidden range of a source in a stage, if there is one. */
static __always_inline bool hidden_pop(struct thread_state *state, struct open_stage *stage,
                                       u8 source)
{
    u16 *hidden;

    if (!matching)
        return false;
    hidden = hidden_in(stage, source);
    if (!*hidden)
        return false;
    --*hidden;
    if (source == SOURCE_MARKER)
        state->markers--;
    return true;
}

/* stage_push, stage_pop and stage_resync are global functions so that the
 * verifier checks each of them once instead of at every place in every loop
 * that calls them. That is why they ask whether there is a state. */
__noinline int stage_push(struct thread_state *state, u64 name, u64 begin, u8 source)
{
    struct open_stage *stage;

    if (!state)
        return 0;
    if (matching && name == NAME_HIDDEN) {
        hidden_push(state, source);
        return 0;
    }
    if (source == SOURCE_MARKER)
        state->markers++;
    stage = stage_at(state, state->depth);
    if (!stage) {
        count(LOST_STAGE_DEPTH);
        /* Markers tell their depth, the other sources' ends have to be counted. */
        if (source == SOURCE_MARKER)
            state->depth++;
        else
            state->deeper++;
        return 0;
    }
    regions_before_stage(state);
    state->depth++;
    stage->begin = begin;
    stage->child = 0;
    stage->child_cpu = 0;
    for (int i = 0; i < PARTS; i++)
        stage->parts[i] = 0;
    stage->calls_base = state->calls_len;
    stage->source = source;
    stage->cut = 0;
    if (matching)
        __builtin_memset(stage->hidden, 0, sizeof(stage->hidden));
    stage->path = path_child(state->stage_path, name);
    state->stage_path = stage->path;
    return 0;
}

/* Closes the innermost stage at `end`. `cut` says that the stage itself did not
 * end there. */
__noinline int stage_pop(struct thread_state *state, u64 end, bool cut)
{
    struct open_stage *stage, *parent;
    u64 begin, wall, cpu;
    struct stage_row *row;
    u32 depth, path;
    bool partial;

    if (!state || !state->depth)
        return 0;
    regions_before_stage(state);
    depth = state->depth - 1;
    state->depth = depth;
    stage = stage_at(state, depth);
    if (!stage) { /* only markers are counted beyond */
        state->markers--;
        return 0;
    }
    if (stage->source == SOURCE_MARKER)
        state->markers--;
    if (matching) /* they end with it */
        state->markers -= stage->hidden[SOURCE_MARKER];
    parent = depth ? stage_at(state, depth - 1) : NULL;
    state->stage_path = parent ? parent->path : PATH_NONE;

    begin = in_window_since(stage->begin);
    if (window_start && end >= begin) {
        wall = end - begin;
        cpu = stage->parts[PART_RUNNING] + stage->parts[PART_CUDA_CPU] + stage->child_cpu;
        partial = cut || stage->cut || begin != stage->begin;
        if (parent) {
            parent->child += wall;
            parent->child_cpu += cpu;
        }
        path = stage_row_path(stage, depth);
        row = stage_row(state->serial, path);
        if (row)
            stage_row_add(row, stage, wall, cpu, partial);
        else
            count(LOST_STAGE_ROW);
        if (state->serial != THREAD_PROCESS || timeline)
            span_stream(state, stage, path, begin, wall, cpu, partial);
    }
    state->calls_len = stage->calls_base;
    return 0;
}

/* Hands the time that was charged to the innermost stage to the one that has
 * just been found to have been open inside it all along. */
static __always_inline void stage_inherit(struct open_stage *from, struct open_stage *to)
{
    if (from == to)
        return;
    for (int i = 0; i < PARTS; i++) {
        to->parts[i] = from->parts[i];
        from->parts[i] = 0;
    }
}

/* Pushes a stage that was not seen to begin. Threads that are found in
 * mid-stage (`seeding`) have been in it since the window opened; otherwise a
 * marker was missed, and the time up to now has been charged elsewhere. */
__noinline int stage_push_found(struct thread_state *state, u64 name, u64 begin, bool seeding)
{
    struct open_stage *outer, *stage;
    bool whole, timed;

    if (!state)
        return 0;
    /* It has been open, and innermost, since the window opened. */
    whole = seeding && (!window_start || begin <= window_start || state->serial == THREAD_PROCESS);
    timed = !window_start || state->serial == THREAD_PROCESS; /* nothing is charged to others */
    outer = stage_current(state);
    stage_push(state, name, whole || timed ? begin : in_window_since(state->mark), SOURCE_MARKER);
    stage = stage_current(state);
    if (stage == outer) /* a hidden one */
        return 0;
    if (whole)
        stage_inherit(outer, stage);
    else
        stage->cut = 1;
    return 0;
}

/* Forgets up to `excess` markers that are only counted: hidden ones, or stages
 * beyond MAX_DEPTH. */
static __always_inline void stage_forget(struct thread_state *state, u32 excess)
{
    u16 *hidden = hidden_in(stage_current(state), SOURCE_MARKER);
    u32 deeper = state->depth > MAX_DEPTH ? state->depth - MAX_DEPTH : 0, n;

    n = excess < *hidden ? excess : *hidden;
    *hidden -= n;
    state->markers -= n;
    excess -= n;
    n = excess < deeper ? excess : deeper;
    state->depth -= n;
    state->markers -= n;
}

/* Takes off one marker of those beyond `want`, or all that are only counted. */
__noinline int stage_drop(struct thread_state *state, u32 want)
{
    if (!state)
        return 0;
    stage_forget(state, state->markers - want);
    if (state->markers > want) {
        count(LOST_MARKER);
        stage_pop(state, state->mark, true);
    }
    return 0;
}

/* Pushes the slot's stage that comes next after those on the stack. */
__noinline int stage_restore(struct thread_state *state, u64 slot, bool seeding)
{
    struct slot *s = (void *)slot;
    struct slot_open open;

    if (!state)
        return 0;
    if (bpf_probe_read_user(&open, sizeof(open), &s->open[state->markers])) {
        count(LOST_NAME_UNREADABLE);
        open.name = matching ? NAME_HIDDEN : NAME_OTHER;
        open.begin = ~0ULL;
    } else {
        open.name = marker_name(open.name);
    }
    stage_push_found(state, open.name, open.begin, seeding);
    return 0;
}

/* Makes the stack hold `want` markers, with what the slot says. What the loops
 * do is in functions of their own for the verifier, as above. */
__noinline int stage_resync(struct thread_state *state, u64 slot, u32 want, bool seeding)
{
    u32 rest;

    if (!state)
        return 0;
    for (int i = 0; i <= MAX_DEPTH && state->markers > want; i++)
        stage_drop(state, want);
    for (int i = 0; i < SLOT_DEPTH; i++) {
        if (state->markers >= want || state->markers >= SLOT_DEPTH || state->depth >= MAX_DEPTH)
            break;
        stage_restore(state, slot, seeding);
    }
    /* Beyond what either side remembers, only the number is kept. */
    rest = want > state->markers ? want - state->markers : 0;
    if (rest) {
        count(LOST_STAGE_DEPTH);
        if (state->depth >= MAX_DEPTH)
            state->depth += rest;
        else
            hidden_add(stage_current(state), SOURCE_MARKER, rest);
    }
    state->markers = want;
    return 0;
}

static __always_inline void stage_seed_from_slot(struct thread_state *state)
{
    struct {
        u32 tid, depth;
    } head = {};
    u32 tid = state->tid;
    u64 *slot;

    slot = bpf_map_lookup_elem(&slots, &tid);
    if (slot)
        state->slot = *slot;
    if (!state->slot)
        return;
    if (bpf_probe_read_user(&head, sizeof(head), (void *)state->slot))
        return;
    /* A slot outlives its thread, and may be another one's by now. */
    if (state->serial != THREAD_PROCESS && head.tid != namespace_tid(bpf_get_current_task_btf())) {
        state->slot = 0;
        return;
    }
    if (head.depth)
        stage_resync(state, state->slot, head.depth, true);
}

/* The stack of the process is shared by its threads: one of them seeds it. */
static __noinline int stage_seed_slow(struct thread_state *state)
{
    stages_enter(state, bpf_ktime_get_ns());
    if (!__sync_lock_test_and_set(&state->seeded, 1))
        stage_seed_from_slot(state);
    stages_leave(state);
    return 0;
}

/* A stack that was not followed from the beginning: the thread was in
 * mid-stage when the probes went in and has emitted no marker since. */
static __always_inline void stage_seed(struct thread_state *state)
{
    if (!state->seeded)
        stage_seed_slow(state);
}

/* Closes the innermost stage of a source, and whatever was left open in it by
 * others; a hidden one closes nothing else. One that was opened before the window
 * is not there: nothing happens. `cut` says that its end was missed. */
__noinline int stage_close(struct thread_state *state, u64 now, u8 source, bool cut)
{
    u32 found;

    if (!state)
        return 0;
    if (hidden_pop(state, stage_current(state), source))
        return 0;
    if (source != SOURCE_MARKER && state->deeper) {
        state->deeper--;
        return 0;
    }
    found = state->depth > MAX_DEPTH ? MAX_DEPTH : state->depth;
    for (int i = 0; i < MAX_DEPTH && found; i++) {
        struct open_stage *stage = stage_at(state, found - 1);

        if (!stage || stage->source == source)
            break;
        found--;
        stage = found ? stage_at(state, found - 1) : &state->outside;
        if (stage && hidden_pop(state, stage, source))
            return 0;
    }
    if (!found)
        return 0;
    for (int i = 0; i < MAX_DEPTH && state->depth > found; i++)
        stage_pop(state, now, true);
    stage_pop(state, now, cut);
    return 0;
}

static __always_inline u32 *handle_at(struct thread_state *state, u32 number)
{
    u64 i = number;

    barrier_var(i);
    return &state->handles[i & (MAX_DEPTH - 1)];
}

/* Ends the innermost range of a source that is only counted. */
static __always_inline void counted_close(struct thread_state *state, u8 source)
{
    u32 depth = state->depth > MAX_DEPTH ? MAX_DEPTH : state->depth;

    for (int i = 0; i <= MAX_DEPTH; i++) {
        struct open_stage *stage = depth ? stage_at(state, depth - 1) : &state->outside;

        if (!stage || hidden_pop(state, stage, source))
            return;
        if (!depth--)
            break;
    }
    if (state->deeper)
        state->deeper--;
}

/* Closes the stage of a source that is known by its handle, and whatever was left
 * open in it. One that is not there was opened before the window, on another
 * thread, or is only counted. */
__noinline int stage_close_handle(struct thread_state *state, u64 now, u8 source, u32 handle)
{
    u32 found;

    if (!state)
        return 0;
    found = state->depth > MAX_DEPTH ? MAX_DEPTH : state->depth;
    for (int i = 0; i < MAX_DEPTH && found; i++) {
        struct open_stage *stage = stage_at(state, found - 1);

        if (!stage)
            return 0;
        if (stage->source == source && *handle_at(state, found - 1) == handle)
            break;
        found--;
    }
    if (!found) {
        counted_close(state, source);
        return 0;
    }
    state->deeper = 0;
    for (int i = 0; i < MAX_DEPTH && state->depth > found; i++)
        stage_pop(state, now, true);
    stage_pop(state, now, false);
    return 0;
}

/* Brings the stack to the state before a marker of the followed library. */
static __always_inline void stage_before(struct thread_state *state, u64 slot, u32 want)
{
    bool seeding = !state->seeded;

    state->seeded = 1;
    if (state->markers != want)
        stage_resync(state, slot, want, seeding);
}

/* Another copy of the library has slots of its own: its depth says nothing
 * about the whole stack. */
static __always_inline u8 marker_source(struct thread_state *state, u64 slot)
{
    if (!state->slot)
        state->slot = slot;
    return state->slot == slot ? SOURCE_MARKER : SOURCE_OTHER_MARKER;
}

static __always_inline void stage_begin(struct thread_state *state, u64 slot, u64 name, u32 depth,
                                        u64 now)
{
    u8 source = marker_source(state, slot);

    if (source == SOURCE_MARKER)
        stage_before(state, slot, depth - 1);
    stage_push(state, marker_name(name), now, source);
}

static __always_inline void stage_end(struct thread_state *state, u64 slot, u32 depth, u64 now)
{
    u8 source = marker_source(state, slot);
    struct open_stage *top;

    /* The slot still holds the stage that has just been closed. */
    if (source == SOURCE_MARKER)
        stage_before(state, slot, depth + 1);
    top = stage_current(state);
    if (hidden_pop(state, top, source))
        return;
    if (state->depth > MAX_DEPTH || top->source == source)
        stage_pop(state, now, false);
    else
        stage_close(state, now, source, false);
}

/* The time outside any stage, as a row without spans. It is whole, like others,
 * when first and last agree, and not there yet while they are 0. */
static __always_inline void outside_flush(struct thread_state *state)
{
    struct stage_row *row = stage_row(state->serial, PATH_NONE);

    if (!row) {
        count(LOST_OUTSIDE_ROW);
        return;
    }
    row->first = state->mark;
    barrier();
    for (int i = 0; i < PARTS; i++) {
        row->parts[i] += state->outside.parts[i];
        row->wall += state->outside.parts[i];
        state->outside.parts[i] = 0;
    }
    barrier();
    row->last = state->mark;
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
