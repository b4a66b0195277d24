/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The few kernel types and constants that the programs use, instead of a
 * generated header of several megabytes. Field offsets are relocated at load
 * time against the running kernel's BTF (preserve_access_index), so only names
 * and types matter here.
 */
#ifndef STAGEPROF_KERNEL_H
#define STAGEPROF_KERNEL_H

/* Tells libbpf's bpf_tracing.h that struct pt_regs has the kernel's field names. */
#define __VMLINUX_H__

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s16 s16;
typedef __s32 s32;
typedef __s64 s64;
typedef _Bool bool;

#define true 1
#define false 0
#define NULL ((void *)0)

/* include/uapi/linux/bpf.h */
enum {
    BPF_MAP_TYPE_HASH = 1,
    BPF_MAP_TYPE_ARRAY = 2,
    BPF_MAP_TYPE_PROG_ARRAY = 3,
    BPF_MAP_TYPE_PERCPU_HASH = 5,
    BPF_MAP_TYPE_PERCPU_ARRAY = 6,
    BPF_MAP_TYPE_LRU_HASH = 9,
    BPF_MAP_TYPE_QUEUE = 22,
    BPF_MAP_TYPE_RINGBUF = 27,
    BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum {
    BPF_ANY = 0,
    BPF_NOEXIST = 1,
};
enum {
    BPF_F_NO_PREALLOC = 1,
    BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
    BPF_RB_NO_WAKEUP = 1,
};

/* Of a raw tracepoint, its arguments. */
struct bpf_raw_tracepoint_args {
    __u64 args[0];
};

/* include/uapi/asm-generic/errno-base.h */
#define EEXIST 17

#define TASK_COMM_LEN 16

/* include/linux/sched.h */
#define PF_EXITING 4

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
    unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip;
    unsigned long cs, flags, sp, ss;
};
struct thread_struct {
    unsigned long fsbase;
};
#elif defined(__TARGET_ARCH_arm64)
struct user_pt_regs {
    __u64 regs[31];
    __u64 sp;
    __u64 pc;
    __u64 pstate;
};
struct pt_regs {
    union {
        struct user_pt_regs user_regs;
    };
    int syscallno;
};
struct thread_struct {
    struct {
        unsigned long tp_value;
    } uw;
};
#else
#error "unsupported architecture"
#endif

struct upid {
    int nr;
};

struct pid {
    unsigned int level;
    struct upid numbers[1];
};

struct xol_area {
    unsigned long vaddr;
};

struct uprobes_state {
    struct xol_area *xol_area;
};

struct mm_struct {
    struct uprobes_state uprobes_state;
};

struct seccomp {
    int mode;
};

struct sched_info {
    unsigned long long run_delay; /* how long the thread has waited for a CPU */
};

struct task_struct {
    unsigned int __state;
    unsigned int flags;
    int on_cpu;
    int pid;
    int tgid;
    char comm[TASK_COMM_LEN];
    struct pid *thread_pid;
    struct task_struct *real_parent;
    struct mm_struct *mm;
    unsigned in_execve : 1;
    struct thread_struct thread;
    struct seccomp seccomp;       /* if the kernel is built with it */
    struct sched_info sched_info; /* the same */
};

/* Its name before Linux 5.14. */
struct task_struct___old {
    long state;
};

struct seq_file;

struct bpf_iter_meta {
    struct seq_file *seq;
};

struct bpf_iter__task {
    struct bpf_iter_meta *meta;
    struct task_struct *task;
};

#pragma clang attribute pop

#endif
