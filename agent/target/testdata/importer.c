// SPDX-License-Identifier: Apache-2.0
// A library that calls the driver without defining it.
int cuInit(unsigned flags);
int cuLaunchKernel(void *function);

int use_driver(void) {
    return cuInit(0) + cuLaunchKernel(0);
}
