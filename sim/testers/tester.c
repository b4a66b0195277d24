// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "tester.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct cu cu;
bool tester_opens_late;

static struct { const char *driver, *markers, *ready, *hold; } options;

static void (*marker_begin)(const char *);
static void (*marker_end)(void);

_Noreturn void tester_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

void tester_must(const char *what, CUresult got, CUresult wanted, const char *file, int line) {
    if (got != wanted)
        tester_fail("%s:%d: %s = %d, want %d", file, line, what, got, wanted);
}

// Options

static void usage(FILE *out, const char *purpose, const struct number_option *own) {
    fprintf(out, "usage: %s [options]\n%s\n", program_invocation_short_name, purpose);
    fputs("  --driver PATH   --markers PATH   --ready FILE   --hold FILE|-\n", out);
    for (; own->name; own++)
        fprintf(out, "  --%s N   %s (default %ld)\n", own->name, own->help, *own->value);
}

static bool set_text(const char *name, char *value) {
    const struct {
        const char *name;
        const char **text;
    } texts[] = {{"driver", &options.driver},
                 {"markers", &options.markers},
                 {"ready", &options.ready},
                 {"hold", &options.hold}};
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        if (!strcmp(name, texts[i].name)) {
            *texts[i].text = value;
            return true;
        }
    return false;
}

static bool set_number(const char *name, const char *text, const struct number_option *own) {
    while (own->name && strcmp(own->name, name))
        own++;
    if (!own->name)
        return false;
    char *end;
    *own->value = strtol(text, &end, 0);
    return *text && !*end && *own->value >= 0;
}

#ifndef STATIC_DRIVER
static const char *driver_beside(void) {
    static char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);
    if (n < 0)
        tester_fail("reading /proc/self/exe: %m");
    path[n] = 0;
    char *slash = strrchr(path, '/'); // …/sim/testers/NAME
    strcpy(slash, "/../libcuda.so.1");
    return path;
}
#endif

void tester_options(int argc, char **argv, const char *purpose, const struct number_option *own) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    options.ready = getenv("STAGEPROF_READY");
    for (int i = 1; i < argc; i += 2) {
        const char *name = argv[i];
        if (!strcmp(name, "--help")) {
            usage(stdout, purpose, own);
            exit(0);
        }
        if (strncmp(name, "--", 2) || i + 1 == argc ||
            !(set_text(name + 2, argv[i + 1]) || set_number(name + 2, argv[i + 1], own))) {
            fprintf(stderr, "%s: bad option or value at \"%s\"\n", program_invocation_short_name,
                    name);
            usage(stderr, purpose, own);
            exit(2);
        }
    }
    if (!tester_opens_late)
        tester_open();
}

// Driver and markers

#ifdef STATIC_DRIVER
void *simcuda_entry(const char *name);
void simcuda_tag(const char *);
void simcuda_reset_truth(void);
void simcuda_write_truth(const char *);
void simcuda_set_hook(void (*)(void));
void simcuda_set_kernel_ns(uint64_t);

static void open_driver(void) {
#define LOAD(name, arguments) *(void **)&cu.name = simcuda_entry(#name);
    CU_FUNCTIONS(LOAD)
#undef LOAD
#define LOAD(name, arguments) cu.name = name;
    CONTROL_FUNCTIONS(LOAD)
#undef LOAD
}
#else
static void open_driver(void) {
    const char *path = options.driver ? options.driver : driver_beside();
    void *library = dlopen(path, RTLD_NOW);
    if (!library)
        tester_fail("opening the driver: %s", dlerror());
#define LOAD(name, arguments) *(void **)&cu.name = dlsym(library, #name);
    CU_FUNCTIONS(LOAD)
    CONTROL_FUNCTIONS(LOAD)
#undef LOAD
}
#endif

static void open_markers(void) {
    if (!options.markers)
        return;
    void *library = dlopen(options.markers, RTLD_NOW);
    if (!library)
        tester_fail("opening the marker library: %s", dlerror());
    *(void **)&marker_begin = dlsym(library, "stageprof_begin");
    *(void **)&marker_end = dlsym(library, "stageprof_end");
    if (!marker_begin || !marker_end)
        tester_fail("%s has no stageprof_begin or stageprof_end", options.markers);
}

void tester_open(void) {
    open_driver();
    open_markers();
}

static void *function;

void *tester_context(void) {
    void *context, *module;
    MUST(cu.cuInit(0), 0);
    MUST(cu.cuDevicePrimaryCtxRetain(&context, 0), 0);
    MUST(cu.cuCtxSetCurrent(context), 0);
    MUST(cu.cuModuleLoadData(&module, "image"), 0);
    MUST(cu.cuModuleGetFunction(&function, module, "kernel"), 0);
    return context;
}

void *tester_function(void) {
    return function;
}

// Protocol

void sleep_ms(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t))
        ;
}

void wait_for_file(const char *path) {
    while (access(path, F_OK))
        sleep_ms(1);
}

void tester_ready(void) {
    puts("up");
    if (options.ready)
        wait_for_file(options.ready);
    if (cu.simcuda_reset_truth)
        cu.simcuda_reset_truth();
}

void tester_done(void) {
    puts("done");
    if (!options.hold)
        return;
    if (strcmp(options.hold, "-"))
        wait_for_file(options.hold);
    else
        while (getchar() != EOF)
            ;
}

// Stages

enum { PATH_SIZE = 4096, DEPTH = 64 };

static __thread struct {
    char path[PATH_SIZE];
    size_t lengths[DEPTH]; // of the path outside each open stage
    unsigned depth;
} stages;

const char *stage_path(void) {
    return stages.path;
}

static void tag(void) {
    if (cu.simcuda_tag)
        cu.simcuda_tag(stages.path);
}

void stage_begin(const char *name) {
    size_t length = strlen(stages.path);
    if (stages.depth == DEPTH || length + strlen(name) + 2 > PATH_SIZE)
        tester_fail("too many open stages");
    stages.lengths[stages.depth++] = length;
    sprintf(stages.path + length, "%s%s", length ? "/" : "", name);
    tag();
    if (marker_begin)
        marker_begin(name);
}

void stage_end(void) {
    if (marker_end)
        marker_end();
    stages.path[stages.lengths[--stages.depth]] = 0;
    tag();
}

// Expectations

void expect_at(int tid, const char *path, const char *symbol, uint64_t calls, uint64_t errors,
               uint64_t bytes) {
    if (calls)
        printf("{\"tid\":%d,\"tag\":\"%s\",\"symbol\":\"%s\",\"calls\":%lu,\"errors\":%lu,"
               "\"bytes\":%lu}\n",
               tid, path, symbol, calls, errors, bytes);
}

void expect(const char *symbol, uint64_t calls, uint64_t errors, uint64_t bytes) {
    expect_at(gettid(), stages.path, symbol, calls, errors, bytes);
}

void expect_spans(int tid, const char *path, uint64_t spans) {
    printf("{\"tid\":%d,\"tag\":\"%s\",\"spans\":%lu}\n", tid, path, spans);
}

void expect_context(void) {
    const char *const names[] = {"cuInit", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent",
                                 "cuModuleLoadData", "cuModuleGetFunction"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        expect(names[i], 1, 0, 0);
}

// Rounds of a loop

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void rounds_begin(struct rounds *rounds, long room) {
    *rounds = (struct rounds){.room = (uint64_t)room};
    rounds->ns = malloc((rounds->room + 1) * sizeof(*rounds->ns));
    if (!rounds->ns)
        tester_fail("no memory for the times of %ld rounds", room);
    memset(rounds->ns, 0xff, (rounds->room + 1) * sizeof(*rounds->ns)); // its pages are there
}

void round_begin(struct rounds *rounds) {
    rounds->begin = now_ns();
}

void round_end(struct rounds *rounds) {
    if (rounds->count == rounds->room)
        tester_fail("more than %lu rounds", rounds->room);
    rounds->ns[rounds->count++] = now_ns() - rounds->begin;
}

static int compare_times(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

void rounds_print(struct rounds *rounds) {
    uint64_t n = rounds->count, *ns = rounds->ns;
    if (!n)
        tester_fail("a loop without a round");
    qsort(ns, n, sizeof(*ns), compare_times);
    printf("rounds %lu, p50 %lu, p99 %lu, longest %lu\n", n, ns[(n - 1) / 2],
           ns[(n - 1) * 99 / 100], ns[n - 1]);
    free(ns);
}
