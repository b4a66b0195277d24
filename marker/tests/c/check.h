// SPDX-License-Identifier: Apache-2.0
//
// The little that a C test needs: checks that say where and what, and tests
// that each run in a process of their own, because the library's state lives
// as long as its process.
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define CHECK_EQUAL(got, want)                                                                     \
    do {                                                                                           \
        long long got_ = (long long)(got), want_ = (long long)(want);                              \
        if (got_ != want_) {                                                                       \
            fprintf(stderr, "%s:%d: %s is %lld, want %lld\n", __FILE__, __LINE__, #got, got_,      \
                    want_);                                                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define CHECK_TEXT(got, want)                                                                      \
    do {                                                                                           \
        const char *got_ = (got), *want_ = (want);                                                 \
        if (strcmp(got_, want_) != 0) {                                                            \
            fprintf(stderr, "%s:%d: %s is \"%s\", want \"%s\"\n", __FILE__, __LINE__, #got, got_,  \
                    want_);                                                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

struct test {
    const char *name;
    void (*run)(void);
};

// Waits for pid; true if it exited with 0.
static inline int succeeded(pid_t pid) {
    int status = 0;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Runs every test, or those whose name contains argv[1]. Returns the exit code.
static inline int run_tests(const struct test *tests, size_t n, int argc, char **argv) {
    int failed = 0;
    for (size_t i = 0; i < n; i++) {
        if (argc > 1 && strstr(tests[i].name, argv[1]) == NULL)
            continue;
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) {
            alarm(60); // a deadlock is a failure, not a hang
            tests[i].run();
            exit(0);
        }
        int ok = pid > 0 && succeeded(pid);
        printf("%s %s\n", ok ? "ok  " : "FAIL", tests[i].name);
        failed += !ok;
    }
    return failed != 0;
}

#endif // CHECK_H
