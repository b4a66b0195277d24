// SPDX-License-Identifier: Apache-2.0
//
// The probe points. Written in assembly so that nothing a compiler does (frame
// set-up, endbr64, inlining, a red zone) comes between the symbol and its nop.
//
// A 1-byte nop, which every kernel emulates. Not the 5-byte one, although Linux
// 6.18 makes a cheaper call of a probe on it: that call goes to a page that
// fork does not pass on, and the child would crash at its first marker.
//
// Beside them the gate, for agents on kernels with a tracepoint of unknown prctl
// options: a probe on stageprof_gate_point, which is never reached, makes the
// kernel count in stageprof_gate for as long as it is there, and while that is
// not zero each marker makes such a call: half of the cost of a trap. The call
// fails and does nothing: option 0x53505200 plus the marker's number, name,
// depth, slot.

#if defined(__x86_64__)
__asm__(".pushsection .probes, \"aw\", @progbits\n"
        ".globl stageprof_gate\n"
        ".type stageprof_gate, @object\n"
        ".balign 4\n"
        "stageprof_gate:\n"
        ".Lgate: .short 0\n"
        ".size stageprof_gate, . - stageprof_gate\n"
        ".popsection\n"
        ".pushsection .text.stageprof_mark, \"ax\", @progbits\n"
        ".p2align 4\n"
        ".globl stageprof_gate_point\n"
        ".type stageprof_gate_point, @function\n"
        "stageprof_gate_point: nop\n"
        "ret\n"
        ".size stageprof_gate_point, . - stageprof_gate_point\n"
        ".popsection\n");

// 157 is prctl's number.
#define POINT(number)                                                                              \
    "nop\n"                                                                                        \
    "cmpw $0, .Lgate(%rip)\n"                                                                      \
    "jne 775f\n"                                                                                   \
    "ret\n"                                                                                        \
    "775: mov %rdi, %r10\n"                                                                        \
    "mov $0x53505200 + " number ", %edi\n"                                                         \
    "xor %r8d, %r8d\n"                                                                             \
    "mov $157, %eax\n"                                                                             \
    "syscall\n"                                                                                    \
    "ret\n"
#define TYPE "@"
#define ARGUMENTS "8@%rsi 4@%edx"
#elif defined(__aarch64__)
#define POINT(number) "nop\nret\n"
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
#define MARK(number, function, probe)                                                              \
    __asm__(".pushsection .text.stageprof_mark, \"ax\", " TYPE "progbits\n"                        \
            ".p2align 4\n"                                                                         \
            ".globl " function "\n"                                                                \
            ".type " function ", " TYPE "function\n" function ":\n"                                \
            "770: " POINT(number) ".size " function ", . - " function "\n"                         \
                                  ".popsection\n"                                                  \
                                  ".pushsection .note.stapsdt, \"\", " TYPE "note\n"               \
                                  ".balign 4\n"                                                    \
                                  ".4byte 772f - 771f, 774f - 773f, 3\n"                           \
                                  "771: .asciz \"stapsdt\"\n"                                      \
                                  "772: .balign 4\n"                                               \
                                  "773: .8byte 770b, _.stapsdt.base, 0\n"                          \
                                  ".asciz \"stageprof\"\n"                                         \
                                  ".asciz \"" probe "\"\n"                                         \
                                  ".asciz \"" ARGUMENTS "\"\n"                                     \
                                  "774: .balign 4\n"                                               \
                                  ".popsection\n")

MARK("0", "stageprof_mark_begin", "begin");
MARK("1", "stageprof_mark_end", "end");
MARK("2", "stageprof_mark_process_begin", "process_begin");
MARK("3", "stageprof_mark_process_end", "process_end");
