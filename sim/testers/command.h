// SPDX-License-Identifier: Apache-2.0
#ifndef TESTERS_COMMAND_H
#define TESTERS_COMMAND_H

// One thing that a puppet can be told to do.
struct command {
    const char *name;
    void (*run)(const char *argument);
};

#endif
