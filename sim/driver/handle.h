// SPDX-License-Identifier: Apache-2.0
// Handles: pointers into tables that stay mapped, so that any value a caller passes can be judged
// without touching memory that is not ours. A freed place is reused only after many others.
#ifndef SIMCUDA_HANDLE_H
#define SIMCUDA_HANDLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// First member of every object that has a handle.
struct handle {
    uint32_t next_free;
    bool live;
};

struct handle_table {
    size_t size;  // of an object
    size_t fresh; // leading bytes that a new object finds zero; the others outlive a place's reuse
    uint32_t capacity; // objects that may live at once
    char *objects;     // mapped at the first use
    uint32_t used;     // places ever given out
    uint32_t oldest_free, newest_free, free_count;
};

#define HANDLE_TABLE(type, count)                                                                  \
    { .size = sizeof(type), .fresh = sizeof(type), .capacity = (count) }

// A live, otherwise zero object, or NULL if the table is full. Takes sim_lock.
void *handle_make(struct handle_table *table);

// True if the value is the handle of a live object.
static inline bool handle_live(const struct handle_table *table, const void *handle) {
    const char *objects = __atomic_load_n(&table->objects, __ATOMIC_ACQUIRE);
    uintptr_t offset = (uintptr_t)handle - (uintptr_t)objects;
    return objects && offset < table->size * table->capacity && offset % table->size == 0 &&
           __atomic_load_n(&((const struct handle *)handle)->live, __ATOMIC_ACQUIRE);
}

// Ends an object; false if it was not live (freed twice, by whichever thread). Takes sim_lock.
bool handle_free(struct handle_table *table, void *object);

// The live object after a place in the table (NULL: from the start), or NULL at the end. Takes
// sim_lock.
void *handle_next(const struct handle_table *table, const void *object);

#endif
