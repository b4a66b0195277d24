// SPDX-License-Identifier: Apache-2.0
// What SIMCUDA_* in the environment chose; read once, when the library is loaded (README.md).
#ifndef SIMCUDA_CONFIG_H
#define SIMCUDA_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

enum { MAX_DEVICES = 16 };

struct config {
    int devices;
    int version;     // as cuDriverGetVersion: 12020 is 12.2
    int sm;          // compute capability times ten
    uint64_t memory; // bytes of each device
    // Host time that a call costs, in nanoseconds, spent running.
    uint64_t launch_ns, map_ns, unmap_ns, alloc_ns, free_ns;
    // Stream time.
    uint64_t kernel_ns;
    uint64_t copy_gbps; // bytes per nanosecond; 0: copies take no stream time
    unsigned sched;     // CU_CTX_SCHED_*: what a context created with "auto" does
    bool timed;         // truth carries wall_ns
    const char *truth;  // where to write it at exit, or NULL
};

extern struct config config;

#endif
