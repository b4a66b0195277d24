/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * PyTorch's autograd engine runs the backward pass on threads of its own. All
 * work of one pass belongs to one GraphTask, which the thread that called
 * backward() creates and whose address every engine function gets: so the
 * calls that an engine thread makes are charged to the caller's stage, also
 * when several passes are interleaved.
 */
#ifndef STAGEPROF_AUTOGRAD_H
#define STAGEPROF_AUTOGRAD_H

#include "pythonstage.h"

/* The stage that calls of this thread belong to, its own or an adopted one. */
static __always_inline u32 effective_path(struct thread_state *state)
{
    u32 own;

    stage_seed(state);
    own = own_path(state);
    return own ? own : state->adopted;
}

/* A GraphTask's address is reused as soon as its pass is over: the newest
 * owner counts. */
static __always_inline void autograd_execute(struct thread_state *state, u64 graph_task)
{
    u32 path = effective_path(state);

    bpf_map_update_elem(&graph_tasks, &graph_task, &path, BPF_ANY);
}

/* The stage stays adopted until the thread works on another task: what the
 * engine does between two functions (switching the device, callbacks at the end
 * of the pass) belongs to the task before. */
static __always_inline void autograd_evaluate(struct thread_state *state, u64 graph_task)
{
    u32 *path;

    /* The caller takes part in its own pass, and goes its own way after it. */
    if (own_path(state))
        return;
    path = bpf_map_lookup_elem(&graph_tasks, &graph_task);
    state->adopted = path ? *path : PATH_NONE;
}

/* The stage that calls of this thread belong to, and why. */
static __always_inline u32 attributed_path(struct thread_state *state, u8 *attribution)
{
    struct thread_state *process;
    u32 own;

    stage_seed(state);
    own = own_path(state);
    *attribution = ATTRIBUTION_OWN;
    if (own != PATH_NONE)
        return own;
    *attribution = ATTRIBUTION_AUTOGRAD;
    if (state->adopted != PATH_NONE)
        return state->adopted;
    *attribution = ATTRIBUTION_NONE;
    process = process_state();
    if (!process)
        return PATH_NONE;
    stage_seed(process);
    if (process->stage_path != PATH_NONE)
        *attribution = ATTRIBUTION_PROCESS;
    return process->stage_path;
}

#endif
