// SPDX-License-Identifier: Apache-2.0
//
// The probe points. Written in assembly so that nothing a compiler does (frame
// set-up, endbr64, inlining, a red zone) comes between the symbol and its nop.
//
// A 1-byte nop, which every kernel emulates. Not the 5-byte one, although Linux
// 6.18 makes a cheaper call of a probe on it: that call goes to a page that
// fork does not pass on, and the child would crash at its first marker.

#if defined(__x86_64__)
#define NOP "nop\n"
#define TYPE "@"
#define ARGUMENTS "8@%rsi 4@%edx"
#elif defined(__aarch64__)
#define NOP "nop\n"
#define TYPE "%"
#define ARGUMENTS "8@x1 4@w2"
#else
#error "stageprof: no probe points for this architecture"
#endif

// The base that USDT readers compare with the note's own copy, to notice that
// a library was prelinked.
__asm__(".pushsection .stapsdt.base, \"aG\", " TYPE "progbits, .stapsdt.base, comdat\n"
        ".weak _.stapsdt.base\n"
        ".hidden _.stapsdt.base\n"
        "_.stapsdt.base: .space 1\n"
        ".size _.stapsdt.base, 1\n"
        ".popsection\n");

// A note is: name length, descriptor length, type 3, name, then address of the
// probe, base, semaphore (none), provider, probe, arguments.
#define MARK(function, probe)                                                                      \
    __asm__(".pushsection .text.stageprof_mark, \"ax\", " TYPE "progbits\n"                        \
            ".p2align 4\n"                                                                         \
            ".globl " function "\n"                                                                \
            ".type " function ", " TYPE "function\n" function ":\n"                                \
            "770: " NOP "ret\n"                                                                    \
            ".size " function ", . - " function "\n"                                               \
            ".popsection\n"                                                                        \
            ".pushsection .note.stapsdt, \"\", " TYPE "note\n"                                     \
            ".balign 4\n"                                                                          \
            ".4byte 772f - 771f, 774f - 773f, 3\n"                                                 \
            "771: .asciz \"stapsdt\"\n"                                                            \
            "772: .balign 4\n"                                                                     \
            "773: .8byte 770b, _.stapsdt.base, 0\n"                                                \
            ".asciz \"stageprof\"\n"                                                               \
            ".asciz \"" probe "\"\n"                                                               \
            ".asciz \"" ARGUMENTS "\"\n"                                                           \
            "774: .balign 4\n"                                                                     \
            ".popsection\n")

MARK("stageprof_mark_begin", "begin");
MARK("stageprof_mark_end", "end");
MARK("stageprof_mark_process_begin", "process_begin");
MARK("stageprof_mark_process_end", "process_end");
