// SPDX-License-Identifier: Apache-2.0
#include "pythons.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "tester.h"

enum { FILE_NAME = 512 };

// CPython's PyInterpreterConfig and PyStatus, which are the same since 3.12.
struct interpreter_config {
    int use_main_obmalloc, allow_fork, allow_exec, allow_threads, allow_daemon_threads;
    int check_multi_interp_extensions, gil;
};
enum { OWN_GIL = 2 };

struct status {
    int type;
    const char *function, *message;
    int exit_code;
};

// The functions of CPython's that are called here.
#define PYTHON_FUNCTIONS(F)                                                                        \
    F(Py_InitializeEx, void, (int))                                                                \
    F(Py_FinalizeEx, int, (void))                                                                  \
    F(PyGILState_Ensure, int, (void))                                                              \
    F(PyEval_SaveThread, void *, (void))                                                           \
    F(PyEval_RestoreThread, void, (void *))                                                        \
    F(PyThreadState_New, void *, (void *))                                                         \
    F(PyInterpreterState_Main, void *, (void))                                                     \
    F(Py_NewInterpreter, void *, (void))

#define POINTER(name, result, arguments) result(*name) arguments;
static struct {
    PYTHON_FUNCTIONS(POINTER)
    struct status (*Py_NewInterpreterFromConfig)(void **, const struct interpreter_config *);
} python;

// The thread's state while it doesn't hold the lock; null: it has none yet, or holds it.
static __thread void *state;

static void *function(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found)
        tester_fail("looking for a function of Python's: %s", dlerror());
    return found;
}

static void open_python(const char *arguments) {
    char path[FILE_NAME], home[FILE_NAME];
    if (sscanf(arguments, "%511s %511s", path, home) != 2)
        tester_fail("libpython: a file and a folder are needed, not \"%s\"", arguments);
    setenv("PYTHONHOME", home, 1);
    // Local: two of them have functions of the same names.
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        tester_fail("opening \"%s\": %s", path, dlerror());
#define LOAD(name, result, arguments) *(void **)&python.name = function(library, #name);
    PYTHON_FUNCTIONS(LOAD)
    *(void **)&python.Py_NewInterpreterFromConfig = dlsym(library, "Py_NewInterpreterFromConfig");
    state = NULL;
}

void python_hold(void) {
    if (state)
        python.PyEval_RestoreThread(state);
    else
        python.PyGILState_Ensure();
    state = NULL;
}

void python_release(void) {
    state = python.PyEval_SaveThread();
}

static void hold(const char *nothing) {
    (void)nothing;
    python_hold();
}

static void release(const char *nothing) {
    (void)nothing;
    python_release();
}

static void initialize(const char *nothing) {
    python.Py_InitializeEx(0);
    release(nothing);
}

static void start_python(const char *arguments) {
    open_python(arguments);
    setenv("PYTHON_GIL", "1", 1); // also where it could do without
    initialize(NULL);
}

static void finalize(const char *nothing) {
    hold(nothing);
    if (python.Py_FinalizeEx())
        tester_fail("Python does not end well");
}

static void sub_interpreter(const char *nothing) {
    hold(nothing);
    if (!python.Py_NewInterpreter())
        tester_fail("there is no new interpreter");
    release(nothing);
}

static void own_interpreter(const char *nothing) {
    const struct interpreter_config config = {.check_multi_interp_extensions = 1, .gil = OWN_GIL};
    void *made = NULL;
    hold(nothing);
    if (python.Py_NewInterpreterFromConfig(&made, &config).type)
        tester_fail("there is no new interpreter with a lock of its own");
    release(nothing);
}

static void *make_state(void *interpreter) {
    return python.PyThreadState_New(interpreter);
}

static void take_foreign_state(const char *nothing) {
    pthread_t other;
    void *made;
    hold(nothing);
    if (pthread_create(&other, NULL, make_state, python.PyInterpreterState_Main()) ||
        pthread_join(other, &made) || !made)
        tester_fail("another thread makes no thread state");
    release(nothing);
    state = made;
}

static void count(const char *calls) {
    int devices;
    for (long i = atol(calls); i > 0; i--)
        MUST(cu.cuDeviceGetCount(&devices), 0);
}

static void version(const char *calls) {
    int number;
    for (long i = atol(calls); i > 0; i--)
        MUST(cu.cuDriverGetVersion(&number), 0);
}

static void query(int signal) {
    (void)signal;
    MUST(cu.cuStreamQuery(NULL), 0);
}

static void interrupt(const char *times) {
    signal(SIGUSR2, query);
    for (long i = atol(times); i > 0; i--)
        raise(SIGUSR2);
}

const struct command python_commands[] = {
    {"libpython", open_python},
    {"python", start_python},
    {"initialize", initialize},
    {"finalize", finalize},
    {"hold", hold},
    {"release", release},
    {"sub-interpreter", sub_interpreter},
    {"own-interpreter", own_interpreter},
    {"foreign-state", take_foreign_state},
    {"count", count},
    {"version", version},
    {"interrupt", interrupt},
    {NULL, NULL},
};
