//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Ways to time a call, each as small as it can be: for the benchmark that compares
 * them, and in no program that is shipped.
 *
 * hook                     why                                      cost
 * uprobe, uretprobe or     what the kernel offers for a call's      what is measured
 *   uprobe session, on       begin and end
 *   functions of a child
 *
 * Limits: one thread of the child calls. The maps have room for no more, and no run of
 * a program meets another one on its stack (on_own_stack in bpf/state.h).
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "types.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Where the begin of a call is held until its end. */
enum held {
    HELD_IN_TASK,
    HELD_BY_THREAD_ID,
};

/* Which row a call is added to. */
enum rows {
    ROWS_OF_FUNCTION,
    ROWS_OF_FUNCTION_CPU,
    ROWS_OF_THREAD,
    ROWS_OF_CPU,
};

/* Set before a program is loaded: the verifier takes out what they don't say. */
const volatile enum held held = HELD_IN_TASK;
const volatile enum rows rows = ROWS_OF_FUNCTION;

struct row {
    u64 count;
    u64 wall;
    u64 latest; /* begin of one, where ends are not seen */
};

struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, u64);
} task_begins SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 64);
    __type(key, u32);
    __type(value, u64);
} thread_begins SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 64);
    __type(key, u32);
    __type(value, struct row);
} function_rows SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 64);
    __type(key, u32);
    __type(value, struct row);
} function_cpu_rows SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 64);
    __type(key, struct call_key);
    __type(value, struct row);
} thread_rows SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_HASH);
    __uint(max_entries, 64);
    __type(key, struct call_key);
    __type(value, struct row);
} cpu_rows SEC(".maps");

extern bool bpf_session_is_return(void) __ksym;
extern u64 *bpf_session_cookie(void) __ksym;

static __always_inline u32 thread_id(void) {
    return bpf_get_current_pid_tgid();
}

static __always_inline void *find_or_make(void *map, const void *key) {
    static const struct row zero = {};
    void *value = bpf_map_lookup_elem(map, key);

    if (value)
        return value;
    bpf_map_update_elem(map, key, &zero, BPF_NOEXIST);
    return bpf_map_lookup_elem(map, key);
}

static __always_inline u64 *held_begin(void) {
    u32 thread;

    if (held == HELD_IN_TASK)
        return bpf_task_storage_get(&task_begins, bpf_get_current_task_btf(), 0,
                                    BPF_LOCAL_STORAGE_GET_F_CREATE);
    thread = thread_id();
    return find_or_make(&thread_begins, &thread);
}

static __always_inline struct row *find_row(struct pt_regs *ctx) {
    struct call_key key = {.symbol = bpf_get_attach_cookie(ctx)};
    u32 function = key.symbol;

    switch (rows) {
    case ROWS_OF_FUNCTION:
        return bpf_map_lookup_elem(&function_rows, &function);
    case ROWS_OF_FUNCTION_CPU:
        return bpf_map_lookup_elem(&function_cpu_rows, &function);
    case ROWS_OF_THREAD:
        key.caller = PT_REGS_IP(ctx);
        key.thread = thread_id();
        return find_or_make(&thread_rows, &key);
    case ROWS_OF_CPU:
        key.caller = PT_REGS_IP(ctx);
        return find_or_make(&cpu_rows, &key);
    }
    return NULL;
}

/* A program on a uprobe can be preempted, also where each CPU has a row: only a row
 * of a thread's own has one writer. */
static __always_inline void add(u64 *sum, u64 n) {
    if (rows == ROWS_OF_THREAD)
        *sum += n;
    else
        __sync_fetch_and_add(sum, n);
}

static __always_inline void call_begins(u64 *begin) {
    if (begin)
        *begin = bpf_ktime_get_ns();
}

static __always_inline void call_ends(struct pt_regs *ctx, const u64 *begin, u64 now) {
    struct row *row = find_row(ctx);

    if (!begin || !row)
        return;
    add(&row->count, 1);
    add(&row->wall, now - *begin);
}

SEC("uprobe.multi")
int empty(struct pt_regs *ctx) {
    return 0;
}

SEC("uprobe.multi")
int entry(struct pt_regs *ctx) {
    call_begins(held_begin());
    return 0;
}

SEC("uretprobe.multi")
int leave(struct pt_regs *ctx) {
    u64 now = bpf_ktime_get_ns();

    call_ends(ctx, held_begin(), now);
    return 0;
}

/* Without a probe on the return. */
SEC("uprobe.multi")
int entry_alone(struct pt_regs *ctx) {
    struct row *row = find_row(ctx);

    if (!row)
        return 0;
    add(&row->count, 1);
    row->latest = bpf_ktime_get_ns();
    return 0;
}

SEC("uprobe.session")
int session_empty(struct pt_regs *ctx) {
    return 0;
}

/* The entry says that nobody wants the return. */
SEC("uprobe.session")
int session_declined(struct pt_regs *ctx) {
    return 1;
}

SEC("uprobe.session")
int session(struct pt_regs *ctx) {
    u64 now = bpf_ktime_get_ns(), *begin = bpf_session_cookie();

    if (bpf_session_is_return())
        call_ends(ctx, begin, now);
    else
        *begin = now;
    return 0;
}
