// SPDX-License-Identifier: Apache-2.0
// One lock for everything that is not on a hot path: tables of handles, memory, modules, tags.
// fork() takes it, so that a child never inherits a half-made change.
#ifndef SIMCUDA_LOCK_H
#define SIMCUDA_LOCK_H

void sim_lock(void);
void sim_unlock(void);

#endif
