// SPDX-License-Identifier: Apache-2.0
//
// The fast half of the Python package: stages as context managers over the C
// library, and statistics about them. Everything here runs with the GIL held
// and never lets go of it, so a stage costs no wait.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "stageprof.h"

// The markers in use. This extension contains the whole C library, but if the
// process already has it (a C++ extension linked with it) that one is used, so
// that all languages share one stack of stages per thread. The other order
// works by itself: this file carries the library's soname.
static struct {
    const struct stageprof_name *(*intern)(const char *, size_t);
    void (*begin_name)(const struct stageprof_name *);
    void (*end_to)(uint32_t);
    const struct stageprof_thread *(*self)(void);
    void (*process_begin_name)(const struct stageprof_name *);
    void (*process_end)(void);
} marker = {
    stageprof_intern, stageprof_begin_name,         stageprof_end_to,
    stageprof_self,   stageprof_process_begin_name, stageprof_process_end,
};

static void use_loaded_library(void) {
    void *library = dlopen("libstageprof.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library == NULL)
        return;
    void *found[] = {
        dlsym(library, "stageprof_intern"),
        dlsym(library, "stageprof_begin_name"),
        dlsym(library, "stageprof_end_to"),
        dlsym(library, "stageprof_self"),
        dlsym(library, "stageprof_process_begin_name"),
        dlsym(library, "stageprof_process_end"),
    };
    _Static_assert(sizeof found == sizeof marker, "one address for each function");
    for (size_t i = 0; i < sizeof found / sizeof *found; i++)
        if (found[i] == NULL)
            return;
    memcpy(&marker, found, sizeof marker);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// Durations. A histogram has 32 buckets per power of two, so that a quantile
// read from it is within 1/64 of the true duration; up to 64 ns it is exact.

enum {
    SUB_BITS = 5,
    SUB = 1 << SUB_BITS,
    MAX_BIT = 45, // durations from 2^46 ns (19 hours) on count in the last bucket
    BUCKETS = (MAX_BIT - SUB_BITS + 2) * SUB,
};

static uint32_t bucket_of(uint64_t ns) {
    if (ns < SUB)
        return (uint32_t)ns;
    int shift = 63 - __builtin_clzll(ns) - SUB_BITS;
    if (shift > MAX_BIT - SUB_BITS)
        return BUCKETS - 1;
    return (uint32_t)(shift * SUB + (int)(ns >> shift));
}

static uint64_t middle_of(uint32_t bucket) {
    if (bucket < SUB)
        return bucket;
    uint32_t shift = bucket / SUB - 1;
    uint64_t low = (uint64_t)(bucket - shift * SUB) << shift;
    return low + ((uint64_t)1 << shift) / 2;
}

struct durations {
    uint64_t epoch; // of the reset that this was last cleared for
    uint64_t count, total, min, max;
    uint64_t buckets[BUCKETS];
};

static void clear(struct durations *d, uint64_t epoch) {
    memset(d, 0, sizeof *d);
    d->epoch = epoch;
    d->min = UINT64_MAX;
}

static void add_duration(struct durations *d, uint64_t ns) {
    d->count++;
    d->total += ns;
    d->min = ns < d->min ? ns : d->min;
    d->max = ns > d->max ? ns : d->max;
    d->buckets[bucket_of(ns)]++;
}

static void merge(struct durations *into, const struct durations *from) {
    into->count += from->count;
    into->total += from->total;
    into->min = from->min < into->min ? from->min : into->min;
    into->max = from->max > into->max ? from->max : into->max;
    for (int i = 0; i < BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
}

// The smallest duration that at least `percent` of all do not exceed.
static uint64_t percentile(const struct durations *d, uint64_t percent) {
    uint64_t rank = (d->count / 100 * percent) + (d->count % 100 * percent + 99) / 100;
    uint64_t seen = 0;
    for (uint32_t i = 0; i < BUCKETS; i++) {
        seen += d->buckets[i];
        if (seen >= rank && seen > 0) {
            uint64_t ns = i == BUCKETS - 1 ? d->max : middle_of(i);
            return ns < d->min ? d->min : ns > d->max ? d->max : ns;
        }
    }
    return d->max;
}

// Threads. Each has a record: what it has open, and its statistics per stage.

enum {
    MAX_STAGES = STAGEPROF_NAMES + 1, // the last one: "(too many names)"
    PAGE = 64,
    PAGES = (MAX_STAGES + PAGE - 1) / PAGE,
    MAX_ENDED = 256, // ended threads with a record of their own
};

struct frame {
    uint32_t stage; // index
    uint32_t depth; // of the marker stack, before this stage began
    uint64_t begin_ns;
};

struct thread_record {
    struct thread_record *next;
    PyObject *name;      // str, NULL while it is being found
    unsigned long ident; // threading.get_ident()
    unsigned long tid;   // as the kernel numbers it
    int ended;           // set without the GIL
    uint64_t epoch;      // of the last span it counted
    struct frame *frames;
    size_t open, capacity;
    struct durations **pages[PAGES];
};

static __thread struct thread_record *current __attribute__((tls_model("initial-exec")));
static int iterating;                      // over records, while Python code may run
static struct thread_record *records;      // newest first
static struct thread_record ended_threads; // what remains of the oldest ended ones
static uint64_t epoch = 1;                 // raised by reset()
static PyObject *stage_texts[MAX_STAGES];  // by index
static uint32_t stages_used;               // indices below this are taken
static PyObject *stages_by_name;           // {str: Stage}
static PyTypeObject *stage_type;
static PyObject *threading_module;
static pthread_key_t exit_key;

static void on_thread_exit(void *record) {
    struct thread_record *r = record;
    current = NULL;
    __atomic_store_n(&r->ended, 1, __ATOMIC_RELEASE);
}

// In the child of a fork: its statistics begin anew, its other threads are
// gone. Touches no Python object, for the forking thread may not hold the GIL.
static void on_fork_child(void) {
    for (struct thread_record *r = records; r != NULL; r = r->next)
        if (r != current)
            r->ended = 1;
    if (current != NULL)
        current->tid = (unsigned long)syscall(SYS_gettid);
    epoch++;
}

// The statistics of one stage on one thread, NULL when memory ran out.
static struct durations *durations_of(struct thread_record *r, uint32_t stage) {
    struct durations ***page = &r->pages[stage / PAGE];
    if (*page == NULL && (*page = PyMem_RawCalloc(PAGE, sizeof **page)) == NULL)
        return NULL;
    struct durations **d = &(*page)[stage % PAGE];
    if (*d == NULL && (*d = PyMem_RawMalloc(sizeof **d)) != NULL)
        clear(*d, 0);
    if (*d != NULL && (*d)->epoch != epoch)
        clear(*d, epoch);
    return *d;
}

static int count_span(struct thread_record *r, uint32_t stage, uint64_t ns) {
    struct durations *d = durations_of(r, stage);
    if (d == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    add_duration(d, ns);
    r->epoch = epoch;
    return 0;
}

static bool counted(const struct durations *d) {
    return d != NULL && d->epoch == epoch && d->count > 0;
}

static void free_pages(struct thread_record *r) {
    for (int p = 0; p < PAGES; p++) {
        for (int i = 0; r->pages[p] != NULL && i < PAGE; i++)
            PyMem_RawFree(r->pages[p][i]);
        PyMem_RawFree(r->pages[p]);
    }
}

static void free_record(struct thread_record *r) {
    free_pages(r);
    PyMem_RawFree(r->frames);
    Py_XDECREF(r->name);
    PyMem_RawFree(r);
}

// Calls visit for each stage that r has counted spans of, as long as it
// returns 0; returns what it returned last.
static int each_counted(const struct thread_record *r,
                        int (*visit)(void *context, uint32_t stage, const struct durations *d),
                        void *context) {
    int result = 0;
    for (uint32_t p = 0; p < PAGES && r->epoch == epoch; p++)
        for (uint32_t i = 0; r->pages[p] != NULL && i < PAGE && result == 0; i++)
            if (counted(r->pages[p][i]))
                result = visit(context, p * PAGE + i, r->pages[p][i]);
    return result;
}

// Adds to the statistics of another thread; what there is no memory for is lost.
static int merge_into_thread(void *into, uint32_t stage, const struct durations *from) {
    struct durations *d = durations_of(into, stage);
    if (d != NULL)
        merge(d, from);
    return 0;
}

static void bury(struct thread_record *r) {
    if (each_counted(r, merge_into_thread, &ended_threads) == 0 && r->epoch == epoch)
        ended_threads.epoch = epoch;
    free_record(r);
}

// Keeps MAX_ENDED ended threads apart and merges older ones, so that a program
// that starts a thread per request stays bounded. Those that counted nothing
// since the last reset go at once.
static void bury_oldest(void) {
    if (iterating > 0)
        return;
    int ended = 0;
    for (struct thread_record **link = &records; *link != NULL;) {
        struct thread_record *r = *link;
        bool gone = __atomic_load_n(&r->ended, __ATOMIC_ACQUIRE);
        if (gone && (r->epoch != epoch || ++ended > MAX_ENDED)) {
            *link = r->next;
            bury(r);
        } else {
            link = &r->next;
        }
    }
}

// The name that threading gave the thread. Not through threading.enumerate():
// that takes a lock, and a stage may begin in a signal handler or destructor
// that interrupted its holder. NULL without an error for unknown threads.
static PyObject *threading_name(unsigned long ident) {
    PyObject *name = NULL, *key = PyLong_FromUnsignedLong(ident);
    PyObject *active = PyObject_GetAttrString(threading_module, "_active");
    if (active != NULL && key != NULL && PyDict_Check(active)) {
        PyObject *thread = PyDict_GetItemWithError(active, key);
        if (thread != NULL) {
            Py_INCREF(thread);
            name = PyObject_GetAttrString(thread, "name");
            Py_DECREF(thread);
        }
    }
    Py_XDECREF(active);
    Py_XDECREF(key);
    if (name != NULL && !PyUnicode_Check(name))
        Py_CLEAR(name);
    PyErr_Clear();
    return name;
}

// The name that the kernel has for the calling thread.
static PyObject *kernel_name(void) {
    char name[64] = "?";
    pthread_getname_np(pthread_self(), name, sizeof name);
    return PyUnicode_DecodeUTF8(name, (Py_ssize_t)strlen(name), "replace");
}

static struct thread_record *register_thread(void) {
    struct thread_record *r = PyMem_RawCalloc(1, sizeof *r);
    if (r == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    r->ident = PyThread_get_thread_ident();
    r->tid = (unsigned long)syscall(SYS_gettid);
    bury_oldest();
    r->next = records;
    records = r;
    current = r;
    pthread_setspecific(exit_key, r);
    // Last, for it runs Python code, which may begin stages.
    PyObject *name = threading_name(r->ident);
    if (name == NULL)
        name = kernel_name();
    if (name == NULL)
        PyErr_Clear();
    r->name = name;
    return r;
}

static inline struct thread_record *own_record(void) {
    return current != NULL ? current : register_thread();
}

// Stages

typedef struct {
    PyObject ob_base; // what PyObject_HEAD stands for
    const struct stageprof_name *name;
    uint32_t index;
    PyObject *enter, *exit; // bound methods, see kept_get
} Stage;

static int grow_frames(struct thread_record *r) {
    size_t capacity = r->capacity != 0 ? 2 * r->capacity : 32;
    struct frame *frames = PyMem_RawRealloc(r->frames, capacity * sizeof *frames);
    if (frames == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    r->frames = frames;
    r->capacity = capacity;
    return 0;
}

static int begin_stage(const Stage *stage) {
    struct thread_record *r = own_record();
    if (r == NULL || (r->open == r->capacity && grow_frames(r) < 0))
        return -1;
    const struct stageprof_thread *slot = marker.self();
    uint32_t depth = slot != NULL ? slot->depth : 0;
    marker.begin_name(stage->name);
    if (slot == NULL)
        slot = marker.self();
    // The library has just read the clock; once is enough.
    uint64_t begin =
        slot != NULL && depth < STAGEPROF_DEPTH ? slot->open[depth].begin_ns : now_ns();
    r->frames[r->open++] = (struct frame){stage->index, depth, begin};
    return 0;
}

// Ends the open stage number `at` of the calling thread and all inside it.
static int end_stages(struct thread_record *r, size_t at) {
    uint64_t now = now_ns();
    uint32_t depth = r->frames[at].depth;
    int result = 0;
    while (r->open > at) {
        const struct frame *f = &r->frames[--r->open];
        if (count_span(r, f->stage, now - f->begin_ns) < 0)
            result = -1;
    }
    marker.end_to(depth);
    return result;
}

// Ends the innermost open stage of this name. None is open if an enclosing
// stage has ended meanwhile: then this one ended with it.
static int end_stage(const Stage *stage) {
    struct thread_record *r = current;
    if (r == NULL)
        return 0;
    for (size_t at = r->open; at > 0; at--)
        if (r->frames[at - 1].stage == stage->index)
            return end_stages(r, at - 1);
    return 0;
}

static const struct stageprof_name *intern(PyObject *name) {
    Py_ssize_t len;
    const char *utf8 = PyUnicode_AsUTF8AndSize(name, &len);
    if (utf8 != NULL)
        return marker.intern(utf8, (size_t)len);
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
        return NULL;
    PyErr_Clear(); // lone surrogates: the library escapes their bytes
    PyObject *bytes = PyUnicode_AsEncodedString(name, "utf-8", "surrogatepass");
    if (bytes == NULL)
        return NULL;
    const struct stageprof_name *interned =
        marker.intern(PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
    Py_DECREF(bytes);
    return interned;
}

static const char TOO_MANY[] = "(too many names)";

// Two Python names can be one stage ("" is "(empty)"), so a stage's index is
// looked up by the text that the library made of its name.
static int index_of(PyObject *text, uint32_t *index) {
    if (PyUnicode_CompareWithASCIIString(text, TOO_MANY) == 0) {
        *index = MAX_STAGES - 1;
        return 0;
    }
    for (uint32_t i = 0; i < stages_used; i++) {
        int same = PyUnicode_Compare(stage_texts[i], text);
        if (same == 0 || (same == -1 && PyErr_Occurred())) {
            *index = i;
            return same;
        }
    }
    if (stages_used == MAX_STAGES - 1) {
        *index = MAX_STAGES - 1;
        return 0;
    }
    Py_INCREF(text);
    *index = stages_used;
    stage_texts[stages_used++] = text;
    return 0;
}

static Stage *new_stage(PyObject *name) {
    const struct stageprof_name *interned = intern(name);
    if (interned == NULL)
        return NULL;
    PyObject *text = PyUnicode_FromString(interned->text);
    if (text == NULL)
        return NULL;
    uint32_t index;
    int found = index_of(text, &index);
    Py_DECREF(text);
    if (found < 0)
        return NULL;
    Stage *stage = PyObject_New(Stage, stage_type);
    if (stage == NULL)
        return NULL;
    stage->name = interned;
    stage->index = index;
    stage->enter = stage->exit = NULL;
    // Not kept when the names have run out: the table stays bounded.
    if (index < MAX_STAGES - 1 && PyDict_SetItem(stages_by_name, name, (PyObject *)stage) < 0) {
        Py_DECREF(stage);
        return NULL;
    }
    return stage;
}

// The one stage of this name; a new reference.
static Stage *stage_named(PyObject *name) {
    if (!PyUnicode_CheckExact(name)) {
        PyErr_Format(PyExc_TypeError, "a stage's name is a str, not %.100s",
                     Py_TYPE(name)->tp_name);
        return NULL;
    }
    Stage *stage = (Stage *)PyDict_GetItemWithError(stages_by_name, name);
    if (stage != NULL) {
        Py_INCREF(stage);
        return stage;
    }
    return PyErr_Occurred() ? NULL : new_stage(name);
}

static PyObject *Stage_enter(PyObject *self, PyObject *Py_UNUSED(ignored)) {
    if (begin_stage((Stage *)self) < 0)
        return NULL;
    Py_INCREF(self);
    return self;
}

static PyObject *Stage_exit(PyObject *self, PyObject *const *Py_UNUSED(args),
                            Py_ssize_t Py_UNUSED(n)) {
    if (end_stage((Stage *)self) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *Stage_call(PyObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *function;
    if (kwargs != NULL && PyDict_GET_SIZE(kwargs) > 0) {
        PyErr_SetString(PyExc_TypeError, "a stage takes the function to decorate");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O:Stage", &function))
        return NULL;
    PyObject *module = PyImport_ImportModule("stageprof._decorate");
    if (module == NULL)
        return NULL;
    PyObject *result = PyObject_CallMethod(module, "decorate", "OO", self, function);
    Py_DECREF(module);
    return result;
}

static PyObject *Stage_name(PyObject *self, void *Py_UNUSED(closure)) {
    return PyUnicode_FromString(((Stage *)self)->name->text);
}

static PyObject *Stage_repr(PyObject *self) {
    PyObject *name = Stage_name(self, NULL);
    if (name == NULL)
        return NULL;
    PyObject *repr = PyUnicode_FromFormat("stage(%R)", name);
    Py_DECREF(name);
    return repr;
}

// Copies and pickles are the stage itself, so objects that hold one stay
// copyable.
static PyObject *Stage_reduce(PyObject *self, PyObject *Py_UNUSED(ignored)) {
    return Py_BuildValue("O(N)", Py_TYPE(self), Stage_name(self, NULL));
}

static PyObject *Stage_new(PyTypeObject *Py_UNUSED(type), PyObject *args, PyObject *kwargs) {
    static char *names[] = {"name", NULL};
    PyObject *name;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:Stage", names, &name))
        return NULL;
    return (PyObject *)stage_named(name);
}

static void Stage_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyMethodDef stage_methods[] = {
    {"__enter__", Stage_enter, METH_NOARGS, "Begin the stage on the calling thread."},
    {"__exit__", (PyCFunction)(void (*)(void))Stage_exit, METH_FASTCALL,
     "End the stage, and every stage begun inside it that is still open."},
    {"__reduce__", Stage_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef stage_properties[] = {
    {"name", Stage_name, NULL, "The stage's name, as profiles show it.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot stage_slots[] = {
    {Py_tp_doc, "A named stage: a context manager and a decorator."},
    {Py_tp_new, Stage_new},
    {Py_tp_methods, stage_methods},
    {Py_tp_getset, stage_properties},
    {Py_tp_call, Stage_call},
    {Py_tp_repr, Stage_repr},
    {Py_tp_dealloc, Stage_dealloc},
    {0, NULL},
};

static PyType_Spec stage_spec = {
    .name = "stageprof.Stage",
    .basicsize = sizeof(Stage),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = stage_slots,
};

// Before Python 3.14 a `with` statement makes two bound methods and throws them
// away, which is a good part of its cost. A stage makes them once: this
// descriptor stands before the method and hands out the stage's own. It returns
// the plain method to those who ask the type.
typedef struct {
    PyObject ob_base;
    PyObject *method;
    size_t offset; // in Stage, of the bound method
} KeptMethod;

static PyObject *kept_get(PyObject *self, PyObject *stage, PyObject *type) {
    KeptMethod *kept = (KeptMethod *)self;
    if (stage == NULL || Py_TYPE(stage) != stage_type)
        return Py_TYPE(kept->method)->tp_descr_get(kept->method, stage, type);
    PyObject **place = (PyObject **)((char *)stage + kept->offset);
    if (*place == NULL) {
        PyObject *bound = Py_TYPE(kept->method)->tp_descr_get(kept->method, stage, type);
        // The two refer to each other: only for stages that live forever.
        if (bound == NULL || ((Stage *)stage)->index == MAX_STAGES - 1)
            return bound;
        *place = bound;
    }
    Py_INCREF(*place);
    return *place;
}

static void kept_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_DECREF(((KeptMethod *)self)->method);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot kept_slots[] = {
    {Py_tp_descr_get, kept_get},
    {Py_tp_dealloc, kept_dealloc},
    {0, NULL},
};

static PyType_Spec kept_spec = {
    .name = "stageprof.KeptMethod",
    .basicsize = sizeof(KeptMethod),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = kept_slots,
};

// Puts the descriptor before the method of stage_type that has this name.
static int keep_method(PyTypeObject *kept_type, const char *name, size_t offset) {
    PyObject *method = PyObject_GetAttrString((PyObject *)stage_type, name);
    if (method == NULL)
        return -1;
    KeptMethod *kept = PyObject_New(KeptMethod, kept_type);
    if (kept == NULL) {
        Py_DECREF(method);
        return -1;
    }
    kept->method = method;
    kept->offset = offset;
    int result = PyObject_SetAttrString((PyObject *)stage_type, name, (PyObject *)kept);
    Py_DECREF(kept);
    return result;
}

static int make_stage_type(void) {
    stage_type = (PyTypeObject *)PyType_FromSpec(&stage_spec);
    if (stage_type == NULL)
        return -1;
    if (PY_VERSION_HEX >= 0x030e0000) // calls plain methods without binding them
        return 0;
    PyTypeObject *kept_type = (PyTypeObject *)PyType_FromSpec(&kept_spec);
    if (kept_type == NULL)
        return -1;
    int result = keep_method(kept_type, "__enter__", offsetof(Stage, enter));
    if (result == 0)
        result = keep_method(kept_type, "__exit__", offsetof(Stage, exit));
    Py_DECREF(kept_type);
    return result;
}

// The module's functions

static PyObject *native_stage(PyObject *Py_UNUSED(module), PyObject *name) {
    return (PyObject *)stage_named(name);
}

static PyObject *native_begin(PyObject *Py_UNUSED(module), PyObject *name) {
    Stage *stage = stage_named(name);
    if (stage == NULL)
        return NULL;
    int result = begin_stage(stage);
    Py_DECREF(stage);
    if (result < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *native_end(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    if (current != NULL && current->open > 0 && end_stages(current, current->open - 1) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *native_process_begin(PyObject *Py_UNUSED(module), PyObject *name) {
    Stage *stage = stage_named(name);
    if (stage == NULL)
        return NULL;
    marker.process_begin_name(stage->name);
    Py_DECREF(stage);
    Py_RETURN_NONE;
}

static PyObject *native_process_end(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    marker.process_end();
    Py_RETURN_NONE;
}

static PyObject *native_add_time(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *name;
    double seconds;
    if (!PyArg_ParseTuple(args, "Od:add_time", &name, &seconds))
        return NULL;
    if (!(seconds >= 0 && seconds < 9e9)) {
        PyErr_SetString(PyExc_ValueError, "seconds must be a number from 0 to 9e9");
        return NULL;
    }
    Stage *stage = stage_named(name);
    if (stage == NULL)
        return NULL;
    struct thread_record *r = own_record();
    int result = r == NULL ? -1 : count_span(r, stage->index, (uint64_t)llround(seconds * 1e9));
    Py_DECREF(stage);
    if (result < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *native_reset(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    epoch++;
    Py_RETURN_NONE;
}

static int append_row(PyObject *rows, uint32_t stage, PyObject *thread, unsigned long tid,
                      const struct durations *d) {
    PyObject *row = Py_BuildValue(
        "OOkKKKKKK", stage_texts[stage], thread, tid, (unsigned long long)d->count,
        (unsigned long long)d->total, (unsigned long long)d->min, (unsigned long long)d->max,
        (unsigned long long)percentile(d, 50), (unsigned long long)percentile(d, 99));
    if (row == NULL)
        return -1;
    int result = PyList_Append(rows, row);
    Py_DECREF(row);
    return result;
}

struct row_context {
    PyObject *rows, *thread;
    unsigned long tid;
};

static int visit_row(void *context, uint32_t stage, const struct durations *d) {
    struct row_context *c = context;
    return append_row(c->rows, stage, c->thread, c->tid, d);
}

static void refresh_name(struct thread_record *r) {
    PyObject *name = r->ended ? NULL : threading_name(r->ident);
    if (name != NULL) {
        Py_XDECREF(r->name);
        r->name = name;
    }
}

static int append_thread(PyObject *rows, const struct thread_record *r) {
    PyObject *name = r->name != NULL ? r->name : Py_None;
    Py_INCREF(name);
    struct row_context c = {rows, name, r->tid};
    int result = each_counted(r, visit_row, &c);
    Py_DECREF(name);
    return result;
}

static int append_each_thread(PyObject *rows) {
    for (struct thread_record *r = records; r != NULL; r = r->next)
        refresh_name(r);
    int result = append_thread(rows, &ended_threads);
    for (struct thread_record *r = records; r != NULL && result == 0; r = r->next)
        result = append_thread(rows, r);
    return result;
}

static int append_merged(PyObject *rows) {
    struct thread_record sum = {.epoch = epoch};
    each_counted(&ended_threads, merge_into_thread, &sum);
    for (struct thread_record *r = records; r != NULL; r = r->next)
        each_counted(r, merge_into_thread, &sum);
    struct row_context c = {rows, Py_None, 0};
    int result = each_counted(&sum, visit_row, &c);
    free_pages(&sum);
    return result;
}

static PyObject *native_rows(PyObject *Py_UNUSED(module), PyObject *by_thread) {
    int each = PyObject_IsTrue(by_thread);
    if (each < 0)
        return NULL;
    PyObject *rows = PyList_New(0);
    if (rows == NULL)
        return NULL;
    iterating++;
    if ((each ? append_each_thread(rows) : append_merged(rows)) < 0)
        Py_CLEAR(rows);
    iterating--;
    return rows;
}

static PyMethodDef functions[] = {
    {"stage", native_stage, METH_O, "The stage of this name."},
    {"begin", native_begin, METH_O, "Begin a stage on the calling thread."},
    {"end", native_end, METH_NOARGS, "End the calling thread's innermost stage."},
    {"process_begin", native_process_begin, METH_O, "Begin a stage of the whole process."},
    {"process_end", native_process_end, METH_NOARGS, "End the innermost stage of the process."},
    {"add_time", native_add_time, METH_VARARGS, "Count a span of so many seconds."},
    {"reset", native_reset, METH_NOARGS, "Begin the statistics anew."},
    {"rows", native_rows, METH_O,
     "The statistics as (stage, thread, tid, count, total, min, max, p50, p99), in ns."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "stageprof._native",
    .m_size = -1,
    .m_methods = functions,
};

static int initialise(PyObject *module) {
    threading_module = PyImport_ImportModule("threading");
    stages_by_name = PyDict_New();
    ended_threads.name = PyUnicode_FromString("(ended threads)");
    stage_texts[MAX_STAGES - 1] = PyUnicode_FromString(TOO_MANY);
    if (threading_module == NULL || stages_by_name == NULL || ended_threads.name == NULL ||
        stage_texts[MAX_STAGES - 1] == NULL || make_stage_type() < 0)
        return -1;
    Py_INCREF(stage_type);
    if (PyModule_AddObject(module, "Stage", (PyObject *)stage_type) < 0)
        return -1;
    if (pthread_key_create(&exit_key, on_thread_exit) != 0 ||
        pthread_atfork(NULL, NULL, on_fork_child) != 0) {
        PyErr_NoMemory();
        return -1;
    }
    use_loaded_library();
    return 0;
}

// Python before 3.9 does not export it by itself.
__attribute__((visibility("default"))) PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && initialise(module) < 0)
        Py_CLEAR(module);
    return module;
}
