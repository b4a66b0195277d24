// SPDX-License-Identifier: Apache-2.0
// Truth: what every export was asked, counted by the driver itself (README.md, "Truth").
#ifndef SIMCUDA_TRUTH_H
#define SIMCUDA_TRUTH_H

#include <stdint.h>

#include "thread.h"

// A behaviour says how many bytes the running call was asked for. Counted if the call succeeds.
void truth_bytes(uint64_t bytes);

// True if the running call came through a per-thread twin (_ptsz, _ptds).
bool truth_per_thread(void);

#endif
