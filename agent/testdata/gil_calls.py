# SPDX-License-Identifier: Apache-2.0
"""Calls the driver with the GIL free and held, beside a thread that wants it all the time.

    gil_calls.py DRIVER COUNT

CDLL drops the lock around a call, PyDLL keeps it. Each function is called in one way only, so a
call's name says what its GIL state must be.
"""
import ctypes
import os
import sys
import threading
import time

path, count = sys.argv[1], int(sys.argv[2])
free, held = ctypes.CDLL(path), ctypes.PyDLL(path)
sys.setswitchinterval(1e-4)


def call():
    number = ctypes.c_int()
    for _ in range(count):
        free.cuDriverGetVersion(ctypes.byref(number))
        held.cuDeviceGetCount(ctypes.byref(number))
        held.cuStreamQuery(None)
        free.cuCtxSynchronize()


def spin(done):
    n = 0
    while not done.is_set():
        n += 1


def await_ready():
    while not os.path.exists(os.environ["STAGEPROF_READY"]):
        time.sleep(0.001)


free.cuInit(0)
print("up", flush=True)
await_ready()
free.simcuda_reset_truth()
done = threading.Event()
callers = [threading.Thread(target=call) for _ in range(3)]
spinner = threading.Thread(target=spin, args=(done,))
for thread in [spinner, *callers]:
    thread.start()
for thread in callers:
    thread.join()
done.set()
spinner.join()
print("done", flush=True)
