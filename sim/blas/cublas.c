// SPDX-License-Identifier: Apache-2.0
//
// cuBLAS: the handle and the operations.
#include "blas.h"

#include <stdlib.h>

BLAS_API status cublasCreate_v2(struct blas_handle **out) {
    *out = calloc(1, sizeof(**out));
    return *out ? STATUS_SUCCESS : STATUS_ALLOC_FAILED;
}

BLAS_API status cublasDestroy_v2(struct blas_handle *handle) {
    free(handle);
    return STATUS_SUCCESS;
}

BLAS_API status cublasSetStream_v2(struct blas_handle *handle, void *stream) {
    handle->stream = stream;
    return STATUS_SUCCESS;
}

BLAS_API status cublasSetWorkspace_v2(struct blas_handle *handle, void *workspace, size_t size) {
    (void)handle, (void)workspace, (void)size;
    return STATUS_SUCCESS;
}

BLAS_API status cublasSetSmCountTarget(struct blas_handle *handle, int count) {
    (void)handle, (void)count;
    return STATUS_SUCCESS;
}

BLAS_API status cublasSetMathMode(struct blas_handle *handle, int mode) {
    handle->math_mode = mode;
    return STATUS_SUCCESS;
}

BLAS_API status cublasGetMathMode(struct blas_handle *handle, int *mode) {
    *mode = handle->math_mode;
    return STATUS_SUCCESS;
}

BLAS_API status cublasSetPointerMode_v2(struct blas_handle *handle, int mode) {
    handle->pointer_mode = mode;
    return STATUS_SUCCESS;
}

BLAS_API status cublasGetPointerMode_v2(struct blas_handle *handle, int *mode) {
    *mode = handle->pointer_mode;
    return STATUS_SUCCESS;
}

// The other arguments are the caller's business: nothing reads them.
#define BLAS_OP(name)                                                                              \
    BLAS_API status name(struct blas_handle *handle) {                                             \
        return launch_operation(OP_##name, handle->stream);                                        \
    }
#include "ops.inc"
#undef BLAS_OP

// Copies, not operations, and used by MAGMA only, which needs cuSOLVER as well.
#define UNSUPPORTED(name)                                                                          \
    BLAS_API status name(void) {                                                                   \
        return STATUS_NOT_SUPPORTED;                                                               \
    }
UNSUPPORTED(cublasGetMatrixAsync)
UNSUPPORTED(cublasGetVectorAsync)
UNSUPPORTED(cublasSetMatrixAsync)
UNSUPPORTED(cublasSetVectorAsync)
