/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The programs' maps and settings, and the helpers that every part uses. */
#ifndef STAGEPROF_STATE_H
#define STAGEPROF_STATE_H

#include "kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "types.h"

/* ---- settings, written by the agent ------------------------------------- */

const volatile u32 target_tgid = 0;

/* Whether waits are charged to those whose work they wait for. */
const volatile bool sync_debt = false;

/* Whether functions are followed as regions. */
const volatile bool regions_followed = false;

/* Whether single events are streamed. */
const volatile bool timeline = false;

/* Whether everything is counted that costs the target something. */
const volatile bool metered = false;

/* Markers are followed from `tracking` on, so that the stage stacks are right
 * when the window opens; calls and spans count between window_start and
 * window_end (CLOCK_MONOTONIC, 0 = not yet). */
volatile u32 tracking = 0;
volatile u64 window_start = 0;
volatile u64 window_end = 0;

/* Whether markers come as system calls, which a seccomp filter might answer by
 * killing the thread; and whether one of the target's threads has a filter. */
const volatile bool announcing = false;
volatile u32 sandboxed = 0;

volatile u32 gil_method = GIL_METHOD_UNKNOWN;
volatile struct gil_plan gil = {};

/* Both are set when the interpreter is known, python_mode last. */
volatile u32 python_mode = PYTHON_STACKS_OFF;
volatile struct python_plan python = {};

/* The agent has told what every thread did up to here: what is noted later counts
 * from here on, even if it was seen before. */
volatile u64 peeked_until = 0;

/* The marker library's slot of process-wide stages, 0 while unknown. */
volatile u64 process_slot = 0;

/* Only stages whose name matches are stages; the others are hidden. */
const volatile u32 matching = 0;

/* Calls belong to the innermost Python function whose name matches; from when the
 * interpreter is known, which the second one says. */
const volatile bool python_stages = false;
volatile u32 python_known = 0;

/* ---- what the programs tell the agent besides the maps ------------------ */

volatile u32 target_ended = TARGET_RUNS;
volatile u32 loader_events = 0; /* the target loaded or unloaded a library */
volatile u32 forks = 0;         /* children that the target has made */

/* ---- maps ---------------------------------------------------------------- */

struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct thread_state);
} thread_states SEC(".maps");

/* Threads of processes that were forked, directly or not, from the target while its
 * gate was open, and run its program: they have the open gate in their memory. */
struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, u32);
} copies SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, struct thread_state);
} process_stages SEC(".maps");

/* Where a thread's record is copied to for the agent. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, struct thread_state);
} thread_copies SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 65536);
    __type(key, struct call_key);
    __type(value, struct call_row);
} calls SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 16384);
    __type(key, struct stage_key);
    __type(value, struct stage_row);
} stages SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4 << 20);
} spans SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 8192);
    __type(key, struct path_key);
    __type(value, u32);
} paths SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 8192);
    __type(key, u64);
    __type(value, struct stage_name);
} names SEC(".maps");

/* Names that come as text instead of as the address of something that stays:
 * text -> what stands for it in paths and names. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 4096);
    __type(key, struct stage_name);
    __type(value, u64);
} texts SEC(".maps");

/* By enum match_of. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, MATCHES);
    __type(key, u32);
    __type(value, struct name_match);
} name_matches SEC(".maps");

/* Names that don't match, by address and by text, so that the expression is not
 * run for each of their ranges. Least recently used ones go: libraries may make
 * up names without end, and these must not take the room of stages. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 8192);
    __type(key, u64);
    __type(value, u8);
} hidden_names SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 8192);
    __type(key, struct stage_name);
    __type(value, u8);
} hidden_texts SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 65536);
    __type(key, u32);
    __type(value, struct thread_info);
} threads SEC(".maps");

/* tid -> the thread's slot in the marker library, as found when attaching:
 * for threads that call the driver before they emit another marker. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 4096);
    __type(key, u32);
    __type(value, u64);
} slots SEC(".maps");

/* Address of an autograd GraphTask -> path of the stage that called backward.
 * Least recently used ones go: nothing tells when a task is over. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 4096);
    __type(key, u64);
    __type(value, u32);
} graph_tasks SEC(".maps");

/* Streams by what tells them apart -> their number. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, STREAMS);
    __type(key, struct stream_key);
    __type(value, u32);
} streams SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, STREAMS);
    __type(key, u32);
    __type(value, struct stream_log);
} stream_logs SEC(".maps");

/* Numbers of streams that have ended, longest ago first. */
struct {
    __uint(type, BPF_MAP_TYPE_QUEUE);
    __uint(max_entries, STREAMS);
    __type(value, u32);
} ended_streams SEC(".maps");

/* Recorded events by their handle, until they are destroyed. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 16384);
    __type(key, u64);
    __type(value, struct event_point);
} events SEC(".maps");

/* Contexts by their handle -> their number, in the order in which they were seen. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, CONTEXTS - 1);
    __type(key, u64);
    __type(value, u32);
} contexts SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct debt_wait);
} debt_waits SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 16384);
    __type(key, struct debt_key);
    __type(value, struct debt_row);
} debts SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, MAX_FUNCTIONS);
    __type(key, u32);
    __type(value, struct function);
} functions SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 16384);
    __type(key, struct region_key);
    __type(value, struct region_row);
} regions SEC(".maps");

/* Has one entry unless functions are followed as regions. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 16384);
    __type(key, struct region_parts_key);
    __type(value, struct region_parts_row);
} region_parts SEC(".maps");

/* These two have one entry each unless the agent asks for allocations. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 16384);
    __type(key, struct allocation_key);
    __type(value, struct allocation_row);
} allocations SEC(".maps");

/* Pointer -> size of what has been given out. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 262144);
    __type(key, u64);
    __type(value, u64);
} allocated SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, COUNTERS);
    __type(key, u32);
    __type(value, u64);
} counters SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct python_state);
} python_states SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4 << 20);
} python_samples SEC(".maps");

/* The names of Python functions that are stages: text -> what stands for it. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 4096);
    __type(key, struct stage_name);
    __type(value, u64);
} python_texts SEC(".maps");

/* What was found of Python functions: by code object, and for those that are no
 * stages by text. What is forgotten is found again. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, struct python_code);
    __type(value, u64);
} python_codes SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 8192);
    __type(key, struct stage_name);
    __type(value, u8);
} python_hidden SEC(".maps");

/* Has one page unless the agent asks for a timeline. */
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 32 << 20);
} timeline_events SEC(".maps");

volatile u32 last_thread = 0; /* the serial number of the latest one */
static u32 next_path = PATH_FIRST;
static u64 last_text = 0;
static u32 next_stream = 0;
static u32 next_context = 0;
static u32 last_capture = 0;

/* ---- helpers ------------------------------------------------------------- */

/* Atomic although per CPU: a uprobe program can be preempted in the middle. */
static __always_inline void count_more(enum counter which, u64 n)
{
    u32 key = which;
    u64 *value = bpf_map_lookup_elem(&counters, &key);

    if (value)
        __sync_fetch_and_add(value, n);
}

static __always_inline void count(enum counter which)
{
    count_more(which, 1);
}

struct {
    __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, u32);
} nowhere SEC(".maps");

const volatile bool never = false;

/*
 * From Linux 6.13 on a program's stack can be one of each CPU instead of each thread.
 * But where the kernel can be preempted, a program on a uprobe can be, too, and then
 * another thread's run of it writes over its stack. A program that could make a tail
 * call is left the usual stack: so each one on a uprobe has such a call, which the
 * verifier sees and takes out again.
 */
static __always_inline void on_own_stack(void *ctx)
{
    if (never)
        bpf_tail_call(ctx, &nowhere, 0);
}

/* Links are filtered by process already; kernels 6.6 to 6.9 do it wrongly for
 * uprobe_multi, where the agent leaves the filter out. */
static __always_inline bool is_target(void)
{
    return bpf_get_current_pid_tgid() >> 32 == target_tgid;
}

static __always_inline bool task_is_target(struct task_struct *task)
{
    return (u32)task->tgid == target_tgid;
}

/* The agent sets the window's end a moment ahead, so that every program knows of
 * it before it comes. */
static __always_inline bool window_over(void)
{
    u64 end = window_end;

    return end && bpf_ktime_get_ns() >= end;
}

static __always_inline bool in_window(void)
{
    return window_start && !window_over();
}

/* Whether a hit of the driver's probes is about a call that counts. */
static __always_inline bool is_timed(struct task_struct *task)
{
    if (!task_is_target(task))
        return false;
    if (in_window())
        return true;
    if (metered)
        count(COUNT_IDLE);
    return false;
}

/* Whether a hit of another probe is to be followed. */
static __always_inline bool is_followed(struct task_struct *task)
{
    if (!task_is_target(task))
        return false;
    if (metered)
        count(COUNT_HITS);
    return tracking && !window_over();
}

/* No later than the window's end. */
static __always_inline u64 until_window_end(u64 time)
{
    u64 end = window_end;

    return end && time > end ? end : time;
}

static __always_inline u64 later(u64 a, u64 b)
{
    return a < b ? b : a;
}

static __always_inline u64 in_window_since(u64 begin)
{
    return later(begin, window_start);
}

/* Not in every libbpf's bpf_tracing.h. */
#ifndef PT_REGS_PARM6
#if defined(__TARGET_ARCH_x86)
#define PT_REGS_PARM6(x) (__PT_REGS_CAST(x)->r9)
#else
#define PT_REGS_PARM6(x) (__PT_REGS_CAST(x)->regs[5])
#endif
#endif

/* Each argument is loaded on its own path: the verifier allows no load from a
 * computed offset into the context. */
#define LOAD_ARGUMENT(number)                                                                      \
    case number:                                                                                   \
        value = PT_REGS_PARM##number(ctx);                                                         \
        barrier_var(value);                                                                        \
        break

static __always_inline u64 argument(struct pt_regs *ctx, u8 number)
{
    u64 value = 0;

    switch (number) {
        LOAD_ARGUMENT(1);
        LOAD_ARGUMENT(2);
        LOAD_ARGUMENT(3);
        LOAD_ARGUMENT(4);
        LOAD_ARGUMENT(5);
        LOAD_ARGUMENT(6);
    }
    return value;
}

#if defined(__TARGET_ARCH_x86)

#define LOAD_REGISTER(number, name)                                                                \
    case number:                                                                                   \
        value = ctx->name;                                                                         \
        barrier_var(value);                                                                        \
        break

/* A register by the number that instructions give it. */
static __always_inline u64 register_value(struct pt_regs *ctx, u8 number)
{
    u64 value = 0;

    switch (number) {
        LOAD_REGISTER(0, ax);
        LOAD_REGISTER(1, cx);
        LOAD_REGISTER(2, dx);
        LOAD_REGISTER(3, bx);
        LOAD_REGISTER(4, sp);
        LOAD_REGISTER(5, bp);
        LOAD_REGISTER(6, si);
        LOAD_REGISTER(7, di);
        LOAD_REGISTER(8, r8);
        LOAD_REGISTER(9, r9);
        LOAD_REGISTER(10, r10);
        LOAD_REGISTER(11, r11);
        LOAD_REGISTER(12, r12);
        LOAD_REGISTER(13, r13);
        LOAD_REGISTER(14, r14);
        LOAD_REGISTER(15, r15);
    }
    return value;
}

#else /* the agent asks for none */

static __always_inline u64 register_value(struct pt_regs *ctx, u8 number)
{
    return 0;
}

#endif

static __always_inline u32 log2_bucket(u64 v)
{
    u32 bucket = 0;

    if (v >> 32)
        return HIST_BUCKETS - 1;
    if (v >> 16) {
        v >>= 16;
        bucket += 16;
    }
    if (v >> 8) {
        v >>= 8;
        bucket += 8;
    }
    if (v >> 4) {
        v >>= 4;
        bucket += 4;
    }
    if (v >> 2) {
        v >>= 2;
        bucket += 2;
    }
    if (v >> 1)
        bucket += 1;
    return bucket & (HIST_BUCKETS - 1);
}

#endif
