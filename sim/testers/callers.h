// SPDX-License-Identifier: Apache-2.0
#ifndef TESTERS_CALLERS_H
#define TESTERS_CALLERS_H

#include "cu.h"

typedef CUresult launch_ex(const struct launch_config *, void *, void **, void **);

// Calls the last argument with the others.
typedef CUresult via_function(const struct launch_config *, void *, void **, void **, launch_ex *);

// Code without a symbol, and its size.
struct callers_site {
    via_function *via;
    size_t size;
};

struct callers_site callers_site(void);

#endif
