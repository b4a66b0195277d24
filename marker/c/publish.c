// SPDX-License-Identifier: Apache-2.0
//
// Tells OpenTelemetry's profilers the stage of each thread, as the thread context
// of OTEP 4947: a thread-local pointer to a record, which names attributes by
// their numbers in the process context of OTEP 4719.
//
// There is one record for each name, made with it and never changed. So a stage
// begins and ends by one store to the pointer, which is right at any moment that
// a signal, a fork or a profiler may choose.
#define _GNU_SOURCE
#include "internal.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

// Initial-exec, as STAGEPROF_TLS and for its reasons; profilers read all models.
STAGEPROF_API __thread __attribute__((tls_model("initial-exec")))
const struct stageprof_record *otel_thread_ctx_v1;

bool stageprof_publishing;

void stageprof_publish_stage(const struct stageprof_record *record) {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    STORE(&otel_thread_ctx_v1, LOAD(&stageprof_publishing) ? record : NULL);
}

// The process context: ProcessContext{attributes: [{schema version}, {key map}]}
// in protobuf. Each length counts what follows it in its message.
#define TEXT(length, text) "\x0a" length text // field 1
static const char payload[] = "\x12\x2e" TEXT("\x1a", "threadlocal.schema_version") "\x12\x10" TEXT(
    "\x0e", "tlsdesc_v1_dev") // string_value
    "\x12\x36" TEXT("\x1d", "threadlocal.attribute_key_map") "\x12\x15\x2a\x13\x0a\x11" TEXT(
        "\x0f", "stageprof.stage"); // array_value, its number 0

static const char signature[8] = {'O', 'T', 'E', 'L', '_', 'C', 'T', 'X'};

struct context {
    char signature[8];
    uint32_t version;
    uint32_t payload_size;
    uint64_t published_at_ns; // CLOCK_BOOTTIME
    const char *payload;
    char content[sizeof payload];
};

// The C library of old systems does not have the call.
enum { CLOSE_ON_EXEC = 1 };

static struct context *context;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// Whether the process has a context already: there should be one only, and a
// tracer's says more than ours.
static bool others_publish(void) {
    char piece[4096 + sizeof signature];
    size_t kept = 0;
    bool found = false;
    int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (maps < 0)
        return false;
    for (ssize_t n; !found && (n = read(maps, piece + kept, 4096)) > 0;) {
        size_t length = kept + (size_t)n;
        found = memmem(piece, length, signature, sizeof signature) != NULL;
        kept = length < sizeof signature ? length : sizeof signature - 1;
        memmove(piece, piece + length - kept, kept);
    }
    close(maps);
    return found;
}

// Named by its file, or else by prctl.
static struct context *map_context(void) {
    int flags = MAP_PRIVATE, file = (int)syscall(SYS_memfd_create, "OTEL_CTX", CLOSE_ON_EXEC);
    if (file < 0 || ftruncate(file, sizeof(struct context)) != 0)
        flags |= MAP_ANONYMOUS;
    void *mapped = mmap(NULL, sizeof(struct context), PROT_READ | PROT_WRITE, flags,
                        flags & MAP_ANONYMOUS ? -1 : file, 0);
    if (file >= 0)
        close(file);
    if (mapped == MAP_FAILED)
        return NULL;
    if (madvise(mapped, sizeof(struct context), MADV_DONTFORK) != 0) {
        munmap(mapped, sizeof(struct context));
        return NULL;
    }
    return mapped;
}

static uint64_t boot_time_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void begin_publishing(void) {
    struct context *c = map_context();
    if (c == NULL)
        return;
    memcpy(c->content, payload, sizeof payload);
    c->version = 2;
    c->payload_size = sizeof payload - 1;
    c->payload = c->content;
    memcpy(c->signature, signature, sizeof signature);
    STORE_RELEASE(&c->published_at_ns, boot_time_ns()); // readers take it from here on
    prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, c, sizeof *c, "OTEL_CTX");
    context = c;
    STORE(&stageprof_publishing, true);
}

static void end_publishing(void) {
    STORE(&stageprof_publishing, false);
    if (context != NULL)
        munmap(context, sizeof *context);
    context = NULL;
}

void stageprof_publish(int on) {
    pthread_mutex_lock(&lock);
    if (!on)
        end_publishing();
    else if (context == NULL && !others_publish())
        begin_publishing();
    pthread_mutex_unlock(&lock);
}

void stageprof_publish_first(void) {
    const char *setting = getenv("STAGEPROF_PUBLISH");
    if (setting == NULL || strcmp(setting, "0") != 0)
        stageprof_publish(1);
}

// The child has no context: it may have another name and life than its parent.
void stageprof_publish_after_fork(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    context = NULL;
    if (stageprof_publishing) {
        stageprof_publishing = false;
        begin_publishing();
    }
}
