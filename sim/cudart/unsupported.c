// SPDX-License-Identifier: Apache-2.0
//
// Functions that refuse, whatever their arguments.
#include "runtime.h"

#define UNSUPPORTED(name)                                                                          \
    RUNTIME_API rt_error name(void) {                                                              \
        return finish(RT_NOT_SUPPORTED);                                                           \
    }
#include "unsupported.inc"
