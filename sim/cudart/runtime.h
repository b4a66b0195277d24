// SPDX-License-Identifier: Apache-2.0
//
// What the files of this runtime share: the driver's functions, the calling thread's state and
// the two ways to enter a runtime call.
#ifndef SIM_CUDART_RUNTIME_H
#define SIM_CUDART_RUNTIME_H

#include "types.h"

#define RUNTIME_API __attribute__((visibility("default")))

// The driver's functions, each under its own name; filled before the first use.
struct driver_calls {
#define DRIVER_CALL(name, version, parameters) int(*name) parameters;
#include "driver_calls.inc"
#undef DRIVER_CALL
};
extern struct driver_calls driver;

// Looks a driver function up as cuGetProcAddress_v2 does; needs enter_driver().
int driver_lookup(const char *name, void **address, int version, uint64_t flags, int *status);

// Loads and initialises the driver once per process. Returns what every call must then return.
rt_error enter_driver(void);

// As enter_driver(), and makes the primary context of the thread's device current on its first
// call, as the real runtime does lazily.
rt_error enter_device(void);

// Remembers an error for cudaGetLastError() and passes it on.
rt_error finish(rt_error error);

// A runtime call is one driver call behind the entry that it needs:
//   return ON_DEVICE(driver.cuMemFreeHost(address));
#define ON_DRIVER(call) finish(enter_driver() ?: (call))
#define ON_DEVICE(call) finish(enter_device() ?: (call))

// The version of the loaded driver, 0 when there is none, and its number of devices.
int driver_version(void);
int device_count(void);

// The kernel that nvcc's stub registered for a host function, loaded on first use.
rt_error find_kernel(const void *host, handle *kernel);

#endif
