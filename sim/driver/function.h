// SPDX-License-Identifier: Apache-2.0
// Functions of modules and kernels of libraries: one object, found by name (module.c).
#ifndef SIMCUDA_FUNCTION_H
#define SIMCUDA_FUNCTION_H

#include <stdbool.h>

#include "api.h"

bool function_live(CUfunction function);

// Dynamic shared memory that a launch may ask for, in bytes.
unsigned function_shared(CUfunction function);

#endif
