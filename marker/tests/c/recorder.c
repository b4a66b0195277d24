// SPDX-License-Identifier: Apache-2.0
#include "recorder.h"

#include <stddef.h>

__thread struct mark marks[MAX_MARKS];
__thread unsigned marks_seen;

static void record(char kind, const struct stageprof_thread *t, const struct stageprof_name *name,
                   uint32_t depth) {
    unsigned at = marks_seen++;
    if (at >= MAX_MARKS)
        return;
    uint32_t n = t->depth < STAGEPROF_DEPTH ? t->depth : STAGEPROF_DEPTH;
    marks[at] = (struct mark){
        .kind = kind,
        .name = name,
        .depth = depth,
        .slot_depth = t->depth,
        .slot_top = n > 0 ? t->open[n - 1].name : NULL,
    };
}

void stageprof_mark_begin(struct stageprof_thread *t, const struct stageprof_name *name,
                          uint32_t depth) {
    record('b', t, name, depth);
}

void stageprof_mark_end(struct stageprof_thread *t, const struct stageprof_name *name,
                        uint32_t depth) {
    record('e', t, name, depth);
}

void stageprof_mark_process_begin(struct stageprof_thread *process,
                                  const struct stageprof_name *name, uint32_t depth) {
    record('B', process, name, depth);
}

void stageprof_mark_process_end(struct stageprof_thread *process, const struct stageprof_name *name,
                                uint32_t depth) {
    record('E', process, name, depth);
}
