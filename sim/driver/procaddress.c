// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress: the export that carries a name's newest meaning not newer than the version
// asked for.
#include <string.h>

#include "api.h"
#include "config.h"
#include "entry.h"

enum { FLAG_LEGACY_STREAM = 1, FLAG_PER_THREAD_STREAM = 2 };

// CU_GET_PROC_ADDRESS_*
enum { STATUS_FOUND = 0, STATUS_NOT_FOUND = 1, STATUS_VERSION_TOO_LOW = 2 };

CONTROL void *simcuda_entry(const char *name);

int export_index(const char *name) {
    unsigned low = 0, high = simcuda_count;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        int order = strcmp(simcuda_names[middle], name);
        if (!order)
            return (int)middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

void *simcuda_entry(const char *name) {
    int i = export_index(name);
    return i < 0 ? NULL : simcuda_entries[i];
}

// A twin wins over the plain spelling where per-thread streams are asked for, whatever its version.
static bool better(const struct proc *p, const struct proc *best) {
    if (!best || p->per_thread != best->per_thread)
        return !best || p->per_thread;
    return p->version > best->version;
}

static const struct proc *choose(const char *name, int version, bool per_thread, bool *known) {
    const struct proc *best = NULL;
    for (unsigned i = 0; i < simcuda_proc_count; i++) {
        const struct proc *p = &simcuda_procs[i];
        if (strcmp(p->name, name) || p->version > config.version || (p->per_thread && !per_thread))
            continue;
        *known = true;
        if (p->version <= version && better(p, best))
            best = p;
    }
    return best;
}

static CUresult get(const char *name, void **address, int version, uint64_t flags, int *status) {
    bool known = false;
    if (!name || !address || flags > FLAG_PER_THREAD_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    const struct proc *p = choose(name, version, flags == FLAG_PER_THREAD_STREAM, &known);
    *address = p ? simcuda_entry(p->symbol) : NULL;
    if (status)
        *status = p ? STATUS_FOUND : known ? STATUS_VERSION_TOO_LOW : STATUS_NOT_FOUND;
    return p ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

API(cuGetProcAddress)(const char *name, void **address, int version, uint64_t flags) {
    return get(name, address, version, flags, NULL);
}

API(cuGetProcAddress_v2)
(const char *name, void **address, int version, uint64_t flags, int *status) {
    return get(name, address, version, flags, status);
}

API(cuDriverGetVersion)(int *version) {
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = config.version;
    return CUDA_SUCCESS;
}
