/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * PyTorch's own tracing points in its CUDA allocator: each tensor's memory when
 * it is given out and when it comes back, with its size. They say where the
 * pointer and the size are; the agent passes that on in the cookie.
 */
#ifndef STAGEPROF_ALLOCATION_H
#define STAGEPROF_ALLOCATION_H

#include "function.h"

#if defined(__TARGET_ARCH_x86)

/* The value of a tracing point's argument; all that are read have 64 bits. */
static __always_inline u64 operand_value(struct pt_regs *ctx, u32 operand)
{
    u64 value = register_value(ctx, OPERAND_REGISTER(operand));

    if (OPERAND_IN_MEMORY(operand) &&
        read_user_u64(&value, value + (s64)OPERAND_DISPLACEMENT(operand)))
        return 0;
    return value;
}

#else /* the agent puts no probes there */

static __always_inline u64 operand_value(struct pt_regs *ctx, u32 operand)
{
    return 0;
}

#endif

static __always_inline struct allocation_row *allocation_row(struct thread_state *state)
{
    static const struct allocation_row zero = {};
    struct allocation_row *row;
    struct allocation_key key = {.thread = state->serial, .region = state->region};
    u8 attribution;

    key.path = attributed_path(state, &attribution);
    key.attribution = attribution;
    row = bpf_map_lookup_elem(&allocations, &key);
    if (row)
        return row;
    bpf_map_update_elem(&allocations, &key, &zero, BPF_NOEXIST);
    return bpf_map_lookup_elem(&allocations, &key);
}

static __always_inline void allocation_made(struct allocation_row *row, u64 pointer, u64 size)
{
    if (bpf_map_update_elem(&allocated, &pointer, &size, BPF_ANY))
        count(LOST_ALLOCATION_SIZE);
    if (!row || !in_window())
        return;
    row->count++;
    row->bytes += size;
    barrier();
    row->done++;
}

static __always_inline void allocation_freed(struct allocation_row *row, u64 pointer)
{
    u64 *size = bpf_map_lookup_elem(&allocated, &pointer), bytes = size ? *size : 0;

    bpf_map_delete_elem(&allocated, &pointer);
    if (!row || !in_window())
        return;
    row->freed++;
    row->freed_bytes += bytes;
    if (!size)
        row->freed_unknown++;
    barrier();
    row->done++;
}

static __always_inline void allocation(struct pt_regs *ctx, struct thread_state *state, u64 cookie)
{
    struct allocation_row *row = allocation_row(state);
    u64 pointer = operand_value(ctx, COOKIE_POINTER(cookie));

    if (!row && in_window())
        count(LOST_ALLOCATION_ROW);
    if (COOKIE_ALLOCATION(cookie) == ALLOCATION_MADE)
        allocation_made(row, pointer, operand_value(ctx, COOKIE_SIZE(cookie)));
    else
        allocation_freed(row, pointer);
}

#endif
