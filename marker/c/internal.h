// SPDX-License-Identifier: Apache-2.0
//
// What the library's files share. Nothing here is visible outside it.
#ifndef STAGEPROF_INTERNAL_H
#define STAGEPROF_INTERNAL_H

#include "stageprof.h"

#include <stdbool.h>

#pragma GCC visibility push(hidden)

// Names that stand for something the caller did not say.
extern const struct stageprof_name stageprof_too_many_names;
extern const struct stageprof_name stageprof_too_deep;

// The calling thread's slot, registering the thread if needed. NULL when all
// slots are taken; that is counted.
struct stageprof_thread *stageprof_thread_slot(void);

// A thread context of OpenTelemetry, with one attribute: the name of a stage.
struct stageprof_record {
    uint8_t trace_id[16], span_id[8]; // zero: there is no trace
    uint8_t valid, trace_flags;
    uint16_t attributes_size;
    uint8_t key, length; // the attribute's
    char text[STAGEPROF_NAME_SIZE];
};

// The record of a name from stageprof_intern, or of one of the names above; NULL
// of anything else.
const struct stageprof_record *stageprof_record_of(const struct stageprof_name *name);

// Whether stages are published; the record is that of the calling thread's
// innermost stage, NULL if it has none.
extern bool stageprof_publishing;
void stageprof_publish_stage(const struct stageprof_record *record);

// Publishes unless the environment says no; for the process's first marker.
void stageprof_publish_first(void);
void stageprof_publish_after_fork(void);

// Makes the process's stages usable in a forked child, whatever its other
// threads were doing.
void stageprof_process_after_fork(void);

// Initial-exec: reached without a call, so it never allocates, not even on a
// thread's first access in a library that was loaded with dlopen. One pointer
// fits the reserve that the loader keeps for such libraries.
#define STAGEPROF_TLS __thread __attribute__((tls_model("initial-exec"), visibility("hidden")))
extern STAGEPROF_TLS struct stageprof_thread *stageprof_current;

// Exported as data for tools. Not in stageprof.h: a program that named it
// would get a copy of its own (copy relocation).
extern STAGEPROF_API struct stageprof_registry stageprof_registry;

#pragma GCC visibility pop

// Slots are read by other processes and by signal handlers, hence no plain
// accesses; the owner is the only writer, hence no locked ones.
#define LOAD(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define LOAD_ACQUIRE(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define STORE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define STORE_RELEASE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define ADD(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)

#endif // STAGEPROF_INTERNAL_H
