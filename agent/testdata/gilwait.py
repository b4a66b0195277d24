# SPDX-License-Identifier: Apache-2.0
"""Keeps the GIL in driver calls, beside a thread that wants it and one that waits for something else.

    gilwait.py DRIVER ROUNDS

forward  waits for a kernel of 20 ms with the GIL held, ROUNDS times
beat     runs Python all the time, if it can
queue    waits in Queue.get until the rounds are over

Prints what the threads have measured, by CLOCK_MONOTONIC and CLOCK_THREAD_CPUTIME_ID.
"""
import ctypes
import json
import os
import queue
import resource
import sys
import threading
import time

import stageprof

path, rounds = sys.argv[1], int(sys.argv[2])
free, held = ctypes.CDLL(path), ctypes.PyDLL(path)
GAP_NS = 1_000_000  # between two beats, from which on something was in the way


def make(name, *arguments):
    made = ctypes.c_void_p()
    if getattr(free, name)(ctypes.byref(made), *arguments):
        sys.exit(name + " fails")
    return made


def forward(go, holds):
    free.cuCtxSetCurrent(context)
    launch_and_wait()  # what memory that takes is there from now on
    free.simcuda_set_kernel_ns(ctypes.c_uint64(20_000_000))
    go.wait()
    free.simcuda_tag(b"forward")
    with stageprof.stage("forward"):
        for _ in range(rounds):
            holds.append(launch_and_wait())


def launch_and_wait():
    free.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)
    begin = time.perf_counter_ns()
    held.cuStreamSynchronize(None)
    return begin, time.perf_counter_ns()


def run_queue():
    """How long the calling thread was ready to run without a CPU, and how often it left one."""
    with open("/proc/thread-self/schedstat") as schedstat:
        waited = int(schedstat.read().split()[1])
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return waited, usage.ru_nvcsw + usage.ru_nivcsw


def beat(started, done, gaps, times):
    waited, switches = run_queue()
    with stageprof.stage("beat"):
        now, cpu = time.perf_counter_ns(), time.thread_time_ns()
        started.set()
        while not done.is_set():
            before, cpu_before = now, cpu
            now, cpu = time.perf_counter_ns(), time.thread_time_ns()
            if now - before > GAP_NS:
                gaps.append((before, now, cpu - cpu_before))
    times["wait"], times["switches"] = (b - a for a, b in zip((waited, switches), run_queue()))


def wait_in_queue(source, times):
    with stageprof.stage("queue"):
        times["entered"] = time.perf_counter_ns()
        source.get()
        times["got"] = time.perf_counter_ns()


def await_asleep(thread):
    """Until the thread sleeps for something else than the GIL, which it could have had meanwhile."""
    before = None
    while True:
        with open("/proc/self/task/%d/status" % thread.native_id) as status:
            now = [line for line in status if line.startswith(("State:", "voluntary_"))]
        if now == before and "S" in now[0].split():
            return
        before = now
        time.sleep(0.01)


def overlaps(gaps, holds):
    """Of the gaps that lie in some hold: the time in it, and the CPU time of the whole gap."""
    wall = cpu = 0
    for begin, end, used in gaps:
        inside = sum(max(0, min(end, e) - max(begin, b)) for b, e in holds)
        wall += inside
        cpu += used if inside else 0
    return wall, cpu


def await_ready():
    while not os.path.exists(os.environ["STAGEPROF_READY"]):
        time.sleep(0.001)


free.cuInit(0)
context = make("cuDevicePrimaryCtxRetain", 0)
free.cuCtxSetCurrent(context)
kernel = make("cuModuleGetFunction", make("cuModuleLoadData", b"image"), b"kernel")
print("up", flush=True)
await_ready()
free.simcuda_reset_truth()

source, times, holds, gaps = queue.Queue(), {}, [], []
started, go, done = threading.Event(), threading.Event(), threading.Event()
waiter = threading.Thread(target=wait_in_queue, args=(source, times))
heart = threading.Thread(target=beat, args=(started, done, gaps, times))
holder = threading.Thread(target=forward, args=(go, holds))
waiter.start()
while not source.not_empty._waiters:
    time.sleep(0.001)
await_asleep(waiter)
times["waits"] = time.perf_counter_ns()
# No thread begins while the heart beats: it would wait for the process's memory then.
holder.start()
await_asleep(holder)
heart.start()
started.wait()
go.set()
holder.join()
done.set()
heart.join()
times["put"] = time.perf_counter_ns()
source.put(None)
waiter.join()
overlap, cpu = overlaps(gaps, holds)
print(json.dumps(dict(times, held=sum(e - b for b, e in holds), overlap=overlap, gap_cpu=cpu)), flush=True)
print("done", flush=True)
