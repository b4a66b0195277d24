// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "deferred.h"

#include <pthread.h>
#include <stdlib.h>

#include "clock.h"
#include "context.h"

struct item {
    struct item *next;
    struct stream *stream;
    uint64_t due; // when the stream had overrun by `delay`
    uint64_t delay;
    struct work work;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t added, done;
static struct item *queue; // by due; equals in order of submission
static bool running;

static struct timespec timespec_of(uint64_t ns) {
    return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

static uint64_t due_now(const struct item *item) {
    return item->due + __atomic_load_n(&item->stream->delay, __ATOMIC_RELAXED) - item->delay;
}

// The first item once it is due.
static struct item *take(void) {
    for (;;) {
        if (!queue) {
            pthread_cond_wait(&added, &lock);
            continue;
        }
        uint64_t due = due_now(queue);
        if (due <= now_ns()) {
            struct item *item = queue;
            queue = item->next;
            return item;
        }
        struct timespec until = timespec_of(due);
        pthread_cond_timedwait(&added, &lock, &until);
    }
}

// What was submitted behind work that overran its time is late by as much.
static void complete(struct item *item) {
    struct stream *s = item->stream;
    pthread_mutex_lock(&s->lock);
    uint64_t now = now_ns(), due = due_now(item);
    if (now > due) {
        s->delay += now - due;
        s->end += now - due;
        raise_to(&s->context->end, s->end);
    }
    pthread_mutex_unlock(&s->lock);
    __atomic_add_fetch(&s->completed, 1, __ATOMIC_RELEASE);
    __atomic_add_fetch(&s->context->completed, 1, __ATOMIC_RELEASE);
}

static void *run(void *unused UNUSED) {
    pthread_mutex_lock(&lock);
    for (;;) {
        struct item *item = take();
        pthread_mutex_unlock(&lock);
        work_run(&item->work);
        complete(item);
        free(item);
        pthread_mutex_lock(&lock);
        pthread_cond_broadcast(&done);
    }
    return NULL;
}

static void start(void) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&added, &monotonic);
    pthread_cond_init(&done, &monotonic);
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, NULL))
        abort();
    pthread_setname_np(thread, "cuda-EvtHandlr");
    pthread_detach(thread);
    running = true;
}

void deferred_add(struct stream *stream, const struct work *work, uint64_t due) {
    struct item *item = malloc(sizeof(*item));
    if (!item)
        abort();
    *item = (struct item){.stream = stream, .due = due, .delay = stream->delay, .work = *work};
    stream->deferred++;
    __atomic_add_fetch(&stream->context->deferred, 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(&lock);
    if (!running)
        start();
    struct item **place = &queue;
    while (*place && (*place)->due <= due)
        place = &(*place)->next;
    item->next = *place;
    *place = item;
    pthread_cond_signal(&added);
    pthread_mutex_unlock(&lock);
}

void deferred_wait(const uint64_t *completed, uint64_t count) {
    if (__atomic_load_n(completed, __ATOMIC_ACQUIRE) >= count)
        return;
    pthread_mutex_lock(&lock);
    while (__atomic_load_n(completed, __ATOMIC_ACQUIRE) < count)
        pthread_cond_wait(&done, &lock);
    pthread_mutex_unlock(&lock);
}
