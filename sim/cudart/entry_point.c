// SPDX-License-Identifier: Apache-2.0
//
// Handing out the driver's own functions: PyTorch 2.15 gets every cuMem… function this way.
#include "runtime.h"

// The runtime's flags and result codes have the driver's values. A name that the driver doesn't
// know is reported through `status`, not as an error.
RUNTIME_API rt_error cudaGetDriverEntryPointByVersion(const char *name, void **address,
                                                      unsigned version, unsigned long long flags,
                                                      int *status) {
    int found = 0;
    rt_error error = enter_driver() ?: driver_lookup(name, address, (int)version, flags, &found);
    if (error == RT_SYMBOL_NOT_FOUND)
        error = RT_SUCCESS;
    if (status)
        *status = found;
    return finish(error);
}
