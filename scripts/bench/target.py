#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The benchmark's target: calls cuLaunchKernel as often as it is told to.

usage: target.py DRIVER LOOP MARKERS, all shared libraries. Each line on stdin is
a request, answered by one line:

  best CALLS BATCHES     nanoseconds per call of the quietest batch
  pair PAIRS BATCHES     the same of a begin and end of a stage
  switch ROUNDS BATCHES  the same of a switch between two threads on one CPU
  deep CALLS FRAMES      the same of 20 batches, so many Python frames deep
  paced RATE SECONDS     calls made at that rate per second
  worked WORK SECONDS    calls per second of the thread's CPU time, each followed by
                         so much work
  kernel 0 0             0: from here on the calls launch a kernel on a stream

The calls come from a Python thread, inside a stage, with the GIL free, so that
everything that stageprof does for a call is done. They come before cuInit: the
function then returns an error in some 20 ns, and what is measured is the probes.
"""

import ctypes
import sys

import stageprof


def must(result):
    if result:
        sys.exit(f"the driver returned {result}")


def use_kernel(driver, loop):
    """On the simulated driver, which has one."""
    context, module, kernel, stream = (ctypes.c_void_p() for _ in range(4))
    must(driver.cuInit(0))
    must(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    must(driver.cuCtxSetCurrent(context))
    must(driver.cuModuleLoadData(ctypes.byref(module), b"bench"))
    must(driver.cuModuleGetFunction(ctypes.byref(kernel), module, b"kernel"))
    must(driver.cuStreamCreate(ctypes.byref(stream), 1))
    loop.use(kernel, stream)
    return 0


def functions(driver, loop, markers):
    """The requests by name, each a function of two arguments."""
    long, void = ctypes.c_long, ctypes.c_void_p
    launch = ctypes.cast(driver.cuLaunchKernel, void)
    begin, end = (ctypes.cast(f, void) for f in (markers.stageprof_begin, markers.stageprof_end))

    def bind(name, result, last, *given):
        f = getattr(loop, name)
        f.argtypes = [void] * len(given) + [long, last]
        f.restype = result
        return lambda first, second: f(*given, int(first), last(float(second) if last is ctypes.c_double else int(second)))

    best = bind("best", ctypes.c_double, ctypes.c_int, launch)
    return {
        "best": best,
        "deep": lambda first, second: deep(int(second), lambda: best(first, 20)),
        "pair": bind("best_pair", ctypes.c_double, ctypes.c_int, begin, end),
        "switch": bind("best_switch", ctypes.c_double, ctypes.c_int),
        "paced": bind("paced", long, ctypes.c_double, launch),
        "worked": bind("worked", ctypes.c_double, ctypes.c_double, launch),
        "kernel": lambda *_: use_kernel(driver, loop),
    }


def deep(frames, call):
    return deep(frames - 1, call) if frames > 1 else call()


def main():
    known = functions(*(ctypes.CDLL(path) for path in sys.argv[1:]))
    print("ready", flush=True)
    with stageprof.stage("bench"):
        for line in sys.stdin:
            kind, first, second = line.split()
            print(known[kind](first, second), flush=True)


if __name__ == "__main__":
    main()
