// SPDX-License-Identifier: Apache-2.0
//
// Stands in for the probe points: keeps the markers that the calling thread
// passed, together with the slot as an observer would have found it.
#ifndef RECORDER_H
#define RECORDER_H

#include "stageprof.h"

struct mark {
    char kind; // 'b' or 'e', 'B' or 'E' for the process
    const struct stageprof_name *name;
    uint32_t depth;
    uint32_t slot_depth;
    const struct stageprof_name *slot_top; // innermost remembered stage
};

enum { MAX_MARKS = 256 };
extern __thread struct mark marks[MAX_MARKS];
extern __thread unsigned marks_seen; // may exceed MAX_MARKS

#endif // RECORDER_H
