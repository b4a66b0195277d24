// SPDX-License-Identifier: Apache-2.0
// Deferred work: host functions, and whatever is submitted to a stream behind one. A thread of the
// driver's own runs all of it, one at a time, in the order of its time.
#ifndef SIMCUDA_DEFERRED_H
#define SIMCUDA_DEFERRED_H

#include "stream.h"

// Hands over work that is due at a time on the stream's timeline. The stream's lock is held.
void deferred_add(struct stream *stream, const struct work *work, uint64_t due);

// Blocks until *completed has reached a count.
void deferred_wait(const uint64_t *completed, uint64_t count);

#endif
