// SPDX-License-Identifier: Apache-2.0
//
// The library's own files with recording probe points: which markers are
// passed, in which order, and what the registry says meanwhile.
#define _GNU_SOURCE
#include "check.h"
#include "internal.h"
#include "recorder.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>

static uint32_t own_tid(void) {
    return (uint32_t)syscall(SYS_gettid);
}

static const char *intern_text(const char *bytes) {
    return stageprof_intern(bytes, strlen(bytes))->text;
}

static pthread_t start(void *(*run)(void *), void *argument) {
    pthread_attr_t small;
    pthread_t thread;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    CHECK_EQUAL(pthread_create(&thread, &small, run, argument), 0);
    pthread_attr_destroy(&small);
    return thread;
}

static void check_mark(unsigned at, char kind, const char *name, uint32_t depth) {
    CHECK(at < marks_seen);
    CHECK_EQUAL(marks[at].kind, kind);
    CHECK_TEXT(marks[at].name->text, name);
    CHECK_EQUAL(marks[at].depth, depth);
    CHECK_EQUAL(marks[at].slot_depth, depth);
}

// Stages

static void nested_stages_pass_their_marks(void) {
    stageprof_begin("step");
    stageprof_begin("forward");
    stageprof_end();
    stageprof_begin("backward");
    stageprof_end();
    stageprof_end();
    CHECK_EQUAL(marks_seen, 6);
    check_mark(0, 'b', "step", 1);
    check_mark(1, 'b', "forward", 2);
    CHECK_TEXT(marks[1].slot_top->text, "forward");
    check_mark(2, 'e', "forward", 1);
    CHECK_TEXT(marks[2].slot_top->text, "step");
    check_mark(3, 'b', "backward", 2);
    check_mark(4, 'e', "backward", 1);
    check_mark(5, 'e', "step", 0);
    CHECK_EQUAL(stageprof_depth(), 0);
}

static void end_without_begin_does_nothing(void) {
    stageprof_end(); // no slot yet
    CHECK(stageprof_self() == NULL);
    stageprof_begin("a");
    stageprof_end();
    stageprof_end();
    stageprof_end_to(0);
    stageprof_process_end();
    CHECK_EQUAL(marks_seen, 2);
    CHECK_EQUAL(stageprof_depth(), 0);
}

static void end_to_ends_what_was_forgotten(void) {
    stageprof_begin("step");
    uint32_t depth = stageprof_depth();
    stageprof_begin("forward");
    stageprof_begin("forgotten");
    stageprof_end_to(depth);
    CHECK_EQUAL(marks_seen, 5);
    check_mark(3, 'e', "forgotten", 2);
    check_mark(4, 'e', "forward", 1);
    stageprof_end_to(7); // more than is open
    CHECK_EQUAL(marks_seen, 5);
}

static void begin_time_is_monotonic_time(void) {
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    stageprof_begin("a");
    clock_gettime(CLOCK_MONOTONIC, &after);
    uint64_t begin = stageprof_self()->open[0].begin_ns;
    CHECK(begin >= (uint64_t)before.tv_sec * 1000000000 + (uint64_t)before.tv_nsec);
    CHECK(begin <= (uint64_t)after.tv_sec * 1000000000 + (uint64_t)after.tv_nsec);
}

static void deeper_stages_are_counted_not_remembered(void) {
    enum { DEEP = STAGEPROF_DEPTH + 10 };
    for (int i = 0; i < DEEP; i++) {
        char name[16];
        snprintf(name, sizeof name, "level %d", i);
        stageprof_begin(name);
    }
    CHECK_EQUAL(stageprof_depth(), DEEP);
    CHECK_TEXT(stageprof_self()->open[STAGEPROF_DEPTH - 1].name->text, "level 63");
    check_mark(DEEP - 1, 'b', "level 73", DEEP);
    for (int i = 0; i < DEEP; i++)
        stageprof_end();
    check_mark(DEEP, 'e', "(too deep)", DEEP - 1);
    check_mark(DEEP + 9, 'e', "(too deep)", STAGEPROF_DEPTH);
    check_mark(DEEP + 10, 'e', "level 63", STAGEPROF_DEPTH - 1);
    check_mark(2 * DEEP - 1, 'e', "level 0", 0);
}

static void process_stages_nest(void) {
    stageprof_process_begin("epoch");
    stageprof_process_begin("eval");
    CHECK_EQUAL(stageprof_registry.process.depth, 2);
    CHECK_EQUAL(stageprof_registry.process.tid, 0);
    CHECK_TEXT(stageprof_registry.process.open[1].name->text, "eval");
    CHECK_EQUAL(stageprof_depth(), 0);
    stageprof_process_end();
    stageprof_process_end();
    check_mark(0, 'B', "epoch", 1);
    check_mark(1, 'B', "eval", 2);
    check_mark(2, 'E', "eval", 1);
    check_mark(3, 'E', "epoch", 0);
}

// Names

static void good_names_are_kept_whole(void) {
    char longest[STAGEPROF_NAME_SIZE];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    const char *good[] = {"a",          "target_forward", "a/b",
                          "with space", "back\\slash",    "größer",
                          "ステージ",   "🚀 lift \"off\"", longest};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK_TEXT(intern_text(good[i]), good[i]);
}

static void a_name_has_one_address(void) {
    char same[] = "forward";
    CHECK(stageprof_intern("forward", 7) == stageprof_intern(same, 7));
    CHECK(stageprof_intern("forwar", 6) != stageprof_intern(same, 7));
    CHECK(stageprof_intern("forward!", 7) == stageprof_intern(same, 7));
}

static void no_name_is_called_empty(void) {
    CHECK_TEXT(intern_text(""), "(empty)");
    CHECK_TEXT(stageprof_intern(NULL, 0)->text, "(empty)");
    stageprof_begin(NULL);
    check_mark(0, 'b', "(empty)", 1);
}

// Splits off "#" and 8 hex digits; the rest is returned in head.
static void cut_hash(const char *text, char *head) {
    size_t n = strlen(text);
    CHECK(n > 9 && text[n - 9] == '#');
    CHECK_EQUAL(strspn(text + n - 8, "0123456789abcdef"), 8);
    memcpy(head, text, n - 9);
    head[n - 9] = '\0';
}

static void bad_bytes_are_escaped(void) {
    static const struct {
        const char *bytes;
        size_t len;
        const char *want; // before the hash
    } cases[] = {
        {"a\nb", 3, "a\\x0ab"},
        {"a\0b", 3, "a\\x00b"},
        {"\x1b[31m", 5, "\\x1b[31m"},
        {"del\x7f", 4, "del\\x7f"},
        {"\xc2\x85", 2, "\\xc2\\x85"},                        // C1 control
        {"\xff", 1, "\\xff"},                                 // no UTF-8
        {"\x80", 1, "\\x80"},                                 // continuation first
        {"\xc0\xaf", 2, "\\xc0\\xaf"},                        // overlong
        {"\xe0\x80\xaf", 3, "\\xe0\\x80\\xaf"},               // overlong
        {"\xf0\x80\x80\xaf", 4, "\\xf0\\x80\\x80\\xaf"},      // overlong
        {"\xed\xa0\x80", 3, "\\xed\\xa0\\x80"},               // surrogate
        {"\xf4\x90\x80\x80", 4, "\\xf4\\x90\\x80\\x80"},      // beyond Unicode
        {"\xf5\x80\x80\x80", 4, "\\xf5\\x80\\x80\\x80"},      // beyond Unicode
        {"\xc3", 1, "\\xc3"},                                 // cut off
        {"ok \xe3\x82", 5, "ok \\xe3\\x82"},                  // cut off
        {"\xc3\xa9\xff\xc3\xa9", 5, "\xc3\xa9\\xff\xc3\xa9"}, // good around bad
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char head[STAGEPROF_NAME_SIZE];
        cut_hash(stageprof_intern(cases[i].bytes, cases[i].len)->text, head);
        CHECK_TEXT(head, cases[i].want);
    }
}

static void escaped_and_literal_names_stay_apart(void) {
    const struct stageprof_name *control = stageprof_intern("a\x01", 2);
    const struct stageprof_name *literal = stageprof_intern("a\\x01", 5);
    CHECK(strcmp(control->text, literal->text) != 0);
    const struct stageprof_name *left = stageprof_intern("\x01\\x02", 5);
    const struct stageprof_name *right = stageprof_intern("\\x01\x02", 5);
    CHECK(strcmp(left->text, right->text) != 0);
}

static void long_names_are_cut_at_a_character(void) {
    // The room before "…#" and the hash is 115 bytes: at every alignment the
    // cut must fall between two three-byte characters.
    for (size_t lead = 0; lead < 3; lead++) {
        char name[400], head[STAGEPROF_NAME_SIZE];
        memset(name, 'x', lead);
        for (size_t i = lead; i + 3 < sizeof name; i += 3)
            memcpy(name + i, "ス", 4);
        const char *text = intern_text(name);
        CHECK(strlen(text) < STAGEPROF_NAME_SIZE);
        cut_hash(text, head);
        size_t n = strlen(head);
        CHECK_TEXT(head + n - 3, "…");
        CHECK_EQUAL((n - 3 - lead) % 3, 0);
        CHECK(n - 3 > 112 && n - 3 <= 115);
        CHECK_EQUAL(memcmp(head, name, n - 3), 0);
    }
}

static void escapes_are_never_cut(void) {
    char name[100], head[STAGEPROF_NAME_SIZE];
    memset(name, '\x01', sizeof name);
    cut_hash(stageprof_intern(name, sizeof name)->text, head);
    size_t n = strlen(head) - strlen("…");
    CHECK_EQUAL(n % 4, 0);
    CHECK_TEXT(head + n, "…");
}

static void long_names_stay_apart(void) {
    char one[301], other[301];
    memset(one, 'x', 300);
    memset(other, 'x', 300);
    one[300] = other[300] = '\0';
    other[299] = 'y';
    CHECK(strcmp(intern_text(one), intern_text(other)) != 0);
    other[299] = '\0'; // one byte shorter
    CHECK(strcmp(intern_text(one), intern_text(other)) != 0);
}

static void changed_names_are_the_same_in_every_process(void) {
    CHECK_TEXT(stageprof_intern("a\x01", 2)->text, "a\\x01#0d628be3");
    char name[200], want[STAGEPROF_NAME_SIZE];
    memset(name, 'x', sizeof name);
    snprintf(want, sizeof want, "%.115s…#0e21813e", name);
    CHECK_TEXT(stageprof_intern(name, sizeof name)->text, want);
}

static void further_names_are_counted(void) {
    char name[16];
    for (int i = 0; i < STAGEPROF_NAMES; i++) {
        snprintf(name, sizeof name, "name %d", i);
        CHECK_TEXT(intern_text(name), name);
    }
    CHECK_TEXT(intern_text("one more"), "(too many names)");
    CHECK_TEXT(intern_text("name 17"), "name 17");
    CHECK_EQUAL(stageprof_registry.names_overflow, 0);
    stageprof_begin("one more");
    stageprof_begin("and another");
    stageprof_begin("name 17");
    CHECK_EQUAL(stageprof_registry.names_overflow, 2);
    check_mark(0, 'b', "(too many names)", 1);
    stageprof_process_begin("yet another");
    CHECK_EQUAL(stageprof_registry.names_overflow, 3);
}

static const struct stageprof_name *interned[4][1000];
static atomic_int interning;

static void *intern_all(void *argument) {
    const struct stageprof_name **mine = argument;
    atomic_fetch_add(&interning, 1);
    while (atomic_load(&interning) < 4)
        ;
    for (int i = 0; i < 1000; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        mine[i] = stageprof_intern(name, strlen(name));
    }
    return NULL;
}

static void threads_that_add_one_name_get_one_name(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        threads[i] = start(intern_all, interned[i]);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 1000; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        CHECK_TEXT(interned[0][i]->text, name);
        for (int k = 1; k < 4; k++)
            CHECK(interned[k][i] == interned[0][i]);
    }
}

// Threads

static struct stageprof_thread seen_slot;
static const struct stageprof_thread *seen_address;
static unsigned seen_marks;

static void *leave_stages_open(void *argument) {
    (void)argument;
    stageprof_begin("worker");
    stageprof_begin("inner");
    seen_address = stageprof_self();
    seen_slot = *seen_address;
    return &marks_seen;
}

static void a_thread_has_a_slot_until_it_exits(void) {
    stageprof_begin("main");
    pthread_join(start(leave_stages_open, NULL), NULL);
    CHECK(seen_slot.tid != 0 && seen_slot.tid != own_tid());
    CHECK_EQUAL(seen_slot.depth, 2);
    CHECK_EQUAL(seen_address->tid, 0);
    CHECK_EQUAL(seen_address->depth, 0);
    CHECK_EQUAL(stageprof_self()->tid, own_tid());

    const struct stageprof_thread *first = seen_address;
    pthread_join(start(leave_stages_open, NULL), NULL);
    CHECK(seen_address == first);
    CHECK_EQUAL(stageprof_registry.threads_used, 2);
}

static pthread_key_t late_key;

// Runs among the thread's other exit hooks, some of which come after ours.
static void late_stage(void *again) {
    if (again == (void *)2)
        pthread_setspecific(late_key, (void *)1);
    stageprof_begin("late");
    seen_marks = marks_seen;
}

static void *exit_with_late_stage(void *argument) {
    pthread_setspecific(late_key, argument);
    stageprof_begin("worker");
    return NULL;
}

static void stages_in_exit_hooks_do_not_leak_slots(void) {
    stageprof_begin("main");
    CHECK_EQUAL(pthread_key_create(&late_key, late_stage), 0);
    for (int i = 0; i < 10; i++)
        pthread_join(start(exit_with_late_stage, (void *)2), NULL);
    CHECK(seen_marks >= 3);
    CHECK(stageprof_registry.threads_used <= 3);
    for (uint32_t i = 1; i < STAGEPROF_THREADS; i++)
        CHECK_EQUAL(stageprof_registry.threads[i].tid, 0);
}

static void *vanish(void *argument) {
    (void)argument;
    stageprof_begin("vanishing");
    syscall(SYS_exit, 0); // no exit hook runs
    return NULL;
}

static atomic_int arrived;
static atomic_int may_leave;
static atomic_int without_slot;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER; // threads wait without polling

static void *occupy(void *argument) {
    (void)argument;
    stageprof_begin("occupant");
    if (stageprof_depth() == 0)
        atomic_fetch_add(&without_slot, 1);
    atomic_fetch_add(&arrived, 1);
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    stageprof_end();
    return NULL;
}

static void wait_until(atomic_int *counter, int value) {
    while (atomic_load(counter) < value)
        usleep(1000);
}

static void further_threads_are_counted_and_dead_ones_swept(void) {
    enum { GONE = 3, EXTRA = 5 };
    static pthread_t threads[STAGEPROF_THREADS + EXTRA];
    stageprof_begin("main");
    pthread_mutex_lock(&gate);
    for (int i = 0; i < GONE; i++)
        pthread_join(start(vanish, NULL), NULL);
    // With main and the vanished ones this fills all slots; the first one too
    // many finds those of the vanished.
    int fit = STAGEPROF_THREADS - 1;
    for (int i = 0; i < fit; i++)
        threads[i] = start(occupy, NULL);
    wait_until(&arrived, fit);
    CHECK_EQUAL(without_slot, 0);
    CHECK_EQUAL(stageprof_registry.threads_overflow, 0);

    for (int i = fit; i < fit + EXTRA; i++)
        threads[i] = start(occupy, NULL);
    wait_until(&arrived, fit + EXTRA);
    CHECK_EQUAL(without_slot, EXTRA);
    CHECK_EQUAL(stageprof_registry.threads_overflow, EXTRA);

    pthread_mutex_unlock(&gate);
    for (int i = 0; i < fit + EXTRA; i++)
        pthread_join(threads[i], NULL);
    pthread_join(start(leave_stages_open, NULL), NULL);
    CHECK_EQUAL(seen_slot.depth, 2);
}

// Signals

static void check_stack(const char *a, const char *b) {
    const struct stageprof_thread *t = stageprof_self();
    CHECK_EQUAL(t->depth, 2);
    CHECK_TEXT(t->open[0].name->text, a);
    CHECK_TEXT(t->open[1].name->text, b);
}

static volatile sig_atomic_t handled;

static void balanced_handler(int signal) {
    (void)signal;
    stageprof_begin("handler");
    stageprof_begin("inner");
    stageprof_end();
    stageprof_end();
    handled++;
}

#if defined(__x86_64__)
// The trap flag raises SIGTRAP after every instruction, so the handler runs at
// every possible place in the functions between these two.
static inline void single_step_on(void) {
    __asm__ volatile("lea -128(%%rsp), %%rsp; pushfq; orq $0x100, (%%rsp); popfq;"
                     "lea 128(%%rsp), %%rsp" ::
                         : "memory", "cc");
}

static inline void single_step_off(void) {
    __asm__ volatile("lea -128(%%rsp), %%rsp; pushfq; andq $~0x100, (%%rsp); popfq;"
                     "lea 128(%%rsp), %%rsp" ::
                         : "memory", "cc");
}

static const int interrupt = SIGTRAP;
#else
// A timer instead: the handler runs at many places.
#include <sys/time.h>

static void every(int us) {
    struct itimerval t = {.it_interval.tv_usec = us, .it_value.tv_usec = us};
    setitimer(ITIMER_REAL, &t, NULL);
}

static inline void single_step_on(void) {
    every(20);
}

static inline void single_step_off(void) {
    every(0);
}

static const int interrupt = SIGALRM;
#endif

static void handlers_leave_the_stack_right(void) {
    struct sigaction action = {.sa_handler = balanced_handler};
    sigaction(interrupt, &action, NULL);
    stageprof_begin("outer");
    stageprof_begin("warm up");
    stageprof_end();
    for (int i = 0; i < 100; i++) {
        single_step_on();
        stageprof_begin("first");
        single_step_off();
        check_stack("outer", "first");
        single_step_on();
        stageprof_end();
        stageprof_begin("second");
        single_step_off();
        check_stack("outer", "second");
        single_step_on();
        stageprof_end_to(1);
        single_step_off();
        CHECK_EQUAL(stageprof_depth(), 1);
    }
    CHECK(handled > 0);
    stageprof_end();
    CHECK_EQUAL(stageprof_depth(), 0);
}

static void interning_handler(int signal) {
    (void)signal;
    static int count;
    char name[] = "handler 0";
    name[8] = (char)('0' + count++ % 10);
    stageprof_begin(name);
    stageprof_end();
    handled++;
}

static void handlers_may_add_names(void) {
    struct sigaction action = {.sa_handler = interning_handler};
    sigaction(interrupt, &action, NULL);
    stageprof_begin("outer");
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof name, "name %d", i);
        single_step_on();
        stageprof_begin(name);
        single_step_off();
        check_stack("outer", name);
        stageprof_end();
        CHECK_TEXT(intern_text(name), name);
    }
    CHECK(handled > 0);
}

// Fork

static void *open_and_wait(void *argument) {
    (void)argument;
    stageprof_begin("other thread");
    atomic_fetch_add(&arrived, 1);
    while (!atomic_load(&may_leave))
        usleep(1000);
    return NULL;
}

static void check_child_of_two_threads(void) {
    const struct stageprof_thread *self = stageprof_self();
    CHECK_EQUAL(self->tid, own_tid());
    CHECK_EQUAL(self->depth, 1);
    CHECK_TEXT(self->open[0].name->text, "forking");
    CHECK_EQUAL(stageprof_registry.process.depth, 1);
    for (uint32_t i = 0; i < STAGEPROF_THREADS; i++)
        CHECK(&stageprof_registry.threads[i] == self || stageprof_registry.threads[i].tid == 0);
    stageprof_end();
    stageprof_process_end();
    CHECK_EQUAL(stageprof_registry.process.depth, 0);
    pthread_join(start(leave_stages_open, NULL), NULL);
    CHECK(seen_address != self);
}

static void a_child_keeps_the_forking_threads_stages(void) {
    pthread_t other = start(open_and_wait, NULL); // takes the slot before main's
    wait_until(&arrived, 1);
    stageprof_process_begin("epoch");
    stageprof_begin("forking");
    pid_t child = fork();
    if (child == 0) {
        check_child_of_two_threads();
        _exit(0);
    }
    CHECK(succeeded(child));
    CHECK_EQUAL(stageprof_self()->tid, own_tid());
    CHECK_EQUAL(stageprof_registry.threads[0].depth, 1);
    atomic_store(&may_leave, 1);
    pthread_join(other, NULL);
}

static void a_child_of_a_thread_without_stages_has_none(void) {
    pthread_t other = start(open_and_wait, NULL);
    wait_until(&arrived, 1);
    pid_t child = fork();
    if (child == 0) {
        CHECK(stageprof_self() == NULL);
        CHECK_EQUAL(stageprof_registry.threads_used, 0);
        stageprof_begin("first");
        CHECK(stageprof_self() == &stageprof_registry.threads[0]);
        _exit(0);
    }
    CHECK(succeeded(child));
    atomic_store(&may_leave, 1);
    pthread_join(other, NULL);
}

static void *toggle_process_stages(void *argument) {
    (void)argument;
    while (!atomic_load(&may_leave)) {
        stageprof_process_begin("a");
        stageprof_process_end();
    }
    return NULL;
}

static void a_child_is_not_locked_out_of_process_stages(void) {
    pthread_t other = start(toggle_process_stages, NULL);
    for (int i = 0; i < 200; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            uint32_t depth = stageprof_registry.process.depth;
            CHECK(depth <= 1);
            stageprof_process_begin("child");
            CHECK_EQUAL(stageprof_registry.process.depth, depth + 1);
            CHECK_TEXT(stageprof_registry.process.open[depth].name->text, "child");
            _exit(0);
        }
        CHECK(succeeded(child));
    }
    atomic_store(&may_leave, 1);
    pthread_join(other, NULL);
}

#define TEST(f)                                                                                    \
    { #f, f }

int main(int argc, char **argv) {
    static const struct test tests[] = {
        TEST(nested_stages_pass_their_marks),
        TEST(end_without_begin_does_nothing),
        TEST(end_to_ends_what_was_forgotten),
        TEST(begin_time_is_monotonic_time),
        TEST(deeper_stages_are_counted_not_remembered),
        TEST(process_stages_nest),
        TEST(good_names_are_kept_whole),
        TEST(a_name_has_one_address),
        TEST(no_name_is_called_empty),
        TEST(bad_bytes_are_escaped),
        TEST(escaped_and_literal_names_stay_apart),
        TEST(long_names_are_cut_at_a_character),
        TEST(escapes_are_never_cut),
        TEST(long_names_stay_apart),
        TEST(changed_names_are_the_same_in_every_process),
        TEST(further_names_are_counted),
        TEST(threads_that_add_one_name_get_one_name),
        TEST(a_thread_has_a_slot_until_it_exits),
        TEST(stages_in_exit_hooks_do_not_leak_slots),
        TEST(further_threads_are_counted_and_dead_ones_swept),
        TEST(handlers_leave_the_stack_right),
        TEST(handlers_may_add_names),
        TEST(a_child_keeps_the_forking_threads_stages),
        TEST(a_child_of_a_thread_without_stages_has_none),
        TEST(a_child_is_not_locked_out_of_process_stages),
    };
    return run_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
