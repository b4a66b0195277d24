// SPDX-License-Identifier: Apache-2.0
// The least that makes a file a driver. LOCAL hides it, so that it is in the symbol table only.
#ifdef LOCAL
#define API __attribute__((visibility("hidden"), used))
#else
#define API __attribute__((visibility("default")))
#endif

API int cuInit(unsigned flags) {
    return (int)flags;
}
API int cuLaunchKernel(void *function) {
    return function != 0;
}
API int cuMemAlloc_v2(void *address, unsigned long size) {
    return address != 0 && size != 0;
}

// Names that only look like the API.
API int cub_sort(void) {
    return 1;
}
API int custom(void) {
    return 2;
}
