// SPDX-License-Identifier: Apache-2.0
//
// Finding the driver. As NVIDIA's runtime does, only cuGetProcAddress_v2 is looked up by name in
// libcuda.so.1; it answers for all the others with the address of the exported spelling.
#include "runtime.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

struct driver_calls driver;

static const struct {
    const char *name;
    int version;
    size_t offset; // in struct driver_calls
} wanted[] = {
#define DRIVER_CALL(name, version, parameters)                                                     \
    {#name, version, offsetof(struct driver_calls, name)},
#include "driver_calls.inc"
#undef DRIVER_CALL
};

static pthread_once_t loaded = PTHREAD_ONCE_INIT;
static rt_error load_error;
static int version;
static int devices;
static int (*get_proc_address)(const char *, void **, int, uint64_t, int *);

// Stands in for what the driver lacks. The caller's arguments don't matter to a function that
// reads none of them.
static int absent(void) {
    return RT_CALL_REQUIRES_NEWER_DRIVER;
}

static void resolve(void) {
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        void *address = NULL;
        int status;
        get_proc_address(wanted[i].name, &address, wanted[i].version, 0, &status);
        if (!address) {
            int (*fallback)(void) = absent;
            memcpy(&address, &fallback, sizeof(address));
        }
        memcpy((char *)&driver + wanted[i].offset, &address, sizeof(address));
    }
}

static rt_error initialise(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        return RT_INSUFFICIENT_DRIVER;
    void *address = dlsym(library, "cuGetProcAddress_v2");
    if (!address)
        return RT_INSUFFICIENT_DRIVER;
    memcpy(&get_proc_address, &address, sizeof(get_proc_address));
    resolve();

    driver.cuDriverGetVersion(&version);
    rt_error error = driver.cuInit(0);
    if (!error)
        error = driver.cuDeviceGetCount(&devices);
    if (!error && devices == 0)
        error = RT_NO_DEVICE;
    return error;
}

static void load(void) {
    load_error = initialise();
}

rt_error enter_driver(void) {
    pthread_once(&loaded, load);
    return load_error;
}

int driver_version(void) {
    enter_driver();
    return version;
}

int device_count(void) {
    return devices;
}

int driver_lookup(const char *name, void **address, int asked, uint64_t flags, int *status) {
    return get_proc_address(name, address, asked, flags, status);
}
