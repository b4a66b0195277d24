// SPDX-License-Identifier: Apache-2.0
// forger: --threads threads that pass the marker library's probe points directly, at full speed and
// with whatever arguments: slots that are none, depths that can't be, names that can't be read,
// names of bytes that no name has. Between forged markers each thread launches, as often as --calls
// says; the calls are all there is to be counted on.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "tester.h"

enum { MAX_THREADS = 16, MARKERS_PER_CALL = 10, SLOT = 4096, NAME = 128 };

typedef void mark(void *slot, const void *name, uint32_t depth);

static long threads = 2, calls = 20000, times;
static const char *const points[] = {
    "stageprof_mark_begin",
    "stageprof_mark_end",
    "stageprof_mark_process_begin",
    "stageprof_mark_process_end",
};
static mark *marks[4];
static void *context;
static char *unreadable; // a page without access

// One thread's forgeries.
struct forger {
    uint64_t random;
    uint8_t slot[SLOT];
    char names[64][NAME];
};

static uint64_t next(struct forger *f) {
    f->random ^= f->random << 13;
    f->random ^= f->random >> 7;
    return f->random ^= f->random << 17;
}

static const void *any_name(struct forger *f) {
    switch (next(f) % 8) {
    case 0:
        return NULL;
    case 1:
        return unreadable;
    case 2:
        return unreadable - 3; // begins readable
    case 3:
        return (void *)next(f);
    default:
        return f->names[next(f) % 64];
    }
}

static void *any_slot(struct forger *f) {
    switch (next(f) % 4) {
    case 0:
        return unreadable;
    case 1:
        return (void *)next(f);
    default:
        return f->slot;
    }
}

static uint32_t any_depth(struct forger *f) {
    uint64_t r = next(f);
    return r % 4 ? (uint32_t)(r >> 32) % 80 : (uint32_t)(r >> 32);
}

static void forge(struct forger *f) {
    uint32_t depth = any_depth(f);
    void *slot = any_slot(f);
    // What the slot says is forged, too: a depth, and names for the open stages.
    if (next(f) % 16 == 0)
        for (size_t i = 0; i + 8 <= SLOT; i += 8) {
            uint64_t word = i % 16 ? (uint64_t)any_name(f) : next(f);
            memcpy(f->slot + i, &word, sizeof(word));
        }
    memcpy(f->slot + 4, &depth, sizeof(depth));
    marks[next(f) % 4](slot, any_name(f), depth);
}

static void *work(void *argument) {
    static struct forger all[MAX_THREADS];
    struct forger *f = &all[(long)argument];
    f->random = 88172645463325252u + (uint64_t)(long)argument;
    for (int i = 0; i < 64; i++)
        for (int j = 0; j < NAME; j++) // many have no end
            f->names[i][j] = (char)next(f);
    MUST(cu.cuCtxSetCurrent(context), 0);
    struct rounds rounds;
    rounds_begin(&rounds, calls);
    for (long i = 0; i < calls; i++) {
        round_begin(&rounds);
        for (int j = 0; j < MARKERS_PER_CALL; j++)
            forge(f);
        MUST(cu.cuLaunchKernel(tester_function(), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 0);
        round_end(&rounds);
    }
    if (times)
        rounds_print(&rounds);
    return NULL;
}

static void find_points(void) {
    for (int i = 0; i < 4; i++) {
        *(void **)&marks[i] = dlsym(RTLD_DEFAULT, points[i]);
        if (!marks[i])
            tester_fail("there is no %s: LD_PRELOAD the marker library", points[i]);
    }
}

int main(int argc, char **argv) {
    pthread_t started[MAX_THREADS];
    const struct number_option own[] = {
        {"threads", "threads that forge", &threads},
        {"calls", "launches of each thread, with ten forged markers before each", &calls},
        {"times", "1: say how long each launch with its markers took, by thread", &times},
        {NULL, NULL, NULL},
    };
    tester_options(argc, argv, "Passes the markers' probe points with forged arguments.", own);
    if (threads < 1 || threads > MAX_THREADS)
        tester_fail("1 to %d threads", MAX_THREADS);
    find_points();
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + 4096, 4096, PROT_NONE))
        tester_fail("making a page without access: %m");
    memset(pages, 'x', 4096);
    unreadable = pages + 4096;
    context = tester_context();
    tester_ready();
    for (long i = 0; i < threads; i++)
        if (pthread_create(&started[i], NULL, work, (void *)i))
            tester_fail("starting a thread: %m");
    for (long i = 0; i < threads; i++)
        pthread_join(started[i], NULL);
    tester_done();
    return 0;
}
