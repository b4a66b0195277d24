#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The benchmark's target: calls cuLaunchKernel as often as it is told to.

usage: target.py DRIVER LOOP, both shared libraries. Each line on stdin is a
request, answered by one line:

  best CALLS BATCHES   nanoseconds per call of the quietest batch
  paced RATE SECONDS   calls made at that rate per second

The calls come from a Python thread, inside a stage, with the GIL free, so that
everything that stageprof does for a call is done. They come before cuInit: the
function then returns an error in some 20 ns, and what is measured is the probes.
"""

import ctypes
import sys

import stageprof


def main():
    driver = ctypes.CDLL(sys.argv[1])
    loop = ctypes.CDLL(sys.argv[2])
    launch = ctypes.cast(driver.cuLaunchKernel, ctypes.c_void_p)
    loop.best.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_int]
    loop.best.restype = ctypes.c_double
    loop.paced.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_double]
    loop.paced.restype = ctypes.c_long
    print("ready", flush=True)
    with stageprof.stage("bench"):
        for line in sys.stdin:
            kind, first, second = line.split()
            if kind == "best":
                print(loop.best(launch, int(first), int(second)), flush=True)
            else:
                print(loop.paced(launch, int(first), float(second)), flush=True)


if __name__ == "__main__":
    main()
