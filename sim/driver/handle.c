// SPDX-License-Identifier: Apache-2.0
#include "handle.h"

#include <string.h>
#include <sys/mman.h>

#include "lock.h"

// So many places must be free before one is used again: a stale handle stays invalid for long.
enum { QUARANTINE = 4096 };

static struct handle *place(const struct handle_table *table, uint32_t i) {
    return (struct handle *)(table->objects + i * table->size);
}

static bool map(struct handle_table *table) {
    if (table->objects)
        return true;
    void *memory = mmap(NULL, table->size * table->capacity, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    __atomic_store_n(&table->objects, memory, __ATOMIC_RELEASE);
    return true;
}

static struct handle *take_place(struct handle_table *table) {
    if (table->used < table->capacity && table->free_count <= QUARANTINE)
        return place(table, table->used++);
    if (!table->free_count)
        return NULL;
    struct handle *h = place(table, table->oldest_free);
    table->oldest_free = h->next_free;
    table->free_count--;
    return h;
}

void *handle_make(struct handle_table *table) {
    sim_lock();
    struct handle *h = map(table) ? take_place(table) : NULL;
    if (h) {
        memset(h, 0, table->fresh);
        __atomic_store_n(&h->live, true, __ATOMIC_RELEASE);
    }
    sim_unlock();
    return h;
}

static void give_place(struct handle_table *table, struct handle *h) {
    uint32_t i = (uint32_t)(((char *)h - table->objects) / table->size);
    if (table->free_count++)
        place(table, table->newest_free)->next_free = i;
    else
        table->oldest_free = i;
    table->newest_free = i;
}

bool handle_free(struct handle_table *table, void *object) {
    struct handle *h = object;
    sim_lock();
    bool live = handle_live(table, h);
    if (live) {
        __atomic_store_n(&h->live, false, __ATOMIC_RELEASE);
        give_place(table, h);
    }
    sim_unlock();
    return live;
}

void *handle_next(const struct handle_table *table, const void *object) {
    struct handle *found = NULL;
    sim_lock();
    uint32_t i = object ? (uint32_t)(((const char *)object - table->objects) / table->size) + 1 : 0;
    for (; i < table->used && !found; i++)
        if (place(table, i)->live)
            found = place(table, i);
    sim_unlock();
    return found;
}
