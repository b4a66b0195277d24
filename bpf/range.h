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
#define RANGE_DISTANCE(cookie) ((s32)((cookie) >> 32))

/* nvtxEventAttributes_t, the same in versions 2 and 3. */
#define NVTX_MESSAGE_TYPE 32
#define NVTX_MESSAGE 40
#define NVTX_MESSAGE_ASCII 1
#define NVTX_MESSAGE_UNICODE 2
#define NVTX_MESSAGE_REGISTERED 3

/* Stands for a text in paths and names; no address has this bit. */
#define TEXT_NAME (1ULL << 63)

/* Where the text of a range's name is, and of what kind. */
struct range_text {
    u64 address; /* 0: nowhere */
    bool wide;   /* characters of 32 bits instead of bytes */
    bool handle; /* not a text but a number that was given for one */
};

static __always_inline void attributes_text(struct range_text *text, u64 attributes)
{
    u32 type = 0;

    bpf_probe_read_user(&type, sizeof(type), (void *)attributes + NVTX_MESSAGE_TYPE);
    text->wide = type == NVTX_MESSAGE_UNICODE;
    text->handle = type == NVTX_MESSAGE_REGISTERED;
    if (type == NVTX_MESSAGE_ASCII || text->wide)
        read_user_u64(&text->address, attributes + NVTX_MESSAGE);
}

static __always_inline void range_text(struct range_text *text, u64 cookie, u64 argument)
{
    switch (RANGE_ACTION(cookie)) {
    case RANGE_PUSH_WIDE:
        text->wide = true;
        text->address = argument;
        break;
    case RANGE_PUSH_TEXT:
    case RANGE_PUSH_REGISTER:
        text->address = argument;
        break;
    case RANGE_PUSH_MEMORY:
        read_user_u64(&text->address, argument + RANGE_DISTANCE(cookie));
        break;
    case RANGE_PUSH_STRING:
        read_user_u64(&text->address, argument);
        break;
    case RANGE_PUSH_ATTRIBUTES:
        attributes_text(text, argument);
        break;
    }
}

#define NO_CHARACTER 0xfffd /* stands for what is none */

/* Appends a character in UTF-8 and returns the new length, -1 if it has no room.
 * A global function, for the verifier to check it once. */
__noinline int append_utf8(struct stage_name *name, u32 length, u32 character)
{
    u64 at = length;

    if (!name || at >= NAME_SIZE)
        return -1;
    if (character > 0x10ffff || character >> 11 == 0xd800 >> 11)
        character = NO_CHARACTER;
    barrier_var(at); /* so that it is this whose bounds older verifiers learn below */
    if (character < 0x80) {
        if (at >= NAME_SIZE - 1)
            return -1;
        name->text[at] = character;
        return at + 1;
    }
    if (character < 0x800) {
        if (at >= NAME_SIZE - 2)
            return -1;
        name->text[at] = 0xc0 | character >> 6;
        name->text[at + 1] = 0x80 | (character & 0x3f);
        return at + 2;
    }
    if (character < 0x10000) {
        if (at >= NAME_SIZE - 3)
            return -1;
        name->text[at] = 0xe0 | character >> 12;
        name->text[at + 1] = 0x80 | (character >> 6 & 0x3f);
        name->text[at + 2] = 0x80 | (character & 0x3f);
        return at + 3;
    }
    if (at >= NAME_SIZE - 4)
        return -1;
    name->text[at] = 0xf0 | character >> 18;
    name->text[at + 1] = 0x80 | (character >> 12 & 0x3f);
    name->text[at + 2] = 0x80 | (character >> 6 & 0x3f);
    name->text[at + 3] = 0x80 | (character & 0x3f);
    return at + 4;
}

#define WIDE_CHUNK 8 /* characters read at a time: a page's end is never inside a chunk */

/* Reads a text of wide characters; -1 if that is not possible. Those that are not aligned are not
 * read: no compiler makes them. */
__noinline int read_wide(struct stage_name *name, u64 address)
{
    u32 chunk[WIDE_CHUNK];
    int length = 0;

    if (!name || address & 3)
        return -1;
    for (int i = 0; i <= NAME_SIZE / WIDE_CHUNK; i++) {
        u64 start = (address & ~(sizeof(chunk) - 1)) + i * sizeof(chunk);

        if (bpf_probe_read_user(chunk, sizeof(chunk), (void *)start))
            return -1;
        for (int j = 0; j < WIDE_CHUNK; j++) {
            if (start + 4 * j < address)
                continue;
            if (!chunk[j])
                return 0;
            length = append_utf8(name, length, chunk[j]);
            if (length < 0) /* the name is cut here */
                return 0;
        }
    }
    return 0;
}

/* Gives a text a number of its own among those of its kind. */
static __always_inline u64 text_new(void *numbers, u64 kind, const struct stage_name *name)
{
    u64 handle = kind | __sync_fetch_and_add(&last_text, 1), *known;

    if (name_add(handle, name))
        return NAME_OTHER;
    if (!bpf_map_update_elem(numbers, name, &handle, BPF_NOEXIST))
        return handle;
    known = bpf_map_lookup_elem(numbers, name);
    if (known)
        return *known;
    count(LOST_NAME_FULL);
    return NAME_OTHER;
}

static __always_inline u64 text_unreadable(enum counter why)
{
    count(why);
    return matching ? NAME_HIDDEN : NAME_OTHER;
}

static __always_inline bool read_text(struct stage_name *name, const struct range_text *text)
{
    if (!text->address)
        return false;
    if (text->wide)
        return !read_wide(name, text->address);
    return bpf_probe_read_user_str(name->text, sizeof(name->text), (void *)text->address) >= 0;
}

/* What stands for the text of a range. */
static __noinline u64 text_name(u64 cookie, u64 argument)
{
    struct stage_name name = {};
    struct range_text text = {};
    u8 hidden = 1;
    u64 *known;

    range_text(&text, cookie, argument);
    if (text.handle)
        return text_unreadable(LOST_NAME_REGISTERED);
    if (!read_text(&name, &text))
        return text_unreadable(LOST_NAME_UNREADABLE);
    if (matching && bpf_map_lookup_elem(&hidden_texts, &name))
        return NAME_HIDDEN;
    known = bpf_map_lookup_elem(&texts, &name);
    if (known)
        return *known;
    if (!matching || name_match(&name, MATCH_STAGES))
        return text_new(&texts, TEXT_NAME, &name);
    bpf_map_update_elem(&hidden_texts, &name, &hidden, BPF_ANY);
    return NAME_HIDDEN;
}

static __always_inline u64 range_name(u64 cookie, u64 argument)
{
    if (RANGE_ACTION(cookie) == RANGE_PUSH_NAMED)
        return PAIR_NAME | RANGE_SOURCE(cookie);
    return text_name(cookie, argument);
}

static __always_inline u64 range_argument(struct pt_regs *ctx, u64 cookie)
{
    switch (RANGE_ACTION(cookie)) {
    case RANGE_PUSH_REGISTER:
    case RANGE_PUSH_MEMORY:
        return register_value(ctx, RANGE_ARGUMENT(cookie));
    }
    return argument(ctx, RANGE_ARGUMENT(cookie));
}

/* The innermost stage's handle, if it is one of this source's. */
static __always_inline u32 *innermost_handle(struct thread_state *state, u8 source)
{
    if (!state->depth || state->depth > MAX_DEPTH || stage_current(state)->source != source)
        return NULL;
    return handle_at(state, state->depth - 1);
}

static __always_inline void range_push(struct thread_state *state, u64 cookie, u64 argument,
                                       u64 now)
{
    u8 source = RANGE_SOURCE(cookie);
    u32 before = state->depth, *handle;

    stage_push(state, range_name(cookie, argument), now, source);
    handle = innermost_handle(state, source);
    if (handle && state->depth > before)
        *handle = 0;
}

/* The object that a range is known by is made after the range was pushed. */
static __always_inline void range_handle(struct thread_state *state, u8 source, u64 address)
{
    u32 *handle = innermost_handle(state, source);

    if (handle && !*handle)
        *handle = HANDLE_BITS(address);
}

static __always_inline void range_hit_thread(struct thread_state *state, u64 cookie, u64 argument,
                                             u64 now)
{
    u8 source = RANGE_SOURCE(cookie);

    switch (RANGE_ACTION(cookie)) {
    case RANGE_POP:
        stage_close(state, now, source, false);
        break;
    case RANGE_HANDLE:
        range_handle(state, source, argument);
        break;
    case RANGE_POP_HANDLE_AT:
        if (read_user_u64(&argument, argument))
            break;
        argument += RANGE_DISTANCE(cookie);
        stage_close_handle(state, now, source, HANDLE_BITS(argument));
        break;
    case RANGE_POP_HANDLE:
        stage_close_handle(state, now, source, HANDLE_BITS(argument));
        break;
    default:
        range_push(state, cookie, argument, now);
    }
}

#endif
