// SPDX-License-Identifier: Apache-2.0
//
// Stage markers for training code: name what a thread is doing, so that
// `stageprof record` can say which stage the native CUDA time belongs to.
//
//     stageprof_begin("target_forward");       {
//     ...                                          stageprof::scope s("target_forward");
//     stageprof_end();                             ...
//                                              }
//
// Stages nest per thread. A begin/end pair costs some tens of nanoseconds
// while nobody is attached, never allocates and never blocks.
//
// Signal handlers may begin and end stages, as long as each handler ends what
// it began. The thread's stack of stages is then right wherever the handler
// ran, even in the middle of stageprof_begin or stageprof_end; an observer can
// see the two markers in swapped order. Two things are not for handlers: a
// thread's very first marker (it registers the thread) and the
// stageprof_process_* functions (they take a lock).
//
// A stage left open by a thread that exits ends with the thread. After fork()
// the child keeps the stages of the thread that called it, and no others.
#ifndef STAGEPROF_H
#define STAGEPROF_H

#include <stddef.h>
#include <stdint.h>

#define STAGEPROF_ABI 1         // version of every layout below
#define STAGEPROF_NAME_SIZE 128 // bytes of a name with its NUL
#define STAGEPROF_DEPTH 64      // open stages remembered per thread
#define STAGEPROF_THREADS 4096  // threads with markers at the same time
#define STAGEPROF_NAMES 4096    // distinct names

#if defined(__GNUC__)
#define STAGEPROF_API __attribute__((visibility("default")))
#else
#define STAGEPROF_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// A stage's name: NUL-terminated UTF-8 without control characters. Once
// returned by stageprof_intern it never changes and never moves.
struct stageprof_name {
    char text[STAGEPROF_NAME_SIZE];
};

// One open stage. begin_ns is CLOCK_MONOTONIC in nanoseconds.
struct stageprof_open {
    const struct stageprof_name *name;
    uint64_t begin_ns;
};

// The stages that one thread has open, readable from outside the process.
// Stages nested deeper than STAGEPROF_DEPTH count in depth but are not in open.
struct stageprof_thread {
    uint32_t tid;   // gettid() in the process's own pid namespace, 0: free slot
    uint32_t depth; // stages open now
    struct stageprof_open open[STAGEPROF_DEPTH]; // [0] is the outermost
};

// The layout of the exported data symbol `stageprof_registry`. It is for tools
// that look it up by name; programs use the functions below.
struct stageprof_registry {
    char magic[8];             // "STAGEPRF", not terminated
    uint32_t abi;              // STAGEPROF_ABI
    uint32_t thread_size;      // sizeof(struct stageprof_thread)
    uint32_t thread_count;     // slots in threads
    uint32_t threads_used;     // slots from here on were never used
    uint64_t names_overflow;   // stages begun under "(too many names)"
    uint64_t threads_overflow; // stages not begun for want of a thread slot
    const struct stageprof_thread *threads;
    struct stageprof_thread process; // stages of the whole process; its tid is 0
};

// Begins a stage on the calling thread. name may hold any bytes, see
// stageprof_intern; NULL is treated as the empty name.
STAGEPROF_API void stageprof_begin(const char *name);

// Ends the calling thread's innermost stage. Without one it does nothing.
STAGEPROF_API void stageprof_end(void);

// Returns the one name that stands for these len bytes, for
// stageprof_begin_name. Never NULL.
//
// Valid UTF-8 without control characters, up to 127 bytes, is kept as it is.
// Anything else changes visibly, in the same way in every process: an invalid
// or control byte becomes \xNN, what is too long is cut at a character and
// gains "…", and "#" with 8 hex digits of a hash of the original bytes keeps
// such names apart. No bytes give "(empty)". When STAGEPROF_NAMES names exist,
// further ones give "(too many names)".
STAGEPROF_API const struct stageprof_name *stageprof_intern(const char *bytes, size_t len);

// As stageprof_begin, with a name from stageprof_intern: saves the look-up.
STAGEPROF_API void stageprof_begin_name(const struct stageprof_name *name);

// The number of stages open on the calling thread.
STAGEPROF_API uint32_t stageprof_depth(void);

// Ends stages of the calling thread until `depth` of them are open, innermost
// first. Taking stageprof_depth() before a begin and ending to it afterwards
// also ends what the code in between forgot to end.
STAGEPROF_API void stageprof_end_to(uint32_t depth);

// The calling thread's own slot, NULL while it has had no marker. The slot
// belongs to the thread only until it exits.
STAGEPROF_API const struct stageprof_thread *stageprof_self(void);

// A stage of the whole process, for work on threads that have no stage of
// their own. These stages nest too; end closes the innermost.
STAGEPROF_API void stageprof_process_begin(const char *name);
STAGEPROF_API void stageprof_process_begin_name(const struct stageprof_name *name);
STAGEPROF_API void stageprof_process_end(void);

// Publishes the calling process's stages for OpenTelemetry's profilers, or stops:
// each thread's innermost stage as the attribute "stageprof.stage" of its thread
// context. It begins with the first marker by itself, unless the environment has
// STAGEPROF_PUBLISH=0 or the process has a process context of OpenTelemetry
// already; then it does nothing. Threads follow at their next marker. Not for
// signal handlers.
STAGEPROF_API void stageprof_publish(int on);

// Where observers place their probes; programs do not call these. Each begins with
// a nop and is reached after the slot has changed: depth is the number of stages
// now open. USDT notes (stageprof:begin, end, process_begin, process_end: name
// text, depth) point at the nops.
STAGEPROF_API void stageprof_mark_begin(struct stageprof_thread *t,
                                        const struct stageprof_name *name, uint32_t depth);
STAGEPROF_API void stageprof_mark_end(struct stageprof_thread *t, const struct stageprof_name *name,
                                      uint32_t depth);
STAGEPROF_API void stageprof_mark_process_begin(struct stageprof_thread *process,
                                                const struct stageprof_name *name, uint32_t depth);
STAGEPROF_API void stageprof_mark_process_end(struct stageprof_thread *process,
                                              const struct stageprof_name *name, uint32_t depth);

#ifdef __cplusplus
} // extern "C"

namespace stageprof {

// A stage that is open while the object lives, also when an exception ends the
// block. Use it as a local variable: it must be destroyed by its own thread.
class scope {
  public:
    explicit scope(const char *name) noexcept : depth_(stageprof_depth()) { stageprof_begin(name); }
    explicit scope(const stageprof_name *name) noexcept : depth_(stageprof_depth()) {
        stageprof_begin_name(name);
    }
    ~scope() { stageprof_end_to(depth_); }

    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;

  private:
    uint32_t depth_;
};

} // namespace stageprof
#endif // __cplusplus

#endif // STAGEPROF_H
