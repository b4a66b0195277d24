// SPDX-License-Identifier: Apache-2.0
// puppet: does on its threads what stdin says, so that a test can attach, detach and look between
// any two steps. A line is THREAD COMMAND [ARGUMENT]; each is answered by "ok NNNNNN", the number
// of the line, when it is done. The first thread is "main"; the truth is tagged with the stage
// path.
//
//   start NAME            (main only) makes a thread; its name is the kernel's name for it, too
//   exit                  the thread ends
//   begin NAME, end       a stage
//   mark NAME, unmark     a stage that the truth's tags know nothing of: they go 64 deep only
//   deep N                N times mark deep
//   end-to DEPTH          ends stages until DEPTH are open
//   process-begin NAME, process-end
//   forget                a stage ends without passing the probe point, as if the probe had failed
//   launch N              N times cuLaunchKernel
//   below N               the same from a frame 64 KiB further down
//   fail N                N times cuLaunchKernel of no function: an error
//   nest N                N times cuStreamQuery with a cuDriverGetVersion inside
//   poll N RATE           N times cuStreamQuery, RATE a second; 0: as fast as it can
//   abandon               a cuStreamQuery that is left by longjmp
//   leave                 the thread ends inside a cuStreamQuery, by pthread_exit, which runs what
//                         is pushed for its end: answered by "cleaned" in between
//   leavers N             N times a thread that ends so, one after the other
//   signal N              N times a cuStreamQuery in which a signal comes; its handler opens a
//                         stage and calls cuDriverGetVersion
//   storm N               N launches while a timer sends signals as fast as it can
//   hang                  a cuStreamQuery that never returns; answered by "inside"
//   pause FILE            a cuStreamQuery that returns once the file exists; answered by "inside"
//   sync-pause FILE       the same with cuStreamSynchronize of the null stream
//   fork N                a child that does begin, N launches, which are refused, and end
//   linger FILE           a child that ends once the file exists; answered by "forked"
//   vfork N               the same by a child that has this process's memory
//   sandbox FILE          a child that sets up the filter of seccomp, and does begin and end once
//                         the file exists; answered by "sandboxed"
//   sandbox-orphan FILE   the same by a child of a child that has exited
//   spawn-filtered        a child process that is this program anew, and sets up the filter
//   mappings N            N mappings of a page each that can't be merged
//   chroot FOLDER         changes the root folder
//   exec                  the process becomes /bin/true
//   again                 the process becomes this program anew
//   spawn                 a child process that is /bin/true from its first instruction on
//   rename NAME           the thread's name
//   seccomp               a filter that kills the process at the system calls that probes and
//                         markers make
//   tag PATH              the truth's tag, until the next begin or end
//   truth FILE            the truth so far
//   markers FILE          opens the marker library: there is none before
//   second FILE TRUTH     opens another driver, whose truth goes to TRUTH when the process exits
//   query N               N times cuDriverGetVersion of that driver
//   nvtx FILE             opens a library of NVTX: there is none before
//   push NAME, pop        a range of NVTX, which the truth's tags know nothing of
//   push-wide NAME, push-attributes NAME, push-wide-attributes NAME, push-registered NAME,
//   push-nameless, push-domain NAME, pop-domain
//                         the same by NVTX's other functions and kinds of message
//   range NAME            a range of NVTX from start to end
//   usdt FILE             opens a library of static probes: there is none before
//   pass PROBE NAME       passes one of its probes
//   semaphores            answered by "semaphores N": how many of its probes are wanted
//   ranges N              N times push of a name that was not there before, launch 1, pop
//   library FILE          opens a library of functions to call (libfunctions)
//   call FUNCTION N       calls one of them with N and a function that launches once
//   throw-back N          N times a cuOccupancyMaxPotentialBlockSize that an exception leaves: that
//                         of the library's function which it calls back
//   throw-out N           N times a cuStreamQuery that an exception leaves
//   lend FILE             as pause, but gives the GIL up inside, and takes it back before the end
//   sleep-at ADDRESS MS   sleeps for so long in a futex there, as threads do that wait for a lock
//   loop N ORDER; ORDER…  obeys the orders N times and says how long these rounds took (tester.h)
// and what streams.h and pythons.h say.
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <locale.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#include "../../marker/c/stageprof.h"
#include "nvtx.h"
#include "pythons.h"
#include "streams.h"
#include "tester.h"

enum { MAX_THREADS = 64, LINE = 4352, FAR = 64 << 10 };

struct puppet {
    char name[16];
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t change;
    const char *order; // null: waiting for one
    char line[LINE];   // of a long order: others are read meanwhile
    bool gone;
};

static struct puppet puppets[MAX_THREADS];
static unsigned puppet_count;
static void *context;

static struct {
    void (*begin)(const char *);
    void (*end)(void);
    void (*end_to)(uint32_t);
    void (*process_begin)(const char *);
    void (*process_end)(void);
    const struct stageprof_thread *(*self)(void);
} markers;

static CUresult (*second_query)(int *);

static struct {
    int (*push)(const char *);
    int (*push_wide)(const wchar_t *);
    int (*push_event)(const struct nvtx_attributes *);
    int (*pop)(void);
    int (*domain_push)(void *, const struct nvtx_attributes *);
    int (*domain_pop)(void *);
    uint64_t (*start)(const char *);
    void (*end)(uint64_t);
    void *(*register_text)(void *, const char *);
} nvtx;

// What threads are told to do

static void begin(const char *name) {
    stage_begin(name);
    if (markers.begin)
        markers.begin(name);
}

static void end(void) {
    if (markers.end)
        markers.end();
    stage_end();
}

static void mark(const char *name) {
    markers.begin(name);
}

static void unmark(void) {
    markers.end();
}

static void deep(const char *count) {
    for (long i = atol(count); i > 0; i--)
        markers.begin("deep");
}

static void end_to(const char *depth) {
    markers.end_to((uint32_t)atoi(depth));
    while (stage_path()[0])
        stage_end();
}

static void forget(void) {
    struct stageprof_thread *slot = (struct stageprof_thread *)markers.self();
    slot->depth--;
    stage_end();
}

static void launch(const char *count) {
    for (long i = atol(count); i > 0; i--)
        MUST(cu.cuLaunchKernel(tester_function(), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 0);
}

static __attribute__((noinline)) void below(const char *count) {
    char *far = alloca(FAR);
    memset(far, 0, FAR); // as the frames between would
    __asm__ volatile("" ::"r"(far) : "memory");
    launch(count);
}

static void fail(const char *count) {
    for (long i = atol(count); i > 0; i--)
        MUST(cu.cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 400);
}

static void version(void) {
    int version;
    MUST(cu.cuDriverGetVersion(&version), 0);
}

static void nest(const char *count) {
    for (long i = atol(count); i > 0; i--) {
        cu.simcuda_set_hook(version);
        MUST(cu.cuStreamQuery(NULL), 0);
    }
}

static void poll(const char *arguments) {
    enum { AT_ONCE = 100 };
    long count, rate;
    if (sscanf(arguments, "%ld %ld", &count, &rate) != 2)
        tester_fail("poll: two numbers are needed, not \"%s\"", arguments);
    struct timespec due;
    clock_gettime(CLOCK_MONOTONIC, &due);
    for (long i = 0; i < count; i++) {
        MUST(cu.cuStreamQuery(NULL), 0);
        if (rate && i % AT_ONCE == 0) {
            due.tv_nsec += AT_ONCE * 1000000000L / rate;
            due.tv_sec += due.tv_nsec / 1000000000;
            due.tv_nsec %= 1000000000;
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
        }
    }
}

static __thread jmp_buf out;

static void leave(void) {
    longjmp(out, 1);
}

static void abandon(void) {
    if (setjmp(out))
        return;
    cu.simcuda_set_hook(leave);
    cu.cuStreamQuery(NULL);
    tester_fail("a call that longjmp leaves has returned");
}

static void say_cleaned(void *nothing) {
    (void)nothing;
    puts("cleaned");
}

static void end_thread(void) {
    pthread_exit(NULL);
}

static void leave_by_exit(void) {
    pthread_cleanup_push(say_cleaned, NULL);
    cu.simcuda_set_hook(end_thread);
    cu.cuStreamQuery(NULL);
    pthread_cleanup_pop(0);
    tester_fail("a call that pthread_exit leaves has returned");
}

static void *live_for_a_call(void *nothing) {
    (void)nothing;
    MUST(cu.cuCtxSetCurrent(context), 0);
    cu.simcuda_set_hook(end_thread);
    cu.cuStreamQuery(NULL);
    tester_fail("a call that pthread_exit leaves has returned");
}

static void leavers(const char *count) {
    for (long i = atol(count); i > 0; i--) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, live_for_a_call, NULL))
            tester_fail("starting a thread: %m");
        pthread_join(thread, NULL);
    }
}

static void handle(int number) {
    (void)number;
    markers.begin("handler");
    version();
    markers.end();
}

static void interrupt(void) {
    raise(SIGUSR1);
}

static void signal_inside(const char *count) {
    signal(SIGUSR1, handle);
    for (long i = atol(count); i > 0; i--) {
        cu.simcuda_set_hook(interrupt);
        MUST(cu.cuStreamQuery(NULL), 0);
    }
}

static void ignore(int number) {
    (void)number;
}

static void storm(const char *count) {
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    signal(SIGALRM, ignore);
    setitimer(ITIMER_REAL, &often, NULL);
    launch(count);
    setitimer(ITIMER_REAL, &never, NULL);
}

static void stay(void) {
    puts("inside");
    for (;;)
        pause();
}

static void hang(void) {
    cu.simcuda_set_hook(stay);
    cu.cuStreamQuery(NULL);
}

static __thread const char *paused_for;

static void wait_inside(void) {
    puts("inside");
    wait_for_file(paused_for);
}

static void pause_inside(const char *file) {
    paused_for = file;
    cu.simcuda_set_hook(wait_inside);
    MUST(cu.cuStreamQuery(NULL), 0);
}

static void pause_in_sync(const char *file) {
    paused_for = file;
    cu.simcuda_set_hook(wait_inside);
    MUST(cu.cuStreamSynchronize(NULL), 0);
}

static void await_child(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) != child || status)
        tester_fail("the child ended with status %#x", status);
}

static _Noreturn void be_child(long count) {
    begin("child");
    for (; count > 0; count--)
        cu.cuLaunchKernel(tester_function(), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    end();
    _exit(0);
}

static void fork_child(const char *count) {
    pid_t child = fork();
    if (child < 0)
        tester_fail("forking: %m");
    if (!child)
        be_child(atol(count));
    await_child(child);
}

static void linger(const char *file) {
    pid_t child = fork();
    if (child < 0)
        tester_fail("forking: %m");
    if (!child) {
        puts("forked");
        wait_for_file(file);
        _exit(0);
    }
    await_child(child);
}

static void vfork_child(const char *count) {
    pid_t child = vfork();
    if (child < 0)
        tester_fail("forking: %m");
    if (!child) { // in the parent's memory
        for (long i = atol(count); i > 0; i--)
            cu.cuLaunchKernel(tester_function(), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        _exit(0);
    }
    await_child(child);
}

static void make_mappings(const char *count) {
    for (long i = atol(count); i > 0; i--) {
        int protection = i % 2 ? PROT_READ : PROT_READ | PROT_WRITE;
        if (mmap(NULL, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
            tester_fail("mapping a page: %m");
    }
}

static void change_root(const char *folder) {
    if (chroot(folder) || chdir("/"))
        tester_fail("changing the root folder to \"%s\": %m", folder);
}

static void become_true(void) {
    execl("/bin/true", "true", NULL);
    tester_fail("executing another program: %m");
}

static char **own_arguments;

static void begin_again(void) {
    execv("/proc/self/exe", own_arguments);
    tester_fail("executing itself: %m");
}

static void spawn(void) {
    char *arguments[] = {"true", NULL};
    pid_t child;
    if (posix_spawn(&child, "/bin/true", NULL, NULL, arguments, NULL))
        tester_fail("starting a child: %m");
    await_child(child);
}

// The kernel's own trampolines of probes make them: uretprobe and uprobe, on x86-64.
// The marker library makes a prctl of an option that nobody knows.
static void filter_system_calls(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 335, 5, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 336, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xffffff00),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x53505200, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(filter) / sizeof(*filter), filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program))
        tester_fail("filtering system calls: %m");
}

static _Noreturn void be_sandboxed(const char *file) {
    filter_system_calls();
    puts("sandboxed");
    wait_for_file(file);
    begin("child");
    end();
    _exit(0);
}

static void sandbox_child(const char *file) {
    pid_t child = fork();
    if (child < 0)
        tester_fail("forking: %m");
    if (!child)
        be_sandboxed(file);
    await_child(child);
}

static void sandbox_orphan(const char *file) {
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    pid_t child = fork();
    if (child < 0)
        tester_fail("forking: %m");
    if (!child) {
        pid_t grandchild = fork();
        if (grandchild)
            _exit(grandchild < 0);
        be_sandboxed(file);
    }
    await_child(child);
    int status;
    if (wait(&status) < 0 || status)
        tester_fail("the child's child ended with status %#x", status);
}

static void spawn_filtered(void) {
    char *arguments[] = {own_arguments[0], "--filter", "1", NULL};
    pid_t child;
    if (posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ))
        tester_fail("starting a child: %m");
    await_child(child);
}

static void rename_thread(const char *name) {
    pthread_setname_np(pthread_self(), name);
}

static void *open_library(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library)
        tester_fail("opening \"%s\": %s", path, dlerror());
    return library;
}

static void open_markers(const char *path) {
    void *library = open_library(path);
    *(void **)&markers.begin = dlsym(library, "stageprof_begin");
    *(void **)&markers.end = dlsym(library, "stageprof_end");
    *(void **)&markers.end_to = dlsym(library, "stageprof_end_to");
    *(void **)&markers.process_begin = dlsym(library, "stageprof_process_begin");
    *(void **)&markers.process_end = dlsym(library, "stageprof_process_end");
    *(void **)&markers.self = dlsym(library, "stageprof_self");
}

static void open_second(const char *arguments) {
    char path[LINE], truth[LINE];
    if (sscanf(arguments, "%4351s %4351s", path, truth) != 2)
        tester_fail("second: two files are needed, not \"%s\"", arguments);
    setenv("SIMCUDA_TRUTH", truth, 1);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        tester_fail("opening another driver: %s", dlerror());
    *(void **)&second_query = dlsym(library, "cuDriverGetVersion");
}

static void query(const char *count) {
    int version;
    for (long i = atol(count); i > 0; i--)
        MUST(second_query(&version), 0);
}

static void open_nvtx(const char *path) {
    void *library = open_library(path);
    *(void **)&nvtx.push = dlsym(library, "nvtxRangePushA");
    *(void **)&nvtx.push_wide = dlsym(library, "nvtxRangePushW");
    *(void **)&nvtx.push_event = dlsym(library, "nvtxRangePushEx");
    *(void **)&nvtx.pop = dlsym(library, "nvtxRangePop");
    *(void **)&nvtx.domain_push = dlsym(library, "nvtxDomainRangePushEx");
    *(void **)&nvtx.domain_pop = dlsym(library, "nvtxDomainRangePop");
    *(void **)&nvtx.start = dlsym(library, "nvtxRangeStartA");
    *(void **)&nvtx.end = dlsym(library, "nvtxRangeEnd");
    *(void **)&nvtx.register_text = dlsym(library, "nvtxDomainRegisterStringA");
}

static void push(const char *name) {
    nvtx.push(name);
}

static void pop(void) {
    nvtx.pop();
}

static struct nvtx_attributes event(int32_t type) {
    return (struct nvtx_attributes){.version = 3, .size = 48, .message_type = type};
}

static void push_attributes(const char *name) {
    struct nvtx_attributes e = event(NVTX_ASCII);
    e.message.ascii = name;
    nvtx.push_event(&e);
}

// Every alignment that a text of wide characters can have within the pages and lines.
static const wchar_t *widen(const char *name) {
    static __thread wchar_t text[LINE + 8];
    static __thread unsigned shift;
    wchar_t *wide = text + (shift = (shift + 1) % 8);
    setlocale(LC_CTYPE, "C.UTF-8");
    if (mbstowcs(wide, name, LINE) == (size_t)-1)
        tester_fail("\"%s\" is not UTF-8", name);
    return wide;
}

static void push_wide(const char *name) {
    nvtx.push_wide(widen(name));
}

static void push_wide_attributes(const char *name) {
    struct nvtx_attributes e = event(NVTX_UNICODE);
    e.message.unicode = widen(name);
    nvtx.push_event(&e);
}

static void push_registered(const char *name) {
    struct nvtx_attributes e = event(NVTX_REGISTERED);
    e.message.registered = nvtx.register_text(NULL, name);
    nvtx.push_event(&e);
}

static void push_nameless(void) {
    struct nvtx_attributes e = event(0);
    nvtx.push_event(&e);
}

static void push_domain(const char *name) {
    struct nvtx_attributes e = event(NVTX_ASCII);
    e.message.ascii = name;
    nvtx.domain_push(NULL, &e);
}

static void pop_domain(void) {
    nvtx.domain_pop(NULL);
}

static void range(const char *name) {
    nvtx.end(nvtx.start(name));
}

static void *usdt;

static void open_usdt(const char *path) {
    usdt = open_library(path);
}

static void *usdt_function(const char *name, size_t length) {
    char symbol[64];
    snprintf(symbol, sizeof(symbol), "usdt_%.*s", (int)length, name);
    void *function = usdt ? dlsym(usdt, symbol) : NULL;
    if (!function)
        tester_fail("there is no %s", symbol);
    return function;
}

// PROBE NAME
static void pass(const char *arguments) {
    size_t length = strcspn(arguments, " ");
    void (*function)(const char *);
    *(void **)&function = usdt_function(arguments, length);
    function(arguments + length + (arguments[length] == ' '));
}

static void semaphores(void) {
    unsigned (*function)(void);
    *(void **)&function = usdt_function("semaphores", strlen("semaphores"));
    printf("semaphores %u\n", function());
}

static void ranges(const char *count) {
    static unsigned long made;
    char name[64];
    for (long i = atol(count); i > 0; i--) {
        snprintf(name, sizeof(name), "library range %lu", __sync_fetch_and_add(&made, 1));
        push(name);
        launch("1");
        pop();
    }
}

static void *functions;

static void open_functions(const char *path) {
    functions = open_library(path);
}

static void *library_function(const char *name) {
    void *function = functions ? dlsym(functions, name) : NULL;
    if (!function)
        tester_fail("there is no function \"%s\"", name);
    return function;
}

static void launch_once(void) {
    launch("1");
}

static void call_function(const char *arguments) {
    void (*function)(long, void (*)(void));
    char name[LINE];
    long number;
    if (sscanf(arguments, "%4351s %ld", name, &number) != 2)
        tester_fail("call: a function and a number are needed, not \"%s\"", arguments);
    *(void **)&function = library_function(name);
    function(number, launch_once);
}

static size_t (*refuse_block)(int threads);

static void ask_for_block(void) {
    int grid, block;
    cu.cuOccupancyMaxPotentialBlockSize(&grid, &block, tester_function(), refuse_block, 0, 0);
    tester_fail("a call that an exception leaves has returned");
}

static void refuse(void) {
    refuse_block(1);
}

static void query_refused(void) {
    cu.simcuda_set_hook(refuse);
    cu.cuStreamQuery(NULL);
    tester_fail("a call that an exception leaves has returned");
}

static void attempt(const char *count, void (*work)(void)) {
    void (*function)(long, void (*)(void));
    *(void **)&function = library_function("attempt");
    *(void **)&refuse_block = library_function("refuse_block");
    function(atol(count), work);
}

static void throw_back(const char *count) {
    attempt(count, ask_for_block);
}

static void throw_out(const char *count) {
    attempt(count, query_refused);
}

static void lend_inside(void) {
    python_release();
    wait_inside();
    python_hold();
}

static void lend(const char *file) {
    paused_for = file;
    cu.simcuda_set_hook(lend_inside);
    MUST(cu.cuStreamQuery(NULL), 0);
}

// ADDRESS MS
static void sleep_at(const char *arguments) {
    uint32_t *word;
    long ms;
    if (sscanf(arguments, "%p %ld", (void **)&word, &ms) != 2)
        tester_fail("sleep-at: an address and a number are needed, not \"%s\"", arguments);
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    if (syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, *word, &time, NULL, 0) != -1 ||
        errno != ETIMEDOUT)
        tester_fail("sleeping in a futex: %m");
}

// Handing over: the thread sleeps while it has no order, the first thread while it has one.

static void set_order(struct puppet *p, const char *order) {
    pthread_mutex_lock(&p->lock);
    p->order = order;
    pthread_cond_broadcast(&p->change);
    pthread_mutex_unlock(&p->lock);
}

static const char *await_order(struct puppet *p) {
    pthread_mutex_lock(&p->lock);
    while (!p->order)
        pthread_cond_wait(&p->change, &p->lock);
    pthread_mutex_unlock(&p->lock);
    return p->order;
}

static void await_obedience(struct puppet *p) {
    pthread_mutex_lock(&p->lock);
    while (p->order)
        pthread_cond_wait(&p->change, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

static void *serve(void *argument);

static void start(const char *name) {
    if (puppet_count == MAX_THREADS)
        tester_fail("up to %d threads", MAX_THREADS);
    struct puppet *p = &puppets[puppet_count++];
    snprintf(p->name, sizeof(p->name), "%s", name);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->change, NULL);
    p->order = "start";
    if (pthread_create(&p->thread, NULL, serve, p))
        tester_fail("starting a thread: %m");
    await_obedience(p);
}

static bool obey_one_of(const struct command *c, const char *order, size_t length) {
    for (; c->name; c++) {
        if (strlen(c->name) == length && !strncmp(c->name, order, length)) {
            c->run(order + length + (order[length] == ' '));
            return true;
        }
    }
    return false;
}

static void obey(const char *order);

// N ORDER; ORDER…
static void loop(const char *arguments) {
    struct rounds rounds;
    char orders[LINE], *rest, *order;
    long count = strtol(arguments, &rest, 10);
    if (count < 1 || *rest++ != ' ')
        tester_fail("loop: a number and orders are needed, not \"%s\"", arguments);
    rounds_begin(&rounds, count);
    while (count--) {
        strcpy(orders, rest);
        round_begin(&rounds);
        for (char *left = orders; (order = strsep(&left, ";"));)
            obey(order + strspn(order, " "));
        round_end(&rounds);
    }
    rounds_print(&rounds);
}

// Obeys the part of a line after the thread's name.
static void obey(const char *order) {
    const struct {
        const char *name;
        void (*plain)(void);
        void (*with)(const char *);
    } commands[] = {
        {"start", NULL, start},
        {"begin", NULL, begin},
        {"end", end, NULL},
        {"mark", NULL, mark},
        {"unmark", unmark, NULL},
        {"deep", NULL, deep},
        {"end-to", NULL, end_to},
        {"process-begin", NULL, markers.process_begin},
        {"process-end", markers.process_end, NULL},
        {"forget", forget, NULL},
        {"launch", NULL, launch},
        {"below", NULL, below},
        {"fail", NULL, fail},
        {"nest", NULL, nest},
        {"poll", NULL, poll},
        {"abandon", abandon, NULL},
        {"leave", leave_by_exit, NULL},
        {"leavers", NULL, leavers},
        {"signal", NULL, signal_inside},
        {"storm", NULL, storm},
        {"hang", hang, NULL},
        {"pause", NULL, pause_inside},
        {"sync-pause", NULL, pause_in_sync},
        {"fork", NULL, fork_child},
        {"linger", NULL, linger},
        {"vfork", NULL, vfork_child},
        {"sandbox", NULL, sandbox_child},
        {"sandbox-orphan", NULL, sandbox_orphan},
        {"spawn-filtered", spawn_filtered, NULL},
        {"mappings", NULL, make_mappings},
        {"chroot", NULL, change_root},
        {"exec", become_true, NULL},
        {"again", begin_again, NULL},
        {"spawn", spawn, NULL},
        {"rename", NULL, rename_thread},
        {"seccomp", filter_system_calls, NULL},
        {"tag", NULL, cu.simcuda_tag},
        {"truth", NULL, cu.simcuda_write_truth},
        {"markers", NULL, open_markers},
        {"second", NULL, open_second},
        {"query", NULL, query},
        {"nvtx", NULL, open_nvtx},
        {"push", NULL, push},
        {"pop", pop, NULL},
        {"push-attributes", NULL, push_attributes},
        {"push-wide", NULL, push_wide},
        {"push-wide-attributes", NULL, push_wide_attributes},
        {"push-registered", NULL, push_registered},
        {"push-nameless", push_nameless, NULL},
        {"push-domain", NULL, push_domain},
        {"pop-domain", pop_domain, NULL},
        {"range", NULL, range},
        {"ranges", NULL, ranges},
        {"usdt", NULL, open_usdt},
        {"pass", NULL, pass},
        {"semaphores", semaphores, NULL},
        {"library", NULL, open_functions},
        {"call", NULL, call_function},
        {"throw-back", NULL, throw_back},
        {"throw-out", NULL, throw_out},
        {"lend", NULL, lend},
        {"sleep-at", NULL, sleep_at},
        {"loop", NULL, loop},
    };
    size_t length = strcspn(order, " ");
    const char *argument = order + length + (order[length] == ' ');
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
        if (strlen(commands[i].name) != length || strncmp(commands[i].name, order, length))
            continue;
        if (commands[i].plain)
            commands[i].plain();
        else
            commands[i].with(argument);
        return;
    }
    if (!obey_one_of(stream_commands, order, length) &&
        !obey_one_of(python_commands, order, length))
        tester_fail("unknown order \"%s\"", order);
}

static void *serve(void *argument) {
    struct puppet *p = argument;
    pthread_setname_np(pthread_self(), p->name);
    MUST(cu.cuCtxSetCurrent(context), 0);
    set_order(p, NULL);
    for (;;) {
        const char *order = await_order(p);
        if (!strcmp(order, "exit"))
            return NULL;
        obey(order);
        set_order(p, NULL);
    }
}

static struct puppet *find(const char *name) {
    for (unsigned i = 0; i < puppet_count; i++)
        if (!puppets[i].gone && !strcmp(puppets[i].name, name))
            return &puppets[i];
    tester_fail("there is no thread \"%s\"", name);
}

// Whether a thread does not come back soon from what it was told.
static bool is_long(const char *order) {
    static const char *const orders[] = {"hang",    "exec",           "pause", "lend",  "sleep-at",
                                         "sandbox", "sandbox-orphan", "poll",  "linger"};
    size_t length = strcspn(order, " ");
    for (size_t i = 0; i < sizeof(orders) / sizeof(*orders); i++)
        if (strlen(orders[i]) == length && !strncmp(order, orders[i], length))
            return true;
    return false;
}

static void hand_over(struct puppet *p, const char *order) {
    await_obedience(p);
    if (is_long(order))
        order = strcpy(p->line, order);
    set_order(p, order);
    if (!strcmp(order, "exit") || !strcmp(order, "leave")) {
        pthread_join(p->thread, NULL);
        p->gone = true;
    } else if (!is_long(order)) {
        await_obedience(p);
    }
}

static void obey_line(char *line) {
    char *order = strchr(line, ' ');
    if (!order)
        tester_fail("no order in \"%s\"", line);
    *order++ = 0;
    if (!strcmp(line, "main"))
        obey(order);
    else
        hand_over(find(line), order);
}

int main(int argc, char **argv) {
    static char line[LINE];
    long filter = 0;
    const struct number_option own[] = {
        {"filter", "1: set up a filter of system calls, and end", &filter},
        {NULL, NULL, NULL},
    };
    own_arguments = argv;
    tester_options(argc, argv, "Does on its threads what stdin says.", own);
    if (filter) {
        filter_system_calls();
        usleep(1000); // off the CPU: that is when a filter is looked for
        return 0;
    }
    context = tester_context();
    tester_ready();
    for (long number = 1; fgets(line, sizeof(line), stdin); number++) {
        line[strcspn(line, "\n")] = 0;
        obey_line(line);
        printf("ok %06ld\n", number);
    }
    return 0;
}
