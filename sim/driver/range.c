// SPDX-License-Identifier: Apache-2.0
// The table of ranges: sorted by start, never overlapping.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "memory.h"

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct range *ranges;
static size_t used, capacity;

// Index of the first range that starts after an address.
static size_t after(CUdeviceptr address) {
    size_t low = 0, high = used;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// The range that holds an address, or NULL.
static struct range *holder(CUdeviceptr address) {
    size_t i = after(address);
    if (!i || address - ranges[i - 1].start >= ranges[i - 1].size)
        return NULL;
    return &ranges[i - 1];
}

static bool overlaps(CUdeviceptr start, size_t size) {
    size_t i = after(start);
    return holder(start) || (i < used && ranges[i].start - start < size);
}

static void reserve(void) {
    if (used < capacity)
        return;
    capacity = capacity ? 2 * capacity : 256;
    ranges = realloc(ranges, capacity * sizeof(*ranges));
    if (!ranges)
        abort();
}

bool range_add(const struct range *range) {
    pthread_rwlock_wrlock(&lock);
    bool free = !overlaps(range->start, range->size);
    if (free) {
        reserve();
        size_t i = after(range->start);
        memmove(&ranges[i + 1], &ranges[i], (used - i) * sizeof(*ranges));
        ranges[i] = *range;
        ranges[i].id = next_id();
        used++;
    }
    pthread_rwlock_unlock(&lock);
    return free;
}

static void take(struct range *r, struct range *out) {
    *out = *r;
    used--;
    memmove(r, r + 1, (size_t)(&ranges[used] - r) * sizeof(*ranges));
}

bool range_take(CUdeviceptr start, unsigned kinds, struct range *out) {
    pthread_rwlock_wrlock(&lock);
    struct range *r = holder(start);
    bool found = r && r->start == start && kinds & 1u << r->kind;
    if (found)
        take(r, out);
    pthread_rwlock_unlock(&lock);
    return found;
}

bool range_take_of(const struct context *context, struct range *out) {
    pthread_rwlock_wrlock(&lock);
    bool found = false;
    for (size_t i = 0; i < used && !found; i++)
        if (ranges[i].context == context && ranges[i].kind != RANGE_MAPPED) {
            take(&ranges[i], out);
            found = true;
        }
    pthread_rwlock_unlock(&lock);
    return found;
}

bool range_find(CUdeviceptr address, struct range *out) {
    pthread_rwlock_rdlock(&lock);
    const struct range *r = holder(address);
    if (r)
        *out = *r;
    pthread_rwlock_unlock(&lock);
    return r;
}

bool range_overlaps(CUdeviceptr address, size_t size) {
    pthread_rwlock_rdlock(&lock);
    bool any = overlaps(address, size);
    pthread_rwlock_unlock(&lock);
    return any;
}

bool range_covers(CUdeviceptr address, size_t size) {
    pthread_rwlock_rdlock(&lock);
    const struct range *r = holder(address);
    size_t left = size;
    while (r && r->accessible) {
        size_t here = r->size - (address - r->start);
        if (here >= left) {
            left = 0;
            break;
        }
        left -= here;
        address += here;
        r = holder(address);
    }
    pthread_rwlock_unlock(&lock);
    return left == 0;
}

void range_allow(CUdeviceptr address, size_t size) {
    pthread_rwlock_wrlock(&lock);
    for (struct range *r; size && (r = holder(address));) {
        size_t here = r->size - (address - r->start);
        r->accessible = true;
        address += here;
        size -= here < size ? here : size;
    }
    pthread_rwlock_unlock(&lock);
}
