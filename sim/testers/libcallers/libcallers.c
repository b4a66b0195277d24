// SPDX-License-Identifier: Apache-2.0
// libcallers.so: after stripping, the only symbol is the one that finds the code without one.
#include "../callers.h"

__asm__(".text\n"
        ".balign 16\n"
        "via:\n"
        "    pushq %rbp\n"
        "    movq %rsp, %rbp\n"
        "    call *%r8\n"
        "    popq %rbp\n"
        "    ret\n"
        "via_end:\n");

extern const char via[] __attribute__((visibility("hidden")));
extern const char via_end[] __attribute__((visibility("hidden")));

struct callers_site callers_site(void) {
    return (struct callers_site){(via_function *)via, (size_t)(via_end - via)};
}
