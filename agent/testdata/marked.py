# SPDX-License-Identifier: Apache-2.0
"""Functions without any mark that call the driver, on two threads.

    marked.py DRIVER COUNT

Prints "expect STAGE COUNT" for each function, as it counted itself.
"""
import collections
import ctypes
import os
import sys
import threading
import time

driver, count = ctypes.CDLL(sys.argv[1]), int(sys.argv[2])
calls = collections.Counter()
lock = threading.Lock()


def counted(name):
    with lock:
        calls[name] += 1


class Trainer:
    def step(self):
        counted("Trainer.step")
        driver.cuCtxSynchronize()
        forward()
        forward()


def forward():
    counted("forward")
    driver.cuStreamQuery(None)


def run():
    trainer = Trainer()
    for _ in range(count):
        trainer.step()
        forward()


def name(text):
    with open("/proc/thread-self/comm", "w") as comm:
        comm.write(text)


def run_second():
    name("second")
    run()


name("first")
driver.cuInit(0)
print("up", flush=True)
while not os.path.exists(os.environ["STAGEPROF_READY"]):
    time.sleep(0.001)
driver.simcuda_reset_truth()
second = threading.Thread(target=run_second)
second.start()
run()
second.join()
for stage in sorted(calls):
    print("expect", stage, calls[stage], flush=True)
print("done", flush=True)
