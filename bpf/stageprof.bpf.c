//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * stageprof's kernel side: exact totals of driver calls per thread, stage,
 * symbol, GIL state and caller, aggregated here so that nothing is streamed.
 *
 * hook                     why                                      cost
 * uprobe on the driver     a call begins                            per call, in the target
 * uretprobe on the driver  it ends                                  per call, in the target
 *                          a sampled call's Python stack is read   per sample, in the target
 *                          (on request, at every entry as well)
 * uprobe on the markers,   a stage begins or ends                   per marker, in the target
 *   or task_prctl_unknown
 * uprobe on NVTX and       a stage begins or ends (on request)      per range, in the target
 *   record_function
 * uprobe on functions      a stage or a region begins; at each of   per entry and exit, in the
 *                          a function's exits: it ends              target; a return is stepped
 * uprobe on PyTorch's      whose backward pass a thread works on    per autograd function
 *   autograd engine
 * uprobe on the driver's   which context a thread works in, and     per such call
 *   current contexts         when a stream ends
 * uprobe on the loader     a library came or went: look again       per dlopen
 * sched_switch, _wakeup    where the target's threads' time goes    two compares for bystanders
 * task_newtask             a thread begins                          rare
 * task_rename, _exit,      thread names; open stages and calls of   rare
 *   process_exec           a thread that ends
 * iter/task                the target's threads, at both ends of    twice, and per snapshot
 *                          the window and for snapshots
 *
 * Limits: 64 pending return probes per thread (kernel); MAX_DEPTH nested
 * stages; the maps' sizes in state.h. Whatever does not fit is counted.
 */
#include "allocation.h"
#include "call.h"
#include "range.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Keeps the types that no map holds in the object's BTF, from where bpf2go takes them. */
struct shared_types {
    enum counter counter;
    enum gil_state gil_state;
    enum gil_reading gil_reading;
    enum part part;
    enum attribution attribution;
    enum target_end target_end;
    enum thread_end thread_end;
    enum marker marker;
    enum autograd autograd;
    enum source source;
    enum range range;
    enum role role;
    enum leaving leaving;
    enum allocation_event allocation_event;
    enum size_kind size_kind;
    enum debt_role debt_role;
    enum debt_kind debt_kind;
    struct span_record span_record;
    enum python_stacks python_stacks;
    enum match_of match_of;
    struct python_sample python_sample;
    enum event_kind event_kind;
    struct call_event call_event;
    struct off_event off_event;
    struct wait_event wait_event;
};
const volatile struct shared_types shared_types = {};

SEC("uprobe.multi")
int driver_entry(struct pt_regs *ctx)
{
    struct task_struct *task = bpf_get_current_task_btf();

    on_own_stack(ctx);
    if (is_timed(task))
        call_enter(ctx, task);
    return 0;
}

SEC("uretprobe.multi")
int driver_return(struct pt_regs *ctx)
{
    /* First of all, so that the program's own work stays outside the call. */
    u64 now = bpf_ktime_get_ns();
    struct task_struct *task = bpf_get_current_task_btf();

    on_own_stack(ctx);
    if (is_timed(task))
        call_leave(ctx, task, now);
    return 0;
}

/* At the entry only: these calls may be timed by the others, too. */
SEC("uprobe.multi")
int driver_notice(struct pt_regs *ctx)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct thread_state *state;

    on_own_stack(ctx);
    if (!is_followed(task))
        return 0;
    state = thread_get(task);
    if (state)
        debt_notice(ctx, state, bpf_get_attach_cookie(ctx));
    return 0;
}

/* A global function, so that the verifier checks it once for both ways in which
 * markers come. */
__noinline int marker_passed(u64 slot, u64 name, u32 depth, u32 marker, u64 sp)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct thread_state *state;
    u64 now;

    if (!is_followed(task))
        return 0;
    now = bpf_ktime_get_ns();
    if (marker == MARKER_PROCESS_BEGIN || marker == MARKER_PROCESS_END)
        state = process_state();
    else
        state = thread_get(task);
    if (!state) {
        count(LOST_STAGE_THREAD);
        return 0;
    }
    if (state->serial != THREAD_PROCESS) {
        call_abandon(state, sp);
        frames_heal(task, state, sp);
    }
    now = stages_enter(state, now);
    if (marker == MARKER_BEGIN || marker == MARKER_PROCESS_BEGIN)
        stage_begin(state, slot, name, depth, now);
    else
        stage_end(state, slot, depth, now);
    if (marker == MARKER_BEGIN)
        stage_begun(state, now);
    stages_leave(state);
    return 0;
}

SEC("uprobe.multi")
int marker_hit(struct pt_regs *ctx)
{
    on_own_stack(ctx);
    return marker_passed(PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx), PT_REGS_PARM3(ctx),
                         bpf_get_attach_cookie(ctx), PT_REGS_SP(ctx));
}

/* A marker of a library whose gate is open: it makes a system call that nobody
 * knows, which costs half of a trap. */
SEC("raw_tp/task_prctl_unknown")
int marker_announced(struct bpf_raw_tracepoint_args *ctx)
{
    u32 marker = (u32)ctx->args[0] - MARKER_ANNOUNCED;
    struct task_struct *task = bpf_get_current_task_btf();
    struct pt_regs *regs;

    if (marker > MARKER_PROCESS_END || !task_is_target(task))
        return 0;
    regs = (struct pt_regs *)bpf_task_pt_regs(task);
    return marker_passed(ctx->args[3], ctx->args[1], ctx->args[2], marker, PT_REGS_SP(regs));
}

/* Stands where the target never comes: while it does, the kernel holds the gate
 * of the marker library open. */
SEC("uprobe.multi")
int gate_holder(struct pt_regs *ctx)
{
    return 0;
}

SEC("uprobe.multi")
int range_hit(struct pt_regs *ctx)
{
    u64 cookie = bpf_get_attach_cookie(ctx), sp = PT_REGS_SP(ctx), now;
    struct task_struct *task = bpf_get_current_task_btf();
    struct thread_state *state;

    on_own_stack(ctx);
    if (!is_followed(task))
        return 0;
    if (RANGE_ACTION(cookie) == RANGE_START) {
        if (in_window())
            count(LOST_RANGE_START);
        return 0;
    }
    now = bpf_ktime_get_ns();
    state = thread_get(task);
    if (!state) {
        count(LOST_STAGE_THREAD);
        return 0;
    }
    call_abandon(state, sp);
    frames_heal(task, state, sp);
    stage_seed(state);
    now = ledger_enter(state, now);
    range_hit_thread(state, cookie, range_argument(ctx, cookie), now);
    stage_begun(state, now);
    ledger_leave(state);
    return 0;
}

SEC("uprobe.multi")
int function_entry(struct pt_regs *ctx)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct thread_state *state;

    on_own_stack(ctx);
    if (!is_followed(task))
        return 0;
    state = thread_get(task);
    if (!state) {
        count(LOST_STAGE_THREAD);
        return 0;
    }
    call_abandon(state, PT_REGS_SP(ctx));
    function_enter(ctx, task, state, bpf_get_attach_cookie(ctx));
    return 0;
}

/* Not a return probe: an exception could not be unwound past one. */
SEC("uprobe.multi")
int function_exit(struct pt_regs *ctx)
{
    u64 now = bpf_ktime_get_ns();
    struct task_struct *task = bpf_get_current_task_btf();
    struct thread_state *state;

    on_own_stack(ctx);
    if (metered && task_is_target(task))
        count(COUNT_EXITS);
    if (!is_followed(task))
        return 0;
    state = thread_find(task);
    if (!state)
        return 0;
    call_abandon(state, PT_REGS_SP(ctx));
    function_leave(ctx, state, bpf_get_attach_cookie(ctx), now);
    return 0;
}

/* Where a C++ exception is caught: it has left every function further down the
 * stack. What is called next may lie so deep that it would not show. */
SEC("uprobe.multi")
int catch_hit(struct pt_regs *ctx)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct thread_state *state;

    on_own_stack(ctx);
    if (!is_followed(task))
        return 0;
    state = thread_find(task);
    if (state)
        frames_heal(task, state, PT_REGS_SP(ctx));
    return 0;
}

SEC("uprobe.multi")
int allocation_hit(struct pt_regs *ctx)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct thread_state *state;

    on_own_stack(ctx);
    if (!is_followed(task))
        return 0;
    state = thread_get(task);
    if (!state) {
        count(LOST_ALLOCATION_ROW);
        return 0;
    }
    frames_heal(task, state, PT_REGS_SP(ctx));
    allocation(ctx, state, bpf_get_attach_cookie(ctx));
    return 0;
}

SEC("uprobe.multi")
int autograd_hit(struct pt_regs *ctx)
{
    u64 cookie = bpf_get_attach_cookie(ctx), graph_task;
    struct task_struct *task = bpf_get_current_task_btf();
    struct thread_state *state;

    on_own_stack(ctx);
    if (!is_followed(task))
        return 0;
    state = thread_get(task);
    /* A shared pointer's first word is the pointer. */
    if (!state || read_user_u64(&graph_task, argument(ctx, cookie >> 32)))
        return 0;
    if ((u32)cookie == AUTOGRAD_EXECUTE)
        autograd_execute(state, graph_task);
    else
        autograd_evaluate(state, graph_task);
    return 0;
}

SEC("uprobe.multi")
int loader_hit(struct pt_regs *ctx)
{
    if (is_target())
        __sync_fetch_and_add(&loader_events, 1);
    return 0;
}

static __always_inline void look_for_filter(struct task_struct *task)
{
    if (!announcing || !bpf_core_field_exists(task->seccomp.mode) || !task->seccomp.mode)
        return;
    if (task_is_target(task) || bpf_task_storage_get(&copies, task, 0, 0))
        sandboxed = 1;
}

/* One that can't be followed could set up a filter unseen: as if it had. */
static __always_inline void follow_copy(struct task_struct *task)
{
    struct task_struct *parent = bpf_get_current_task_btf();

    if (!announcing || (!is_target() && !bpf_task_storage_get(&copies, parent, 0, 0)))
        return;
    if (!bpf_task_storage_get(&copies, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE))
        sandboxed = 1;
}

static __always_inline u64 meter_begin(void)
{
    return metered ? bpf_ktime_get_ns() : 0;
}

static __always_inline void meter_end(u64 begin)
{
    if (metered)
        count_more(COUNT_SWITCH_TIME, bpf_ktime_get_ns() - begin);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
    bool from_target = task_is_target(prev), to_target = task_is_target(next);
    struct thread_state *state;
    u64 now;

    look_for_filter(prev);
    if (!from_target && !to_target)
        return 0;
    now = bpf_ktime_get_ns(); /* of both threads */
    if (from_target) {
        state = thread_find(prev);
        if (state)
            switched_out(state, prev, preempt, now);
    }
    if (to_target) {
        state = thread_find(next);
        if (state)
            switched_in(state, now);
    }
    meter_end(now);
    return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *task)
{
    u64 begin = meter_begin();
    struct thread_state *state;

    if (!task_is_target(task))
        return 0;
    state = thread_find(task);
    if (state)
        woken_up(state);
    meter_end(begin);
    return 0;
}

/* A new thread's time begins here. Not at its first wake-up: that is under the
 * scheduler's lock, where memory must not be asked for. A new process is none of
 * ours, but the agent has to know that there is one. */
SEC("tp_btf/task_newtask")
int BPF_PROG(on_new, struct task_struct *task)
{
    if (!tracking || window_over())
        return 0;
    if (!task_is_target(task)) {
        follow_copy(task);
        if (is_target())
            __sync_fetch_and_add(&forks, 1);
        return 0;
    }
    if (!thread_make(task, true))
        count(LOST_THREAD_STATE);
    return 0;
}

SEC("tp_btf/task_rename")
int BPF_PROG(on_rename, struct task_struct *task, const char *comm)
{
    struct thread_state *state;

    /* exec renames too: that is the next program's name, and maybe another tid. */
    if (!task_is_target(task) || BPF_CORE_READ_BITFIELD(task, in_execve))
        return 0;
    state = thread_find(task);
    if (state && state->serial)
        thread_name(state, task, comm);
    return 0;
}

/* Whether the thread has been in the stages that the agent has found it in all
 * along: the agent knows in which. */
static __always_inline bool is_unseeded(struct thread_state *state)
{
    u32 tid = state->tid;

    return !state->seeded && bpf_map_lookup_elem(&slots, &tid);
}

static __always_inline void thread_ends(struct thread_state *state)
{
    u32 end = is_unseeded(state) ? THREAD_ENDED_UNSEEDED : THREAD_ENDED, tid = state->tid;
    u64 now;

    /* dump_threads may look at it at the same time: one of them accounts for it. */
    if (__sync_lock_test_and_set(&state->ended, end) != THREAD_RUNS)
        return;
    bpf_map_delete_elem(&slots, &tid); /* the next thread of this id is another one */
    now = ledger_enter(state, bpf_ktime_get_ns());
    if (state->sp)
        call_cut(state, now);
    frames_cut_all(state, now);
    stage_cut_all(state, now);
    outside_flush(state);
    debt_thread_ends(state);
    thread_retire(state);
    /* Its record stays in change: what the thread still does in the kernel is not its own. */
}

/* The end of a thread; false if nobody has seen it begin. */
static __always_inline bool task_ends(struct task_struct *task)
{
    struct thread_state *state = thread_find(task);

    if (state)
        thread_ends(state);
    return state;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
    if (task_is_target(task) && !task_ends(task) && in_window())
        count(LOST_THREAD_BEGIN);
    return 0;
}

/* Once more, where the kernel can have skipped the programs above (agent/skipped.go):
 * each copy is skipped only while another thread is preempted in that one. */
#define ONCE_MORE(copy)                                                                            \
    SEC("tp_btf/task_newtask")                                                                     \
    int BPF_PROG(on_new_again##copy, struct task_struct *task)                                     \
    {                                                                                              \
        if (tracking && !window_over() && task_is_target(task))                                    \
            thread_make(task, true);                                                               \
        return 0;                                                                                  \
    }                                                                                              \
                                                                                                   \
    SEC("tp_btf/sched_process_exit")                                                               \
    int BPF_PROG(on_exit_again##copy, struct task_struct *task)                                    \
    {                                                                                              \
        if (task_is_target(task))                                                                  \
            task_ends(task);                                                                       \
        return 0;                                                                                  \
    }

ONCE_MORE(1)
ONCE_MORE(2)
ONCE_MORE(3)
ONCE_MORE(4)

/* The process goes on, its program does not: the window closes here, before
 * the new program's first instruction. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task)
{
    if (announcing)
        bpf_task_storage_delete(&copies, task); /* the next program has no gate of ours */
    if (!task_is_target(task))
        return 0;
    task_ends(task);
    if (!window_over())
        window_end = bpf_ktime_get_ns();
    target_ended = TARGET_EXECED;
    return 0;
}

/* A thread that is ending may have passed on_exit already, when it had no state: then
 * nobody else says that it has ended. */
static __always_inline void thread_is_ending(struct thread_state *state)
{
    if (__sync_lock_test_and_set(&state->ended, THREAD_ENDED) == THREAD_RUNS)
        thread_retire(state);
}

/* Makes the state of every thread that exists, so that time off the CPU is
 * known from the window's first moment. */
SEC("iter/task")
int init_threads(struct bpf_iter__task *ctx)
{
    struct task_struct *task = ctx->task;
    struct thread_state *state;

    if (!task || !task_is_target(task))
        return 0;
    state = thread_get(task);
    if (!state) {
        count(LOST_THREAD_STATE);
        return 0;
    }
    if (!state->off_since && !is_on_cpu(task)) {
        state->off_part = off_cpu_part(task, false);
        state->run_delay = run_delay(task);
        state->off_since = bpf_ktime_get_ns();
    }
    if (task->flags & PF_EXITING)
        thread_is_ending(state);
    return 0;
}

/* Copies what of a record tells where the thread's time goes, as it was between
 * two changes, and then the kinds of calls, which are not as exact. */
static __always_inline bool thread_copy(struct thread_state *copy, struct thread_state *state)
{
    for (u32 i = 0; i < PEEK_TRIES; i++) {
        /* In this order: a depth from before would leave open stages of the
         * thread that was copied last in the copy. */
        u32 changes = *(volatile u32 *)&state->changes, depth = *(volatile u32 *)&state->depth;

        if (changes & 1)
            continue;
        if (depth > MAX_DEPTH)
            depth = MAX_DEPTH;
        bpf_probe_read_kernel(
            copy, offsetof(struct thread_state, open) + depth * sizeof(struct open_stage), state);
        barrier();
        if (*(volatile u32 *)&state->changes != changes)
            continue;
        bpf_probe_read_kernel(copy->calls, sizeof(copy->calls), state->calls);
        return true;
    }
    return false;
}

/* Hands out each thread's state while the window is open. If the thread has been
 * changing it all the time, the copy says that it is no good. */
SEC("iter/task")
int peek_threads(struct bpf_iter__task *ctx)
{
    struct task_struct *task = ctx->task;
    struct thread_state *state, *copy;
    u32 key = 0;

    if (!task || !task_is_target(task))
        return 0;
    state = thread_find(task);
    copy = bpf_map_lookup_elem(&thread_copies, &key);
    if (!state || !copy || !state->serial || state->over)
        return 0;
    if (!thread_copy(copy, state)) {
        copy->serial = state->serial;
        copy->changes = 1;
    }
    bpf_seq_write(ctx->meta->seq, copy, sizeof(*copy));
    return 0;
}

static __always_inline void off_at_end(struct thread_state *state)
{
    charge_until_off(state);
    off_until(state, window_end, false);
}

/* At the window's end: hands out each thread's state and closes what is still
 * open. A state that finds no room is asked for again: until it is handed out,
 * nothing is changed that must be changed only once. */
SEC("iter/task")
int dump_threads(struct bpf_iter__task *ctx)
{
    struct task_struct *task = ctx->task;
    struct thread_state *state;

    if (!task) { /* after the last one: what belongs to the whole process */
        state = process_state();
        if (state)
            stage_cut_all(state, window_end);
        return 0;
    }
    if (!task_is_target(task))
        return 0;
    state = thread_find(task);
    if (!state || !state->serial || state->ended)
        return 0;
    if (!state->off_since)
        ledger_enter(state, window_end);
    else if (state->mark < window_end) /* the first time */
        off_at_end(state);
    if (bpf_seq_write(ctx->meta->seq, state, sizeof(*state)))
        return 0;
    if (__sync_lock_test_and_set(&state->ended, THREAD_ENDED) != THREAD_RUNS)
        return 0;
    if (state->sp)
        count(LOST_IN_FLIGHT);
    if (timeline && state->off_since)
        timeline_off(state, window_end);
    if (is_unseeded(state))
        return 0;
    frames_cut_all(state, window_end);
    stage_cut_all(state, window_end);
    outside_flush(state);
    return 0;
}
