# SPDX-License-Identifier: Apache-2.0
"""Calls entry points of cuBLAS's, each of which launches once: blas.py DRIVER ROUNDS BLAS BLASLT.

BLAS and BLASLT are the simulated cuBLAS and cuBLASLt. It waits for the recording and exits.
"""
import ctypes
import os
import sys
import time

path, rounds = sys.argv[1], int(sys.argv[2])
driver = ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
blas, lt = ctypes.CDLL(sys.argv[3]), ctypes.CDLL(sys.argv[4])
context, handle = ctypes.c_void_p(), ctypes.c_void_p()
driver.cuInit(0)
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
assert blas.cublasCreate_v2(ctypes.byref(handle)) == 0
calls = {
    "sgemm": blas.cublasSgemm_v2, "gemm_ex": blas.cublasGemmEx, "batched": blas.cublasSgemmStridedBatched,
    "axpy": blas.cublasSaxpy_v2,
}


def call_all():
    for function in calls.values():
        assert function(handle) == 0
    assert lt.cublasLtMatmul(handle, *[None] * 15) == 0


call_all()
print("up", flush=True)
while not os.path.exists(os.environ["STAGEPROF_READY"]):
    time.sleep(0.001)
driver.simcuda_reset_truth()
for _ in range(rounds):
    call_all()
