// SPDX-License-Identifier: Apache-2.0
// What the testers share: options, opening the driver and the marker library, stages, and the
// protocol with whoever runs them:
//
//   the tester opens the driver and sets up, prints "up", and waits for the ready file;
//   the truth is reset, so that it holds exactly what is called after the file appeared;
//   it does its work, prints what it expects to have been counted, one JSON object a line, then
//   "done"; with --hold it waits for the hold file (or for stdin to close: --hold -), then exits.
//
// Every tester takes
//   --driver PATH   the driver to open; default: build/sim/libcuda.so.1 beside the tester
//   --markers PATH  libstageprof.so; without it stages are only tagged in the truth
//   --ready FILE    as the environment's STAGEPROF_READY; without either there is no wait
//   --hold FILE|-
#ifndef TESTERS_TESTER_H
#define TESTERS_TESTER_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>

#include "cu.h"

// An option of the tester's own with a number as its value.
struct number_option {
    const char *name, *help;
    long *value;
};

// Reads the command line; exits with 2 and a usage text where it is wrong. The array ends with a
// null name.
void tester_options(int argc, char **argv, const char *purpose, const struct number_option *own);

// Opens the driver and loads `cu`. tester_options calls it unless the tester asked to do so later.
extern bool tester_opens_late;
void tester_open(void);

// cuInit, device 0's primary context current to the calling thread, one function. Exits with 1 on
// an error.
void *tester_context(void);  // to make current to other threads
void *tester_function(void); // a kernel
void expect_context(void);   // the calls that tester_context made, where they are counted

// Prints "up", waits for the ready file, resets the truth.
void tester_ready(void);

// Prints "done" and holds if asked to.
void tester_done(void);

// Stages of the calling thread: a marker (if the library was given) and the truth's tag, the stage
// path.
void stage_begin(const char *name);
void stage_end(void);
const char *stage_path(void);

// Expected counts of the calling thread for its current stage path. Printing needs no lock.
void expect(const char *symbol, uint64_t calls, uint64_t errors, uint64_t bytes);
void expect_at(int tid, const char *path, const char *symbol, uint64_t calls, uint64_t errors,
               uint64_t bytes);
void expect_spans(int tid, const char *path, uint64_t spans);

// Exits with 1 unless the result is the expected one.
#define MUST(expression, wanted)                                                                   \
    tester_must(#expression, (expression), (wanted), __FILE__, __LINE__)
void tester_must(const char *what, CUresult got, CUresult wanted, const char *file, int line);

_Noreturn void tester_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

// How long the rounds of a loop take. The array that holds them is made beforehand, so that none of
// them makes memory; printing frees it: "rounds N, p50 NS, p99 NS, longest NS".
struct rounds {
    uint64_t *ns, count, room, begin;
};
void rounds_begin(struct rounds *rounds, long room);
void round_begin(struct rounds *rounds);
void round_end(struct rounds *rounds);
void rounds_print(struct rounds *rounds);

void sleep_ms(long ms);
void wait_for_file(const char *path);

#endif
