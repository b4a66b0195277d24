// SPDX-License-Identifier: Apache-2.0
// Copies and sets, on a stream or at once. Addresses that must be the driver's are checked against
// the ranges.
#include "context.h"
#include "memory.h"
#include "streams.h"
#include "truth.h"
#include "work.h"

enum place { ANY, DEVICE }; // ANY: the program's own memory may be meant

static bool usable(enum place place, CUdeviceptr address, size_t size) {
    return address && (place == ANY || range_covers(address, size));
}

static bool pageable(CUdeviceptr address) {
    struct range r;
    return !range_find(address, &r);
}

static CUresult wait_for(struct stream *stream) {
    struct stream_point point = stream_now(stream);
    stream_wait(&point, context_sched(stream->context));
    return CUDA_SUCCESS;
}

// Puts work on the stream of a handle; waits for it where the caller asked for that.
static CUresult submit(const struct work *work, CUstream handle, bool wait) {
    struct stream *stream;
    CUresult result = stream_of(handle, &stream);
    if (!result)
        result = stream_submit(stream, work);
    if (!result && wait && !stream->capture)
        wait_for(stream);
    return result;
}

static CUresult copy(enum place to_place, CUdeviceptr to, enum place from_place, CUdeviceptr from,
                     size_t size, CUstream handle, bool wait) {
    struct context *c;
    truth_bytes(size);
    CUresult result = current_context(&c);
    if (result || !size)
        return result;
    if (!usable(to_place, to, size) || !usable(from_place, from, size))
        return CUDA_ERROR_INVALID_VALUE;
    struct work work = copy_work(to, from, size);
    return submit(&work, handle, wait);
}

// One direction of copy: at once, and on a stream. Data to pageable memory has arrived on return.
#define COPY(name, to_place, from_place)                                                           \
    API(name)(CUdeviceptr to, CUdeviceptr from, size_t size) {                                     \
        return copy(to_place, to, from_place, from, size, NULL, true);                             \
    }                                                                                              \
    API(name##Async)(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {             \
        return copy(to_place, to, from_place, from, size, stream, pageable(to));                   \
    }

COPY(cuMemcpy, ANY, ANY)
COPY(cuMemcpyHtoD, DEVICE, ANY)
COPY(cuMemcpyDtoH, ANY, DEVICE)
COPY(cuMemcpyDtoD, DEVICE, DEVICE)
ALIAS(cuMemcpyHtoD_v2, cuMemcpyHtoD);
ALIAS(cuMemcpyDtoH_v2, cuMemcpyDtoH);
ALIAS(cuMemcpyDtoD_v2, cuMemcpyDtoD);
ALIAS(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync);
ALIAS(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync);
ALIAS(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync);

static CUresult peers(CUcontext to, CUcontext from) {
    struct context *c;
    CUresult result = context_of(to, &c);
    return result ? result : context_of(from, &c);
}

API(cuMemcpyPeer)
(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t size) {
    CUresult result = peers(to_context, from_context);
    return result ? result : copy(DEVICE, to, DEVICE, from, size, NULL, true);
}

API(cuMemcpyPeerAsync)
(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t size,
 CUstream stream) {
    CUresult result = peers(to_context, from_context);
    return result ? result : copy(DEVICE, to, DEVICE, from, size, stream, false);
}

// Boxes

struct side_2d {
    size_t x, y;
    unsigned type;
    const void *host;
    CUdeviceptr device;
    void *array;
    size_t pitch;
};

struct memcpy_2d {
    struct side_2d from, to;
    size_t width, height;
};

struct side_3d {
    size_t x, y, z, lod;
    unsigned type;
    const void *host;
    CUdeviceptr device;
    void *array, *reserved; // or the context, in the peer form
    size_t pitch, height;
};

struct memcpy_3d {
    struct side_3d from, to;
    size_t width, height, depth;
};

_Static_assert(sizeof(struct memcpy_2d) == 128, "CUDA_MEMCPY2D");
_Static_assert(sizeof(struct memcpy_3d) == 200, "CUDA_MEMCPY3D");

// Address of a side's first byte; 0 for arrays, which the simulator has not.
static CUdeviceptr first_byte(unsigned type, const void *host, CUdeviceptr device, size_t offset) {
    CUdeviceptr base = type == CU_MEMORYTYPE_HOST ? (CUdeviceptr)host : device;
    return type == CU_MEMORYTYPE_ARRAY || !base ? 0 : base + offset;
}

static enum place place_of(unsigned type) {
    return type == CU_MEMORYTYPE_DEVICE ? DEVICE : ANY;
}

static size_t extent(const struct copy *c, size_t pitch, size_t slice) {
    return (c->depth - 1) * slice + (c->height - 1) * pitch + c->width;
}

static CUresult copy_box(const struct copy *box, unsigned to_type, unsigned from_type,
                         CUstream stream, bool wait) {
    struct context *c;
    truth_bytes(box->width * box->height * box->depth);
    CUresult result = current_context(&c);
    if (result || !box->width || !box->height || !box->depth)
        return result;
    if (to_type == CU_MEMORYTYPE_ARRAY || from_type == CU_MEMORYTYPE_ARRAY)
        return CUDA_ERROR_NOT_SUPPORTED;
    size_t to_extent = extent(box, box->to_pitch, box->to_slice);
    size_t from_extent = extent(box, box->from_pitch, box->from_slice);
    if (!usable(place_of(to_type), (CUdeviceptr)box->to, to_extent) ||
        !usable(place_of(from_type), (CUdeviceptr)box->from, from_extent))
        return CUDA_ERROR_INVALID_VALUE;
    struct work work = box_work(box);
    return submit(&work, stream, wait);
}

static size_t pitch_or(size_t pitch, size_t width) {
    return pitch ? pitch : width;
}

static CUresult copy_2d(const struct memcpy_2d *m, CUstream stream, bool wait) {
    CUresult result = driver_ready();
    if (result || !m)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    const struct side_2d *to = &m->to, *from = &m->from;
    struct copy box = {.to_pitch = pitch_or(to->pitch, m->width),
                       .from_pitch = pitch_or(from->pitch, m->width),
                       .width = m->width,
                       .height = m->height,
                       .depth = 1};
    box.to = (char *)first_byte(to->type, to->host, to->device, to->y * box.to_pitch + to->x);
    box.from = (const char *)first_byte(from->type, from->host, from->device,
                                        from->y * box.from_pitch + from->x);
    return copy_box(&box, to->type, from->type, stream, wait);
}

// The first versions of these (without a suffix) took structures of another layout and are not
// simulated.

API(cuMemcpy2D_v2)(const struct memcpy_2d *m) {
    return copy_2d(m, NULL, true);
}
ALIAS(cuMemcpy2DUnaligned_v2, cuMemcpy2D_v2);

API(cuMemcpy2DAsync_v2)(const struct memcpy_2d *m, CUstream stream) {
    return copy_2d(m, stream, false);
}

static CUresult copy_3d(const struct memcpy_3d *m, CUstream stream, bool wait) {
    CUresult result = driver_ready();
    if (result || !m)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    const struct side_3d *to = &m->to, *from = &m->from;
    struct copy box = {.to_pitch = pitch_or(to->pitch, m->width),
                       .from_pitch = pitch_or(from->pitch, m->width),
                       .width = m->width,
                       .height = m->height,
                       .depth = m->depth};
    box.to_slice = box.to_pitch * pitch_or(to->height, m->height);
    box.from_slice = box.from_pitch * pitch_or(from->height, m->height);
    box.to = (char *)first_byte(to->type, to->host, to->device,
                                to->z * box.to_slice + to->y * box.to_pitch + to->x);
    box.from =
        (const char *)first_byte(from->type, from->host, from->device,
                                 from->z * box.from_slice + from->y * box.from_pitch + from->x);
    return copy_box(&box, to->type, from->type, stream, wait);
}

API(cuMemcpy3D_v2)(const struct memcpy_3d *m) {
    return copy_3d(m, NULL, true);
}

API(cuMemcpy3DAsync_v2)(const struct memcpy_3d *m, CUstream stream) {
    return copy_3d(m, stream, false);
}

// The peer forms put contexts where the others have reserved fields.
API(cuMemcpy3DPeer)(const struct memcpy_3d *m) {
    CUresult result = copy_3d(m, NULL, true);
    truth_bytes(0);
    return result;
}

API(cuMemcpy3DPeerAsync)(const struct memcpy_3d *m, CUstream stream) {
    CUresult result = copy_3d(m, stream, false);
    truth_bytes(0);
    return result;
}

// Batches

static CUresult copy_batch(const CUdeviceptr *to, const CUdeviceptr *from, const size_t *sizes,
                           size_t count, size_t *failed, CUstream stream) {
    struct stream *s;
    CUresult result = stream_of(stream, &s);
    if (result)
        return result;
    if (!to || !from || !sizes || !count || !stream)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && !result; i++) {
        result = copy(ANY, to[i], ANY, from[i], sizes[i], stream, false);
        if (result && failed)
            *failed = i;
    }
    truth_bytes(0); // sizes is a list, not one argument
    return result;
}

API(cuMemcpyBatchAsync)
(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count, void *attributes UNUSED,
 size_t *indices UNUSED, size_t kinds UNUSED, size_t *failed, CUstream stream) {
    return copy_batch(to, from, sizes, count, failed, stream);
}

API(cuMemcpyBatchAsync_v2)
(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count, void *attributes UNUSED,
 size_t *indices UNUSED, size_t kinds UNUSED, CUstream stream) {
    return copy_batch(to, from, sizes, count, NULL, stream);
}

API(cuMemcpyWithAttributesAsync)
(CUdeviceptr to, CUdeviceptr from, size_t size, void *attributes UNUSED, CUstream stream) {
    CUresult result = copy(ANY, to, ANY, from, size, stream, false);
    truth_bytes(0);
    return result;
}

// Sets

static CUresult set(CUdeviceptr to, size_t pitch, unsigned size, uint64_t value, size_t width,
                    size_t height, CUstream stream, bool line) {
    struct context *c;
    truth_bytes(line ? width * size : 0);
    CUresult result = current_context(&c);
    if (result || !width || !height)
        return result;
    struct fill fill = {.to = (char *)to,
                        .pitch = pitch,
                        .width = width,
                        .height = height,
                        .value = value,
                        .size = size};
    if (to % size || !range_covers(to, (height - 1) * pitch + width * size))
        return CUDA_ERROR_INVALID_VALUE;
    struct work work = fill_work(&fill);
    return submit(&work, stream, false);
}

#define SET(bits, type)                                                                            \
    API(cuMemsetD##bits)(CUdeviceptr to, type value, size_t count) {                               \
        return set(to, 0, sizeof(type), value, count, 1, NULL, true);                              \
    }                                                                                              \
    ALIAS(cuMemsetD##bits##_v2, cuMemsetD##bits);                                                  \
    API(cuMemsetD##bits##Async)(CUdeviceptr to, type value, size_t count, CUstream stream) {       \
        return set(to, 0, sizeof(type), value, count, 1, stream, true);                            \
    }                                                                                              \
    API(cuMemsetD2D##bits)                                                                         \
    (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height) {                      \
        return set(to, pitch, sizeof(type), value, width, height, NULL, false);                    \
    }                                                                                              \
    ALIAS(cuMemsetD2D##bits##_v2, cuMemsetD2D##bits);                                              \
    API(cuMemsetD2D##bits##Async)                                                                  \
    (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, CUstream stream) {     \
        return set(to, pitch, sizeof(type), value, width, height, stream, false);                  \
    }

SET(8, uint8_t)
SET(16, uint16_t)
SET(32, uint32_t)
