// SPDX-License-Identifier: Apache-2.0
#include "lock.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void sim_lock(void) {
    pthread_mutex_lock(&lock);
}

void sim_unlock(void) {
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor(102))) static void hold_over_fork(void) {
    pthread_atfork(sim_lock, sim_unlock, sim_unlock);
}
