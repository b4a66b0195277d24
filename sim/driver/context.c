// SPDX-License-Identifier: Apache-2.0
#include "context.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "lock.h"
#include "memory.h"
#include "streams.h"
#include "thread.h"

static struct handle_table contexts = HANDLE_TABLE(struct context, 4096);
static struct context *primaries[MAX_DEVICES]; // made at the first use, never ended
static bool initialised, forked;

uint64_t next_id(void) {
    static uint64_t id;
    return __atomic_add_fetch(&id, 1, __ATOMIC_RELAXED);
}

CUresult driver_ready(void) {
    return initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult device_ready(CUdevice device) {
    if (!initialised)
        return CUDA_ERROR_NOT_INITIALIZED;
    return device >= 0 && device < config.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static void forget_devices(void) {
    forked |= initialised;
    initialised = false;
}

__attribute__((constructor(102))) static void follow_fork(void) {
    pthread_atfork(NULL, NULL, forget_devices);
}

API(cuInit)(unsigned flags) {
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (forked)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!config.devices)
        return CUDA_ERROR_NO_DEVICE;
    initialised = true;
    return CUDA_SUCCESS;
}

CUresult current_context(struct context **context) {
    if (!initialised)
        return CUDA_ERROR_NOT_INITIALIZED;
    const struct thread *t = thread_self();
    if (!t->context_depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = t->contexts[t->context_depth - 1];
    return (*context)->destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

CUresult context_of(CUcontext handle, struct context **context) {
    if (!handle)
        return current_context(context);
    if (!initialised)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!handle_live(&contexts, handle))
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = handle;
    return handle->destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

unsigned context_sched(const struct context *context) {
    unsigned sched = context->flags & CU_CTX_SCHED_MASK;
    return sched ? sched : config.sched;
}

static bool flags_valid(unsigned flags) {
    unsigned sched = flags & CU_CTX_SCHED_MASK;
    return !(flags & ~CU_CTX_FLAGS_MASK) && (sched & (sched - 1)) == 0;
}

static const size_t default_limits[8] = {1024, 7 << 20, 8 << 20, 2, 2048, 128, 30 << 20, 0};

static struct context *make_context(CUdevice device, unsigned flags) {
    struct context *c = handle_make(&contexts);
    if (!c)
        return NULL;
    c->device = device;
    c->flags = flags;
    c->id = next_id();
    memcpy(c->limits, default_limits, sizeof(c->limits));
    stream_init(&c->legacy, c, 0, 0);
    return c;
}

// Contexts of one's own

static CUresult push(struct context *context) {
    struct thread *t = thread_self();
    if (t->context_depth == CONTEXT_DEPTH)
        return CUDA_ERROR_INVALID_VALUE;
    t->contexts[t->context_depth++] = context;
    return CUDA_SUCCESS;
}

static CUresult create(CUcontext *context, unsigned flags, CUdevice device) {
    CUresult result = device_ready(device);
    if (result)
        return result;
    if (!context || !flags_valid(flags))
        return CUDA_ERROR_INVALID_VALUE;
    struct context *c = make_context(device, flags);
    if (!c)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *context = c;
    return push(c);
}

API(cuCtxCreate)(CUcontext *context, unsigned flags, CUdevice device) {
    return create(context, flags, device);
}
ALIAS(cuCtxCreate_v2, cuCtxCreate);

API(cuCtxCreate_v3)
(CUcontext *context, void *affinity UNUSED, int count UNUSED, unsigned flags, CUdevice device) {
    return create(context, flags, device);
}

API(cuCtxCreate_v4)(CUcontext *context, void *params UNUSED, unsigned flags, CUdevice device) {
    return create(context, flags, device);
}

static void end_context(struct context *c) {
    context_wait(c, context_sched(c));
    c->destroyed = true;
    streams_end(c);
    memory_end(c);
}

API(cuCtxDestroy)(CUcontext handle) {
    struct context *c;
    CUresult result = driver_ready();
    if (!result)
        result = handle ? context_of(handle, &c) : CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    if (c->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    end_context(c);
    struct thread *t = thread_self();
    if (t->context_depth && t->contexts[t->context_depth - 1] == c)
        t->context_depth--;
    return CUDA_SUCCESS; // the place stays taken: other threads may have it current
}
ALIAS(cuCtxDestroy_v2, cuCtxDestroy);

// Primary contexts

static struct context *primary(CUdevice device) {
    struct context *c = __atomic_load_n(&primaries[device], __ATOMIC_ACQUIRE);
    if (c)
        return c;
    struct context *made = make_context(device, 0);
    if (!made)
        return NULL;
    made->primary = true;
    made->destroyed = true; // until retained
    if (__atomic_compare_exchange_n(&primaries[device], &c, made, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        return made;
    handle_free(&contexts, made);
    return c;
}

API(cuDevicePrimaryCtxRetain)(CUcontext *context, CUdevice device) {
    CUresult result = device_ready(device);
    if (result)
        return result;
    struct context *c = context ? primary(device) : NULL;
    if (!c)
        return context ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    c->references++;
    c->destroyed = false;
    sim_unlock();
    *context = c;
    return CUDA_SUCCESS;
}

static bool drop_reference(struct context *c) {
    sim_lock();
    bool last = c->references == 1;
    if (c->references)
        c->references--;
    sim_unlock();
    return last;
}

API(cuDevicePrimaryCtxRelease)(CUdevice device) {
    CUresult result = device_ready(device);
    if (result)
        return result;
    struct context *c = primary(device);
    if (!c || !c->references)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (drop_reference(c))
        end_context(c);
    return CUDA_SUCCESS;
}
ALIAS(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease);

API(cuDevicePrimaryCtxReset)(CUdevice device) {
    CUresult result = device_ready(device);
    if (result)
        return result;
    struct context *c = primary(device);
    if (c && c->references) {
        end_context(c);
        c->destroyed = false;
    }
    return CUDA_SUCCESS;
}
ALIAS(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset);

API(cuDevicePrimaryCtxSetFlags)(CUdevice device, unsigned flags) {
    CUresult result = device_ready(device);
    if (result)
        return result;
    struct context *c = primary(device);
    if (!c || !flags_valid(flags))
        return CUDA_ERROR_INVALID_VALUE;
    c->flags = flags;
    return CUDA_SUCCESS;
}
ALIAS(cuDevicePrimaryCtxSetFlags_v2, cuDevicePrimaryCtxSetFlags);

API(cuDevicePrimaryCtxGetState)(CUdevice device, unsigned *flags, int *active) {
    CUresult result = device_ready(device);
    if (result)
        return result;
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    struct context *c = primary(device);
    *flags = c ? c->flags : 0;
    *active = c && c->references;
    return CUDA_SUCCESS;
}

// The current context

API(cuCtxGetCurrent)(CUcontext *context) {
    if (!initialised)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    const struct thread *t = thread_self();
    *context = t->context_depth ? t->contexts[t->context_depth - 1] : NULL;
    return CUDA_SUCCESS;
}

API(cuCtxSetCurrent)(CUcontext context) {
    if (!initialised)
        return CUDA_ERROR_NOT_INITIALIZED;
    struct thread *t = thread_self();
    if (!context) {
        t->context_depth -= t->context_depth > 0;
        return CUDA_SUCCESS;
    }
    if (!handle_live(&contexts, context))
        return CUDA_ERROR_INVALID_CONTEXT;
    t->context_depth += t->context_depth == 0;
    t->contexts[t->context_depth - 1] = context;
    return CUDA_SUCCESS;
}

API(cuCtxPushCurrent)(CUcontext handle) {
    struct context *c;
    CUresult result = driver_ready();
    if (!result)
        result = handle ? context_of(handle, &c) : CUDA_ERROR_INVALID_CONTEXT;
    return result ? result : push(c);
}
ALIAS(cuCtxPushCurrent_v2, cuCtxPushCurrent);

API(cuCtxPopCurrent)(CUcontext *context) {
    if (!initialised)
        return CUDA_ERROR_NOT_INITIALIZED;
    struct thread *t = thread_self();
    if (!t->context_depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    struct context *c = t->contexts[--t->context_depth];
    if (context)
        *context = c;
    return CUDA_SUCCESS;
}
ALIAS(cuCtxPopCurrent_v2, cuCtxPopCurrent);

static CUresult device_of(CUdevice *device, CUcontext handle) {
    struct context *c;
    CUresult result = context_of(handle, &c);
    if (result)
        return result;
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = c->device;
    return CUDA_SUCCESS;
}

API(cuCtxGetDevice)(CUdevice *device) {
    return device_of(device, NULL);
}

API(cuCtxGetDevice_v2)(CUdevice *device, CUcontext context) {
    return device_of(device, context);
}

static CUresult synchronize(CUcontext handle) {
    struct context *c;
    CUresult result = context_of(handle, &c);
    if (!result)
        context_wait(c, context_sched(c));
    return result;
}

API(cuCtxSynchronize)(void) {
    return synchronize(NULL);
}

API(cuCtxSynchronize_v2)(CUcontext context) {
    return synchronize(context);
}

API(cuCtxGetFlags)(unsigned *flags) {
    struct context *c;
    CUresult result = current_context(&c);
    if (result)
        return result;
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = c->flags;
    return CUDA_SUCCESS;
}

API(cuCtxSetFlags)(unsigned flags) {
    struct context *c;
    CUresult result = current_context(&c);
    if (result)
        return result;
    if (!flags_valid(flags))
        return CUDA_ERROR_INVALID_VALUE;
    c->flags = flags;
    return CUDA_SUCCESS;
}

API(cuCtxGetId)(CUcontext handle, uint64_t *id) {
    struct context *c;
    CUresult result = context_of(handle, &c);
    if (result)
        return result;
    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    *id = c->id;
    return CUDA_SUCCESS;
}

API(cuCtxGetApiVersion)(CUcontext handle, unsigned *version) {
    struct context *c;
    CUresult result = context_of(handle, &c);
    if (result)
        return result;
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = (unsigned)config.version;
    return CUDA_SUCCESS;
}

API(cuCtxGetLimit)(size_t *value, unsigned limit) {
    struct context *c;
    CUresult result = current_context(&c);
    if (result)
        return result;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (limit >= 7)
        return CUDA_ERROR_NOT_SUPPORTED;
    *value = c->limits[limit];
    return CUDA_SUCCESS;
}

API(cuCtxSetLimit)(unsigned limit, size_t value) {
    struct context *c;
    CUresult result = current_context(&c);
    if (result)
        return result;
    if (limit >= 7)
        return CUDA_ERROR_NOT_SUPPORTED;
    c->limits[limit] = value;
    return CUDA_SUCCESS;
}

// Settings without effect on a device that computes nothing: the call is judged, the value is not
// kept.
static CUresult needs_context(void) {
    struct context *c;
    return current_context(&c);
}

API(cuCtxGetCacheConfig)(int *config) {
    CUresult result = needs_context();
    if (!result)
        *config = 0;
    return result;
}

API(cuCtxSetCacheConfig)(int config UNUSED) {
    return needs_context();
}

API(cuCtxGetSharedMemConfig)(int *config) {
    CUresult result = needs_context();
    if (!result)
        *config = 1;
    return result;
}

API(cuCtxSetSharedMemConfig)(int config UNUSED) {
    return needs_context();
}

API(cuCtxResetPersistingL2Cache)(void) {
    return needs_context();
}

API(cuCtxGetStreamPriorityRange)(int *least, int *greatest) {
    CUresult result = needs_context();
    if (result)
        return result;
    if (least)
        *least = LEAST_PRIORITY;
    if (greatest)
        *greatest = GREATEST_PRIORITY;
    return CUDA_SUCCESS;
}

API(cuCtxEnablePeerAccess)(CUcontext handle, unsigned flags) {
    struct context *c, *peer;
    CUresult result = current_context(&c);
    if (!result)
        result = handle ? context_of(handle, &peer) : CUDA_ERROR_INVALID_CONTEXT;
    if (result)
        return result;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (c->device == peer->device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (c->peers & 1 << peer->device)
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    c->peers |= (uint16_t)(1 << peer->device);
    return CUDA_SUCCESS;
}

API(cuCtxDisablePeerAccess)(CUcontext handle) {
    struct context *c, *peer;
    CUresult result = current_context(&c);
    if (!result)
        result = handle ? context_of(handle, &peer) : CUDA_ERROR_INVALID_CONTEXT;
    if (result)
        return result;
    if (!(c->peers & 1 << peer->device))
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    c->peers &= (uint16_t) ~(1 << peer->device);
    return CUDA_SUCCESS;
}
