/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simcuda_dispatch: from a thunk (export's index in %eax) to the export's behaviour and back, counted.
 *
 * It is an ordinary frame with %rbp, so stack walkers, longjmp and return probes see nothing odd, and it
 * is generic over signatures: six integer arguments are kept in registers and STACK_WORDS words of the
 * caller's stack are repeated for the callee. No driver function with behaviour here has more.
 */
#define STACK_WORDS 9

    .text
    .globl simcuda_dispatch
    .hidden simcuda_dispatch
    .type simcuda_dispatch, @function
    .balign 32
simcuda_dispatch:
    .cfi_startproc
    pushq %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp, -16
    movq %rsp, %rbp
    .cfi_def_cfa_register %rbp
    pushq %rbx
    .cfi_offset %rbx, -24
    pushq %rdi
    pushq %rsi
    pushq %rdx
    pushq %rcx
    pushq %r8
    pushq %r9
    subq $8, %rsp

    movl %eax, %edi
    movq %rbp, %rsi
    call simcuda_enter              /* -> %rax behaviour, %rdx thread */
    movq %rdx, %rbx

    movq -16(%rbp), %rdi
    movq -24(%rbp), %rsi
    movq -32(%rbp), %rdx
    movq -40(%rbp), %rcx
    movq -48(%rbp), %r8
    movq -56(%rbp), %r9
    subq $(8 * (STACK_WORDS & 1)), %rsp
    .set word, STACK_WORDS
    .rept STACK_WORDS
    .set word, word - 1
    pushq (16 + 8 * word)(%rbp)
    .endr
    call *%rax

    movq %rbx, %rdi
    movl %eax, %esi
    movq %rbp, %rdx
    call simcuda_leave              /* -> %eax, the behaviour's result */
    movq -8(%rbp), %rbx
    leave
    .cfi_def_cfa %rsp, 8
    ret
    .cfi_endproc
    .size simcuda_dispatch, .-simcuda_dispatch

    .section .note.GNU-stack, "", @progbits
