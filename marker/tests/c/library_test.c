// SPDX-License-Identifier: Apache-2.0
//
// The built library as programs and observers meet it: loaded with dlopen, its
// registry read from another process, its probe points untouched.
//
// Usage: library_test PATH/libstageprof.so
#define _GNU_SOURCE
#include "check.h"
#include "stageprof.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/uio.h>

static void *library;

static void *symbol(const char *name) {
    void *address = dlsym(library, name);
    if (address == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return address;
}

static void begin(const char *name) {
    void (*f)(const char *);
    *(void **)&f = symbol("stageprof_begin");
    f(name);
}

static const struct stageprof_registry *registry(void) {
    return symbol("stageprof_registry");
}

static void read_other(pid_t pid, const void *address, void *to, size_t n) {
    struct iovec local = {to, n}, remote = {(void *)address, n};
    CHECK_EQUAL(process_vm_readv(pid, &local, 1, &remote, 1, 0), (long long)n);
}

static void *other_thread(void *ready) {
    begin("worker");
    CHECK_EQUAL(write(*(int *)ready, "x", 1), 1);
    pause();
    return NULL;
}

// Opens stages on two threads, says so through the pipe, and waits to be killed.
static void open_stages(int ready) {
    begin("step");
    begin("forward");
    pthread_t thread;
    CHECK_EQUAL(pthread_create(&thread, NULL, other_thread, &ready), 0);
    pthread_join(thread, NULL);
}

static const struct stageprof_thread *slot_of(const struct stageprof_thread *slots, uint32_t n,
                                              pid_t tid) {
    for (uint32_t i = 0; i < n; i++)
        if (slots[i].tid == (uint32_t)tid)
            return &slots[i];
    return NULL;
}

static void check_name(pid_t pid, const struct stageprof_name *address, const char *want) {
    struct stageprof_name name;
    read_other(pid, address, &name, sizeof name);
    CHECK_TEXT(name.text, want);
}

static void registry_is_readable_from_another_process(void) {
    int ready[2];
    char byte;
    CHECK_EQUAL(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        open_stages(ready[1]);
        _exit(1);
    }
    CHECK_EQUAL(read(ready[0], &byte, 1), 1);

    // The child's layout is ours, for it is a fork.
    struct stageprof_registry r;
    read_other(pid, registry(), &r, sizeof r);
    CHECK_EQUAL(memcmp(r.magic, "STAGEPRF", 8), 0);
    CHECK_EQUAL(r.abi, 1);
    CHECK_EQUAL(r.thread_size, 1032);
    CHECK_EQUAL(r.thread_count, 4096);
    CHECK_EQUAL(r.threads_used, 2);

    struct stageprof_thread slots[2];
    read_other(pid, r.threads, slots, sizeof slots);
    const struct stageprof_thread *main_slot = slot_of(slots, 2, pid);
    CHECK(main_slot != NULL);
    const struct stageprof_thread *worker_slot = main_slot == slots ? slots + 1 : slots;
    CHECK_EQUAL(main_slot->depth, 2);
    check_name(pid, main_slot->open[0].name, "step");
    check_name(pid, main_slot->open[1].name, "forward");
    CHECK(main_slot->open[0].begin_ns <= main_slot->open[1].begin_ns);
    CHECK_EQUAL(worker_slot->depth, 1);
    check_name(pid, worker_slot->open[0].name, "worker");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void probe_points_begin_with_a_nop(void) {
#if defined(__x86_64__)
    static const unsigned char nop[] = {0x90};
#else
    static const unsigned char nop[] = {0x1f, 0x20, 0x03, 0xd5};
#endif
    static const char *const points[] = {"stageprof_mark_begin", "stageprof_mark_end",
                                         "stageprof_mark_process_begin",
                                         "stageprof_mark_process_end"};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        CHECK_EQUAL(memcmp(symbol(points[i]), nop, sizeof nop), 0);
}

static void closing_does_not_unload(void) {
    const struct stageprof_registry *r = registry();
    begin("a");
    CHECK_EQUAL(dlclose(library), 0);
    CHECK_EQUAL(r->threads[0].depth, 1);
}

static void loading_by_soname_finds_the_loaded_one(void) {
    void *again = dlopen("libstageprof.so.1", RTLD_NOW | RTLD_NOLOAD);
    CHECK(again == library);
}

#define TEST(f)                                                                                    \
    { #f, f }

int main(int argc, char **argv) {
    static const struct test tests[] = {
        TEST(registry_is_readable_from_another_process),
        TEST(probe_points_begin_with_a_nop),
        TEST(closing_does_not_unload),
        TEST(loading_by_soname_finds_the_loaded_one),
    };
    if (argc < 2 || (library = dlopen(argv[1], RTLD_NOW)) == NULL) {
        fprintf(stderr, "usage: library_test PATH/libstageprof.so [TEST]\n");
        return 2;
    }
    return run_tests(tests, sizeof tests / sizeof *tests, argc - 1, argv + 1);
}
