// SPDX-License-Identifier: Apache-2.0
// embed N MODE [LIBPYTHON [LIB...]]: a C program that runs Python in N threads, which it makes
// first, and obeys the protocol of workers.py. MODE: "main" (one interpreter) or "sub" (each thread
// but the first has its own interpreter, with its own lock from Python 3.12 on). With LIBPYTHON the
// interpreter is loaded by dlopen, after the LIBs; without, it is linked in.
#include "workers.h"

#include <Python.h>
#include <dlfcn.h>
#include <string.h>

#ifdef LINKED
#define FUNCTION(name) name
static void load(const char *path) {
    check(path == NULL, "linked: no library");
}
#else
static void *libpython;
#define FUNCTION(name) ((__typeof__(&name))find(#name))
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
#if PY_VERSION_HEX >= 0x030c0000
    PyThreadState *ts = NULL;
    PyInterpreterConfig config = {
        .check_multi_interp_extensions = 1,
        .gil = PyInterpreterConfig_OWN_GIL,
    };
    PyStatus status = FUNCTION(Py_NewInterpreterFromConfig)(&ts, &config);
    check(!FUNCTION(PyStatus_Exception)(status), "Py_NewInterpreterFromConfig");
    return ts;
#else
    return FUNCTION(Py_NewInterpreter)();
#endif
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
