// SPDX-License-Identifier: Apache-2.0
#include "truthfile.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "entry.h"
#include "rows.h"
#include "tags.h"
#include "threads.h"

CONTROL void simcuda_write_truth(const char *path);
CONTROL void simcuda_reset_truth(void);

static uint64_t read_counter(const uint64_t *counter) {
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

// Calls f(thread, row) for every row of every thread.
static void each_row(void (*f)(void *, const struct thread *, struct row *), void *context) {
    for (struct thread *t = threads_all(); t; t = t->next) {
        struct rows *table = __atomic_load_n(&t->rows, __ATOMIC_ACQUIRE);
        for (unsigned i = 0; table && i <= table->mask; i++) {
            struct row *row = __atomic_load_n(&table->slots[i], __ATOMIC_ACQUIRE);
            if (row)
                f(context, t, row);
        }
    }
}

// Completed first: what is added between two reads may then appear as unfinished, never as
// negative.
static struct counters since_reset(const struct row *row) {
    const struct counters *now = &row->now, *base = &row->base;
    struct counters c;
    c.calls = read_counter(&now->calls) - base->calls;
    c.inner = read_counter(&now->inner) - base->inner;
    c.errors = read_counter(&now->errors) - base->errors;
    c.bytes = read_counter(&now->bytes) - base->bytes;
    c.wall_ns = read_counter(&now->wall_ns) - base->wall_ns;
    c.started = read_counter(&now->started) - base->started;
    return c;
}

// Length of the UTF-8 character at text, or 0: names of threads are cut at 15 bytes, and tags are
// anyone's.
static unsigned character(const unsigned char *text) {
    unsigned char first = text[0];
    unsigned length = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (first > 0xf4)
        return 0;
    for (unsigned i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

static void write_string(FILE *f, const char *text) {
    putc('"', f);
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        unsigned length = character(c);
        if (!length)
            fputs("\\ufffd", f);
        else if (*c == '"' || *c == '\\')
            fprintf(f, "\\%c", *c);
        else if (*c < 0x20)
            fprintf(f, "\\u%04x", *c);
        else
            fwrite(c, 1, length, f);
        c += length ? length : 1;
    }
    putc('"', f);
}

struct output {
    FILE *file;
    bool any;
};

static void write_row(void *context, const struct thread *t, struct row *row) {
    struct output *out = context;
    struct counters c = since_reset(row);
    if (!c.started && !c.inner)
        return;
    FILE *f = out->file;
    fprintf(f, "%s\n{\"tid\":%d,\"thread\":%u,\"name\":", out->any ? "," : "", t->tid, t->number);
    out->any = true;
    write_string(f, t->name);
    fprintf(f, ",\"tag\":");
    write_string(f, tag_text(row->tag));
    fprintf(f,
            ",\"symbol\":\"%s\",\"calls\":%lu,\"unfinished\":%lu,\"inner\":%lu,\"errors\":%lu,"
            "\"bytes\":%lu,\"wall_ns\":%lu}",
            simcuda_names[row->symbol], c.calls, c.started - c.calls, c.inner, c.errors, c.bytes,
            c.wall_ns);
}

static bool write_file(const char *path) {
    struct output out = {.file = fopen(path, "we")};
    if (!out.file)
        return false;
    fprintf(out.file, "{\"pid\":%d,\"rows\":[", getpid());
    each_row(write_row, &out);
    fprintf(out.file, "\n]}\n");
    bool good = !ferror(out.file);
    return !fclose(out.file) && good;
}

// Replaces "%p" by the process id. False if the result does not fit.
static bool expand(const char *path, char *out, size_t size) {
    const char *mark = strstr(path, "%p");
    int n = mark ? snprintf(out, size, "%.*s%d%s", (int)(mark - path), path, getpid(), mark + 2)
                 : snprintf(out, size, "%s", path);
    return n >= 0 && (size_t)n < size;
}

void truthfile_write(const char *path) {
    char final[PATH_MAX], beside[PATH_MAX + sizeof(".part")];
    if (!expand(path, final, sizeof(final))) {
        fprintf(stderr, "simcuda: writing truth to \"%s\": path too long\n", path);
        return;
    }
    struct stat there;
    if (!stat(final, &there) && !S_ISREG(there.st_mode)) { // a device must not be replaced
        if (!write_file(final))
            fprintf(stderr, "simcuda: writing truth to \"%s\": %s\n", final, strerror(errno));
        return;
    }
    snprintf(beside, sizeof(beside), "%s.part", final);
    if (!write_file(beside) || rename(beside, final))
        fprintf(stderr, "simcuda: writing truth to \"%s\": %s\n", final, strerror(errno));
}

void simcuda_write_truth(const char *path) {
    truthfile_write(path);
}

static void rebase(void *context UNUSED, const struct thread *t UNUSED, struct row *row) {
    const struct counters *now = &row->now;
    struct counters *base = &row->base;
    // A call in progress belongs to the time after the reset, in which it returns.
    base->calls = read_counter(&now->calls);
    base->started = base->calls;
    base->inner = read_counter(&now->inner);
    base->errors = read_counter(&now->errors);
    base->bytes = read_counter(&now->bytes);
    base->wall_ns = read_counter(&now->wall_ns);
}

void simcuda_reset_truth(void) {
    each_row(rebase, NULL);
}
