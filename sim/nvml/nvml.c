// SPDX-License-Identifier: Apache-2.0
// A simulated libnvidia-ml.so.1: the calls that stageprof and PyTorch make, with values from the
// environment (SIMNVML_*, see sim/README.md). Nothing depends on time: a list of values is gone
// through query by query, and the energy counter moves on by a fixed step at every query.
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int nvmlReturn;

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_UNKNOWN = 999,
};

#define EXPORT __attribute__((visibility("default")))
#define UNUSED __attribute__((unused))

enum { MAX_DEVICES = 16, FIRST_BUS = 7 };

struct device {
    unsigned index;
    // How often each list was asked.
    unsigned gpu_queries, memory_queries, power_queries, used_queries;
    unsigned clock_queries[2], event_queries, process_queries;
    unsigned long long energy_mj;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct device devices[MAX_DEVICES];
static int initialised; // nvmlInit less nvmlShutdown

// Environment

static const char *text(const char *name, const char *fallback) {
    const char *value = getenv(name);
    return value && *value ? value : fallback;
}

static unsigned long long number(const char *name, unsigned long long fallback) {
    const char *value = getenv(name);
    return value && *value ? strtoull(value, NULL, 0) : fallback;
}

// The nth value of a comma list, from the start again behind its end.
static unsigned long long nth(const char *name, const char *fallback, unsigned n) {
    const char *list = text(name, fallback), *at;
    unsigned count = 1;
    for (at = list; (at = strchr(at, ',')); at++)
        count++;
    at = list;
    for (n %= count; n; n--)
        at = strchr(at, ',') + 1;
    return strtoull(at, NULL, 0);
}

static unsigned device_count(void) {
    unsigned long long count = number("SIMNVML_DEVICES", number("SIMCUDA_DEVICES", 1));
    return count < MAX_DEVICES ? (unsigned)count : MAX_DEVICES;
}

// The result that SIMNVML_FAIL="function=code,…" wants of a function; 0 if it should work.
static nvmlReturn wanted_failure(const char *function) {
    const char *at = text("SIMNVML_FAIL", "");
    size_t length = strlen(function);
    for (;;) {
        if (!strncmp(at, function, length) && at[length] == '=')
            return atoi(at + length + 1);
        at = strchr(at, ',');
        if (!at)
            return NVML_SUCCESS;
        at++;
    }
}

// Judges a call of a function.
static nvmlReturn ready(const char *function) {
    nvmlReturn result = wanted_failure(function);
    if (result)
        return result;
    return initialised ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

static nvmlReturn device_ready(const char *function, const struct device *device, const void *out) {
    nvmlReturn result = ready(function);
    if (result)
        return result;
    for (unsigned i = 0; i < device_count(); i++)
        if (device == &devices[i])
            return out ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
    return NVML_ERROR_INVALID_ARGUMENT;
}

static unsigned next(unsigned *queries) {
    return __atomic_fetch_add(queries, 1, __ATOMIC_RELAXED);
}

static nvmlReturn put_text(const char *value, char *out, unsigned size) {
    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(value) >= size)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, value);
    return NVML_SUCCESS;
}

// Library and system

static nvmlReturn init(void) {
    nvmlReturn result = wanted_failure("nvmlInit");
    if (result)
        return result;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; !initialised && i < MAX_DEVICES; i++)
        devices[i] = (struct device){.index = i, .energy_mj = number("SIMNVML_ENERGY_MJ", 1000000)};
    initialised++;
    pthread_mutex_unlock(&lock);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn nvmlInit(void) {
    return init();
}

EXPORT nvmlReturn nvmlInit_v2(void) {
    return init();
}

EXPORT nvmlReturn nvmlInitWithFlags(unsigned flags UNUSED) {
    return init();
}

EXPORT nvmlReturn nvmlShutdown(void) {
    nvmlReturn result = ready("nvmlShutdown");
    if (!result) {
        pthread_mutex_lock(&lock);
        initialised--;
        pthread_mutex_unlock(&lock);
    }
    return result;
}

EXPORT const char *nvmlErrorString(nvmlReturn result) {
    switch (result) {
    case NVML_SUCCESS:
        return "Success";
    case NVML_ERROR_UNINITIALIZED:
        return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
        return "Not Supported";
    case NVML_ERROR_NO_PERMISSION:
        return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND:
        return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED:
        return "Driver Not Loaded";
    case NVML_ERROR_FUNCTION_NOT_FOUND:
        return "Function Not Found";
    case NVML_ERROR_GPU_IS_LOST:
        return "GPU is lost";
    default:
        return "Unknown Error";
    }
}

EXPORT nvmlReturn nvmlSystemGetDriverVersion(char *out, unsigned size) {
    nvmlReturn result = ready(__func__);
    return result ? result : put_text(text("SIMNVML_DRIVER", "535.261.03"), out, size);
}

EXPORT nvmlReturn nvmlSystemGetNVMLVersion(char *out, unsigned size) {
    nvmlReturn result = ready(__func__);
    return result ? result : put_text("12.535.261.03", out, size);
}

static nvmlReturn cuda_version(int *version) {
    nvmlReturn result = ready("nvmlSystemGetCudaDriverVersion");
    if (result)
        return result;
    if (!version)
        return NVML_ERROR_INVALID_ARGUMENT;
    *version = (int)number("SIMCUDA_VERSION", 12020);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn nvmlSystemGetCudaDriverVersion(int *version) {
    return cuda_version(version);
}

EXPORT nvmlReturn nvmlSystemGetCudaDriverVersion_v2(int *version) {
    return cuda_version(version);
}

// Devices

EXPORT nvmlReturn nvmlDeviceGetCount_v2(unsigned *count) {
    nvmlReturn result = ready("nvmlDeviceGetCount");
    if (result)
        return result;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = device_count();
    return NVML_SUCCESS;
}

EXPORT nvmlReturn nvmlDeviceGetCount(unsigned *count) {
    return nvmlDeviceGetCount_v2(count);
}

EXPORT nvmlReturn nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **device) {
    nvmlReturn result = ready("nvmlDeviceGetHandleByIndex");
    if (result)
        return result;
    if (!device || index >= device_count())
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = &devices[index];
    return NVML_SUCCESS;
}

EXPORT nvmlReturn nvmlDeviceGetHandleByIndex(unsigned index, struct device **device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

EXPORT nvmlReturn nvmlDeviceGetHandleByPciBusId_v2(const char *id, struct device **device) {
    unsigned domain, bus, slot;
    nvmlReturn result = ready("nvmlDeviceGetHandleByPciBusId");
    if (result)
        return result;
    if (!id || !device || sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (bus < FIRST_BUS || bus - FIRST_BUS >= device_count())
        return NVML_ERROR_NOT_FOUND;
    *device = &devices[bus - FIRST_BUS];
    return NVML_SUCCESS;
}

// The same identifiers as the simulated driver's: "simcuda device " and the ordinal as bytes.
static void make_uuid(const struct device *device, char *out, size_t size) {
    unsigned char bytes[16] = "simcuda device ";
    bytes[15] = (unsigned char)device->index;
    size_t n = (size_t)snprintf(out, size, "GPU-");
    for (unsigned i = 0; i < 16; i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        n += (size_t)snprintf(out + n, size - n, "%s%02x", dash ? "-" : "", bytes[i]);
    }
}

EXPORT nvmlReturn nvmlDeviceGetUUID(struct device *device, char *out, unsigned size) {
    char uuid[48];
    nvmlReturn result = device_ready(__func__, device, out);
    if (result)
        return result;
    make_uuid(device, uuid, sizeof(uuid));
    return put_text(uuid, out, size);
}

EXPORT nvmlReturn nvmlDeviceGetName(struct device *device, char *out, unsigned size) {
    nvmlReturn result = device_ready(__func__, device, out);
    return result ? result : put_text(text("SIMNVML_NAME", "Simulated A100-SXM4-80GB"), out, size);
}

EXPORT nvmlReturn nvmlDeviceGetIndex(struct device *device, unsigned *index) {
    nvmlReturn result = device_ready(__func__, device, index);
    if (!result)
        *index = device->index;
    return result;
}

struct utilization {
    unsigned gpu, memory; // percent
};

EXPORT nvmlReturn nvmlDeviceGetUtilizationRates(struct device *device, struct utilization *out) {
    nvmlReturn result = device_ready(__func__, device, out);
    if (result)
        return result;
    out->gpu = (unsigned)nth("SIMNVML_GPU_PERCENT", "50", next(&device->gpu_queries));
    out->memory = (unsigned)nth("SIMNVML_MEMORY_PERCENT", "20", next(&device->memory_queries));
    return NVML_SUCCESS;
}

struct memory {
    unsigned long long total, free, used;
};

static struct memory memory_of(struct device *device) {
    struct memory m;
    m.total = number("SIMNVML_MEMORY", number("SIMCUDA_MEMORY", 80ull << 30));
    m.used = nth("SIMNVML_MEMORY_USED", "1073741824", next(&device->used_queries));
    m.free = m.total - m.used;
    return m;
}

EXPORT nvmlReturn nvmlDeviceGetMemoryInfo(struct device *device, struct memory *out) {
    nvmlReturn result = device_ready(__func__, device, out);
    if (!result)
        *out = memory_of(device);
    return result;
}

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

EXPORT nvmlReturn nvmlDeviceGetMemoryInfo_v2(struct device *device, struct memory_v2 *out) {
    nvmlReturn result = device_ready("nvmlDeviceGetMemoryInfo", device, out);
    if (result)
        return result;
    struct memory m = memory_of(device);
    *out = (struct memory_v2){
        .version = out->version, .total = m.total, .free = m.free, .used = m.used};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn nvmlDeviceGetPowerUsage(struct device *device, unsigned *milliwatts) {
    nvmlReturn result = device_ready(__func__, device, milliwatts);
    if (!result)
        *milliwatts = (unsigned)nth("SIMNVML_POWER_MW", "200000", next(&device->power_queries));
    return result;
}

EXPORT nvmlReturn nvmlDeviceGetTotalEnergyConsumption(struct device *device,
                                                      unsigned long long *millijoules) {
    nvmlReturn result = device_ready(__func__, device, millijoules);
    if (!result)
        *millijoules = __atomic_fetch_add(&device->energy_mj,
                                          number("SIMNVML_ENERGY_STEP_MJ", 1000), __ATOMIC_RELAXED);
    return result;
}

enum { CLOCK_GRAPHICS, CLOCK_SM, CLOCK_MEM, CLOCK_VIDEO };

EXPORT nvmlReturn nvmlDeviceGetClockInfo(struct device *device, unsigned type, unsigned *mhz) {
    nvmlReturn result = device_ready(__func__, device, mhz);
    if (result)
        return result;
    switch (type) {
    case CLOCK_GRAPHICS:
        *mhz = (unsigned)number("SIMNVML_GRAPHICS_CLOCK_MHZ", 1410);
        return NVML_SUCCESS;
    case CLOCK_SM:
        *mhz = (unsigned)nth("SIMNVML_SM_CLOCK_MHZ", "1410", next(&device->clock_queries[0]));
        return NVML_SUCCESS;
    case CLOCK_MEM:
        *mhz = (unsigned)nth("SIMNVML_MEMORY_CLOCK_MHZ", "1593", next(&device->clock_queries[1]));
        return NVML_SUCCESS;
    case CLOCK_VIDEO:
        return NVML_ERROR_NOT_SUPPORTED;
    default:
        return NVML_ERROR_INVALID_ARGUMENT;
    }
}

static nvmlReturn clock_events(const char *function, struct device *device,
                               unsigned long long *reasons) {
    nvmlReturn result = device_ready(function, device, reasons);
    if (!result)
        *reasons = nth("SIMNVML_CLOCK_EVENTS", "0", next(&device->event_queries));
    return result;
}

EXPORT nvmlReturn nvmlDeviceGetCurrentClocksEventReasons(struct device *device,
                                                         unsigned long long *reasons) {
    return clock_events(__func__, device, reasons);
}

// The same by its name in older drivers.
EXPORT nvmlReturn nvmlDeviceGetCurrentClocksThrottleReasons(struct device *device,
                                                            unsigned long long *reasons) {
    return clock_events(__func__, device, reasons);
}

// Processes: SIMNVML_PROCESSES="pid:bytes,…", on every device.

struct process {
    unsigned pid;
    unsigned long long used;
};

enum { MAX_PROCESSES = 64 };

static unsigned processes(struct process *out) {
    const char *at = text("SIMNVML_PROCESSES", "");
    unsigned count = 0;
    while (*at && count < MAX_PROCESSES) {
        char *end;
        out[count].pid = (unsigned)strtoul(at, &end, 0);
        out[count].used = *end == ':' ? strtoull(end + 1, &end, 0) : 0;
        count++;
        at = *end == ',' ? end + 1 : "";
    }
    return count;
}

struct process_info {
    unsigned pid;
    unsigned long long used;
};

struct process_info_v2 {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

// Judges a query for a list, and says how many entries there are.
static nvmlReturn list_ready(const char *function, struct device *device, unsigned *count,
                             const void *list, struct process *found) {
    nvmlReturn result = device_ready(function, device, count);
    if (result)
        return result;
    unsigned room = *count;
    *count = processes(found);
    if (room < *count)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    return *count && !list ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

EXPORT nvmlReturn nvmlDeviceGetComputeRunningProcesses(struct device *device, unsigned *count,
                                                       struct process_info *list) {
    struct process found[MAX_PROCESSES];
    nvmlReturn result = list_ready(__func__, device, count, list, found);
    for (unsigned i = 0; !result && i < *count; i++)
        list[i] = (struct process_info){.pid = found[i].pid, .used = found[i].used};
    return result;
}

static nvmlReturn compute_processes(struct device *device, unsigned *count,
                                    struct process_info_v2 *list) {
    struct process found[MAX_PROCESSES];
    nvmlReturn result =
        list_ready("nvmlDeviceGetComputeRunningProcesses", device, count, list, found);
    for (unsigned i = 0; !result && i < *count; i++)
        list[i] = (struct process_info_v2){.pid = found[i].pid,
                                           .used = found[i].used,
                                           .gpu_instance = 0xffffffff,
                                           .compute_instance = 0xffffffff};
    return result;
}

EXPORT nvmlReturn nvmlDeviceGetComputeRunningProcesses_v2(struct device *device, unsigned *count,
                                                          struct process_info_v2 *list) {
    return compute_processes(device, count, list);
}

EXPORT nvmlReturn nvmlDeviceGetComputeRunningProcesses_v3(struct device *device, unsigned *count,
                                                          struct process_info_v2 *list) {
    return compute_processes(device, count, list);
}

struct process_sample {
    unsigned pid;
    unsigned long long timestamp; // microseconds
    unsigned sm, memory, encoder, decoder;
};

// A new sample every SIMNVML_PROCESS_QUERIES queries with a list (1), which are SIMNVML_QUERY_MS
// apart (1000). A process that did nothing has none.
EXPORT nvmlReturn nvmlDeviceGetProcessUtilization(struct device *device,
                                                  struct process_sample *list, unsigned *count,
                                                  unsigned long long after) {
    nvmlReturn result = device_ready(__func__, device, count);
    if (result)
        return result;
    struct process found[MAX_PROCESSES];
    unsigned n = processes(found),
             query = __atomic_load_n(&device->process_queries, __ATOMIC_RELAXED);
    unsigned each = (unsigned)number("SIMNVML_PROCESS_QUERIES", 1), sample = query / each;
    unsigned percent = (unsigned)nth("SIMNVML_PROCESS_PERCENT", "0", sample);
    unsigned long long timestamp = (sample + 1) * each * number("SIMNVML_QUERY_MS", 1000) * 1000;
    if (!list && n) {
        *count = n;
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    next(&device->process_queries);
    if (!n || !percent || timestamp <= after)
        return NVML_ERROR_NOT_FOUND;
    if (*count < n) {
        *count = n;
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    *count = n;
    for (unsigned i = 0; i < n; i++)
        list[i] =
            (struct process_sample){.pid = found[i].pid, .timestamp = timestamp, .sm = percent};
    return NVML_SUCCESS;
}

// What PyTorch's collectives ask of links.

static nvmlReturn no_links(struct device *device, const void *out) {
    nvmlReturn result = device_ready("nvmlDeviceGetNvLink", device, out);
    return result ? result : NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn nvmlDeviceGetNvLinkRemoteDeviceType(struct device *device, unsigned link UNUSED,
                                                      int *type) {
    return no_links(device, type);
}

EXPORT nvmlReturn nvmlDeviceGetNvLinkRemotePciInfo_v2(struct device *device, unsigned link UNUSED,
                                                      void *info) {
    return no_links(device, info);
}
