// SPDX-License-Identifier: Apache-2.0
// Initialisation, devices' primary contexts, contexts of one's own, the current context of each
// thread.
#ifndef SIMCUDA_CONTEXT_H
#define SIMCUDA_CONTEXT_H

#include "api.h"
#include "handle.h"
#include "stream.h"

struct context {
    struct handle handle;
    CUdevice device;
    unsigned flags;
    bool primary;
    bool destroyed; // still current somewhere, perhaps
    unsigned references;
    uint64_t id;
    struct stream legacy;  // the null stream
    uint64_t end;          // when all work submitted so far, on any stream, is over
    uint64_t blocking_end; // … on the streams that wait for the null stream and it for them
    uint64_t deferred,
        completed;  // work that waited or waits for the driver's own thread (deferred.h)
    uint16_t peers; // bit set of devices with enabled access
    size_t limits[8];
};

// 3 before cuInit, and for ever in a child forked after it, as the real driver.
CUresult driver_ready(void);

// driver_ready and a valid ordinal.
CUresult device_ready(CUdevice device);

// The context that is current to the calling thread: 3, 201 (none) or 709 (destroyed) otherwise.
CUresult current_context(struct context **context);

// The handle's context; NULL stands for the current one.
CUresult context_of(CUcontext handle, struct context **context);

// A number that no other object of the process has.
uint64_t next_id(void);

#endif
