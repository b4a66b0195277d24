// SPDX-License-Identifier: Apache-2.0
// What a puppet can be told to do with Python, which it embeds.
//
//   libpython FILE HOME   opens a libpython, whose modules are below HOME, beside those that are
//                         open; the rest is about this one
//   initialize, finalize  starts it and ends it, on one thread
//   python FILE HOME      the same, and starts it, with a lock if it can do without one
//   hold, release         the thread takes the lock of its interpreter, and gives it back
//   sub-interpreter       the thread gets an interpreter of its own, with the lock of the first one
//   own-interpreter       the same with a lock of its own (3.12)
//   foreign-state         the thread gets a thread state that another thread has made
//   count N               N times cuDeviceGetCount
//   version N             N times cuDriverGetVersion
//   interrupt N           N signals, whose handler calls cuStreamQuery
#ifndef TESTERS_PYTHONS_H
#define TESTERS_PYTHONS_H

#include "command.h"

void python_hold(void);
void python_release(void);

// Ends with a null name.
extern const struct command python_commands[];

#endif
