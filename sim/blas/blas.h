// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for cuBLAS and cuBLASLt, preloaded before NVIDIA's: every operation is one kernel
// launch on the handle's stream and computes nothing. Handles and descriptors are our own.
#ifndef SIM_BLAS_BLAS_H
#define SIM_BLAS_BLAS_H

#include <stddef.h>

#define BLAS_API __attribute__((visibility("default")))

// cublasStatus_t
typedef int status;
enum {
    STATUS_SUCCESS = 0,
    STATUS_NOT_INITIALIZED = 1,
    STATUS_ALLOC_FAILED = 3,
    STATUS_INVALID_VALUE = 7,
    STATUS_EXECUTION_FAILED = 13,
    STATUS_NOT_SUPPORTED = 15,
};

struct blas_handle {
    void *stream;
    int math_mode;
    int pointer_mode;
};

// One per operation; every operation is a kernel of the same name.
enum operation {
#define BLAS_OP(name) OP_##name,
#include "ops.inc"
#undef BLAS_OP
    OP_cublasLtMatmul,
    OPERATIONS
};

// Launches the operation's kernel.
status launch_operation(enum operation operation, void *stream);

#endif
