/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Names of stages, and which of them become stages. The expression is run once
 * for each distinct name, when it is first seen.
 */
#ifndef STAGEPROF_MATCH_H
#define STAGEPROF_MATCH_H

#include "state.h"

/* Stands for a name that could not be read or found no room. */
#define NAME_OTHER (~0ULL)

/* Stands for every name that does not match. */
#define NAME_HIDDEN (~1ULL)

/* A global function, for the verifier to check its loop once. */
__noinline int name_match(const struct stage_name *name, u32 what)
{
    struct name_match *match;
    u32 key = what, state;

    match = bpf_map_lookup_elem(&name_matches, &key);
    if (!match || !name)
        return 0;
    state = match->start;
    for (int i = 0; i < NAME_SIZE; i++) {
        u8 byte = name->text[i];
        u32 cell = state + match->class[byte];

        if (cell >= MATCH_CELLS)
            return 0;
        state = match->next[cell];
        if (!byte)
            break;
    }
    return state == match->accept;
}

/* Adds the name that has been found at an address, or stands for a text.
 * Returns 0, or counts why not. */
static __always_inline int name_add(u64 address, const struct stage_name *name)
{
    /* Not a long: before Linux 6.4 the upper half of a map's error is undefined. */
    int error = bpf_map_update_elem(&names, &address, name, BPF_NOEXIST);

    if (!error || error == -EEXIST)
        return 0;
    count(LOST_NAME_FULL);
    return error;
}

/* What a marker's name is to be called: itself, unless it is hidden. */
static __noinline u64 marker_name_slow(u64 address)
{
    struct stage_name name = {};
    u8 hidden = 1;

    if (bpf_probe_read_user_str(name.text, sizeof(name.text), (void *)address) < 0) {
        count(LOST_NAME_UNREADABLE);
        return NAME_HIDDEN;
    }
    if (name_match(&name, MATCH_STAGES))
        return name_add(address, &name) ? NAME_OTHER : address;
    bpf_map_update_elem(&hidden_names, &address, &hidden, BPF_ANY);
    return NAME_HIDDEN;
}

static __always_inline u64 marker_name(u64 address)
{
    if (!matching)
        return address;
    if (bpf_map_lookup_elem(&hidden_names, &address))
        return NAME_HIDDEN;
    if (bpf_map_lookup_elem(&names, &address))
        return address;
    return marker_name_slow(address);
}

#endif
