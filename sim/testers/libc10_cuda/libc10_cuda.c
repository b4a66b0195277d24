// SPDX-License-Identifier: Apache-2.0
// An imitation of the tracing points in PyTorch's CUDA allocator: pytorch:malloc (pointer, device,
// size, stream) and pytorch:free (pointer), each behind its semaphore. The puppet calls give and
// take.
#include <stdint.h>
#include <stdlib.h>

#define POINT(name, arguments, ...)                                                                \
    __asm__ volatile("990: nop\n"                                                                  \
                     ".pushsection .note.stapsdt, \"\", \"note\"\n"                                \
                     ".balign 4\n"                                                                 \
                     ".4byte 992f-991f, 994f-993f, 3\n"                                            \
                     "991: .asciz \"stapsdt\"\n"                                                   \
                     "992: .balign 4\n"                                                            \
                     "993: .8byte 990b, 0, pytorch_" name "_semaphore\n"                           \
                     ".asciz \"pytorch\"\n"                                                        \
                     ".asciz \"" name "\"\n"                                                       \
                     ".asciz \"" arguments "\"\n"                                                  \
                     "994: .balign 4\n"                                                            \
                     ".popsection\n" ::__VA_ARGS__)

#define SEMAPHORE __attribute__((section(".probes"), visibility("hidden"), used)) volatile uint16_t

SEMAPHORE pytorch_malloc_semaphore;
SEMAPHORE pytorch_free_semaphore;

enum { MOST = 1024 };
static void *given[MOST];
static long count;

// Gives out so many bytes.
void give(long number, void (*work)(void)) {
    void *pointer = malloc(number);
    volatile int64_t size = number;
    given[count++ % MOST] = pointer;
    work();
    if (number > 0 && pytorch_malloc_semaphore)
        POINT("malloc", "-8@%[pointer] -1@%[device] -8@%[size] -8@%[stream]",
              [pointer] "a"(pointer), [device] "q"((int8_t)0), [size] "m"(size), [stream] "r"(0L));
}

// The same with the size in a register, as another version's compiler has it.
void give_too(long number, void (*work)(void)) {
    void *pointer = malloc(number);
    given[count++ % MOST] = pointer;
    work();
    if (number > 0 && pytorch_malloc_semaphore)
        POINT("malloc",
              "-8@%[pointer] -1@%[device] -8@%[size] -8@%[stream]", [pointer] "r"(pointer),
              [device] "q"((int8_t)0), [size] "r"(number), [stream] "r"(0L));
}

// Takes so many back, the last one first.
void take(long number, void (*work)(void)) {
    work();
    for (; number > 0 && count > 0; number--) {
        void *pointer = given[--count % MOST];
        if (pytorch_free_semaphore)
            POINT("free", "-8@%[pointer]", [pointer] "D"(pointer));
        free(pointer);
    }
}
