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

// A name with a per-thread twin is, for a caller that asks for twins, the twin alone.
static bool has_twin(const char *name) {
    for (unsigned i = 0; i < simcuda_proc_count; i++)
        if (simcuda_procs[i].per_thread && !strcmp(simcuda_procs[i].name, name))
            return true;
    return false;
}

static const struct proc *choose(const char *name, int version, bool per_thread, bool *known) {
    const struct proc *best = NULL;
    for (unsigned i = 0; i < simcuda_proc_count; i++) {
        const struct proc *p = &simcuda_procs[i];
        if (strcmp(p->name, name) || p->version > config.version || p->per_thread != per_thread)
            continue;
        *known = true;
        if (p->version <= version && (!best || p->version > best->version))
            best = p;
    }
    return best;
}

static CUresult get(const char *name, void **address, int version, uint64_t flags, int *status) {
    bool known = false;
    if (!name || !address || flags > (FLAG_LEGACY_STREAM | FLAG_PER_THREAD_STREAM))
        return CUDA_ERROR_INVALID_VALUE;
    bool per_thread = flags & FLAG_PER_THREAD_STREAM && has_twin(name);
    const struct proc *p = choose(name, version, per_thread, &known);
    *address = p ? simcuda_entry(p->symbol) : NULL;
    *status = p ? STATUS_FOUND : known ? STATUS_VERSION_TOO_LOW : STATUS_NOT_FOUND;
    return CUDA_SUCCESS;
}

// The first form has no status: not found is an error, and leaves the address as it was.
API(cuGetProcAddress)(const char *name, void **address, int version, uint64_t flags) {
    int status;
    void *found;
    CUresult result = get(name, address ? &found : NULL, version, flags, &status);
    if (result)
        return result;
    if (status != STATUS_FOUND)
        return CUDA_ERROR_NOT_FOUND;
    *address = found;
    return CUDA_SUCCESS;
}

// The second form succeeds whatever it finds: the status says it.
API(cuGetProcAddress_v2)
(const char *name, void **address, int version, uint64_t flags, int *status) {
    int unasked;
    return get(name, address, version, flags, status ? status : &unasked);
}

API(cuDriverGetVersion)(int *version) {
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = config.version;
    return CUDA_SUCCESS;
}
