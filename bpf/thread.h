/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Per-thread state: its making and its names. */
#ifndef STAGEPROF_THREAD_H
#define STAGEPROF_THREAD_H

#include "state.h"

/* On arm64 the register itself is the thread's alone; the kernel notes it when it
 * makes a thread and whenever it switches away from one. */
static __always_inline u64 thread_pointer(struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
    return task->thread.fsbase;
#else
    return task->thread.uw.tp_value;
#endif
}

/* What pthread_self() returns, by which Python tells threads. */
static __always_inline u64 pthread_self(struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
    return thread_pointer(task);
#else
    return thread_pointer(task) - gil.self_below;
#endif
}

/* The thread's id in its innermost pid namespace. */
static __always_inline u32 namespace_tid(struct task_struct *task)
{
    struct pid *pid = BPF_CORE_READ(task, thread_pid);
    u32 level = BPF_CORE_READ(pid, level);
    struct upid *number = (void *)pid + bpf_core_field_offset(struct pid, numbers) +
                          level * bpf_core_type_size(struct upid);

    return BPF_CORE_READ(number, nr);
}

static __always_inline void thread_name(struct thread_state *state, struct task_struct *task,
                                        const char *comm)
{
    struct thread_info info = {
        .tid = task->pid, .ns_tid = namespace_tid(task), .ended = state->ended};
    u32 serial = state->serial;

    bpf_probe_read_kernel_str(info.comm, sizeof(info.comm), comm);
    if (bpf_map_update_elem(&threads, &serial, &info, BPF_ANY))
        count(LOST_THREAD_NAME);
}

/* A new thread has not been on the CPU. */
static __noinline struct thread_state *thread_init(struct task_struct *task,
                                                   struct thread_state *state, bool is_new)
{
    u64 now = bpf_ktime_get_ns();

    state->tid = task->pid;
    /* Before the window opens this stays 0: then the window's start counts. */
    if (window_start)
        state->mark = now;
    if (is_new) {
        state->off_since = now;
        state->woken = now;
    } else if (in_window()) { /* all others that there are have their state */
        count(LOST_THREAD_BEGIN);
    }
    barrier();
    /* Serial numbers start at 1: 0 says that the storage is fresh. */
    state->serial = __sync_fetch_and_add(&last_thread, 1) + 1;
    thread_name(state, task, task->comm);
    return state;
}

/* Tells the agent that the thread's rows change no more. */
static __always_inline void thread_retire(struct thread_state *state)
{
    u32 serial = state->serial;
    struct thread_info *info = bpf_map_lookup_elem(&threads, &serial);

    barrier();
    state->over = 1;
    if (info)
        info->ended = state->ended;
}

static __always_inline struct thread_state *thread_find(struct task_struct *task)
{
    return bpf_task_storage_get(&thread_states, task, 0, 0);
}

static __always_inline struct thread_state *thread_make(struct task_struct *task, bool is_new)
{
    struct thread_state *state =
        bpf_task_storage_get(&thread_states, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

    if (state && !state->serial)
        thread_init(task, state, is_new);
    return state;
}

static __always_inline struct thread_state *thread_get(struct task_struct *task)
{
    return thread_make(task, false);
}

/* The row of the thread's call that returns to `caller`. */
static __always_inline struct call_key call_key(struct thread_state *state, u64 caller)
{
    struct call_key key = {
        .caller = caller,
        .thread = state->serial,
        .path = state->path,
        .symbol = state->symbol,
        .gil = state->gil,
        .attribution = state->attribution,
        .region = state->call_region,
    };

    return key;
}

/* A byte in newer kernels, an int in older ones. */
static __always_inline bool is_on_cpu(struct task_struct *task)
{
    return BPF_CORE_READ_BITFIELD_PROBED(task, on_cpu);
}

#endif
