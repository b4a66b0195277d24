// SPDX-License-Identifier: Apache-2.0
#include "work.h"

#include <string.h>

#include "config.h"
#include "memory.h"
#include "thread.h"

static uint64_t copy_ns(uint64_t bytes) {
    return config.copy_gbps ? bytes / config.copy_gbps : 0;
}

uint64_t kernel_ns(void) {
    const struct thread *t = thread_self();
    return t->has_kernel_ns ? t->kernel_ns : config.kernel_ns;
}

struct work kernel_work(void) {
    return (struct work){.kind = WORK_KERNEL, .ns = kernel_ns()};
}

struct work box_work(const struct copy *box) {
    return (struct work){
        .kind = WORK_COPY, .ns = copy_ns(box->width * box->height * box->depth), .copy = *box};
}

struct work copy_work(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    struct copy line = {
        .to = (char *)to, .from = (const char *)from, .width = bytes, .height = 1, .depth = 1};
    return box_work(&line);
}

struct work fill_work(const struct fill *fill) {
    return (struct work){
        .kind = WORK_FILL, .ns = copy_ns(fill->width * fill->height * fill->size), .fill = *fill};
}

static void run_copy(const struct copy *c) {
    for (size_t z = 0; z < c->depth; z++)
        for (size_t y = 0; y < c->height; y++)
            memmove(c->to + z * c->to_slice + y * c->to_pitch,
                    c->from + z * c->from_slice + y * c->from_pitch, c->width);
}

static void fill_row(char *to, const struct fill *f) {
    switch (f->size) {
    case 1:
        memset(to, (int)f->value, f->width);
        break;
    case 2:
        for (size_t i = 0; i < f->width; i++)
            ((uint16_t *)to)[i] = (uint16_t)f->value;
        break;
    case 4:
        for (size_t i = 0; i < f->width; i++)
            ((uint32_t *)to)[i] = (uint32_t)f->value;
        break;
    default:
        for (size_t i = 0; i < f->width; i++)
            ((uint64_t *)to)[i] = f->value;
    }
}

void work_run(const struct work *w) {
    switch (w->kind) {
    case WORK_NOTHING:
    case WORK_KERNEL:
        break;
    case WORK_COPY:
        run_copy(&w->copy);
        break;
    case WORK_FILL:
        for (size_t y = 0; y < w->fill.height; y++)
            fill_row(w->fill.to + y * w->fill.pitch, &w->fill);
        break;
    case WORK_FREE:
        memory_free(w->freed, KINDS_DEVICE);
        break;
    case WORK_HOST:
        w->host.function(w->host.argument);
        break;
    case WORK_CALLBACK:
        w->host.callback(w->host.stream, CUDA_SUCCESS, w->host.argument);
        break;
    }
}
