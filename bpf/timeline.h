/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Single events, when a timeline is asked for; otherwise the verifier takes all
 * of this out of the programs. An event is written after the clock of what it is
 * about was read. The agent polls, so nobody is woken.
 */
#ifndef STAGEPROF_TIMELINE_H
#define STAGEPROF_TIMELINE_H

#include "state.h"

/* The thread's time off the CPU, which ends now or is cut by the window's end. */
__noinline int timeline_off(struct thread_state *state, u64 now)
{
    struct off_event *event;
    u64 begin, end;

    if (!timeline || !state || !window_start)
        return 0;
    begin = in_window_since(state->off_since);
    end = until_window_end(now);
    if (end <= begin)
        return 0;
    event = bpf_ringbuf_reserve(&timeline_events, sizeof(*event), 0);
    if (!event) {
        count(LOST_TIMELINE_OFF);
        return 0;
    }
    event->kind = EVENT_OFF;
    event->thread = state->serial;
    event->begin = begin;
    event->woken = state->woken;
    event->end = end;
    event->part = state->off_part;
    event->in_call = state->sp != 0;
    event->cut = begin != state->off_since || end == window_end;
    event->pad = 0;
    event->pad_2 = 0;
    bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
    return 0;
}

/* The call in progress, which has returned, or is cut off: RESULT_NONE. */
__noinline int timeline_call(struct thread_state *state, u64 wall, u64 off, u32 result, u32 stream)
{
    struct call_event *event;

    if (!timeline || !state)
        return 0;
    event = bpf_ringbuf_reserve(&timeline_events, sizeof(*event), 0);
    if (!event) {
        count(result == RESULT_NONE ? LOST_TIMELINE_CUT : LOST_TIMELINE_CALL);
        return 0;
    }
    event->kind = EVENT_CALL;
    event->thread = state->serial;
    event->begin = state->begin;
    event->wall = wall;
    event->cpu = wall - off;
    event->size = state->size;
    event->operation = state->debt.operation;
    event->path = state->path;
    event->result = result;
    event->stream = stream;
    event->symbol = state->symbol;
    event->gil = state->gil;
    event->attribution = state->attribution;
    bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
    return 0;
}

/* One stream that the call in progress has waited for. */
static __always_inline void timeline_wait(struct thread_state *state, u64 wall,
                                          const struct waited_stream *waited)
{
    struct wait_event *event = bpf_ringbuf_reserve(&timeline_events, sizeof(*event), 0);

    if (!event) {
        count(LOST_TIMELINE_WAIT);
        return;
    }
    event->kind = EVENT_WAIT;
    event->thread = state->serial;
    event->begin = state->begin;
    event->wall = wall;
    event->from = waited->from;
    event->until = waited->until;
    event->stream = waited->stream;
    event->pad = 0;
    bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

__noinline int timeline_waits(struct thread_state *state, const struct debt_wait *wait, u64 wall)
{
    if (!timeline || !state || !wait)
        return 0;
    for (u32 i = 0; i < WAIT_STREAMS; i++) {
        if (i >= wait->streams_len)
            break;
        timeline_wait(state, wall, &wait->streams[i]);
    }
    return 0;
}

#endif
