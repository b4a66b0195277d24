// SPDX-License-Identifier: Apache-2.0
// ledger: one thread, the worker, spends its time in a known way in each of its stages and measures
// it by its own clocks. For each stage it prints
//
//   inner, outer  what the stage took by the clocks that were read inside and outside its markers:
//                 wall (CLOCK_MONOTONIC), cpu (CLOCK_THREAD_CPUTIME_ID) and wait (the time on a run
//                 queue, from schedstat); the truth lies between the two
//   switches      how often it left the CPU, involuntary: how often of these it had to
//   least         what the stage is for took at least this long
//
// and last, for the worker as a whole, cpu and wait from before it woke up after the ready file
// until it slept for good, and the machine's stolen time meanwhile.
//
// Where a stage waits for somebody, that is the main thread: it looks until the kernel says that
// the worker sleeps in the system call in question, and lets it go 20 ms later.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tester.h"

enum { MS = 1000000, ROUNDS = 3, COMPETITORS = 2, FAULT = -1, MAX_STAGES = 32 };

#define CHECK(expression)                                                                          \
    do {                                                                                           \
        if ((expression) < 0)                                                                      \
            tester_fail("%s: %m", #expression);                                                    \
    } while (0)

// Clocks

struct clocks {
    uint64_t wall, cpu, wait;
};

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    CHECK(clock_gettime(clock, &t));
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct {
    pthread_t thread;
    clockid_t clock;
    int tid, schedstat, syscall;
    sem_t start;
} worker;

static uint64_t run_delay(void) {
    char text[96];
    ssize_t n = pread(worker.schedstat, text, sizeof(text) - 1, 0);
    CHECK(n);
    text[n] = 0;
    uint64_t ran, waited;
    if (sscanf(text, "%lu %lu", &ran, &waited) != 2)
        tester_fail("schedstat is \"%s\"", text);
    return waited;
}

// The worker's clocks, read by itself or while it sleeps.
static struct clocks read_clocks(void) {
    return (struct clocks){clock_ns(CLOCK_MONOTONIC), clock_ns(worker.clock), run_delay()};
}

static struct clocks since(struct clocks begin) {
    struct clocks now = read_clocks();
    return (struct clocks){now.wall - begin.wall, now.cpu - begin.cpu, now.wait - begin.wait};
}

static uint64_t stolen_ms(void) {
    unsigned long steal;
    FILE *stat = fopen("/proc/stat", "r");
    if (!stat || fscanf(stat, "cpu %*u %*u %*u %*u %*u %*u %*u %lu", &steal) != 1)
        tester_fail("reading /proc/stat: %m");
    fclose(stat);
    return steal * 1000 / (unsigned long)sysconf(_SC_CLK_TCK);
}

// Waiting for the main thread

struct waiting {
    const char *stage;
    int syscall; // that the worker sleeps in
    void (*wait)(void), (*release)(void);
};

static sem_t asked;
static const struct waiting *_Atomic question; // null: the worker is done
static uint64_t least;                         // of the current stage

static void ask(const struct waiting *w) {
    question = w;
    sem_post(&asked);
}

// The kernel answers "running" unless the thread sleeps and is off the run queue.
static void await_asleep(int number) {
    for (;;) {
        char text[256];
        ssize_t n = pread(worker.syscall, text, sizeof(text) - 1, 0);
        CHECK(n);
        text[n] = 0;
        char *end;
        long got = strtol(text, &end, 10);
        if (end != text && got == number)
            return;
        sleep_ms(1);
    }
}

static void answer(const struct waiting *w) {
    await_asleep(w->syscall);
    uint64_t asleep = clock_ns(CLOCK_MONOTONIC);
    sleep_ms(20);
    least += clock_ns(CLOCK_MONOTONIC) - asleep;
    w->release();
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static bool signalled;

static void wait_condition(void) {
    pthread_mutex_lock(&mutex);
    while (!signalled)
        pthread_cond_wait(&condition, &mutex);
    signalled = false;
    pthread_mutex_unlock(&mutex);
}

static void signal_condition(void) {
    // Signalled after the unlock: else the worker could sleep once more, for the mutex.
    pthread_mutex_lock(&mutex);
    signalled = true;
    pthread_mutex_unlock(&mutex);
    pthread_cond_signal(&condition);
}

static int channel[2], socket_pair[2], poll_set;

static void receive(void) {
    char byte;
    CHECK(read(channel[0], &byte, 1));
}

static void send_byte(void) {
    CHECK(write(channel[1], "", 1));
}

static void wait_poll(void) {
    struct pollfd fd = {channel[0], POLLIN, 0};
    CHECK(poll(&fd, 1, -1));
    receive();
}

static void wait_select(void) {
    fd_set fds;
    FD_ZERO(&fds);
    FD_SET(channel[0], &fds);
    CHECK(select(channel[0] + 1, &fds, NULL, NULL, NULL));
    receive();
}

static void wait_epoll(void) {
    struct epoll_event event;
    CHECK(epoll_wait(poll_set, &event, 1, -1));
    receive();
}

static void wait_recv(void) {
    char byte;
    CHECK(recv(socket_pair[0], &byte, 1, 0));
}

static void send_socket(void) {
    CHECK(write(socket_pair[1], "", 1));
}

// A pipe that is full: writing waits until it has been read from.
static int full[2];
static char page[4096];

static void fill_pipe(void) {
    CHECK(pipe(full));
    CHECK(fcntl(full[1], F_SETFL, O_NONBLOCK));
    while (write(full[1], page, sizeof(page)) > 0)
        ;
    CHECK(fcntl(full[1], F_SETFL, 0));
}

static void wait_write(void) {
    CHECK(write(full[1], page, sizeof(page)));
}

static void drain_page(void) {
    CHECK(read(full[0], page, sizeof(page)));
}

// Pages that are not there until the main thread provides them.
static struct {
    int fd;
    volatile char *pages;
    size_t touched, provided;
} faults;

static void map_faults(void) {
    struct uffdio_api api = {.api = UFFD_API};
    faults.pages = mmap(NULL, ROUNDS * sizeof(page), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (faults.pages == MAP_FAILED)
        tester_fail("mapping pages: %m");
    CHECK(faults.fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC));
    CHECK(ioctl(faults.fd, UFFDIO_API, &api));
    struct uffdio_register range = {.range = {(uintptr_t)faults.pages, ROUNDS * sizeof(page)},
                                    .mode = UFFDIO_REGISTER_MODE_MISSING};
    CHECK(ioctl(faults.fd, UFFDIO_REGISTER, &range));
}

static void wait_fault(void) {
    faults.pages[faults.touched++ * sizeof(page)] = 1;
}

static void provide_page(void) {
    struct uffdio_copy copy = {.dst = (uintptr_t)(faults.pages + faults.provided++ * sizeof(page)),
                               .src = (uintptr_t)page,
                               .len = sizeof(page)};
    CHECK(ioctl(faults.fd, UFFDIO_COPY, &copy));
}

#ifndef SYS_poll // where there are only the newer ones, the C library makes these calls
#define SYS_poll SYS_ppoll
#define SYS_epoll_wait SYS_epoll_pwait
#endif

static const struct waiting waitings[] = {
    {"condition", SYS_futex, wait_condition, signal_condition},
    {"poll", SYS_poll, wait_poll, send_byte},
    {"select", SYS_pselect6, wait_select, send_byte},
    {"epoll", SYS_epoll_wait, wait_epoll, send_byte},
    {"read", SYS_read, receive, send_byte},
    {"recv", SYS_recvfrom, wait_recv, send_socket},
    {"write", SYS_write, wait_write, drain_page},
    {"fault", FAULT, wait_fault, provide_page},
};

static void wait_rounds(const void *argument) {
    const struct waiting *w = argument;
    for (int i = 0; i < ROUNDS; i++) {
        ask(w);
        w->wait();
    }
}

// Stages that need nobody

static void spin_cpu(uint64_t ns) {
    uint64_t end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + ns;
    while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end)
        ;
}

static void spin(const void *unused) {
    (void)unused;
    spin_cpu(least = 50 * MS);
}

static void sleep_rounds(const void *unused) {
    (void)unused;
    const struct timespec pause = {0, 20 * MS};
    for (int i = 0; i < ROUNDS; i++, least += 20 * MS)
        CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL));
}

// Threads on the worker's CPU that want it whenever `competing`.
static atomic_bool competing;
static sem_t compete_now[COMPETITORS];

static void *competitor(void *argument) {
    for (;;) {
        sem_wait(argument);
        while (competing)
            ;
    }
    return NULL;
}

static void compete(const void *unused) {
    (void)unused;
    uint64_t begin = run_delay();
    do {
        spin_cpu(MS);
        least = run_delay() - begin;
    } while (least < 30 * MS);
}

static void yield(const void *unused) {
    (void)unused;
    uint64_t begin = run_delay();
    do {
        sched_yield();
        least = run_delay() - begin;
    } while (least < 30 * MS);
}

static void *stream;
static long kernel_ms = 20;

static void synchronize(const void *unused) {
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        MUST(cu.cuLaunchKernel(tester_function(), 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), 0);
        uint64_t begin = clock_ns(CLOCK_MONOTONIC);
        MUST(cu.cuStreamSynchronize(stream), 0);
        least += clock_ns(CLOCK_MONOTONIC) - begin;
    }
}

// Measuring

struct measured {
    const char *stage;
    struct clocks inner, outer;
    uint64_t switches, involuntary, least;
};

static struct measured measured[MAX_STAGES];
static unsigned stages_measured;

static struct rusage usage(void) {
    struct rusage u;
    CHECK(getrusage(RUSAGE_THREAD, &u));
    return u;
}

static void measure(const char *name, void (*spend)(const void *), const void *argument) {
    struct measured *m = &measured[stages_measured++];
    struct rusage before = usage(), after;
    m->stage = name;
    least = 0;
    struct clocks outer = read_clocks();
    stage_begin(name);
    struct clocks inner = read_clocks();
    spend(argument);
    m->inner = since(inner);
    stage_end();
    m->outer = since(outer);
    after = usage();
    m->least = least;
    m->switches = (uint64_t)(after.ru_nvcsw - before.ru_nvcsw + after.ru_nivcsw - before.ru_nivcsw);
    m->involuntary = (uint64_t)(after.ru_nivcsw - before.ru_nivcsw);
}

static void measure_competing(const char *name, void (*spend)(const void *)) {
    competing = true;
    for (int i = 0; i < COMPETITORS; i++)
        sem_post(&compete_now[i]);
    measure(name, spend, NULL);
    competing = false;
}

static void *work(void *context) {
    MUST(cu.cuCtxSetCurrent(context), 0);
    MUST(cu.cuStreamCreate(&stream, 1), 0);
    cu.simcuda_set_kernel_ns((uint64_t)kernel_ms * MS);
    worker.tid = gettid();
    CHECK(worker.schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC));
    CHECK(worker.syscall = open("/proc/thread-self/syscall", O_RDONLY | O_CLOEXEC));
    sem_post(&asked); // set up
    sem_wait(&worker.start);
    measure("spin", spin, NULL);
    measure("sleep", sleep_rounds, NULL);
    for (size_t i = 0; i < sizeof(waitings) / sizeof(*waitings); i++)
        measure(waitings[i].stage, wait_rounds, &waitings[i]);
    measure_competing("compete", compete);
    measure_competing("yield", yield);
    measure("synchronize", synchronize, NULL);
    ask(NULL);
    sem_wait(&worker.start); // for good
    return NULL;
}

static void print_clocks(const char *name, struct clocks c) {
    printf("\"%s\":{\"wall\":%lu,\"cpu\":%lu,\"wait\":%lu},", name, c.wall, c.cpu, c.wait);
}

static void print_measured(void) {
    for (const struct measured *m = measured; m < measured + stages_measured; m++) {
        printf("{\"stage\":\"%s\",", m->stage);
        print_clocks("inner", m->inner);
        print_clocks("outer", m->outer);
        printf("\"switches\":%lu,\"involuntary\":%lu,\"least\":%lu}\n", m->switches, m->involuntary,
               m->least);
    }
}

static void start_threads(void *context) {
    // One CPU for all of them, inherited.
    cpu_set_t all, one;
    CHECK(sched_getaffinity(0, sizeof(all), &all));
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK(sched_setaffinity(0, sizeof(one), &one));
    for (int i = 0; i < COMPETITORS; i++) {
        pthread_t thread;
        sem_init(&compete_now[i], 0, 0);
        if (pthread_create(&thread, NULL, competitor, &compete_now[i]))
            tester_fail("starting a thread: %m");
    }
    sem_init(&asked, 0, 0);
    sem_init(&worker.start, 0, 0);
    if (pthread_create(&worker.thread, NULL, work, context) ||
        pthread_getcpuclockid(worker.thread, &worker.clock))
        tester_fail("starting the worker: %m");
    CHECK(sched_setaffinity(0, sizeof(all), &all));
}

int main(int argc, char **argv) {
    const struct number_option own[] = {{"kernel-ms", "duration of a kernel", &kernel_ms},
                                        {NULL, NULL, NULL}};
    tester_options(argc, argv, "Spends time in known ways and measures it.", own);
    void *context = tester_context();
    CHECK(pipe(channel));
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, socket_pair));
    CHECK(poll_set = epoll_create1(EPOLL_CLOEXEC));
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(poll_set, EPOLL_CTL_ADD, channel[0], &event));
    fill_pipe();
    start_threads(context);
    sem_wait(&asked);
    // No page of ours has to be read in later: a stage's faults are only those that it is for.
    CHECK(mlockall(MCL_CURRENT));
    map_faults();
    tester_ready();

    await_asleep(SYS_futex);
    struct clocks begin = read_clocks();
    uint64_t stolen = stolen_ms();
    sem_post(&worker.start);
    for (;;) {
        sem_wait(&asked);
        const struct waiting *w = question;
        if (!w)
            break;
        answer(w);
    }
    await_asleep(SYS_futex);
    struct clocks all = since(begin);
    stolen = stolen_ms() - stolen;
    print_measured();
    printf("{\"tid\":%d,", worker.tid);
    print_clocks("all", all);
    printf("\"stolen_ms\":%lu}\n", stolen);
    tester_done();
    return 0;
}
