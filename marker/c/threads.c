// SPDX-License-Identifier: Apache-2.0
//
// The registry: one slot per thread with markers. A slot is taken at a thread's
// first marker and given back when the thread exits. Forking keeps the slot of
// the one thread that lives on in the child.
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

_Static_assert(sizeof(struct stageprof_open) == 16, "part of the ABI");
_Static_assert(sizeof(struct stageprof_thread) == 8 + 16 * STAGEPROF_DEPTH, "part of the ABI");
_Static_assert(offsetof(struct stageprof_registry, threads) == 40, "part of the ABI");
_Static_assert(offsetof(struct stageprof_registry, process) == 48, "part of the ABI");

static struct stageprof_thread slots[STAGEPROF_THREADS];
static uint32_t slots_taken;

STAGEPROF_API struct stageprof_registry stageprof_registry = {
    .magic = {'S', 'T', 'A', 'G', 'E', 'P', 'R', 'F'},
    .abi = STAGEPROF_ABI,
    .thread_size = sizeof(struct stageprof_thread),
    .thread_count = STAGEPROF_THREADS,
    .threads = slots,
};

STAGEPROF_TLS struct stageprof_thread *stageprof_current;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_once_t first_marker = PTHREAD_ONCE_INIT;
static pthread_key_t exit_key;
static bool exit_key_made;

static uint32_t own_tid(void) {
    return (uint32_t)syscall(SYS_gettid);
}

static void give_back(struct stageprof_thread *t) {
    STORE(&t->depth, 0);
    STORE_RELEASE(&t->tid, 0);
    __atomic_fetch_sub(&slots_taken, 1, __ATOMIC_RELAXED);
}

// Runs when a thread exits, with its slot as the argument.
static void on_thread_exit(void *slot) {
    stageprof_end_to(0);
    stageprof_current = NULL;
    give_back(slot);
}

// Runs in the child, on its only thread. The other slots belong to threads
// that were not copied.
static void on_fork_child(void) {
    struct stageprof_thread *self = stageprof_current;
    uint32_t used = LOAD(&stageprof_registry.threads_used);
    for (uint32_t i = 0; i < used; i++)
        if (&slots[i] != self && LOAD(&slots[i].tid) != 0)
            give_back(&slots[i]);
    if (self != NULL)
        STORE(&self->tid, own_tid());
    STORE(&stageprof_registry.threads_used, self != NULL ? (uint32_t)(self - slots) + 1 : 0);
    STORE(&slots_taken, self != NULL ? 1 : 0);
    stageprof_process_after_fork();
    stageprof_publish_after_fork();
}

static void initialise(void) {
    exit_key_made = pthread_key_create(&exit_key, on_thread_exit) == 0;
    pthread_atfork(NULL, NULL, on_fork_child);
}

// At load time already, so that a fork before the first marker is seen too.
__attribute__((constructor)) static void on_load(void) {
    pthread_once(&once, initialise);
}

static void raise_used(uint32_t count) {
    uint32_t used = LOAD(&stageprof_registry.threads_used);
    while (used < count &&
           !__atomic_compare_exchange_n(&stageprof_registry.threads_used, &used, count, false,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
}

// The slot that already carries this tid: a thread that died without running
// its exit hooks left it, and the kernel has given its tid to this thread.
static struct stageprof_thread *inherited(uint32_t tid) {
    uint32_t used = LOAD(&stageprof_registry.threads_used);
    for (uint32_t i = 0; i < used; i++)
        if (LOAD(&slots[i].tid) == tid) {
            STORE(&slots[i].depth, 0);
            return &slots[i];
        }
    return NULL;
}

// The lowest free slot, so that readers have few to look at.
static struct stageprof_thread *take_free(uint32_t tid) {
    for (uint32_t i = 0; i < STAGEPROF_THREADS; i++) {
        uint32_t expected = 0;
        if (LOAD(&slots[i].tid) == 0 &&
            __atomic_compare_exchange_n(&slots[i].tid, &expected, tid, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED)) {
            ADD(&slots_taken, 1);
            raise_used(i + 1);
            return &slots[i];
        }
    }
    return NULL;
}

// Gives back the slots of threads that no longer exist. It asks the kernel
// about each one.
static void sweep(void) {
    pid_t pid = getpid();
    for (uint32_t i = 0; i < STAGEPROF_THREADS; i++) {
        uint32_t tid = LOAD(&slots[i].tid);
        if (tid != 0 && syscall(SYS_tgkill, pid, tid, 0) != 0 && errno == ESRCH &&
            __atomic_compare_exchange_n(&slots[i].tid, &tid, 0, false, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED))
            __atomic_fetch_sub(&slots_taken, 1, __ATOMIC_RELAXED);
    }
}

// Whether a free slot may exist. Full is answered without searching, for then
// every marker of the threads left out comes here.
static bool may_have_free(void) {
    enum { SWEEP_EVERY = 1024 };
    if (LOAD(&slots_taken) < STAGEPROF_THREADS)
        return true;
    if (LOAD(&stageprof_registry.threads_overflow) % SWEEP_EVERY != 0)
        return false;
    int saved = errno;
    sweep();
    errno = saved;
    return LOAD(&slots_taken) < STAGEPROF_THREADS;
}

static struct stageprof_thread *take(void) {
    uint32_t tid = own_tid();
    struct stageprof_thread *t = inherited(tid);
    if (t == NULL)
        t = take_free(tid);
    // Others can have taken the last one meanwhile; then those of the dead are left.
    if (t == NULL && may_have_free())
        t = take_free(tid);
    if (t != NULL && exit_key_made)
        pthread_setspecific(exit_key, t);
    return t;
}

// Signals wait meanwhile: a handler with markers would take a second slot.
static struct stageprof_thread *register_thread(void) {
    pthread_once(&once, initialise);
    pthread_once(&first_marker, stageprof_publish_first);
    if (!may_have_free())
        return NULL;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (stageprof_current == NULL)
        stageprof_current = take();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return stageprof_current;
}

struct stageprof_thread *stageprof_thread_slot(void) {
    struct stageprof_thread *t = stageprof_current;
    if (__builtin_expect(t != NULL, 1))
        return t;
    t = register_thread();
    if (t == NULL)
        ADD(&stageprof_registry.threads_overflow, 1);
    return t;
}

const struct stageprof_thread *stageprof_self(void) {
    return stageprof_current;
}
