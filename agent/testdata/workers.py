# SPDX-License-Identifier: Apache-2.0
"""A tree of workers as torchrun and multiprocessing make it: workers.py METHOD DRIVER N.

Each of N workers, which multiprocessing starts by METHOD (fork or spawn), has its rank in its
environment, opens the driver, prints "up", and, once the ready file is there, allocates 100 × (rank + 1)
times. The launcher itself never opens the driver.
"""
import ctypes
import multiprocessing
import os
import sys
import time


def worker(driver, rank):
    cuda = ctypes.CDLL(driver)
    context = ctypes.c_void_p()
    cuda.cuInit(0)
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    cuda.cuCtxSetCurrent(context)
    os.write(1, f"up {os.getpid()}\n".encode())  # in one piece
    while not os.path.exists(os.environ["STAGEPROF_READY"]):
        time.sleep(0.001)
    cuda.simcuda_reset_truth()
    for _ in range(100 * (rank + 1)):
        pointer = ctypes.c_void_p()
        if cuda.cuMemHostAlloc(ctypes.byref(pointer), ctypes.c_size_t(4096), 0):
            raise SystemExit("cuMemHostAlloc failed")
    # A forked worker ends by _exit, without the driver's own last words.
    cuda.simcuda_write_truth(os.environ["SIMCUDA_TRUTH"].encode())


def main():
    method, driver, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    workers = multiprocessing.get_context(method)
    started = []
    for rank in range(count):
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(count))
        started.append(workers.Process(target=worker, args=(driver, rank)))
        started[-1].start()
    for process in started:
        process.join()


if __name__ == "__main__":
    main()
