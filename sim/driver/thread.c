// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "thread.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "threads.h"

static struct thread *threads;
static unsigned seen;
static __thread struct thread *self;

struct thread *threads_all(void) {
    return __atomic_load_n(&threads, __ATOMIC_ACQUIRE);
}

void thread_name(struct thread *t) {
    prctl(PR_GET_NAME, t->name);
}

static struct thread *make_self(void) {
    struct thread *t = calloc(1, sizeof(*t));
    if (!t)
        abort();
    t->tid = gettid();
    t->number = __atomic_add_fetch(&seen, 1, __ATOMIC_RELAXED);
    thread_name(t);
    t->next = threads_all();
    while (
        !__atomic_compare_exchange_n(&threads, &t->next, t, 1, __ATOMIC_RELEASE, __ATOMIC_ACQUIRE))
        ;
    self = t;
    return t;
}

struct thread *thread_self(void) {
    struct thread *t = self;
    return __builtin_expect(t != NULL, 1) ? t : make_self();
}

// A forked child has one thread and starts from zero; the parent's rows stay in the parent's file.
static void forget_parent(void) {
    threads = NULL;
    seen = 0;
    struct thread *t = self;
    if (!t)
        return;
    t->next = NULL;
    t->tid = gettid();
    t->number = seen = 1;
    t->rows = NULL;
    t->depth = 0;
    t->context_depth = 0;
    threads = t;
}

__attribute__((constructor(102))) static void follow_fork(void) {
    pthread_atfork(NULL, NULL, forget_parent);
}
