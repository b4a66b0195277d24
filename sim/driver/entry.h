// SPDX-License-Identifier: Apache-2.0
// What gen.py writes: the driver's exports as tables, sorted by name.
#ifndef SIMCUDA_ENTRY_H
#define SIMCUDA_ENTRY_H

#include <stdint.h>

extern const unsigned simcuda_count;
extern const char *const simcuda_names[];
extern void *const simcuda_entries[];       // address of the export itself
extern void *const simcuda_behaviours[];    // NULL: not supported
extern const unsigned char simcuda_twins[]; // 1: NULL means the per-thread stream

struct proc {
    const char *name;
    int version;    // CUDA version that introduced this meaning of the name
    int per_thread; // the twin for per-thread default streams
    const char *symbol;
};
extern const struct proc simcuda_procs[];
extern const unsigned simcuda_proc_count;

// The word that every entry compares; 0x321cba00 would make all of them answer "deinitialised".
extern volatile uint32_t simcuda_state;

// Index of an export, or -1.
int export_index(const char *name);

#endif
