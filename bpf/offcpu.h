/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Why a thread leaves the CPU, as seen when it is switched out. */
#ifndef STAGEPROF_OFFCPU_H
#define STAGEPROF_OFFCPU_H

#include "state.h"

#define NO_SYSCALL -1 /* the thread entered the kernel by a fault or an interrupt */

#if defined(__TARGET_ARCH_x86)
#define SYSCALL_NUMBER(regs) ((long)(regs)->orig_ax)
#define SYSCALL_ARGUMENT_1(regs) ((regs)->di)
enum syscall {
    SYS_FUTEX = 202,
    SYS_POLL = 7,
    SYS_SELECT = 23,
    SYS_EPOLL_WAIT = 232,
    SYS_PSELECT6 = 270,
    SYS_PPOLL = 271,
    SYS_EPOLL_PWAIT = 281,
    SYS_EPOLL_PWAIT2 = 441,
    SYS_READ = 0,
    SYS_PREAD64 = 17,
    SYS_READV = 19,
    SYS_RECVFROM = 45,
    SYS_RECVMSG = 47,
    SYS_PREADV = 295,
    SYS_RECVMMSG = 299,
    SYS_NANOSLEEP = 35,
    SYS_CLOCK_NANOSLEEP = 230,
};
#else
#define SYSCALL_NUMBER(regs) ((long)(regs)->syscallno)
#define SYSCALL_ARGUMENT_1(regs) ((regs)->user_regs.regs[0])
enum syscall {
    SYS_FUTEX = 98,
    SYS_POLL = -2, /* arm64 has only the newer ones */
    SYS_SELECT = -3,
    SYS_EPOLL_WAIT = -4,
    SYS_PSELECT6 = 72,
    SYS_PPOLL = 73,
    SYS_EPOLL_PWAIT = 22,
    SYS_EPOLL_PWAIT2 = 441,
    SYS_READ = 63,
    SYS_PREAD64 = 67,
    SYS_READV = 65,
    SYS_RECVFROM = 207,
    SYS_RECVMSG = 212,
    SYS_PREADV = 69,
    SYS_RECVMMSG = 243,
    SYS_NANOSLEEP = 101,
    SYS_CLOCK_NANOSLEEP = 115,
};
#endif

/* How long the thread has waited for a CPU in all, by the scheduler's own account. It
 * is changed when the thread gets one. Of a time of less than 4 s, the lower half tells
 * how long it was. */
static __always_inline u32 run_delay(struct task_struct *task)
{
    return bpf_core_field_exists(task->sched_info.run_delay) ? task->sched_info.run_delay : 0;
}

static __always_inline bool is_asleep(struct task_struct *task)
{
    if (bpf_core_field_exists(task->__state))
        return task->__state != 0;
    return BPF_CORE_READ((struct task_struct___old *)task, state) != 0;
}

static __always_inline enum part futex_part(u64 address)
{
    if (address >= gil.lock_start && address < gil.lock_end)
        return PART_GIL_WAIT;
    return PART_BLOCKED_FUTEX;
}

static __always_inline enum part off_cpu_part(struct task_struct *task, bool preempted)
{
    struct pt_regs *regs;

    if (preempted || !is_asleep(task))
        return PART_RUNNABLE;
    regs = (struct pt_regs *)bpf_task_pt_regs(task);
    switch (SYSCALL_NUMBER(regs)) {
    case SYS_FUTEX:
        return futex_part(SYSCALL_ARGUMENT_1(regs));
    case SYS_POLL:
    case SYS_SELECT:
    case SYS_EPOLL_WAIT:
    case SYS_PSELECT6:
    case SYS_PPOLL:
    case SYS_EPOLL_PWAIT:
    case SYS_EPOLL_PWAIT2:
        return PART_BLOCKED_POLL;
    case SYS_READ:
    case SYS_PREAD64:
    case SYS_READV:
    case SYS_RECVFROM:
    case SYS_RECVMSG:
    case SYS_PREADV:
    case SYS_RECVMMSG:
        return PART_BLOCKED_READ;
    case SYS_NANOSLEEP:
    case SYS_CLOCK_NANOSLEEP:
        return PART_BLOCKED_SLEEP;
    case NO_SYSCALL:
        return PART_BLOCKED_FAULT;
    }
    return PART_BLOCKED_OTHER;
}

#endif
