// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "exit.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "config.h"
#include "threads.h"
#include "truthfile.h"

enum {
    SETTLE_MS = 20, // a call that counted itself needs a moment to return
    SETTLE_ROUNDS = 50,
    HOLD_MS = 500, // longer could block another library's destructor that joins the held thread
};

bool exit_flag;
static struct thread *exiting;
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

static void sleep_ms(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t))
        ;
}

void exit_hold(struct thread *t) {
    if (t == exiting || t->held)
        return;
    t->held = true;
    sleep_ms(HOLD_MS);
}

void exit_window_begun(struct thread *t) {
    __atomic_store_n(&t->returning, false, __ATOMIC_RELEASE);
    exit_hold(t);
}

static void write_truth(void) {
    pthread_mutex_lock(&writing);
    truthfile_write(config.truth);
    pthread_mutex_unlock(&writing);
}

void exit_window_ended(struct thread *t) {
    if (config.truth && (t == exiting || t->held))
        write_truth();
}

static void membarrier(int command) {
    syscall(SYS_membarrier, command, 0, 0);
}

static bool settled(void) {
    for (struct thread *t = threads_all(); t; t = t->next)
        if (t != exiting && __atomic_load_n(&t->returning, __ATOMIC_ACQUIRE))
            return false;
    return true;
}

__attribute__((destructor)) static void write_at_exit(void) {
    if (!config.truth)
        return;
    exiting = thread_self();
    __atomic_store_n(&exit_flag, true, __ATOMIC_SEQ_CST);
    membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    if (threads_all()->next) {
        for (int i = 0; i < SETTLE_ROUNDS && (i == 0 || !settled()); i++)
            sleep_ms(SETTLE_MS);
    }
    write_truth();
}

__attribute__((constructor(102))) static void allow_membarrier(void) {
    membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
}
