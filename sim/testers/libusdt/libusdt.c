// SPDX-License-Identifier: Apache-2.0
// libusdt.so: pairs of static probes (USDT), each pair with a function that passes its begin and
// one that passes its end. The notes are laid out as sys/sdt.h does it. Those with a semaphore are
// passed only while somebody has raised it.
#include <stdint.h>

#define EXPORT __attribute__((visibility("default"), noinline))

__asm__(".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat\n"
        ".weak _.stapsdt.base\n"
        ".hidden _.stapsdt.base\n"
        "_.stapsdt.base: .space 1\n"
        ".popsection\n");

#define PROBE(nop, name, semaphore, arguments, ...)                                                \
    __asm__ volatile("770: " nop "\n"                                                              \
                     ".pushsection .note.stapsdt, \"\", \"note\"\n"                                \
                     ".balign 4\n"                                                                 \
                     ".4byte 772f - 771f, 774f - 773f, 3\n"                                        \
                     "771: .asciz \"stapsdt\"\n"                                                   \
                     "772: .balign 4\n"                                                            \
                     "773: .8byte 770b, _.stapsdt.base, " semaphore "\n"                           \
                     ".asciz \"tester\"\n"                                                         \
                     ".asciz \"" name "\"\n"                                                       \
                     ".asciz \"" arguments "\"\n"                                                  \
                     "774: .balign 4\n"                                                            \
                     ".popsection\n" ::__VA_ARGS__)

#define NOP "nop"
#define LONG_NOP ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00"

// Used by the notes, too, and raised by tracers.
__attribute__((section(".probes"), used, visibility("hidden"))) volatile uint16_t enter_semaphore;
__attribute__((section(".probes"), used, visibility("hidden"))) volatile uint16_t leave_semaphore;

EXPORT void usdt_register_begin(const char *name) {
    PROBE(NOP, "register_begin", "0", "8@%0 -4@$5", "r"(name));
}
EXPORT void usdt_register_end(const char *name) {
    PROBE(NOP, "register_end", "0", "8@%0", "r"(name));
}

EXPORT void usdt_memory_begin(const char *name) {
    const char *volatile kept = name;
    PROBE(NOP, "memory_begin", "0", "8@%0", "m"(kept));
}
EXPORT void usdt_memory_end(const char *name) {
    (void)name;
    PROBE(NOP, "memory_end", "0", "", "i"(0));
}

EXPORT void usdt_plain_begin(const char *name) {
    (void)name;
    PROBE(NOP, "plain_begin", "0", "-4@$7", "i"(0));
}
EXPORT void usdt_plain_end(const char *name) {
    (void)name;
    PROBE(NOP, "plain_end", "0", "-4@$7", "i"(0));
}

EXPORT void usdt_semaphore_begin(const char *name) {
    if (enter_semaphore)
        PROBE(NOP, "semaphore_begin", "enter_semaphore", "8@%0", "r"(name));
}
EXPORT void usdt_semaphore_end(const char *name) {
    (void)name;
    if (leave_semaphore)
        PROBE(NOP, "semaphore_end", "leave_semaphore", "", "i"(0));
}

// Whoever probes this one makes children of the process crash.
EXPORT void usdt_long_begin(const char *name) {
    PROBE(LONG_NOP, "long_begin", "0", "8@%0", "r"(name));
}
EXPORT void usdt_long_end(const char *name) {
    (void)name;
    PROBE(NOP, "long_end", "0", "", "i"(0));
}

EXPORT unsigned usdt_semaphores(void) {
    return enter_semaphore + leave_semaphore;
}
