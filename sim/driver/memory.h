// SPDX-License-Identifier: Apache-2.0
// Memory. Device memory is host memory: copies are exact, kernels compute nothing. A table of
// ranges knows every address that the driver gave out or was told of.
#ifndef SIMCUDA_MEMORY_H
#define SIMCUDA_MEMORY_H

#include <stdbool.h>

#include "api.h"

enum range_kind {
    RANGE_DEVICE,
    RANGE_MANAGED,
    RANGE_PINNED,     // host memory of the driver's
    RANGE_REGISTERED, // host memory of the program's
    RANGE_MAPPED,     // a virtual range with physical memory behind it (vmm.c)
};

struct range {
    CUdeviceptr start;
    size_t size;
    enum range_kind kind;
    bool accessible; // mapped memory is not, before cuMemSetAccess
    CUdevice device;
    unsigned flags; // as asked of cuMemHostAlloc or cuMemHostRegister
    struct context *context;
    struct pool *pool;
    struct physical *physical;
    uint64_t id;
};

// False if the range overlaps one in the table.
bool range_add(const struct range *range);
// The range that holds an address.
bool range_find(CUdeviceptr address, struct range *range);
// Takes out the range that starts at an address and is of one of the kinds (bit set of 1 << kind).
bool range_take(CUdeviceptr start, unsigned kinds, struct range *range);
// Takes out one range of a context; false if there is none left.
bool range_take_of(const struct context *context, struct range *range);
// True if accessible ranges cover [address, address + size) without a gap.
bool range_covers(CUdeviceptr address, size_t size);
// True if any range overlaps it.
bool range_overlaps(CUdeviceptr address, size_t size);
// Makes the ranges in [address, address + size) accessible.
void range_allow(CUdeviceptr address, size_t size);

enum { KINDS_DEVICE = 1 << RANGE_DEVICE | 1 << RANGE_MANAGED, KINDS_HOST = 1 << RANGE_PINNED };

// Charges a device with bytes; false where it has not that many left.
bool memory_charge(CUdevice device, size_t size);
void memory_discharge(CUdevice device, size_t size);
uint64_t memory_used(CUdevice device);

// Memory of a kind for the context: 1 for no bytes, 2 out of memory. Counted as the call's bytes.
CUresult memory_make(enum range_kind kind, struct context *context, struct pool *pool, size_t size,
                     unsigned flags, CUdeviceptr *address);
// Frees memory of one of the kinds: 1 if no such range starts there.
CUresult memory_free(CUdeviceptr address, unsigned kinds);
// Frees all that belongs to a context.
void memory_end(struct context *context);

#endif
