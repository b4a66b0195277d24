// SPDX-License-Identifier: Apache-2.0
// callers: calls from places that a stack must name, in the stage of the place's name:
//
//   site_one, site_two  functions of this program with symbols: cuLaunchKernel, N and 2 N times
//   stripped            a function without a symbol in libcallers.so, which is stripped:
//   cuLaunchKernelEx, 3 N anonymous           code in anonymous memory, as a JIT compiler makes it:
//   cuLaunchKernelEx, 4 N
//
// Prints for each {"site":NAME,"start":ADDRESS,"end":ADDRESS}: the caller's address lies in that
// range.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "callers.h"
#include "tester.h"

static long calls = 100;

// The two functions must stay two, must not be inlined, and must not end in a jump to the driver.
#define SITE __attribute__((noinline, noclone, used))

SITE CUresult site_one(void) {
    CUresult result = cu.cuLaunchKernel(tester_function(), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    __asm__ volatile("" ::: "memory");
    return result;
}

SITE CUresult site_two(void) {
    CUresult result = cu.cuLaunchKernel(tester_function(), 2, 2, 2, 2, 2, 2, 0, NULL, NULL, NULL);
    __asm__ volatile("" ::: "memory");
    return result;
}

// push %rbp; mov %rsp,%rbp; call *%r8; pop %rbp; ret
static const unsigned char anonymous_code[] = {0x55, 0x48, 0x89, 0xe5, 0x41,
                                               0xff, 0xd0, 0x5d, 0xc3};

static via_function *make_anonymous(void) {
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        tester_fail("mapping memory: %m");
    memcpy(page, anonymous_code, sizeof(anonymous_code));
    if (mprotect(page, 4096, PROT_READ | PROT_EXEC))
        tester_fail("making memory executable: %m");
    return (via_function *)page;
}

static struct callers_site open_stripped(void) {
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);
    if (n < 0)
        tester_fail("reading /proc/self/exe: %m");
    path[n] = 0;
    strcpy(strrchr(path, '/'), "/libcallers.so");
    void *library = dlopen(path, RTLD_NOW);
    if (!library)
        tester_fail("opening %s: %s", path, dlerror());
    struct callers_site (*site)(void);
    *(void **)&site = dlsym(library, "callers_site");
    return site();
}

static void print_site(const char *name, const void *start, size_t size) {
    printf("{\"site\":\"%s\",\"start\":%lu,\"end\":%lu}\n", name, (uintptr_t)start,
           (uintptr_t)start + size);
}

static void call_named(const char *stage, CUresult (*site)(void), long count) {
    stage_begin(stage);
    for (long i = 0; i < count; i++)
        MUST(site(), 0);
    expect("cuLaunchKernel", (uint64_t)count, 0, 0);
    stage_end();
}

static void call_via(const char *stage, via_function *via, long count) {
    const struct launch_config config = {.grid = {1, 1, 1}, .block = {1, 1, 1}};
    if (!cu.cuLaunchKernelEx)
        return;
    stage_begin(stage);
    for (long i = 0; i < count; i++)
        MUST(via(&config, tester_function(), NULL, NULL, cu.cuLaunchKernelEx), 0);
    expect("cuLaunchKernelEx", (uint64_t)count, 0, 0);
    stage_end();
}

int main(int argc, char **argv) {
    enum { SITE_SIZE = 128 }; // of the two named functions, at most
    const struct number_option own[] = {
        {"calls", "N", &calls},
        {NULL, NULL, NULL},
    };
    tester_options(argc, argv, "Calls from named, stripped and anonymous code.", own);
    tester_context();
    via_function *anonymous = make_anonymous();
    struct callers_site stripped = open_stripped();
    print_site("site_one", (const void *)site_one, SITE_SIZE);
    print_site("site_two", (const void *)site_two, SITE_SIZE);
    print_site("stripped", (const void *)stripped.via, stripped.size);
    print_site("anonymous", (const void *)anonymous, sizeof(anonymous_code));
    tester_ready();
    call_named("site_one", site_one, calls);
    call_named("site_two", site_two, 2 * calls);
    call_via("stripped", stripped.via, 3 * calls);
    call_via("anonymous", anonymous, 4 * calls);
    tester_done();
    return 0;
}
