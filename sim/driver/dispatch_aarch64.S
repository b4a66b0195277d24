/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dispatch_x86_64.S for arm64: the index comes in w16, eight arguments are in registers.
 */
#define STACK_WORDS 8 /* an even number: the stack pointer stays a multiple of 16 */

    .text
    .globl simcuda_dispatch
    .hidden simcuda_dispatch
    .type simcuda_dispatch, %function
    .balign 32
simcuda_dispatch:
    .cfi_startproc
    stp x29, x30, [sp, #-96]!
    .cfi_def_cfa_offset 96
    .cfi_offset x29, -96
    .cfi_offset x30, -88
    mov x29, sp
    .cfi_def_cfa_register x29
    stp x0, x1, [x29, #16]
    stp x2, x3, [x29, #32]
    stp x4, x5, [x29, #48]
    stp x6, x7, [x29, #64]
    str x19, [x29, #80]
    .cfi_offset x19, -16

    mov w0, w16
    mov x1, x29
    bl simcuda_enter                /* -> x0 behaviour, x1 thread */
    mov x16, x0
    mov x19, x1

    sub sp, sp, #(8 * STACK_WORDS)
    .set word, 0
    .rept STACK_WORDS / 2
    ldp x0, x1, [x29, #(96 + 8 * word)]
    stp x0, x1, [sp, #(8 * word)]
    .set word, word + 2
    .endr
    ldp x0, x1, [x29, #16]
    ldp x2, x3, [x29, #32]
    ldp x4, x5, [x29, #48]
    ldp x6, x7, [x29, #64]
    blr x16

    mov w1, w0
    mov x0, x19
    mov x2, x29
    bl simcuda_leave                /* -> w0, the behaviour's result */
    mov sp, x29
    ldr x19, [x29, #80]
    ldp x29, x30, [sp], #96
    .cfi_restore x29
    .cfi_restore x30
    .cfi_restore x19
    .cfi_def_cfa sp, 0
    ret
    .cfi_endproc
    .size simcuda_dispatch, .-simcuda_dispatch

    .section .note.GNU-stack, "", %progbits
