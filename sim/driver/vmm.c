// SPDX-License-Identifier: Apache-2.0
// Virtual memory management: reserved address ranges, physical memory, and mappings of the one into
// the other. Physical memory is a part of one sparse file, so that it can be mapped at several
// addresses.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clock.h"
#include "config.h"
#include "context.h"
#include "lock.h"
#include "memory.h"
#include "truth.h"

enum { GRANULARITY = 2 << 20 };

struct allocation_prop {
    unsigned type, handle_types;
    struct {
        unsigned type;
        int id;
    } location;
    void *win32;
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
};
_Static_assert(sizeof(struct allocation_prop) == 32, "CUmemAllocationProp");

enum { ALLOCATION_PINNED = 1, LOCATION_DEVICE = 1 };

struct physical {
    struct handle handle;
    unsigned references; // the handle's owner and each mapping
    size_t size;
    off_t offset;
    struct allocation_prop prop;
};

struct reservation {
    struct reservation *next;
    CUdeviceptr start;
    size_t size;
};

static struct handle_table physicals = HANDLE_TABLE(struct physical, 1 << 20);
static struct reservation *reservations;
static int file = -1;
static off_t file_end;

static bool whole(size_t size) {
    return size && size % GRANULARITY == 0;
}

API(cuMemGetAllocationGranularity)
(size_t *granularity, const struct allocation_prop *prop, unsigned option) {
    CUresult result = driver_ready();
    if (result)
        return result;
    if (!granularity || !prop || option > 1)
        return CUDA_ERROR_INVALID_VALUE;
    *granularity = GRANULARITY;
    return CUDA_SUCCESS;
}

// Address ranges

static CUdeviceptr reserve(size_t size, size_t alignment) {
    size_t room = size + alignment;
    char *got = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED)
        return 0;
    char *start = (char *)(((uintptr_t)got + alignment - 1) & ~(uintptr_t)(alignment - 1));
    if (start > got)
        munmap(got, (size_t)(start - got));
    if (start + size < got + room)
        munmap(start + size, (size_t)(got + room - start - size));
    return (CUdeviceptr)start;
}

API(cuMemAddressReserve)
(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr hint UNUSED, uint64_t flags) {
    truth_bytes(size);
    CUresult result = driver_ready();
    if (result)
        return result;
    if (!address || !whole(size) || flags || alignment & (alignment - 1))
        return CUDA_ERROR_INVALID_VALUE;
    struct reservation *r = malloc(sizeof(*r));
    CUdeviceptr start = reserve(size, alignment > GRANULARITY ? alignment : GRANULARITY);
    if (!r || !start) {
        free(r);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_lock();
    *r = (struct reservation){.next = reservations, .start = start, .size = size};
    reservations = r;
    sim_unlock();
    *address = start;
    return CUDA_SUCCESS;
}

static struct reservation *take_reservation(CUdeviceptr start, size_t size) {
    sim_lock();
    struct reservation **place = &reservations, *r;
    while ((r = *place) && (r->start != start || r->size != size))
        place = &r->next;
    if (r)
        *place = r->next;
    sim_unlock();
    return r;
}

static bool reserved(CUdeviceptr start, size_t size) {
    sim_lock();
    struct reservation *r = reservations;
    while (r &&
           (start < r->start || start - r->start > r->size || size > r->size - (start - r->start)))
        r = r->next;
    sim_unlock();
    return r;
}

API(cuMemAddressFree)(CUdeviceptr address, size_t size) {
    truth_bytes(size);
    CUresult result = driver_ready();
    if (result)
        return result;
    if (range_overlaps(address, size))
        return CUDA_ERROR_INVALID_VALUE;
    struct reservation *r = take_reservation(address, size);
    if (!r)
        return CUDA_ERROR_INVALID_VALUE;
    free(r);
    munmap((void *)address, size);
    return CUDA_SUCCESS;
}

// Physical memory

static bool extend_file(size_t size, off_t *offset) {
    sim_lock();
    if (file < 0)
        file = memfd_create("simcuda", MFD_CLOEXEC);
    bool good = file >= 0 && !ftruncate(file, file_end + (off_t)size);
    *offset = file_end;
    if (good)
        file_end += (off_t)size;
    sim_unlock();
    return good;
}

API(cuMemCreate)
(CUmemHandle *handle, size_t size, const struct allocation_prop *prop, uint64_t flags) {
    truth_bytes(size);
    CUresult result = driver_ready();
    if (result)
        return result;
    if (!handle || !whole(size) || !prop || flags || prop->type != ALLOCATION_PINNED ||
        prop->location.type != LOCATION_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    result = device_ready(prop->location.id);
    if (result)
        return result;
    spend_ns(config.alloc_ns);
    if (!memory_charge(prop->location.id, size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct physical *p = handle_make(&physicals);
    if (!p || !extend_file(size, &p->offset)) {
        if (p)
            handle_free(&physicals, p);
        memory_discharge(prop->location.id, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    p->references = 1;
    p->size = size;
    p->prop = *prop;
    *handle = p;
    return CUDA_SUCCESS;
}

static CUresult physical_ready(CUmemHandle p) {
    CUresult result = driver_ready();
    if (result)
        return result;
    return handle_live(&physicals, p) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void drop(struct physical *p) {
    if (__atomic_sub_fetch(&p->references, 1, __ATOMIC_ACQ_REL))
        return;
    fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, p->offset, (off_t)p->size);
    memory_discharge(p->prop.location.id, p->size);
    handle_free(&physicals, p);
}

API(cuMemRelease)(CUmemHandle p) {
    CUresult result = physical_ready(p);
    if (result)
        return result;
    spend_ns(config.free_ns);
    drop(p);
    return CUDA_SUCCESS;
}

API(cuMemGetAllocationPropertiesFromHandle)(struct allocation_prop *prop, CUmemHandle p) {
    CUresult result = physical_ready(p);
    if (result)
        return result;
    if (!prop)
        return CUDA_ERROR_INVALID_VALUE;
    *prop = p->prop;
    return CUDA_SUCCESS;
}

API(cuMemRetainAllocationHandle)(CUmemHandle *handle, CUdeviceptr address) {
    struct range r;
    CUresult result = driver_ready();
    if (result)
        return result;
    if (!handle || !range_find(address, &r) || r.kind != RANGE_MAPPED)
        return CUDA_ERROR_INVALID_VALUE;
    __atomic_add_fetch(&r.physical->references, 1, __ATOMIC_RELAXED);
    *handle = r.physical;
    return CUDA_SUCCESS;
}

// Mappings

API(cuMemMap)(CUdeviceptr address, size_t size, size_t offset, CUmemHandle p, uint64_t flags) {
    truth_bytes(size);
    CUresult result = physical_ready(p);
    if (result)
        return result;
    if (!whole(size) || address % GRANULARITY || offset % GRANULARITY || offset > p->size ||
        size > p->size - offset || flags || !reserved(address, size))
        return CUDA_ERROR_INVALID_VALUE;
    struct range range = {.start = address,
                          .size = size,
                          .kind = RANGE_MAPPED,
                          .device = p->prop.location.id,
                          .physical = p};
    if (!range_add(&range))
        return CUDA_ERROR_INVALID_VALUE;
    __atomic_add_fetch(&p->references, 1, __ATOMIC_RELAXED);
    spend_ns(config.map_ns);
    if (mmap((void *)address, size, PROT_NONE, MAP_SHARED | MAP_FIXED, file,
             p->offset + (off_t)offset) == MAP_FAILED) {
        range_take(address, 1 << RANGE_MAPPED, &range);
        drop(p);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

// True if whole mappings cover [address, address + size) exactly.
static bool mapped_exactly(CUdeviceptr address, size_t size) {
    struct range r;
    while (size) {
        if (!range_find(address, &r) || r.kind != RANGE_MAPPED || r.start != address ||
            r.size > size)
            return false;
        address += r.size;
        size -= r.size;
    }
    return true;
}

API(cuMemUnmap)(CUdeviceptr address, size_t size) {
    struct range r;
    truth_bytes(size);
    CUresult result = driver_ready();
    if (result)
        return result;
    if (!whole(size) || !mapped_exactly(address, size))
        return CUDA_ERROR_INVALID_VALUE;
    spend_ns(config.unmap_ns);
    mmap((void *)address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
         -1, 0);
    for (CUdeviceptr at = address; at < address + size && range_take(at, 1 << RANGE_MAPPED, &r);
         at += r.size)
        drop(r.physical);
    return CUDA_SUCCESS;
}

static bool mapped(CUdeviceptr address, size_t size) {
    struct range r;
    while (size) {
        if (!range_find(address, &r) || r.kind != RANGE_MAPPED)
            return false;
        size_t here = r.size - (address - r.start);
        if (here >= size)
            return true;
        address += here;
        size -= here;
    }
    return true;
}

API(cuMemSetAccess)(CUdeviceptr address, size_t size, const void *descriptors, size_t count) {
    truth_bytes(size);
    CUresult result = driver_ready();
    if (result)
        return result;
    if (!whole(size) || !descriptors || !count || !mapped(address, size))
        return CUDA_ERROR_INVALID_VALUE;
    spend_ns(config.map_ns);
    if (mprotect((void *)address, size, PROT_READ | PROT_WRITE))
        return CUDA_ERROR_INVALID_VALUE;
    range_allow(address, size);
    return CUDA_SUCCESS;
}

API(cuMemGetAccess)(uint64_t *flags, const void *location, CUdeviceptr address) {
    struct range r;
    CUresult result = driver_ready();
    if (result)
        return result;
    if (!flags || !location || !range_find(address, &r))
        return CUDA_ERROR_INVALID_VALUE;
    *flags = r.accessible ? 3 : 0; // read and write
    return CUDA_SUCCESS;
}
