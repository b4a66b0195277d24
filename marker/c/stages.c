// SPDX-License-Identifier: Apache-2.0
//
// Beginning and ending stages: change the stack, then pass the probe point.
#define _GNU_SOURCE
#include "internal.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// A signal handler runs entirely between two instructions of its thread, so
// only the compiler has to keep the order for it.
static void signal_fence(void) {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static void remember(struct stageprof_thread *t, uint32_t at, struct stageprof_open stage) {
    if (at >= STAGEPROF_DEPTH)
        return;
    STORE(&t->open[at].name, stage.name);
    STORE(&t->open[at].begin_ns, stage.begin_ns);
}

// Returns the new depth.
static uint32_t push(struct stageprof_thread *t, const struct stageprof_name *name) {
    if (__builtin_expect(name == &stageprof_too_many_names, 0))
        ADD(&stageprof_registry.names_overflow, 1);
    struct stageprof_open stage = {.name = name, .begin_ns = now_ns()};
    uint32_t depth = LOAD(&t->depth);
    // Written before depth counts it, so that a reader never sees an entry
    // that is not there yet; and again after, because a handler that ran in
    // between used the same entry for a stage of its own. Once it is counted,
    // handlers leave it alone.
    remember(t, depth, stage);
    STORE_RELEASE(&t->depth, depth + 1);
    signal_fence();
    remember(t, depth, stage);
    signal_fence();
    return depth + 1;
}

// Needs an open stage. Returns the name of the stage it ended, *depth the new
// depth. The name is read first: handlers may use the entry as soon as it is
// no longer counted.
static const struct stageprof_name *pop(struct stageprof_thread *t, uint32_t *depth) {
    uint32_t top = LOAD(&t->depth) - 1;
    const struct stageprof_name *name =
        top < STAGEPROF_DEPTH ? LOAD(&t->open[top].name) : &stageprof_too_deep;
    signal_fence();
    STORE_RELEASE(&t->depth, top);
    signal_fence();
    *depth = top;
    return name;
}

// NULL if none is open.
static const struct stageprof_name *innermost(const struct stageprof_thread *t, uint32_t depth) {
    if (depth == 0)
        return NULL;
    return depth <= STAGEPROF_DEPTH ? LOAD(&t->open[depth - 1].name) : &stageprof_too_deep;
}

static void publish(const struct stageprof_name *name) {
    stageprof_publish_stage(name != NULL ? stageprof_record_of(name) : NULL);
}

static const struct stageprof_name *intern_text(const char *text) {
    return stageprof_intern(text, text != NULL ? strlen(text) : 0);
}

void stageprof_begin_name(const struct stageprof_name *name) {
    struct stageprof_thread *t = stageprof_thread_slot();
    if (t == NULL)
        return;
    uint32_t depth = push(t, name);
    publish(name);
    stageprof_mark_begin(t, name, depth);
}

void stageprof_begin(const char *name) {
    stageprof_begin_name(intern_text(name));
}

void stageprof_end_to(uint32_t depth) {
    struct stageprof_thread *t = stageprof_current;
    if (t == NULL)
        return;
    while (LOAD(&t->depth) > depth) {
        uint32_t now;
        const struct stageprof_name *name = pop(t, &now);
        publish(innermost(t, now));
        stageprof_mark_end(t, name, now);
    }
}

uint32_t stageprof_depth(void) {
    return stageprof_current != NULL ? LOAD(&stageprof_current->depth) : 0;
}

void stageprof_end(void) {
    uint32_t depth = stageprof_depth();
    if (depth > 0)
        stageprof_end_to(depth - 1);
}

// Held while the probe point is passed too, so that observers see the markers
// in the order of the changes.
static pthread_mutex_t process_lock = PTHREAD_MUTEX_INITIALIZER;

void stageprof_process_after_fork(void) {
    // Another thread may have held it; its change is whole or has not happened,
    // for depth is written last.
    process_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

void stageprof_process_begin_name(const struct stageprof_name *name) {
    struct stageprof_thread *process = &stageprof_registry.process;
    pthread_mutex_lock(&process_lock);
    uint32_t depth = push(process, name);
    stageprof_mark_process_begin(process, name, depth);
    pthread_mutex_unlock(&process_lock);
}

void stageprof_process_begin(const char *name) {
    stageprof_process_begin_name(intern_text(name));
}

void stageprof_process_end(void) {
    struct stageprof_thread *process = &stageprof_registry.process;
    pthread_mutex_lock(&process_lock);
    if (LOAD(&process->depth) > 0) {
        uint32_t depth;
        const struct stageprof_name *name = pop(process, &depth);
        stageprof_mark_process_end(process, name, depth);
    }
    pthread_mutex_unlock(&process_lock);
}
