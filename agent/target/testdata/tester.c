// SPDX-License-Identifier: Apache-2.0
// A process for tests to look at. It obeys one command per line and answers each with a line.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static char secret[3 * 4096] = "known bytes";

static void *idle(void *unused) {
    (void)unused;
    pause();
    return NULL;
}

static const char *thread(const char *name) {
    pthread_t t;
    return pthread_create(&t, NULL, idle, NULL) || pthread_setname_np(t, name) ? "error" : "ok";
}

static void *churn(void *unused) {
    (void)unused;
    for (;;) {
        void *p = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p != MAP_FAILED) {
            munmap(p, 8192);
        }
    }
    return NULL;
}

static const char *mappings(int n) {
    for (int i = 0; i < n; i++) {
        // Neighbours with different protections are not merged.
        int prot = i % 2 ? PROT_READ : PROT_READ | PROT_WRITE;
        if (mmap(NULL, 4096, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) {
            return strerror(errno);
        }
    }
    pthread_t t;
    return pthread_create(&t, NULL, churn, NULL) ? "error" : "ok";
}

static const char *load(const char *path, Lmid_t namespace) {
    return dlmopen(namespace, path, RTLD_NOW | RTLD_LOCAL) ? "ok" : dlerror();
}

static const char *map(const char *path, int prot) {
    int fd = open(path, O_RDONLY);
    if (fd < 0) {
        return strerror(errno);
    }
    void *p = mmap(NULL, 4096, prot, MAP_PRIVATE, fd, 0);
    close(fd);
    return p == MAP_FAILED ? strerror(errno) : "ok";
}

static const char *filter(void) {
    struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {1, &allow};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) ? strerror(errno) : "ok";
}

static const char *obey(const char *command, char *argument) {
    static char answer[64];
    if (!strcmp(command, "pid")) {
        snprintf(answer, sizeof answer, "%d", getpid());
        return answer;
    }
    if (!strcmp(command, "secret")) {
        snprintf(answer, sizeof answer, "%#lx", (unsigned long)(uintptr_t)secret);
        return answer;
    }
    if (!strcmp(command, "load")) {
        return load(argument, LM_ID_BASE);
    }
    if (!strcmp(command, "load-again")) {
        return load(argument, LM_ID_NEWLM);
    }
    if (!strcmp(command, "map-code")) {
        return map(argument, PROT_READ | PROT_EXEC);
    }
    if (!strcmp(command, "thread")) {
        return thread(argument);
    }
    if (!strcmp(command, "mappings")) {
        return mappings(atoi(argument));
    }
    if (!strcmp(command, "name")) {
        return prctl(PR_SET_NAME, argument) ? "error" : "ok";
    }
    if (!strcmp(command, "filter")) {
        return filter();
    }
    if (!strcmp(command, "chroot")) {
        return chroot(argument) ? strerror(errno) : "ok";
    }
    if (!strcmp(command, "exec")) {
        execl(argument, argument, (char *)NULL);
        return strerror(errno);
    }
    if (!strcmp(command, "end-main-thread")) {
        thread("survivor");
        puts("ok");
        fflush(stdout);
        syscall(SYS_exit, 0);
    }
    return "what?";
}

int main(void) {
    puts("ready");
    fflush(stdout);
    char line[4096];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        char *argument = strchr(line, ' ');
        if (argument) {
            *argument++ = 0;
        }
        puts(obey(line, argument ? argument : ""));
        fflush(stdout);
    }
    return 0;
}
