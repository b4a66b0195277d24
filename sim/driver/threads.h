// SPDX-License-Identifier: Apache-2.0
#ifndef SIMCUDA_THREADS_H
#define SIMCUDA_THREADS_H

#include "thread.h"

// Every thread ever seen in this process, also ended ones; follow ->next.
struct thread *threads_all(void);

// Reads the calling thread's name into its object.
void thread_name(struct thread *t);

#endif
