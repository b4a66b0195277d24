/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Stages that are Python functions, with no marker in them: a call belongs to
 * the innermost function on its thread's stack whose name matches. The stack is
 * looked at when the call begins, which says nothing about when the functions
 * began: so they have calls and no spans, and stand innermost in a path.
 *
 * A function that a marked stage has begun in is not inside of it. Which one that
 * is is looked up when the stage begins.
 */
#ifndef STAGEPROF_PYTHONSTAGE_H
#define STAGEPROF_PYTHONSTAGE_H

#include "python.h"
#include "range.h"

#define PYTHON_HOPS 128 /* frames looked at, innermost first */

/* The lowest bits of a string's state, see python_plan. */
#define TEXT_SIZE 7      /* bytes of a character */
#define TEXT_COMPACT 8   /* the characters follow the header */
#define TEXT_IS_ASCII 16 /* … the shorter header */

#define TEXT_CHUNK 32 /* characters read at a time */

/* Appends a chunk of characters of one size, of which `length` have been loaded. */
static __always_inline int append_chunk(struct python_state *p, struct stage_name *name, int at,
                                        u32 size, u32 length)
{
    for (u32 i = 0; i < TEXT_CHUNK; i++) {
        u32 character;

        if (i >= length)
            break;
        character = size == 4   ? loaded_u32(p, 4 * i)
                    : size == 2 ? (u16)(loaded(p, 2 * i) >> (i & 3) * 16)
                                : loaded_u8(p, i);
        at = append_utf8(name, at, character);
        if (at < 0) /* the name is cut here */
            break;
    }
    return at;
}

/* A global function, for the verifier to check its loops once. */
__noinline int read_characters(struct python_state *p, struct stage_name *name, u64 address,
                               u32 size, u32 length)
{
    int at = 0;

    if (!p || !name || size > 4)
        return -1;
    for (int i = 0; i < NAME_SIZE / TEXT_CHUNK && length; i++) {
        u32 n = length < TEXT_CHUNK ? length : TEXT_CHUNK;
        u64 bytes = n * size;

        barrier_var(bytes); /* keeps the mask, by which the verifier knows the bound */
        if (bpf_probe_read_user(p->words, bytes & (sizeof(p->words) - 1), (void *)address))
            return -1;
        at = append_chunk(p, name, at, size, n);
        if (at < 0)
            return 0;
        address += bytes;
        length -= n;
    }
    return 0;
}

/* Reads the string whose header was loaded last as the text of a name. */
static __always_inline int python_text(struct python_state *p, struct stage_name *name, u64 address)
{
    u32 state = loaded_u32(p, python.text_state) >> (python.text_kind & 31);
    u64 length = loaded(p, python.text_length);

    if (!(state & TEXT_COMPACT))
        return -1;
    if (!(state & TEXT_IS_ASCII))
        return read_characters(p, name, address + python.text_wide, state & TEXT_SIZE,
                               length < NAME_SIZE ? length : NAME_SIZE);
    if (length > NAME_SIZE - 1)
        length = NAME_SIZE - 1;
    barrier_var(length);
    return bpf_probe_read_user(name->text, length & (NAME_SIZE - 1),
                               (void *)address + python.text_ascii);
}

static __always_inline u64 python_text_name(const struct stage_name *name)
{
    u64 *known = bpf_map_lookup_elem(&python_texts, name);
    u8 hidden = 1;

    if (known)
        return *known;
    if (bpf_map_lookup_elem(&python_hidden, name))
        return NAME_HIDDEN;
    if (name_match(name, MATCH_PYTHON_FUNCTIONS) && (!matching || name_match(name, MATCH_STAGES)))
        return text_new(&python_texts, PYTHON_NAME, name);
    bpf_map_update_elem(&python_hidden, name, &hidden, BPF_ANY);
    return NAME_HIDDEN;
}

/* Finds what stands for a function by its name, whose header was loaded last: the
 * text is what the expression is about, whatever code object it is of. */
__noinline int python_decide(struct python_state *p, u64 address)
{
    struct stage_name name = {};

    if (!p || python_text(p, &name, address))
        return -1;
    p->function = python_text_name(&name);
    return 0;
}

#define NO_HASH (~0ULL)

/* The same for the code object that was loaded last. Names are remembered by what
 * no other one at the same place has: from 3.12 on the code object's version,
 * before that the text's hash, if Python has ever needed it. */
static __always_inline int python_function(struct python_state *p)
{
    struct python_code code = {.name = loaded(p, python.code_name)};
    u64 *known, found;

    if (python.code_version)
        code.stamp = loaded_u32(p, python.code_version);
    if (!code.stamp) {
        if (python_load(p, code.name, python.text_size))
            return -1;
        code.stamp = loaded(p, python.text_hash);
        if (code.stamp == NO_HASH)
            return python_decide(p, code.name);
    }
    known = bpf_map_lookup_elem(&python_codes, &code);
    if (known) {
        p->function = *known;
        return 0;
    }
    if (python_load(p, code.name, python.text_size) || python_decide(p, code.name))
        return -1;
    found = p->function; /* Linux 6.1 takes values from the stack only */
    if (found != NAME_OTHER)
        bpf_map_update_elem(&python_codes, &code, &found, BPF_ANY);
    return 0;
}

/* Looks at the frame that the walk is at, and goes on to its caller. */
__noinline int python_look_at(struct python_state *p)
{
    u64 code;

    if (!p || python_load(p, p->walk.frame, python.frame_size))
        return -1;
    p->frame = p->walk.frame;
    p->function = NAME_HIDDEN;
    p->walk.frame = loaded(p, python.frame_previous);
    if (python.frame_owner && loaded_u8(p, python.frame_owner) >= FRAME_OWNED_BY_C)
        return 0;
    code = loaded(p, python.frame_code) & ~REFERENCE_MARKS;
    if (python_load(p, code + python.code_start, python.code_size))
        return -1;
    return python_function(p);
}

/* Finds the innermost function that is a stage, NAME_HIDDEN if there is none. */
__noinline int python_innermost(struct python_state *p, u64 self)
{
    if (!p)
        return -1;
    /* Once more if another thread has changed the lists meanwhile. */
    if (python_find(p, self) && python_find(p, self))
        return -1;
    p->function = NAME_HIDDEN;
    for (int i = 0; i < PYTHON_HOPS; i++) {
        if (!p->walk.frame)
            return 0;
        if (python_look_at(p))
            return -1;
        if (p->function != NAME_HIDDEN)
            return 0;
    }
    if (p->walk.frame)
        count(LOST_LOOK_DEPTH);
    return 0;
}

/* Returns the thread's state if a function that is a stage was found. */
static __always_inline struct python_state *python_look(struct task_struct *task)
{
    u64 begin = bpf_ktime_get_ns();
    struct python_state *p;
    int error;

    p = bpf_task_storage_get(&python_states, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
    if (!p) {
        count(LOST_LOOK_STATE);
        return NULL;
    }
    error = python_innermost(p, pthread_self(task));
    count(COUNT_LOOKS);
    count_more(COUNT_LOOK_TIME, bpf_ktime_get_ns() - begin);
    if (error) {
        count(LOST_LOOK_READ);
        return NULL;
    }
    return p->function == NAME_HIDDEN ? NULL : p;
}

/* What is known of the function around the innermost stage. */
static __always_inline struct python_around *python_around(struct python_state *p,
                                                           struct thread_state *state)
{
    u64 i = state->depth - 1;

    if (i >= MAX_DEPTH)
        return NULL;
    barrier_var(i);
    return &p->around[i & (MAX_DEPTH - 1)];
}

/* Whether the function that was found was there before the innermost stage. */
static __always_inline bool python_is_around(struct python_state *p, struct thread_state *state)
{
    struct python_around *around = python_around(p, state);

    return around && around->begin == stage_current(state)->begin && around->frame == p->frame;
}

/* The thread's own stage: what is innermost of the stages and the functions. */
__noinline u32 python_path(struct thread_state *state)
{
    struct python_state *p;

    if (!state)
        return PATH_NONE;
    p = python_look(bpf_get_current_task_btf());
    if (!p || python_is_around(p, state))
        return state->stage_path;
    return path_child(state->stage_path, p->function);
}

static __always_inline u32 own_path(struct thread_state *state)
{
    return python_stages && python_known ? python_path(state) : state->stage_path;
}

__noinline int python_note(struct thread_state *state)
{
    struct python_around *around;
    struct python_state *p;

    if (!state)
        return 0;
    p = python_look(bpf_get_current_task_btf());
    if (!p)
        return 0;
    around = python_around(p, state);
    if (!around)
        return 0;
    around->begin = stage_current(state)->begin;
    around->frame = p->frame;
    return 0;
}

/* Notes which function the stage has begun in that was pushed now, if one was. */
static __always_inline void stage_begun(struct thread_state *state, u64 now)
{
    if (python_stages && python_known && state->depth && stage_current(state)->begin == now)
        python_note(state);
}

#endif
