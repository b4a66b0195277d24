/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who owes a wait. Each stream has a log of the operations that it was given,
 * by the stage that gave them, and of how far it is known to have got. A wait
 * looks at what is before it when it begins; when it ends, its time is divided
 * among the stages in proportion to their operations. That is an estimate: how
 * long an operation takes is not known here.
 *
 * Streams have no lock, since several threads seldom give work to one at the
 * same time. If they do, an operation can be counted for the stage of another
 * one; nothing is counted twice, and a wait's parts always sum to its time.
 */
#ifndef STAGEPROF_DEBT_H
#define STAGEPROF_DEBT_H

#include "gil.h"

/* CUstream's values that are no handles. */
#define STREAM_NULL 0
#define STREAM_LEGACY 1
#define STREAM_PER_THREAD 2

/* Where hStream is in the public structure CUlaunchConfig. */
#define CONFIG_STREAM 32

#if defined(__TARGET_ARCH_x86)
#define REGISTER_ARGUMENTS 6
#define STACK_ARGUMENTS 8 /* bytes from the stack pointer at entry: the return address is below */
#else
#define REGISTER_ARGUMENTS 8
#define STACK_ARGUMENTS 0
#endif

/* ---- what a call is about ------------------------------------------------- */

static __always_inline u64 stack_argument(struct pt_regs *ctx, u32 number)
{
    u64 value = 0;

    read_user_u64(&value,
                  PT_REGS_SP(ctx) + STACK_ARGUMENTS + 8 * (number - REGISTER_ARGUMENTS - 1));
    return value;
}

static __always_inline u64 stream_argument(struct pt_regs *ctx, u32 where)
{
    u64 value = STREAM_NULL;

    if (where == STREAM_DEFAULT)
        return STREAM_NULL;
    if (where == STREAM_CONFIG) {
        read_user_u64(&value, PT_REGS_PARM1(ctx) + CONFIG_STREAM);
        return value;
    }
    if (where > 6)
        return stack_argument(ctx, where);
    return argument(ctx, where);
}

static __always_inline u64 current_context(struct thread_state *state)
{
    return (u8)state->debt.contexts;
}

/* Whose a thread's default stream in a context is. */
static __always_inline u64 own_stream(struct thread_state *state, u32 context)
{
    return (u64)state->serial << 8 | context;
}

/* The null streams are one per context, or one per thread and context. */
static __always_inline void stream_key(struct thread_state *state, struct stream_key *key)
{
    key->handle = state->debt.stream;
    key->owner = 0;
    if (key->handle == STREAM_NULL)
        key->handle = DEBT_PER_THREAD(state->debt.call) ? STREAM_PER_THREAD : STREAM_LEGACY;
    if (key->handle == STREAM_LEGACY)
        key->owner = current_context(state);
    if (key->handle == STREAM_PER_THREAD)
        key->owner = own_stream(state, current_context(state));
}

/* ---- streams ---------------------------------------------------------------- */

static __always_inline struct stream_log *stream_log(u32 stream)
{
    return bpf_map_lookup_elem(&stream_logs, &stream);
}

/* Two threads that get through two waits at the same time may put this back by
 * a little: the next wait puts it right. */
static __always_inline void stream_done(struct stream_log *log, u64 until)
{
    if (log->done < until)
        log->done = until;
    log->seen_idle = 1;
}

static __always_inline bool stream_has_key(const struct stream_log *log,
                                           const struct stream_key *key)
{
    return log->key.handle == key->handle && log->key.owner == key->owner;
}

/* The stream has ended. It keeps its number until that is needed, since its handle
 * may well stand for a stream again. */
static __always_inline void stream_ended(u32 number, struct stream_log *log)
{
    log->ended = 1;
    if (!__sync_lock_test_and_set(&log->listed, 1))
        bpf_map_push_elem(&ended_streams, &number, 0);
}

/* Takes a number from a stream that has ended. Returns it + 1, 0 if there is none. */
static __always_inline u32 stream_reuse(void)
{
    for (int i = 0; i < REUSE_TRIES; i++) {
        struct stream_log *log;
        struct stream_key key;
        u32 number, *known;

        if (bpf_map_pop_elem(&ended_streams, &number))
            return 0;
        log = stream_log(number);
        if (!log)
            return 0;
        log->listed = 0;
        if (!__sync_lock_test_and_set(&log->ended, 0))
            continue; /* its handle has been used again */
        key = log->key;
        known = bpf_map_lookup_elem(&streams, &key);
        if (known && *known == number)
            bpf_map_delete_elem(&streams, &key);
        return number + 1;
    }
    return 0;
}

/* Counts go on from stream to stream: for whoever remembers a point of the one
 * before it is over. */
static __always_inline void stream_begins(struct stream_log *log, const struct stream_key *key,
                                          u32 context)
{
    log->key = *key;
    log->context = context;
    log->done = log->enqueued;
    log->capture = 0;
    log->capturing = 0;
    log->seen_idle = 0;
}

/* A number for a stream that is seen for the first time, + 1; 0 if there is none. */
static __noinline u32 stream_new(const struct stream_key *key, u32 context)
{
    static const struct stream_key none = {};
    struct stream_log *log;
    u32 number, *known;

    number = next_stream < STREAMS ? __sync_fetch_and_add(&next_stream, 1) + 1 : stream_reuse();
    if (!number)
        return 0;
    number--;
    log = stream_log(number);
    if (!log)
        return 0;
    stream_begins(log, key, context);
    if (!bpf_map_update_elem(&streams, key, &number, BPF_NOEXIST))
        return number + 1;
    log->key = none;
    stream_ended(number, log);
    known = bpf_map_lookup_elem(&streams, key); /* another thread was faster */
    return known ? *known + 1 : 0;
}

/* A stream that is used has not ended, or another one has its handle now. */
static __always_inline void stream_used(struct thread_state *state, struct stream_log *log)
{
    if (log->ended && __sync_lock_test_and_set(&log->ended, 0))
        log->context = current_context(state);
}

/* The number of the call's stream, + 1; 0 if there is none. */
static __always_inline u32 stream_find(struct thread_state *state, bool make)
{
    u32 number = state->debt.last_stream, *known;
    struct stream_log *log;
    struct stream_key key;

    stream_key(state, &key);
    log = number ? stream_log(number - 1) : NULL;
    if (!log || !stream_has_key(log, &key)) {
        known = bpf_map_lookup_elem(&streams, &key);
        number = known ? *known + 1 : 0;
        if (!number && make) {
            number = stream_new(&key, current_context(state));
            if (!number)
                count(LOST_DEBT_STREAM);
        }
        if (!number)
            return 0;
        state->debt.last_stream = number;
        if (key.handle == STREAM_PER_THREAD)
            state->debt.has_own = 1;
        log = stream_log(number - 1);
    }
    if (log)
        stream_used(state, log);
    return number;
}

static __always_inline struct stream_log *stream_of_call(struct thread_state *state)
{
    u32 number = stream_find(state, true);

    return number ? stream_log(number - 1) : NULL;
}

static __always_inline struct stream_segment *segment_at(struct stream_log *log, u32 number)
{
    return &log->segments[number & (SEGMENTS - 1)];
}

/* A run of operations of a stage, or, with `until`, a point at which the stream
 * waits for another one. Returns how many the stream had before it. */
static __always_inline u64 segment_add(struct stream_log *log, u32 path, u32 other, u64 until)
{
    struct stream_segment *segment = segment_at(log, __sync_fetch_and_add(&log->len, 1));

    segment->path = path;
    segment->other = other;
    segment->until = until;
    segment->begin = __sync_fetch_and_add(&log->enqueued, 1);
    return segment->begin;
}

/* ---- captures: work that goes into a graph instead of a stream ---------------- */

static __always_inline bool is_captured(struct stream_log *log)
{
    struct stream_log *origin;
    u32 capture = log->capture;

    if (!capture)
        return false;
    origin = stream_log(log->origin);
    if (origin && origin->capturing == capture)
        return true;
    log->capture = 0;
    return false;
}

static __always_inline void capture_begin(struct thread_state *state)
{
    struct stream_log *log = stream_of_call(state);

    if (!log)
        return;
    log->capturing = __sync_fetch_and_add(&last_capture, 1) + 1;
    log->origin = state->debt.last_stream - 1;
    log->capture = log->capturing;
}

static __always_inline void capture_end(struct thread_state *state)
{
    struct stream_log *log = stream_of_call(state);

    if (log)
        log->capturing = 0;
}

/* ---- giving work to a stream --------------------------------------------------- */

static __always_inline void enqueue(struct thread_state *state)
{
    struct stream_log *log = stream_of_call(state);
    struct stream_segment *last;
    u64 before;

    if (!log || is_captured(log))
        return;
    last = segment_at(log, log->len - 1);
    if (log->len && last->path == state->path && !last->until)
        before = __sync_fetch_and_add(&log->enqueued, 1);
    else
        before = segment_add(log, state->path, 0, 0);
    if (timeline)
        state->debt.operation = before + 1;
}

static __always_inline void event_record(struct thread_state *state)
{
    struct stream_log *log = stream_of_call(state);
    u64 event = state->debt.event;
    struct event_point point = {};

    if (!log)
        return;
    point.stream = state->debt.last_stream - 1;
    point.enqueued = log->enqueued;
    point.capture = is_captured(log) ? log->capture : 0;
    if (bpf_map_update_elem(&events, &event, &point, BPF_ANY))
        count(LOST_DEBT_EVENT);
}

/* A stream that follows an event of a capture takes part in it. */
static __always_inline void event_follow(struct thread_state *state)
{
    struct stream_log *log = stream_of_call(state), *other;
    u64 event = state->debt.event;
    struct event_point *point = bpf_map_lookup_elem(&events, &event);

    if (!log || !point)
        return;
    other = stream_log(point->stream);
    if (!other || other == log)
        return;
    if (point->capture) {
        log->origin = other->origin;
        log->capture = point->capture;
        return;
    }
    if (!is_captured(log) && point->enqueued > other->done)
        segment_add(log, PATH_NONE, point->stream, point->enqueued);
}

/* ---- waiting ---------------------------------------------------------------- */

/* One more stream that the wait is for. What it waits for already is left out. */
__noinline int wait_for(struct debt_wait *wait, u32 stream, u64 until)
{
    struct stream_log *log = stream_log(stream);
    struct waited_stream *waited;
    u64 from, i;

    if (!wait || !log)
        return 0;
    from = log->done;
    for (i = 0; i < WAIT_STREAMS; i++) {
        waited = &wait->streams[i];
        if (i >= wait->streams_len)
            break;
        if (waited->stream == stream && waited->until > from)
            from = waited->until;
    }
    if (until <= from)
        return 0;
    i = wait->streams_len;
    if (i >= WAIT_STREAMS) {
        wait->forgotten += until - from;
        wait->operations += until - from;
        return 0;
    }
    barrier_var(i); /* keeps the mask, by which the verifier knows the bound */
    waited = &wait->streams[i & (WAIT_STREAMS - 1)];
    waited->stream = stream;
    waited->from = from;
    waited->until = until;
    wait->streams_len = i + 1;
    return 0;
}

__noinline int wait_owner(struct debt_wait *wait, u32 path, u64 operations)
{
    u64 i;

    if (!wait)
        return 0;
    wait->operations += operations;
    for (i = 0; i < WAIT_OWNERS; i++) {
        if (i >= wait->owners_len) {
            wait->owners[i].path = path;
            wait->owners[i].operations = operations;
            wait->owners_len = i + 1;
            return 0;
        }
        if (wait->owners[i].path == path) {
            wait->owners[i].operations += operations;
            return 0;
        }
    }
    wait->forgotten += operations;
    return 0;
}

/* Goes through what stream number i of the wait has before it, latest first. */
__noinline int wait_collect(struct debt_wait *wait, u32 number)
{
    struct stream_segment *segment;
    struct waited_stream *waited;
    struct stream_log *log;
    u64 from, end, begin;
    u64 i = number;
    u32 len;

    if (!wait)
        return 0;
    barrier_var(i);
    waited = &wait->streams[i & (WAIT_STREAMS - 1)];
    log = stream_log(waited->stream);
    if (!log)
        return 0;
    from = waited->from;
    end = waited->until;
    len = log->len;
    for (u32 k = 1; k <= SEGMENTS; k++) {
        if (k > len || end <= from)
            break;
        segment = segment_at(log, len - k);
        begin = segment->begin > from ? segment->begin : from;
        if (begin >= end)
            continue;
        if (segment->until)
            wait_for(wait, segment->other, segment->until);
        else
            wait_owner(wait, segment->path, end - begin);
        end = begin;
    }
    if (end > from) { /* the segments before have been overwritten */
        wait->forgotten += end - from;
        wait->operations += end - from;
    }
    return 0;
}

/* One stream, if it is of this context. A function of its own for the verifier,
 * which goes through the loop around it step by step. */
__noinline int wait_for_context_stream(struct debt_wait *wait, u32 stream, u32 context)
{
    struct stream_log *log = stream_log(stream);

    if (!wait || !log || log->context != context)
        return 0;
    if (!log->seen_idle)
        wait->unseen = 1;
    wait_for(wait, stream, log->enqueued);
    return 1;
}

static __noinline void wait_for_context(struct debt_wait *wait, u32 context)
{
    u32 seen = 0;

    for (u32 i = 0; i < STREAMS; i++) {
        if (i >= next_stream)
            break;
        seen |= wait_for_context_stream(wait, i, context);
    }
    if (!seen)
        wait->unseen = 1;
}

static __always_inline void wait_for_stream(struct thread_state *state, struct debt_wait *wait)
{
    u32 number = stream_find(state, false);
    struct stream_log *log = number ? stream_log(number - 1) : NULL;

    wait->unseen = !log || !log->seen_idle;
    if (log)
        wait_for(wait, number - 1, log->enqueued);
}

static __always_inline void wait_for_event(struct thread_state *state, struct debt_wait *wait)
{
    u64 event = state->debt.event;
    struct event_point *point = bpf_map_lookup_elem(&events, &event);

    wait->unseen = !point;
    if (point && !point->capture)
        wait_for(wait, point->stream, point->enqueued);
}

/* What the thread is about to wait for, or has just been told to be over. */
__noinline int wait_look(struct thread_state *state, struct debt_wait *wait)
{
    if (!state || !wait)
        return 0;
    wait->streams_len = 0;
    wait->owners_len = 0;
    wait->operations = 0;
    wait->forgotten = 0;
    wait->unseen = 0;
    switch (DEBT_ROLE(state->debt.call)) {
    case DEBT_WAIT_EVENT:
    case DEBT_ASK_EVENT:
        wait_for_event(state, wait);
        break;
    case DEBT_WAIT_CONTEXT:
        wait_for_context(wait, current_context(state));
        break;
    case DEBT_WAIT_COPY:
        wait_for_stream(state, wait);
        wait_owner(wait, state->path, 1); /* the copy itself */
        break;
    default:
        wait_for_stream(state, wait);
    }
    /* Streams that these wait for are added on the way. */
    for (u32 i = 0; i < WAIT_STREAMS; i++) {
        if (i >= wait->streams_len)
            break;
        wait_collect(wait, i);
    }
    return 0;
}

/* Everything that was waited for is over. */
__noinline int wait_over(struct debt_wait *wait)
{
    struct stream_log *log;

    if (!wait)
        return 0;
    for (u32 i = 0; i < WAIT_STREAMS; i++) {
        if (i >= wait->streams_len)
            break;
        log = stream_log(wait->streams[i].stream);
        if (log)
            stream_done(log, wait->streams[i].until);
    }
    return 0;
}

/* part / whole of a time, without overflow up to some weeks and 2^48 operations. */
static __always_inline u64 share(u64 time, u64 part, u64 whole)
{
    if (whole >> 32) {
        part >>= 16;
        whole >>= 16;
    }
    return time / whole * part + time % whole * part / whole;
}

__noinline int debt_add(struct thread_state *state, u32 owner, u32 kind, u64 wall, u64 operations)
{
    static const struct debt_row zero = {};
    struct debt_key key = {.owner = owner, .kind = kind};
    struct debt_row *row;

    if (!state)
        return 0;
    key.thread = state->serial;
    key.path = state->path;
    key.symbol = state->symbol;
    row = bpf_map_lookup_elem(&debts, &key);
    if (!row) {
        bpf_map_update_elem(&debts, &key, &zero, BPF_NOEXIST);
        row = bpf_map_lookup_elem(&debts, &key);
    }
    if (!row) {
        count(LOST_DEBT_ROW);
        return 0;
    }
    row->waits++;
    row->wall += wall;
    row->operations += operations;
    return 0;
}

/* Divides a wait's time: each owner gets what rounding leaves of its share, and
 * all of them together the whole. */
__noinline int debt_charge(struct thread_state *state, struct debt_wait *wait, u64 wall)
{
    u64 operations = 0, charged = 0, upto;

    if (!state || !wait)
        return 0;
    if (!wait->operations) {
        debt_add(state, PATH_NONE, wait->unseen ? DEBT_UNSEEN : DEBT_IDLE, wall, 0);
        return 0;
    }
    for (u32 i = 0; i < WAIT_OWNERS; i++) {
        struct debt_owner *owner = &wait->owners[i];

        if (i >= wait->owners_len)
            break;
        operations += owner->operations;
        upto = share(wall, operations, wait->operations);
        debt_add(state, owner->path, DEBT_STAGE, upto - charged, owner->operations);
        charged = upto;
    }
    if (wait->forgotten)
        debt_add(state, PATH_NONE, DEBT_FORGOTTEN, wall - charged, wait->forgotten);
    return 0;
}

static __always_inline struct debt_wait *debt_wait(u64 flags)
{
    return bpf_task_storage_get(&debt_waits, bpf_get_current_task_btf(), 0, flags);
}

/* ---- the hooks --------------------------------------------------------------- */

static __always_inline bool is_wait(u32 role)
{
    return role >= DEBT_WAIT_STREAM && role <= DEBT_WAIT_COPY;
}

/* Before the call's clock is read. */
static __always_inline void debt_enter(struct pt_regs *ctx, struct thread_state *state, u64 cookie)
{
    struct debt_thread *debt = &state->debt;
    struct debt_wait *wait;
    u32 role;

    if (!sync_debt)
        return;
    debt->call = COOKIE_DEBT(cookie);
    if (timeline)
        debt->operation = 0;
    if (!debt->call)
        return;
    role = DEBT_ROLE(debt->call);
    debt->event = argument(ctx, role == DEBT_FOLLOW_EVENT ? 2 : 1);
    debt->stream = stream_argument(ctx, DEBT_STREAM(debt->call));
    if (is_wait(role)) {
        wait = debt_wait(BPF_LOCAL_STORAGE_GET_F_CREATE);
        if (wait)
            wait_look(state, wait);
    } else if (role == DEBT_ASK_STREAM) {
        struct stream_log *log = stream_of_call(state);

        debt->enqueued = log ? log->enqueued : 0;
    }
}

/* A wait that has ended, with success or not: its time was spent. */
static __always_inline void wait_leave(struct thread_state *state, u64 wall, bool failed)
{
    struct debt_wait *wait = debt_wait(0);
    struct stream_log *log;

    if (!wait) {
        count(LOST_DEBT_THREAD);
        return;
    }
    debt_charge(state, wait, wall);
    if (failed)
        return;
    wait_over(wait);
    if (timeline)
        timeline_waits(state, wait, wall);
    if (!wait->unseen || DEBT_ROLE(state->debt.call) != DEBT_WAIT_STREAM)
        return;
    log = stream_of_call(state);
    if (log)
        log->seen_idle = 1;
}

/* An event that is found to be over tells the same as a wait for it. */
static __always_inline void event_over(struct thread_state *state)
{
    u64 event = state->debt.event;
    struct event_point *point = bpf_map_lookup_elem(&events, &event);
    struct stream_log *log = point ? stream_log(point->stream) : NULL;
    struct debt_wait *wait;

    if (!log || point->capture || point->enqueued <= log->done)
        return; /* nothing new */
    wait = debt_wait(BPF_LOCAL_STORAGE_GET_F_CREATE);
    if (!wait)
        return;
    wait_look(state, wait);
    wait_over(wait);
}

__noinline int debt_success(struct thread_state *state)
{
    struct stream_log *log;
    u64 event;

    if (!state)
        return 0;
    switch (DEBT_ROLE(state->debt.call)) {
    case DEBT_RECORD_EVENT:
        event_record(state);
        break;
    case DEBT_FOLLOW_EVENT:
        event_follow(state);
        break;
    case DEBT_ASK_EVENT:
        event_over(state);
        break;
    case DEBT_ASK_STREAM:
        log = stream_of_call(state);
        if (log)
            stream_done(log, state->debt.enqueued);
        break;
    case DEBT_DESTROY_EVENT:
        event = state->debt.event;
        bpf_map_delete_elem(&events, &event);
        break;
    case DEBT_BEGIN_CAPTURE:
        capture_begin(state);
        break;
    case DEBT_END_CAPTURE:
        capture_end(state);
        break;
    }
    return 0;
}

/* After the call's clock was read and its row written. */
static __always_inline void debt_leave(struct thread_state *state, u64 wall, bool failed)
{
    u32 role;

    if (!sync_debt || !state->debt.call)
        return;
    role = DEBT_ROLE(state->debt.call);
    if (is_wait(role))
        wait_leave(state, wall, failed);
    else if (failed)
        return;
    else if (role == DEBT_ENQUEUE)
        enqueue(state);
    else
        debt_success(state);
}

/* The number of the stream that the call in progress is about, + 1; 0: it has none,
 * or none that is known. */
static __always_inline u32 call_stream(struct thread_state *state)
{
    if (!sync_debt)
        return 0;
    switch (DEBT_ROLE(state->debt.call)) {
    case DEBT_ENQUEUE:
    case DEBT_WAIT_STREAM:
    case DEBT_WAIT_COPY:
    case DEBT_RECORD_EVENT:
    case DEBT_FOLLOW_EVENT:
    case DEBT_ASK_STREAM:
    case DEBT_BEGIN_CAPTURE:
    case DEBT_END_CAPTURE:
        return stream_find(state, false);
    }
    return 0;
}

/* ---- calls that are seen whether or not they are timed ----------------------------- */

/* Numbers are a byte; 0 is also the context of threads of which it is not known. */
static __always_inline u64 context_number(u64 handle)
{
    u32 *known = bpf_map_lookup_elem(&contexts, &handle), number;

    if (known)
        return *known;
    if (!handle)
        return 0;
    number = __sync_fetch_and_add(&next_context, 1);
    if (number < CONTEXTS && !bpf_map_update_elem(&contexts, &handle, &number, BPF_NOEXIST))
        return number;
    known = bpf_map_lookup_elem(&contexts, &handle); /* another thread was faster */
    if (known)
        return *known;
    count(LOST_DEBT_CONTEXT);
    return 0;
}

/* Its handle may stand for another stream next; what it still had before it is
 * waited for by nobody. */
static __always_inline void stream_forget(u64 handle)
{
    struct stream_key key = {.handle = handle};
    u32 *number = bpf_map_lookup_elem(&streams, &key);
    struct stream_log *log = number ? stream_log(*number) : NULL;

    if (!number || !log)
        return;
    stream_done(log, log->enqueued);
    log->capture = 0;
    log->capturing = 0;
    stream_ended(*number, log);
}

/* The thread's default stream in a context. What it was given to do may still be
 * waited for, until its number is needed. */
__noinline int stream_forget_own(struct thread_state *state, u32 context)
{
    struct stream_key key = {.handle = STREAM_PER_THREAD};
    struct stream_log *log;
    u32 *number;

    if (!state)
        return 0;
    key.owner = own_stream(state, context);
    number = bpf_map_lookup_elem(&streams, &key);
    log = number ? stream_log(*number) : NULL;
    if (number && log)
        stream_ended(*number, log);
    return 0;
}

static __always_inline void debt_thread_ends(struct thread_state *state)
{
    if (!sync_debt || !state->debt.has_own)
        return;
    for (u32 i = 0; i < CONTEXTS; i++) {
        if (i > next_context)
            break;
        stream_forget_own(state, i);
    }
}

static __always_inline void debt_notice(struct pt_regs *ctx, struct thread_state *state, u64 cookie)
{
    u64 argument = PT_REGS_PARM1(ctx);
    struct debt_thread *debt = &state->debt;

    switch (DEBT_ROLE(COOKIE_DEBT(cookie))) {
    case DEBT_DESTROY_STREAM:
        stream_forget(argument);
        break;
    case DEBT_SET_CONTEXT:
        debt->contexts = (debt->contexts & ~0xffULL) | context_number(argument);
        break;
    case DEBT_PUSH_CONTEXT:
        debt->contexts = debt->contexts << 8 | context_number(argument);
        break;
    case DEBT_POP_CONTEXT:
        debt->contexts >>= 8;
        break;
    }
}

#endif
