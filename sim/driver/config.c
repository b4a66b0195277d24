// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"

struct config config;

static uint64_t number(const char *name, uint64_t fallback, uint64_t max) {
    const char *text = getenv(name);
    if (!text || !*text)
        return fallback;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 0);
    if (errno || *end || *text == '-' || value > max) {
        fprintf(stderr, "simcuda: %s=\"%s\" is no number up to %llu, using %llu\n", name, text,
                (unsigned long long)max, (unsigned long long)fallback);
        return fallback;
    }
    return value;
}

static unsigned sched(void) {
    static const struct {
        const char *name;
        unsigned flag;
    } modes[] = {
        {"spin", CU_CTX_SCHED_SPIN},
        {"yield", CU_CTX_SCHED_YIELD},
        {"block", CU_CTX_SCHED_BLOCKING_SYNC},
    };
    const char *text = getenv("SIMCUDA_SCHED");
    if (!text || !*text)
        return CU_CTX_SCHED_SPIN;
    for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++)
        if (!strcmp(text, modes[i].name))
            return modes[i].flag;
    fprintf(stderr, "simcuda: SIMCUDA_SCHED=\"%s\" is none of spin, yield, block; using spin\n",
            text);
    return CU_CTX_SCHED_SPIN;
}

// Before the other constructors of this library (truth.c): they read the configuration.
__attribute__((constructor(101))) static void read_config(void) {
    const uint64_t hour_ns = 3600ull * 1000 * 1000 * 1000;
    config = (struct config){
        .devices = (int)number("SIMCUDA_DEVICES", 1, MAX_DEVICES),
        .version = (int)number("SIMCUDA_VERSION", 12020, 99999),
        .sm = (int)number("SIMCUDA_SM", 80, 200),
        .memory = number("SIMCUDA_MEMORY", 80ull << 30, 1ull << 42),
        .launch_ns = number("SIMCUDA_LAUNCH_NS", 0, hour_ns),
        .map_ns = number("SIMCUDA_MAP_NS", 0, hour_ns),
        .unmap_ns = number("SIMCUDA_UNMAP_NS", 0, hour_ns),
        .alloc_ns = number("SIMCUDA_ALLOC_NS", 0, hour_ns),
        .free_ns = number("SIMCUDA_FREE_NS", 0, hour_ns),
        .kernel_ns = number("SIMCUDA_KERNEL_NS", 0, hour_ns),
        .copy_gbps = number("SIMCUDA_COPY_GBPS", 0, 1 << 20),
        .sched = sched(),
        .timed = number("SIMCUDA_TIME", 1, 1),
        .truth = getenv("SIMCUDA_TRUTH"),
    };
    if (config.truth && !*config.truth)
        config.truth = NULL;
}
