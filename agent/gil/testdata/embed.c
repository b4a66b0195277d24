// SPDX-License-Identifier: Apache-2.0
// embed N MODE [LIBPYTHON [LIB...]]: a C program that runs Python in N threads, which it makes
// first, and obeys the protocol of workers.py. MODE: "main" (one interpreter) or "sub" (each thread
// but the first has its own interpreter, with its own lock from Python 3.12 on). With LIBPYTHON the
// interpreter is loaded by dlopen, after the LIBs; without, it is linked in.
#include "workers.h"

#include <dlfcn.h>
#include <string.h>

// What is called of CPython's, declared here because not every build comes with its headers.
typedef struct thread_state PyThreadState;

typedef struct {
    int use_main_obmalloc, allow_fork, allow_exec, allow_threads, allow_daemon_threads;
    int check_multi_interp_extensions, gil;
} PyInterpreterConfig;
enum { OWN_GIL = 2 };

typedef struct {
    int type;
    const char *function, *message;
    int exit_code;
} PyStatus;

void Py_InitializeEx(int handlers);
int PyGILState_Ensure(void);
PyThreadState *PyEval_SaveThread(void);
void PyEval_RestoreThread(PyThreadState *ts);
PyThreadState *Py_NewInterpreter(void);
// From 3.12 on.
__attribute__((weak)) PyStatus Py_NewInterpreterFromConfig(PyThreadState **ts,
                                                           const PyInterpreterConfig *config);

#ifdef LINKED
#define FUNCTION(name) name
#define EXISTS(name) (name != NULL)
static void load(const char *path) {
    check(path == NULL, "linked: no library");
}
#else
static void *libpython;
#define FUNCTION(name) ((__typeof__(&name))find(#name))
#define EXISTS(name) (dlsym(libpython, #name) != NULL)
static void *find(const char *name) {
    void *symbol = dlsym(libpython, name);
    check(symbol != NULL, name);
    return symbol;
}
static void load(const char *path) {
    libpython = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    check(libpython != NULL, path);
}
#endif

static int sub;
static PyThreadState *state[64];

static PyThreadState *new_interpreter(void) {
    if (!EXISTS(Py_NewInterpreterFromConfig)) {
        return FUNCTION(Py_NewInterpreter)();
    }
    PyThreadState *ts = NULL;
    PyInterpreterConfig config = {.check_multi_interp_extensions = 1, .gil = OWN_GIL};
    PyStatus status = FUNCTION(Py_NewInterpreterFromConfig)(&ts, &config);
    check(status.type == 0, "Py_NewInterpreterFromConfig");
    return ts;
}

static void prepare(long k) {
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    if (k == 0) {
        return; // it has a thread state since Py_InitializeEx
    }
    pthread_mutex_lock(&one);
    FUNCTION(PyGILState_Ensure)();
    if (sub) {
        check(new_interpreter() != NULL, "new interpreter");
    }
    state[k] = FUNCTION(PyEval_SaveThread)();
    pthread_mutex_unlock(&one);
}

static void hold(long k) {
    FUNCTION(PyEval_RestoreThread)(state[k]);
}

static void release(long k) {
    state[k] = FUNCTION(PyEval_SaveThread)();
}

int main(int argc, char **argv) {
    check(argc >= 3, "usage: embed N MODE [LIBPYTHON [LIB...]]");
    sub = strcmp(argv[2], "sub") == 0;
    start(atol(argv[1]));
    for (int i = 4; i < argc; i++) {
        check(dlopen(argv[i], RTLD_NOW) != NULL, argv[i]);
    }
    load(argc > 3 ? argv[3] : NULL);
    FUNCTION(Py_InitializeEx)(0);
    state[0] = FUNCTION(PyEval_SaveThread)();
    run();
}
