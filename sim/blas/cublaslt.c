// SPDX-License-Identifier: Apache-2.0
//
// cuBLASLt: descriptors that remember nothing, one algorithm, one matmul.
#include "blas.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// cublasLtMatmulAlgo_t
struct algorithm {
    uint64_t data[8];
};

// cublasLtMatmulHeuristicResult_t
struct heuristic_result {
    struct algorithm algorithm;
    size_t workspace_bytes;
    status state;
    float waves;
    int reserved[4];
};

enum { LT_VERSION = 130200 };

// A handle or descriptor: an address that is somebody's and nobody else's.
static status create(void **out) {
    *out = calloc(1, 1);
    return *out ? STATUS_SUCCESS : STATUS_ALLOC_FAILED;
}

static status destroy(void *object) {
    free(object);
    return STATUS_SUCCESS;
}

#define LT_OBJECT(create_name, destroy_name)                                                       \
    BLAS_API status create_name(void **out) {                                                      \
        return create(out);                                                                        \
    }                                                                                              \
    BLAS_API status destroy_name(void *object) {                                                   \
        return destroy(object);                                                                    \
    }

LT_OBJECT(cublasLtCreate, cublasLtDestroy)
LT_OBJECT(cublasLtMatmulDescCreate, cublasLtMatmulDescDestroy)
LT_OBJECT(cublasLtMatmulPreferenceCreate, cublasLtMatmulPreferenceDestroy)
LT_OBJECT(cublasLtMatrixLayoutCreate, cublasLtMatrixLayoutDestroy)

#define LT_SETTER(name)                                                                            \
    BLAS_API status name(void) {                                                                   \
        return STATUS_SUCCESS;                                                                     \
    }

LT_SETTER(cublasLtMatmulDescSetAttribute)
LT_SETTER(cublasLtMatmulPreferenceSetAttribute)
LT_SETTER(cublasLtMatrixLayoutSetAttribute)
LT_SETTER(cublasLtMatmulAlgoConfigSetAttribute)

BLAS_API size_t cublasLtGetVersion(void) {
    return LT_VERSION;
}

BLAS_API status cublasLtMatmulAlgoInit(void *handle, int compute, int scale, int a, int b, int c,
                                       int d, int id, struct algorithm *out) {
    (void)handle, (void)compute, (void)scale, (void)a, (void)b, (void)c, (void)d, (void)id;
    memset(out, 0, sizeof(*out));
    return STATUS_SUCCESS;
}

BLAS_API status cublasLtMatmulAlgoConfigGetAttribute(const struct algorithm *algorithm,
                                                     int attribute, void *value, size_t size,
                                                     size_t *written) {
    (void)algorithm, (void)attribute;
    memset(value, 0, size);
    if (written)
        *written = size;
    return STATUS_SUCCESS;
}

BLAS_API status cublasLtMatmulAlgoCheck(void *handle, void *matmul, void *a, void *b, void *c,
                                        void *d, const struct algorithm *algorithm,
                                        struct heuristic_result *out) {
    (void)handle, (void)matmul, (void)a, (void)b, (void)c, (void)d;
    *out = (struct heuristic_result){.algorithm = *algorithm};
    return STATUS_SUCCESS;
}

BLAS_API status cublasLtMatmulAlgoGetHeuristic(void *handle, void *matmul, void *a, void *b,
                                               void *c, void *d, void *preference, int wanted,
                                               struct heuristic_result *out, int *count) {
    (void)handle, (void)matmul, (void)a, (void)b, (void)c, (void)d, (void)preference;
    if (wanted < 1)
        return STATUS_INVALID_VALUE;
    memset(out, 0, sizeof(*out));
    *count = 1;
    return STATUS_SUCCESS;
}

BLAS_API status cublasLtMatmul(void *handle, void *matmul, const void *alpha, const void *a,
                               void *a_layout, const void *b, void *b_layout, const void *beta,
                               const void *c, void *c_layout, void *d, void *d_layout,
                               const struct algorithm *algorithm, void *workspace,
                               size_t workspace_bytes, void *stream) {
    (void)handle, (void)matmul, (void)alpha, (void)a, (void)a_layout, (void)b, (void)b_layout;
    (void)beta, (void)c, (void)c_layout, (void)d, (void)d_layout, (void)algorithm;
    (void)workspace, (void)workspace_bytes;
    return launch_operation(OP_cublasLtMatmul, stream);
}
