# SPDX-License-Identifier: Apache-2.0
"""Calls the driver with the GIL free and held in a process and in a child that one of its threads forks.

    gil_fork.py DRIVER COUNT

As gil_calls.py, from two threads of each process and from a handler of signals.
"""
import ctypes
import os
import signal
import sys
import threading
import time

path, count = sys.argv[1], int(sys.argv[2])
free, held = ctypes.CDLL(path), ctypes.PyDLL(path)
sys.setswitchinterval(1e-4)


def call_once():
    number = ctypes.c_int()
    free.cuDriverGetVersion(ctypes.byref(number))
    held.cuDeviceGetCount(ctypes.byref(number))
    held.cuStreamQuery(None)
    free.cuCtxSynchronize()


def call():
    for _ in range(count):
        call_once()


def run():
    os.write(1, b"up %d\n" % os.getpid())  # in one piece
    while not os.path.exists(os.environ["STAGEPROF_READY"]):
        time.sleep(0.001)
    free.simcuda_reset_truth()
    callers = [threading.Thread(target=call) for _ in range(2)]
    for thread in callers:
        thread.start()
    for _ in range(count):
        signal.raise_signal(signal.SIGUSR1)
    for thread in callers:
        thread.join()
    free.simcuda_write_truth(os.environ["SIMCUDA_TRUTH"].encode())


def fork():
    child = os.fork()
    if child == 0:
        run()
        os._exit(0)  # the thread that forked is the only one there
    children.append(child)


children = []
free.cuInit(0)
signal.signal(signal.SIGUSR1, lambda *_: call_once())
forker = threading.Thread(target=fork)
forker.start()
forker.join()
run()
sys.exit(os.waitpid(children[0], 0)[1] != 0)
