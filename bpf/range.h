/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Stages from functions that programs call anyway: NVTX ranges and PyTorch's
 * record_function. They push and pop on a thread; their names are text.
 */
#ifndef STAGEPROF_RANGE_H
#define STAGEPROF_RANGE_H

#include "stage.h"

#define RANGE_SOURCE(cookie) ((u8)(cookie))
#define RANGE_ACTION(cookie) ((u8)((cookie) >> 8))
#define RANGE_ARGUMENT(cookie) ((u8)((cookie) >> 16))

/* nvtxEventAttributes_t, the same in versions 2 and 3. */
#define NVTX_MESSAGE_TYPE 32
#define NVTX_MESSAGE 40
#define NVTX_MESSAGE_ASCII 1

/* Stands for a text in paths and names; no address has this bit. */
#define TEXT_NAME (1ULL << 63)

/* Where the text of a pushed range's name is, 0 if it can't be read as bytes. */
static __always_inline u64 range_text(u64 cookie, u64 argument)
{
    u64 text = 0;
    u32 type = 0;

    switch (RANGE_ACTION(cookie)) {
    case RANGE_PUSH_TEXT:
        return argument;
    case RANGE_PUSH_STRING:
        read_user_u64(&text, argument);
        return text;
    case RANGE_PUSH_ATTRIBUTES:
        bpf_probe_read_user(&type, sizeof(type), (void *)argument + NVTX_MESSAGE_TYPE);
        if (type == NVTX_MESSAGE_ASCII)
            read_user_u64(&text, argument + NVTX_MESSAGE);
        return text;
    }
    return 0;
}

static __always_inline u64 text_new(const struct stage_name *name)
{
    u64 handle = TEXT_NAME | __sync_fetch_and_add(&last_text, 1), *known;

    if (name_add(handle, name))
        return NAME_OTHER;
    if (!bpf_map_update_elem(&texts, name, &handle, BPF_NOEXIST))
        return handle;
    known = bpf_map_lookup_elem(&texts, name);
    if (known)
        return *known;
    count(LOST_NAME_FULL);
    return NAME_OTHER;
}

static __always_inline u64 text_unreadable(void)
{
    count(LOST_NAME_UNREADABLE);
    return matching ? NAME_HIDDEN : NAME_OTHER;
}

/* What stands for the text at an address of the target. */
static __noinline u64 text_name(u64 address)
{
    struct stage_name name = {};
    u8 hidden = 1;
    u64 *known;

    if (!address || bpf_probe_read_user_str(name.text, sizeof(name.text), (void *)address) < 0)
        return text_unreadable();
    if (matching && bpf_map_lookup_elem(&hidden_texts, &name))
        return NAME_HIDDEN;
    known = bpf_map_lookup_elem(&texts, &name);
    if (known)
        return *known;
    if (!matching || name_match(&name))
        return text_new(&name);
    bpf_map_update_elem(&hidden_texts, &name, &hidden, BPF_ANY);
    return NAME_HIDDEN;
}

static __always_inline void range_hit_thread(struct thread_state *state, u64 cookie, u64 argument,
                                             u64 now)
{
    u8 source = RANGE_SOURCE(cookie);

    if (RANGE_ACTION(cookie) == RANGE_POP)
        stage_close(state, now, source, false);
    else
        stage_push(state, text_name(range_text(cookie, argument)), now, source);
}

#endif
