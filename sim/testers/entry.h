// SPDX-License-Identifier: Apache-2.0
// Entry points of libraries that only have the names of others, for the puppet to call: each works
// so many times and returns.
#ifndef ENTRY_H
#define ENTRY_H

#define ENTRY(name)                                                                                \
    __attribute__((visibility("default"))) int name(long number, void (*work)(void)) {             \
        for (; number > 0; number--)                                                               \
            work();                                                                                \
        return 0;                                                                                  \
    }

#endif
