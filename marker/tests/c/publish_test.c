// SPDX-License-Identifier: Apache-2.0
//
// Published stages as a profiler of OpenTelemetry finds them: by the library's
// ELF symbols and relocations, the process's mappings, and the memory of a
// stopped thread.
//
// Usage: publish_test PATH/libstageprof.so
#define _GNU_SOURCE
#include "check.h"
#include "stageprof.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>

static void *library;
static void (*begin)(const char *);
static void (*end)(void);
static void (*publish)(int);

static void read_other(pid_t pid, uint64_t address, void *to, size_t n) {
    struct iovec local = {to, n}, remote = {(void *)(uintptr_t)address, n};
    CHECK_EQUAL(process_vm_readv(pid, &local, 1, &remote, 1, 0), (long long)n);
}

// The address of the thread context's offset from the thread pointer, which the
// loader has put where the relocation says.
static uint64_t offset_slot(void) {
    struct link_map *map;
    CHECK_EQUAL(dlinfo(library, RTLD_DI_LINKMAP, &map), 0);
    const ElfW(Rela) *relocations = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    size_t size = 0;
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_RELA)
            relocations = (void *)d->d_un.d_ptr;
        else if (d->d_tag == DT_RELASZ)
            size = d->d_un.d_val;
        else if (d->d_tag == DT_SYMTAB)
            symbols = (void *)d->d_un.d_ptr;
        else if (d->d_tag == DT_STRTAB)
            strings = (void *)d->d_un.d_ptr;
    }
    CHECK(relocations && symbols && strings);
    for (size_t i = 0; i < size / sizeof *relocations; i++) {
        const ElfW(Sym) *symbol = &symbols[ELF64_R_SYM(relocations[i].r_info)];
        if (strcmp(strings + symbol->st_name, "otel_thread_ctx_v1") != 0)
            continue;
        CHECK_EQUAL(ELF64_ST_TYPE(symbol->st_info), STT_TLS);
        CHECK_EQUAL(ELF64_ST_BIND(symbol->st_info), STB_GLOBAL);
        CHECK_EQUAL(ELF64_R_TYPE(relocations[i].r_info), R_X86_64_TPOFF64);
        return map->l_addr + relocations[i].r_offset;
    }
    CHECK(!"there is a relocation of the symbol");
    return 0;
}

static uint64_t thread_pointer_of_stopped(pid_t tid) {
    struct user_regs_struct registers;
    int status;
    CHECK_EQUAL(ptrace(PTRACE_SEIZE, tid, 0, 0), 0);
    CHECK_EQUAL(ptrace(PTRACE_INTERRUPT, tid, 0, 0), 0);
    CHECK_EQUAL(waitpid(tid, &status, __WALL), tid);
    CHECK_EQUAL(ptrace(PTRACE_GETREGS, tid, 0, &registers), 0);
    return registers.fs_base;
}

// What a stopped thread's record says, as the document lays it out.
struct seen {
    bool attached;
    unsigned char header[28];
    unsigned char attributes[640];
    uint16_t size;
};

static struct seen look(pid_t pid, pid_t tid) {
    struct seen seen = {0};
    uint64_t pointer = thread_pointer_of_stopped(tid), offset, record;
    read_other(pid, offset_slot(), &offset, sizeof offset);
    read_other(pid, pointer + offset, &record, sizeof record);
    seen.attached = record != 0;
    if (seen.attached) {
        CHECK_EQUAL(record % 2, 0);
        read_other(pid, record, seen.header, sizeof seen.header);
        memcpy(&seen.size, seen.header + 26, sizeof seen.size);
        CHECK(seen.size <= sizeof seen.attributes - 28);
        read_other(pid, record + 28, seen.attributes, seen.size);
    }
    CHECK_EQUAL(ptrace(PTRACE_DETACH, tid, 0, 0), 0);
    return seen;
}

static void expect_stage(pid_t pid, pid_t tid, const char *stage) {
    static const unsigned char no_trace[24];
    struct seen seen = look(pid, tid);
    CHECK(seen.attached);
    CHECK_EQUAL(memcmp(seen.header, no_trace, sizeof no_trace), 0);
    CHECK_EQUAL(seen.header[24], 1); // valid
    CHECK_EQUAL(seen.header[25], 0); // trace flags
    CHECK_EQUAL(seen.size, 2 + strlen(stage));
    CHECK_EQUAL(seen.attributes[0], 0); // the number of stageprof.stage
    CHECK_EQUAL(seen.attributes[1], strlen(stage));
    CHECK_EQUAL(memcmp(seen.attributes + 2, stage, strlen(stage)), 0);
}

// The address of a process's context, 0 if it has none.
static uint64_t context_of(pid_t pid) {
    char path[64], line[4096];
    uint64_t found = 0, start;
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "r");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps))
        if ((strstr(line, "/memfd:OTEL_CTX") || strstr(line, "[anon_shmem:OTEL_CTX]") ||
             strstr(line, "[anon:OTEL_CTX]")) &&
            sscanf(line, "%lx", &start) == 1) {
            CHECK_EQUAL(found, 0); // there is one only
            found = start;
        }
    fclose(maps);
    return found;
}

// A field of a protobuf message whose value has a length; the message goes on behind it.
struct message {
    const unsigned char *at;
    size_t size;
};

static struct message field(struct message *m, unsigned number) {
    CHECK(m->size >= 2);
    CHECK_EQUAL(m->at[0], number << 3 | 2);
    struct message value = {m->at + 2, m->at[1]};
    CHECK(value.size < 128 && value.size + 2 <= m->size);
    m->at += 2 + value.size;
    m->size -= 2 + value.size;
    return value;
}

static void expect_text(struct message m, const char *want) {
    CHECK_EQUAL(m.size, strlen(want));
    CHECK_EQUAL(memcmp(m.at, want, m.size), 0);
}

static void expect_context(pid_t pid) {
    struct {
        char signature[8];
        uint32_t version, size;
        uint64_t published_at_ns, payload;
    } header;
    unsigned char payload[1024];
    uint64_t address = context_of(pid);
    CHECK(address != 0);
    read_other(pid, address, &header, sizeof header);
    CHECK_EQUAL(memcmp(header.signature, "OTEL_CTX", 8), 0);
    CHECK_EQUAL(header.version, 2);
    CHECK(header.published_at_ns != 0);
    CHECK(header.size <= sizeof payload);
    read_other(pid, header.payload, payload, header.size);

    struct message context = {payload, header.size};
    struct message schema = field(&context, 2), keys = field(&context, 2), value;
    CHECK_EQUAL(context.size, 0);
    expect_text(field(&schema, 1), "threadlocal.schema_version");
    value = field(&schema, 2);
    expect_text(field(&value, 1), "tlsdesc_v1_dev");
    expect_text(field(&keys, 1), "threadlocal.attribute_key_map");
    value = field(&keys, 2);
    struct message array = field(&value, 5);
    CHECK_EQUAL(value.size + keys.size + schema.size, 0);
    struct message first = field(&array, 1);
    CHECK_EQUAL(array.size, 0);
    expect_text(field(&first, 1), "stageprof.stage");
}

// A child whose threads stay in stages, for others to look at.

struct child {
    pid_t pid, worker;
    int done; // closing it ends the child
};

static int ready[2], done[2];

static void *work(void *unused) {
    (void)unused;
    pid_t tid = (pid_t)syscall(SYS_gettid);
    begin("worker");
    CHECK_EQUAL(write(ready[1], &tid, sizeof tid), sizeof tid);
    pause();
    return NULL;
}

static struct child start(void (*prepare)(void)) {
    struct child child;
    CHECK_EQUAL(pipe(ready), 0);
    CHECK_EQUAL(pipe(done), 0);
    child.pid = fork();
    if (child.pid == 0) {
        char byte;
        pthread_t thread;
        close(done[1]);
        prepare();
        CHECK_EQUAL(pthread_create(&thread, NULL, work, NULL), 0);
        CHECK_EQUAL(read(done[0], &byte, 1), 0);
        _exit(0);
    }
    close(done[0]);
    child.done = done[1];
    CHECK_EQUAL(read(ready[0], &child.worker, sizeof child.worker), sizeof child.worker);
    return child;
}

static void stop(struct child child) {
    close(child.done);
    CHECK(succeeded(child.pid));
}

static void nested(void) {
    begin("step");
    begin("größer");
    begin("inner");
    end();
}

static void a_profiler_finds_each_threads_stage(void) {
    struct child child = start(nested);
    expect_context(child.pid);
    expect_stage(child.pid, child.pid, "größer");
    expect_stage(child.pid, child.worker, "worker");
    stop(child);
}

static void long_name(void) {
    char name[300];
    memset(name, 'x', sizeof name);
    name[299] = 0;
    begin(name);
}

static void the_longest_name_fits(void) {
    struct child child = start(long_name);
    CHECK_EQUAL(look(child.pid, child.pid).size, 2 + STAGEPROF_NAME_SIZE - 1);
    stop(child);
}

static void ended(void) {
    begin("step");
    end();
}

static void a_thread_without_stages_has_no_record(void) {
    struct child child = start(ended);
    CHECK(!look(child.pid, child.pid).attached);
    expect_context(child.pid);
    stop(child);
}

static void from_deep(void) {
    for (int i = 0; i < STAGEPROF_DEPTH + 2; i++)
        begin("deep");
    end();
}

static void below_what_is_remembered_the_stage_is_not_known(void) {
    struct child child = start(from_deep);
    expect_stage(child.pid, child.pid, "(too deep)");
    stop(child);
}

static void unwanted(void) {
    setenv("STAGEPROF_PUBLISH", "0", 1);
    nested();
}

static void the_environment_switches_it_off(void) {
    struct child child = start(unwanted);
    CHECK(!look(child.pid, child.pid).attached);
    CHECK_EQUAL(context_of(child.pid), 0);
    stop(child);
}

static void switched_off(void) {
    begin("step");
    publish(0);
    begin("forward");
}

static void the_program_switches_it_off(void) {
    struct child child = start(switched_off);
    CHECK(!look(child.pid, child.pid).attached);
    CHECK_EQUAL(context_of(child.pid), 0);
    stop(child);
}

static void switched_on_again(void) {
    switched_off();
    publish(1);
    publish(1);
    begin("attention");
}

static void the_program_switches_it_on_again(void) {
    struct child child = start(switched_on_again);
    expect_context(child.pid);
    expect_stage(child.pid, child.pid, "attention");
    stop(child);
}

// Another publisher's context, as far as its name goes.
static void tracer(void) {
    int file = (int)syscall(SYS_memfd_create, "OTEL_CTX", 1);
    CHECK_EQUAL(ftruncate(file, 4096), 0);
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0) != MAP_FAILED);
    close(file);
    nested();
}

static void it_makes_way_for_others(void) {
    struct child child = start(tracer);
    CHECK(!look(child.pid, child.pid).attached);
    CHECK(context_of(child.pid) != 0); // one only
    stop(child);
}

// A forked child publishes for itself: what its parent has mapped is not there.
static void a_forked_child_publishes_itself(void) {
    begin("parent");
    uint64_t own = context_of(getpid());
    CHECK(own != 0);
    struct child child = start(nested);
    expect_context(child.pid);
    expect_stage(child.pid, child.pid, "größer");
    stop(child);
    CHECK_EQUAL(context_of(getpid()), own);
}

static void *own_context(void) {
    void **context = dlsym(library, "otel_thread_ctx_v1"); // of the calling thread
    CHECK(context != NULL);
    return *context;
}

static void handle(int number) {
    (void)number;
    begin("handler");
    CHECK_TEXT((const char *)own_context() + 30, "handler");
    end();
}

static void handlers_leave_the_record_right(void) {
    signal(SIGUSR1, handle);
    begin("step");
    void *step = own_context();
    raise(SIGUSR1);
    CHECK(own_context() == step);
    begin("forward");
    raise(SIGUSR1);
    CHECK_TEXT((const char *)own_context() + 30, "forward");
    end();
    CHECK(own_context() == step);
    end();
    CHECK(own_context() == NULL);
}

#define TEST(f)                                                                                    \
    { #f, f }

int main(int argc, char **argv) {
    static const struct test tests[] = {
        TEST(a_profiler_finds_each_threads_stage),
        TEST(the_longest_name_fits),
        TEST(a_thread_without_stages_has_no_record),
        TEST(below_what_is_remembered_the_stage_is_not_known),
        TEST(the_environment_switches_it_off),
        TEST(the_program_switches_it_off),
        TEST(the_program_switches_it_on_again),
        TEST(it_makes_way_for_others),
        TEST(a_forked_child_publishes_itself),
        TEST(handlers_leave_the_record_right),
    };
    if (argc < 2 || (library = dlopen(argv[1], RTLD_NOW)) == NULL) {
        fprintf(stderr, "usage: publish_test PATH/libstageprof.so [TEST]\n");
        return 2;
    }
    *(void **)&begin = dlsym(library, "stageprof_begin");
    *(void **)&end = dlsym(library, "stageprof_end");
    *(void **)&publish = dlsym(library, "stageprof_publish");
    return run_tests(tests, sizeof tests / sizeof *tests, argc - 1, argv + 1);
}
