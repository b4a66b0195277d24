/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whether the calling thread holds Python's global interpreter lock. A thread
 * can lose the lock inside a native call only by giving it up itself, so one
 * read at call entry decides, and nothing in Python needs a probe.
 */
#ifndef STAGEPROF_GIL_H
#define STAGEPROF_GIL_H

#include "thread.h"

static __always_inline int read_user_u64(u64 *value, u64 address)
{
    return bpf_probe_read_user(value, sizeof(*value), (void *)address);
}

/* Where glibc keeps the pointer to a thread's vector of modules, from the thread
 * pointer. */
#if defined(__TARGET_ARCH_x86)
#define TLS_VECTOR 8
#else
#define TLS_VECTOR 0
#endif

/* The block of a dynamically loaded module, from the thread's vector of
 * modules, whose length stands before it. It is allocated at first use: until
 * then the thread has no thread state. */
static __always_inline u64 tls_address(struct thread_state *state, u64 tp)
{
    u64 vector, length, block;

    if (!gil.tls_module)
        return tp + gil.tls_offset;
    if (state->tls)
        return state->tls;
    if (read_user_u64(&vector, tp + TLS_VECTOR) || read_user_u64(&length, vector - 16) ||
        length < gil.tls_module || read_user_u64(&block, vector + 16 * gil.tls_module) || !block ||
        block == ~0ULL)
        return 0;
    state->tls = block + gil.tls_offset;
    return state->tls;
}

/* CPython 3.12 and newer: the pointer to the attached thread state is cleared
 * before the lock is dropped and set after it is taken, by this thread only. */
static __always_inline enum gil_state gil_thread_local(struct thread_state *state, u64 tp)
{
    u64 address = tls_address(state, tp), attached;

    if (!address)
        return GIL_FREE;
    if (read_user_u64(&attached, address))
        return GIL_UNKNOWN;
    return attached ? GIL_HELD : GIL_FREE;
}

/* CPython up to 3.11: the lock's holder is the thread state that the runtime
 * says is current. When it can't be read, its thread has just freed it: then it
 * is not the calling thread's. */
static __always_inline enum gil_state gil_current_thread_state(u64 self)
{
    u64 current, id;

    if (read_user_u64(&current, gil.address))
        return GIL_UNKNOWN;
    if (!current || read_user_u64(&id, current + gil.thread_id_offset))
        return GIL_FREE;
    return id == self ? GIL_HELD : GIL_FREE;
}

static __always_inline bool gil_is_off(void)
{
    u32 enabled = 1;

    return gil.enabled_address &&
           !bpf_probe_read_user(&enabled, sizeof(enabled), (void *)gil.enabled_address) && !enabled;
}

static __always_inline enum gil_state gil_read(struct task_struct *task, struct thread_state *state)
{
    switch (gil_method) {
    case GIL_METHOD_NONE:
        return GIL_NONE;
    case GIL_METHOD_THREAD_LOCAL:
        if (gil_is_off())
            return GIL_DISABLED;
        return gil_thread_local(state, thread_pointer(task));
    case GIL_METHOD_CURRENT_THREAD_STATE:
        return gil_current_thread_state(pthread_self(task));
    }
    return GIL_UNKNOWN;
}

#endif
