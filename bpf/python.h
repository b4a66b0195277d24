/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The Python frames under sampled calls. They are read when the call returns,
 * after its time was taken: the thread's frames can't change while it is inside
 * the driver, and what the reading takes is no part of the call. Samples only
 * decide how a row's exact totals are divided over stacks.
 *
 * Only the thread itself changes its frames, so what is read of them is whole.
 * Its thread state is looked for in the interpreter's lists, because its own
 * pointer to it is NULL while the lock is free; other threads change these
 * lists meanwhile, and what leads nowhere is counted.
 */
#ifndef STAGEPROF_PYTHON_H
#define STAGEPROF_PYTHON_H

#include "gil.h"

/* A row's first calls are all sampled, 2^ALWAYS of them, of the next 2^ALWAYS
 * one in two, then one in four … down to one in 2^RAREST. But a call that lasts
 * 1/2^n of 2^LONG ns is sampled with a probability of 1/2^n at least: no sample
 * stands for much more time than that. */
#define SAMPLE_ALWAYS 5
#define SAMPLE_RAREST 8
#define SAMPLE_LONG 20

#define THREAD_HOPS 512 /* thread states and interpreters looked at for one sample */
#define FRAME_HOPS 64   /* frames, with those that are none of a function's */

/* From here on, an owner is no Python function: frames at which C code entered
 * the interpreter. */
#define FRAME_OWNED_BY_C 3

/* A reference to a code object carries marks in its lowest bits (3.14). */
#define REFERENCE_MARKS 7ULL

/* How many calls the one that was just added to a row stands for; 0: it is not
 * sampled. */
static __always_inline u32 python_weight(struct call_row *row, u64 wall)
{
    s32 rarity, length;

    if (python_mode != PYTHON_STACKS_SAMPLED)
        return python_mode == PYTHON_STACKS_ALL;
    rarity = (s32)log2_bucket(row->count) - SAMPLE_ALWAYS;
    length = SAMPLE_LONG - (s32)log2_bucket(wall);
    if (rarity > SAMPLE_RAREST)
        rarity = SAMPLE_RAREST;
    if (rarity > length)
        rarity = length;
    if (rarity <= 0)
        return 1;
    if (bpf_get_prandom_u32() & ((1U << rarity) - 1))
        return 0;
    return 1U << rarity;
}

static __always_inline int python_load(struct python_state *p, u64 address, u32 size)
{
    if (size > sizeof(p->words))
        return -1;
    return bpf_probe_read_user(p->words, size, (void *)address);
}

/* What was loaded last, by offset from its start. */
static __always_inline u64 loaded(struct python_state *p, u32 offset)
{
    u64 i = offset / sizeof(u64);

    barrier_var(i); /* keeps the mask, by which the verifier knows the bound */
    return p->words[i & (PYTHON_WORDS - 1)];
}

static __always_inline u32 loaded_u32(struct python_state *p, u32 offset)
{
    return loaded(p, offset) >> (offset & 4 ? 32 : 0);
}

static __always_inline u8 loaded_u8(struct python_state *p, u32 offset)
{
    return loaded(p, offset) >> (offset & 7) * 8;
}

/* Takes the innermost frame of the thread state that was loaded last. */
static __always_inline int innermost_frame(struct python_state *p)
{
    u64 frame = loaded(p, python.thread_frame);

    if (python.via_cframe && frame && read_user_u64(&frame, frame + python.cframe_frame))
        return -1;
    p->walk.frame = frame;
    return 0;
}

/* Whether the state that was found for the thread before is still its own and
 * has frames. */
static __always_inline bool known_state(struct python_state *p, u64 self)
{
    if (!p->thread || p->interpreter != p->walk.newest ||
        python_load(p, p->thread, python.thread_size) || loaded(p, python.thread_id) != self)
        return false;
    return !innermost_frame(p) && p->walk.frame;
}

static __always_inline int next_interpreter(struct python_state *p)
{
    struct python_walk *walk = &p->walk;
    u64 at = walk->interpreter;

    if (read_user_u64(&walk->state, at + python.interpreter_threads) ||
        read_user_u64(&walk->interpreter, at + python.interpreter_next))
        return -1;
    if (!walk->interpreters++)
        walk->first = walk->state;
    return 0;
}

/* Remembers that the thread has no state: one that is added later will be at
 * the head of the list. */
static __always_inline void no_state(struct python_state *p)
{
    p->thread = 0;
    p->interpreter = p->walk.newest;
    p->absent = p->walk.interpreters == 1 && !p->walk.mine ? p->walk.first : 0;
}

enum step { STEP_FAILED, STEP_ON, STEP_DONE };

static __always_inline enum step next_state(struct python_state *p, u64 self)
{
    struct python_walk *walk = &p->walk;
    u64 at = walk->state;

    if (python_load(p, at, python.thread_size))
        return STEP_FAILED;
    walk->state = loaded(p, python.thread_next);
    if (loaded(p, python.thread_id) == self) {
        walk->mine = 1;
        if (innermost_frame(p))
            return STEP_FAILED;
        if (!walk->frame)
            return STEP_ON;
        p->thread = at;
        p->interpreter = walk->newest;
        return STEP_DONE;
    }
    if (at == p->absent && at == walk->first && p->interpreter == walk->newest && !walk->mine)
        return STEP_DONE;
    return STEP_ON;
}

/* A function of its own for the verifier, which goes through the loop around it
 * step by step. */
__noinline int walk_on(struct python_state *p, u64 self)
{
    if (!p)
        return STEP_FAILED;
    if (p->walk.state)
        return next_state(p, self);
    if (p->walk.interpreter)
        return next_interpreter(p) ? STEP_FAILED : STEP_ON;
    no_state(p);
    return STEP_DONE;
}

/*
 * Finds the innermost frame of a thread, 0 if it runs no Python. Interpreters
 * and thread states are lists that grow at their heads. Of a thread's states in
 * several interpreters the newest one that has frames is taken: it was called
 * by the others.
 */
__noinline int python_find(struct python_state *p, u64 self)
{
    if (!p)
        return -1;
    __builtin_memset(&p->walk, 0, sizeof(p->walk));
    if (read_user_u64(&p->walk.newest, python.interpreters))
        return -1;
    if (known_state(p, self))
        return 0;
    p->walk.interpreter = p->walk.newest;
    for (u32 i = 0; i < THREAD_HOPS; i++) {
        int step = walk_on(p, self);

        if (step != STEP_ON)
            return step == STEP_DONE ? 0 : -1;
    }
    return -1;
}

/* Before 3.12, what tells a code object from the one that was at its place
 * before is the hash of its name. */
static __always_inline int code_stamp(u64 *stamp, struct python_state *p)
{
    if (python.code_version) {
        *stamp = loaded_u32(p, python.code_version);
        return 0;
    }
    return read_user_u64(stamp, loaded(p, python.code_hashed) + python.text_hash);
}

static __always_inline int add_frame(struct python_state *p, u64 code, u64 instruction, u32 copy)
{
    struct python_frame *frame;
    u64 i = p->sample.frames_len;

    if (i >= PYTHON_FRAMES) {
        p->sample.cut = 1;
        return 0;
    }
    barrier_var(i);
    frame = &p->sample.frames[i & (PYTHON_FRAMES - 1)];
    if (python_load(p, code + python.code_start, python.code_size))
        return -1;
    frame->code = code;
    frame->instruction = instruction;
    frame->copy = copy;
    frame->filename = loaded(p, python.code_filename);
    frame->name = loaded(p, python.code_name);
    frame->lines = loaded(p, python.code_lines);
    frame->first_line = loaded_u32(p, python.code_first_line);
    p->sample.frames_len++;
    return code_stamp(&frame->stamp, p);
}

/* Adds the frame that the walk is at, if it is a function's, and goes on to its
 * caller. A function of its own for the verifier, as above. */
__noinline int python_frame(struct python_state *p)
{
    u64 code, instruction;
    u32 copy = 0;

    if (!p || python_load(p, p->walk.frame, python.frame_size))
        return -1;
    code = loaded(p, python.frame_code) & ~REFERENCE_MARKS;
    instruction = loaded(p, python.frame_instruction);
    p->walk.frame = loaded(p, python.frame_previous);
    if (python.frame_owner && loaded_u8(p, python.frame_owner) >= FRAME_OWNED_BY_C)
        return 0;
    if (python.frame_copy)
        copy = loaded_u32(p, python.frame_copy);
    return add_frame(p, code, instruction, copy);
}

/* Fills in the sample's frames. */
__noinline int python_frames(struct python_state *p, u64 self)
{
    if (!p)
        return -1;
    p->sample.frames_len = 0;
    p->sample.cut = 0;
    if (python_find(p, self))
        return -1;
    for (u32 i = 0; i < FRAME_HOPS; i++) {
        if (!p->walk.frame || p->sample.cut)
            return 0;
        if (python_frame(p))
            return -1;
    }
    p->sample.cut = 1;
    return 0;
}

static __always_inline void python_send(struct python_state *p)
{
    u64 frames = p->sample.frames_len;

    if (frames > PYTHON_FRAMES)
        return;
    barrier_var(frames);
    if (frames > PYTHON_FRAMES)
        return;
    if (bpf_ringbuf_output(&python_samples, &p->sample,
                           offsetof(struct python_sample, frames) +
                               frames * sizeof(struct python_frame),
                           BPF_RB_NO_WAKEUP))
        count(LOST_SAMPLE_ROOM);
}

static __always_inline void python_take(struct task_struct *task, struct thread_state *state,
                                        u64 caller, u64 wall, u64 cpu, u32 weight)
{
    u64 begin = bpf_ktime_get_ns();
    struct python_state *p =
        bpf_task_storage_get(&python_states, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

    count(COUNT_SAMPLES);
    if (!p) {
        count(LOST_SAMPLE_STATE);
        return;
    }
    p->sample.call = call_key(state, caller);
    p->sample.wall = wall;
    p->sample.cpu = cpu;
    p->sample.gil_wait = state->gil_wait;
    p->sample.weight = weight;
    if (python_frames(p, pthread_self(task)))
        count(LOST_SAMPLE_READ);
    else
        python_send(p);
    count_more(COUNT_SAMPLE_TIME, bpf_ktime_get_ns() - begin);
}

#endif
