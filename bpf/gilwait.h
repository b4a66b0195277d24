/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How long other threads wait for the GIL while a driver call has it held.
 *
 * All waiting up to a moment t, W(t), is the sum of end - begin over the waits that
 * are over and of t - begin over those that are not: the number of waiters times t,
 * plus all ends, less all begins. Both numbers are in one word, so that a wait's
 * begin and its end are one atomic addition each, which no other one can spoil, in
 * whatever order they come. What a call causes is how much W grows during it.
 *
 * A wait is what the ledger calls one: asleep on the lock outside driver calls, from
 * the same clock readings. It begins when the scheduler switches the thread out and
 * ends with its wake-up, so at any moment it is known who waits.
 *
 * The clock and the word can't be read in one moment. At a call's begin the word is
 * read first, at its end last: of a wait that begins or ends in between, what is
 * counted has been waited while the thread had the lock, or it is too little. Too
 * much is only what passes between a waiter's own reading of the clock and its
 * addition, with the scheduler's lock held.
 */
#ifndef STAGEPROF_GILWAIT_H
#define STAGEPROF_GILWAIT_H

#include "state.h"

#define WAITERS_BITS 14 /* 16383 waiters, and 2^49 ns of waiting per call: 6 days */
#define WAITERS(waits) ((waits) & ((1 << WAITERS_BITS) - 1))

static volatile u64 gil_waits = 0; /* (ends - begins) << WAITERS_BITS | waiters */

/* W up to which waiting was given to a call, << WAITERS_BITS. Calls that hold one
 * lock can't overlap, unless one of them gives it up in a callback: then none of
 * the waiting is given to both. */
static u64 gil_waited_given = 0;

static __always_inline u64 gil_waited(u64 waits, u64 now)
{
    return waits - WAITERS(waits) + (WAITERS(waits) * now << WAITERS_BITS);
}

static __always_inline void gil_wait_end(struct thread_state *state, u64 now)
{
    if (!state->gil_waiting)
        return;
    state->gil_waiting = 0;
    __sync_fetch_and_add(&gil_waits, (now << WAITERS_BITS) - 1);
}

/* The thread is switched out, for off_part. */
static __always_inline void gil_wait_begin(struct thread_state *state, u64 now)
{
    if (state->off_part != PART_GIL_WAIT || state->sp)
        return;
    gil_wait_end(state, now); /* if that was not seen */
    state->gil_waiting = 1;
    __sync_fetch_and_add(&gil_waits, 1 - (now << WAITERS_BITS));
}

/* A call with the GIL held begins at `begin`; `waits` was read before. */
static __always_inline void gil_held_begin(u64 waits, u64 begin)
{
    __sync_lock_test_and_set(&gil_waited_given, gil_waited(waits, begin));
}

/* It ends. Returns how long other threads have waited meanwhile. */
static __always_inline u64 gil_held_end(u64 end)
{
    u64 waited = gil_waited(gil_waits, end);
    s64 caused = waited - __sync_lock_test_and_set(&gil_waited_given, waited);

    return caused > 0 ? (u64)caused >> WAITERS_BITS : 0;
}

#endif
