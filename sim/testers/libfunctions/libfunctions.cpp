// SPDX-License-Identifier: Apache-2.0
// Functions that are entered and left in every way that compilers make: for following functions.
// Each takes a number, whose meaning is its own, and what to do inside: that makes driver calls.
#include <csetjmp>
#include <cstddef>

#define FUNCTION extern "C" __attribute__((noinline, visibility("default"))) void

using work_t = void (*)();

namespace {
volatile long sink;

// Keeps the compiler from making a jump out of the call before it.
inline void after() {
    sink = sink + 1;
}
} // namespace

// Works once.
FUNCTION plain(long, work_t work) {
    work();
    after();
}

// Returns at once, after one work, or after two.
FUNCTION early(long number, work_t work) {
    if (number <= 0)
        return;
    work();
    after();
    if (number == 1)
        return;
    work();
    after();
    sink = number;
}

// Works, and leaves by a jump to plain.
FUNCTION tail(long number, work_t work) {
    work();
    plain(number, work);
}

// Leaves by a conditional jump, or works.
FUNCTION tail_if(long number, work_t work) {
    if (number > 0)
        return plain(number, work);
    work();
    after();
}

// Leaves by a jump through a register.
FUNCTION tail_by_pointer(long number, work_t work) {
    static void (*volatile const targets[])(long, work_t) = {plain, early};
    work();
    targets[number & 1](number, work);
}

// Works as often as the case says; cases are told apart through a table.
FUNCTION cases(long number, work_t work) {
    switch (number) {
    case 0:
        sink = 17;
        break;
    case 1:
        work();
        break;
    case 2:
        work();
        work();
        break;
    case 3:
        sink = sink * 3;
        work();
        break;
    case 4:
        sink = sink ^ 4;
        break;
    case 5:
        sink = sink + 55;
        work();
        break;
    default:
        sink = number;
    }
    after();
}

// Works and calls itself, number times.
FUNCTION recurse(long number, work_t work) {
    work();
    if (number > 0)
        recurse(number - 1, work);
    after();
}

// Works, calls pong with one less, which calls ping, down to 0.
FUNCTION pong(long number, work_t work);
FUNCTION ping(long number, work_t work) {
    work();
    if (number > 0)
        pong(number - 1, work);
    after();
}
FUNCTION pong(long number, work_t work) {
    work();
    if (number > 0)
        ping(number - 1, work);
    after();
}

// The rare case, a negative number, is split off into a part of its own.
__attribute__((cold, noinline)) static void rare(work_t work) {
    work();
    after();
}
FUNCTION split(long number, work_t work) {
    if (number < 0) {
        rare(work);
        sink = number;
        rare(work);
        return;
    }
    work();
    after();
}

// Works and throws its number if that is positive.
FUNCTION thrower(long number, work_t work) {
    work();
    if (number > 0)
        throw number;
    after();
}
FUNCTION through(long number, work_t work) {
    plain(number, work);
    thrower(number, work);
    after();
}

// Catches what comes through the others, and works.
FUNCTION catcher(long number, work_t work) {
    try {
        through(number, work);
    } catch (long) {
        work();
    }
    after();
}

// Throws through a large frame, catches, and works far below that: nothing has
// written over the frames that the exception left.
__attribute__((noinline)) static void roomy(long number, work_t work) {
    volatile char room[8 << 10];
    room[0] = 1;
    thrower(number, work);
    sink = room[0];
}
__attribute__((noinline)) static void deep(work_t work) {
    volatile char room[16 << 10];
    room[0] = 1;
    work();
    sink = room[0];
}
FUNCTION recover(long number, work_t work) {
    try {
        roomy(number, work);
    } catch (long) {
        sink = number;
    }
    deep(work);
    after();
}

// Calls catcher number times; its frame stays around.
FUNCTION often(long number, work_t work) {
    for (long i = 0; i < number; i++)
        catcher(1, work);
    after();
}

// Tries to work, number times, and catches what comes out of that.
FUNCTION attempt(long number, work_t work) {
    for (; number > 0; number--) {
        try {
            work();
        } catch (int) {
            after();
        }
    }
}

// What a caller of the driver tells it about a block of threads: that there can't be one.
extern "C" __attribute__((visibility("default"))) std::size_t refuse_block(int threads) {
    throw threads;
}

// Works and leaps over its caller if the number is positive.
static thread_local std::jmp_buf ground;
FUNCTION leaper(long number, work_t work) {
    work();
    if (number > 0)
        std::longjmp(ground, 1);
    after();
}
FUNCTION lander(long number, work_t work) {
    if (!setjmp(ground))
        leaper(number, work);
    work();
    after();
}

// Regions around regions.
FUNCTION inner(long number, work_t work) {
    for (long i = 0; i < number; i++)
        work();
    after();
}
FUNCTION outer(long number, work_t work) {
    work();
    inner(number, work);
    inner(number, work);
    after();
}

// Works; leaves by a conditional jump to plain if the number is positive, else by a return.
__asm__(".text\n"
        ".globl jump_if\n"
        ".type jump_if, @function\n"
        "jump_if:\n"
        "    push %rbx\n"
        "    push %rbp\n"
        "    sub $8, %rsp\n"
        "    mov %rdi, %rbx\n"
        "    mov %rsi, %rbp\n"
        "    call *%rsi\n"
        "    mov %rbx, %rdi\n"
        "    mov %rbp, %rsi\n"
        "    add $8, %rsp\n"
        "    pop %rbp\n"
        "    pop %rbx\n"
        "    test %rdi, %rdi\n"
        "    jg plain@PLT\n"
        "    ret\n"
        ".size jump_if, . - jump_if\n");

// Functions that can't be followed.
FUNCTION at_once(long number, work_t work) {
    plain(number, work);
}
__asm__(".text\n"
        ".globl unclear\n"
        ".type unclear, @function\n"
        "unclear:\n"
        "    push %rbp\n"
        "    jmp 1f\n"
        "1:  .byte 0x06\n" // no instruction in 64-bit code
        "    pop %rbp\n"
        "    ret\n"
        ".size unclear, . - unclear\n"
        ".globl sizeless\n"
        ".type sizeless, @function\n"
        "sizeless:\n"
        "    push %rbp\n"
        "    pop %rbp\n"
        "    ret\n"
        ".globl looping\n"
        ".type looping, @function\n"
        "looping:\n"
        "    dec %rdi\n"
        "    jne looping\n"
        "    ret\n"
        ".size looping, . - looping\n");
