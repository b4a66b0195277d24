#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training pipeline on the simulated CUDA driver, shaped like the one that stageprof was made for.

Target loops run a model and hand its hidden states, through pinned host memory and a bounded
queue, to drafter loops that train on them. Everything runs in threads of this one process, and
every driver call is made through ctypes:

    target-N    target_wait -> target_forward -> pack_hidden [/trim_cache] -> copy_to_cpu -> queue_put
    postproc    post_process                                  (only with --copy async)
    drafter-N   drafter_wait -> drafter_forward -> drafter_backward -> optimizer_step

With --copy sync the target loop itself waits for its copy to the host: the hidden bottleneck.
With --copy async a post-process thread waits instead, and the loop goes on.

All calls but one are made with the GIL free. The one, in pack_hidden, keeps it while it waits for
a small side stream, as an extension does that forgot to release it: every other thread pays.

The driver's truth is tagged with the stage path of each call, and counts from the moment at which
the loops begin. Python 3.8 and the package stageprof are all it needs.

Output: "pid N" first, "ready" once every thread is set up, then a line of totals.
"""

import argparse
import collections
import contextlib
import ctypes
import itertools
import json
import os
import queue
import random
import sys
import threading
import time
import traceback

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)
sys.path.append(os.path.join(ROOT, "build", "python"))  # used where stageprof is not installed

import stageprof  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
TOKEN_COUNTS = (256, 512, 768, 1024)  # a batch has one of these
MEAN_TOKENS = sum(TOKEN_COUNTS) / len(TOKEN_COUNTS)
STATE_BYTES = KIB  # of packed hidden states per token
PACKET_BYTES = max(TOKEN_COUNTS) * STATE_BYTES
QUEUE_DEPTH = 4  # packets under way per target
LOADING_S = 0.004  # what a target waits for its next batch
LENGTHS_NS = 100_000  # the side stream's kernel, waited for with the GIL held
SEGMENT_BYTES = 2 * MIB  # what the allocator maps at a time
SEGMENTS = 64  # that fit into a target's reserved addresses
GROW_EVERY = 4  # iterations from one growth of a target's memory to the next
TRIM_EVERY = 16  # iterations from one release of all of it to the next

# What the simulated driver's calls cost, where the environment does not say.
DRIVER_COSTS = {
    "SIMCUDA_LAUNCH_NS": "2000",
    "SIMCUDA_MAP_NS": "40000",
    "SIMCUDA_UNMAP_NS": "60000",
    "SIMCUDA_COPY_GBPS": "12",
}


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--copy", choices=("sync", "async"), default="sync",
                        help="who waits for the copy of the hidden states (default: %(default)s)")
    parser.add_argument("--iterations", type=int, default=300, metavar="N",
                        help="iterations of each target loop (default: %(default)s)")
    parser.add_argument("--duration", type=float, default=0, metavar="S",
                        help="run for S seconds instead; 0: by iterations (default)")
    parser.add_argument("--targets", type=int, default=2, metavar="N",
                        help="target loops (default: %(default)s)")
    parser.add_argument("--drafters", type=int, default=2, metavar="N",
                        help="drafter loops (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=0, metavar="R",
                        help="iterations per second of each target loop; 0: unlimited (default)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kernels", type=int, default=64, metavar="N",
                        help="launches of a target's forward (default: %(default)s)")
    parser.add_argument("--kernel-us", type=float, default=150, metavar="T",
                        help="duration of a target's kernel on its stream (default: %(default)s)")
    parser.add_argument("--sched", choices=sorted(SCHED_FLAGS), default="block",
                        help="how the driver waits (default: %(default)s)")
    parser.add_argument("--driver", metavar="PATH", default=default_driver(),
                        help="the libcuda.so.1 to load (default: %(default)s)")
    parser.add_argument("--ready-file", metavar="F", help="wait until F exists before the loops")
    parser.add_argument("--exit-file", metavar="F", help="wait until F exists before leaving")
    parser.add_argument("--announce-pid", metavar="F",
                        help="write the process id to F once every thread is set up")
    parser.add_argument("--stats-json", metavar="F",
                        help="write each stage's own perf_counter times to F")
    parser.add_argument("--truth-json", metavar="F",
                        help="write the simulated driver's truth of the loops to F")
    arguments = parser.parse_args(argv)
    if min(arguments.targets, arguments.drafters) < 1:
        parser.error("--targets and --drafters must be at least 1")
    if min(arguments.iterations, arguments.duration, arguments.rate, arguments.kernels,
           arguments.kernel_us) < 0:
        parser.error("--iterations, --duration, --rate, --kernels and --kernel-us must not be negative")
    return arguments


def default_driver():
    built = os.path.normpath(os.path.join(ROOT, "build", "sim", "libcuda.so.1"))
    return built if os.path.exists(built) else "libcuda.so.1"


# The driver.

SCHED_FLAGS = {"auto": 0, "spin": 1, "yield": 2, "block": 4}
STREAM_NON_BLOCKING = 1
EVENT_DISABLE_TIMING = 2


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _AllocationProp(ctypes.Structure):
    """CUmemAllocationProp: pinned memory on device 0."""

    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", _Location),
                ("win32", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]


class _AccessDesc(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


_ON_DEVICE = _Location(1, 0)
_PINNED_ON_DEVICE = _AllocationProp(type=1, location=_ON_DEVICE)
_READ_WRITE = _AccessDesc(_ON_DEVICE, 3)

_P, _U, _I, _SIZE, _OUT = (ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_size_t,
                           ctypes.POINTER(ctypes.c_void_p))
_SIGNATURES = {
    "cuInit": [_U],
    "cuDevicePrimaryCtxSetFlags_v2": [_I, _U],
    "cuDevicePrimaryCtxRetain": [_OUT, _I],
    "cuCtxSetCurrent": [_P],
    "cuModuleLoadData": [_OUT, _P],
    "cuModuleGetFunction": [_OUT, _P, ctypes.c_char_p],
    "cuStreamCreate": [_OUT, _U],
    "cuStreamSynchronize": [_P],
    "cuStreamWaitEvent": [_P, _P, _U],
    "cuEventCreate": [_OUT, _U],
    "cuEventRecord": [_P, _P],
    "cuEventSynchronize": [_P],
    "cuLaunchKernel": [_P, _U, _U, _U, _U, _U, _U, _U, _P, _P, _P],
    "cuMemAlloc_v2": [_OUT, _SIZE],
    "cuMemHostAlloc": [_OUT, _SIZE, _U],
    "cuMemcpyHtoDAsync_v2": [_P, _P, _SIZE, _P],
    "cuMemcpyDtoHAsync_v2": [_P, _P, _SIZE, _P],
    "cuMemsetD8Async": [_P, ctypes.c_ubyte, _SIZE, _P],
    "cuMemAddressReserve": [_OUT, _SIZE, _SIZE, _P, ctypes.c_ulonglong],
    "cuMemCreate": [_OUT, _SIZE, ctypes.POINTER(_AllocationProp), ctypes.c_ulonglong],
    "cuMemMap": [_P, _SIZE, _SIZE, _P, ctypes.c_ulonglong],
    "cuMemSetAccess": [_P, _SIZE, ctypes.POINTER(_AccessDesc), _SIZE],
    "cuMemUnmap": [_P, _SIZE],
    "cuMemRelease": [_P],
}


class DriverError(Exception):
    """A driver call returned something else than success."""


class Driver:
    """The driver API through ctypes. Its functions raise on any error.

    An attribute such as driver.cuInit is the function called with the GIL free;
    driver.holding_gil.cuInit is the same one called with the GIL held.
    """

    def __init__(self, path):
        for name, value in DRIVER_COSTS.items():
            os.environ.setdefault(name, value)
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            sys.exit("loading the driver: %s" % error)
        self._bind(library)
        self.holding_gil = Driver.__new__(Driver)
        self.holding_gil._bind(ctypes.PyDLL(path))
        try:
            self.tag = library.simcuda_tag
            self.set_kernel_ns = library.simcuda_set_kernel_ns
            self.reset_truth = library.simcuda_reset_truth
            self.write_truth = library.simcuda_write_truth
        except AttributeError:
            sys.exit("%s is not the simulated driver: this pipeline has no kernels of its own" % path)
        self.set_kernel_ns.argtypes = [ctypes.c_uint64]

    def _bind(self, library):
        for name, arguments in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes = arguments
            function.restype = ctypes.c_int
            function.errcheck = _check
            setattr(self, name, function)

    def make(self, name, *arguments):
        """Calls a function whose first argument receives what it makes."""
        made = ctypes.c_void_p()
        getattr(self, name)(ctypes.byref(made), *arguments)
        return made.value

    def stream(self):
        return self.make("cuStreamCreate", STREAM_NON_BLOCKING)

    def event(self):
        return self.make("cuEventCreate", EVENT_DISABLE_TIMING)


def _check(result, function, arguments):
    if result != 0:
        raise DriverError("%s returned %d" % (function.__name__, result))
    return result


class Segments:
    """A target's growing memory: reserved addresses, backed piece by piece by physical memory."""

    def __init__(self, driver):
        self._driver = driver
        self._base = driver.make("cuMemAddressReserve", SEGMENTS * SEGMENT_BYTES, 0, None, 0)
        self._handles = []

    def grow(self, count):
        driver = self._driver
        for _ in range(min(count, SEGMENTS - len(self._handles))):
            address = self._base + len(self._handles) * SEGMENT_BYTES
            handle = driver.make("cuMemCreate", SEGMENT_BYTES, ctypes.byref(_PINNED_ON_DEVICE), 0)
            driver.cuMemMap(address, SEGMENT_BYTES, 0, handle, 0)
            driver.cuMemSetAccess(address, SEGMENT_BYTES, ctypes.byref(_READ_WRITE), 1)
            self._handles.append(handle)

    def trim(self):
        while self._handles:
            handle = self._handles.pop()
            self._driver.cuMemUnmap(self._base + len(self._handles) * SEGMENT_BYTES, SEGMENT_BYTES)
            self._driver.cuMemRelease(handle)


class Packet:
    """A pinned buffer that carries one batch's hidden states from a target to a drafter."""

    def __init__(self, driver, home):
        self.home = home  # the queue it returns to when it is empty
        self.buffer = driver.make("cuMemHostAlloc", PACKET_BYTES, 0)
        self.tokens = 0
        self.filled = driver.event()  # the copy into it has ended
        self.emptied = driver.event()  # the copy out of it has ended


# Stages.


class Stages:
    """Opens stages: marks them for stageprof, tags the truth, and keeps times of its own."""

    def __init__(self, driver):
        self._driver = driver
        self._open = threading.local()
        self._spans = collections.defaultdict(list)  # (tid, thread, path): ns of each span

    @contextlib.contextmanager
    def __call__(self, name):
        outer = getattr(self._open, "path", "")
        path = "%s/%s" % (outer, name) if outer else name
        begin = time.perf_counter_ns()
        self._open.path = path
        self._driver.tag(path.encode())
        try:
            with stageprof.stage(name):
                yield
        finally:
            self._driver.tag(outer.encode())
            self._open.path = outer
            thread = threading.current_thread()
            self._spans[thread.native_id, thread.name, path].append(time.perf_counter_ns() - begin)

    def rows(self):
        """One row per thread and stage path; times in nanoseconds, of whole spans."""
        return [
            {"tid": tid, "thread": thread, "stage_path": path, "spans": len(spans),
             "total_ns": sum(spans), "min_ns": min(spans), "max_ns": max(spans),
             "each_ns": spans}
            for (tid, thread, path), spans in sorted(self._spans.items())
        ]


class Worker(threading.Thread):
    """A named thread of the pipeline. One that fails ends the process: the others wait for it."""

    def __init__(self, name, run):
        super().__init__(name=name)
        self._run_pipeline = run

    def run(self):
        name_thread(self.name)
        try:
            self._run_pipeline()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)


def name_thread(name):
    """Gives the calling thread a name that the kernel knows too."""
    PR_SET_NAME = 15
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode(), 0, 0, 0)


# The pipeline.


class Pipeline:
    def __init__(self, driver, arguments, stages):
        self.driver = driver
        self.arguments = arguments
        self.stage = stages
        self.kernel_ns = arguments.kernel_us * 1000
        self.hidden = queue.Queue(QUEUE_DEPTH)
        self.copied = queue.Queue()  # to the post-process thread; bounded by the packets
        self.set_up = threading.Semaphore(0)
        self.started = threading.Event()
        self.begin_time = None

        driver.cuInit(0)
        driver.cuDevicePrimaryCtxSetFlags_v2(0, SCHED_FLAGS[arguments.sched])
        self.context = driver.make("cuDevicePrimaryCtxRetain", 0)
        driver.cuCtxSetCurrent(self.context)
        module = driver.make("cuModuleLoadData", ctypes.c_char_p(b"pipeline"))
        self.kernel = driver.make("cuModuleGetFunction", module, b"kernel")

        self.targets = self._workers("target", self.target_loop, arguments.targets)
        self.drafters = self._workers("drafter", self.drafter_loop, arguments.drafters)
        self.post = [Worker("postproc", self.post_process_loop)] if arguments.copy == "async" else []

    @staticmethod
    def _workers(kind, loop, count):
        return [Worker("%s-%d" % (kind, i), lambda i=i: loop(i)) for i in range(count)]

    # Life of the whole.

    def start(self):
        """Starts the threads; each sets itself up and then waits for begin()."""
        workers = self.targets + self.drafters + self.post
        for worker in workers:
            worker.start()
        for _ in workers:
            self.set_up.acquire()

    def begin(self):
        self.begin_time = time.monotonic()
        self.started.set()

    def join(self):
        """Ends the loops in the order of the data: nothing that was produced is dropped."""
        for worker in self.targets:
            worker.join()
        for worker in self.post:
            self.copied.put(None)
            worker.join()
        for _ in self.drafters:
            self.hidden.put(None)
        for worker in self.drafters:
            worker.join()

    def _wait_for_begin(self):
        self.set_up.release()
        self.started.wait()

    # The loops.

    def target_loop(self, index):
        driver = self.driver
        driver.cuCtxSetCurrent(self.context)
        compute, side = driver.stream(), driver.stream()
        device_tokens = driver.make("cuMemAlloc_v2", 4 * max(TOKEN_COUNTS))
        device_states = driver.make("cuMemAlloc_v2", PACKET_BYTES)
        tokens_buffer = driver.make("cuMemHostAlloc", 4 * max(TOKEN_COUNTS), 0)
        segments = Segments(driver)
        free = queue.Queue()
        for _ in range(QUEUE_DEPTH):
            free.put(Packet(driver, free))
        chance = random.Random(self.arguments.seed * 1000 + index)

        self._wait_for_begin()
        for i in itertools.takewhile(self._goes_on, itertools.count()):
            with self.stage("target_wait"):
                self._pace(i)
                packet = free.get()
                packet.tokens = self._load_batch(chance, tokens_buffer)
            with self.stage("target_forward"):
                if i % GROW_EVERY == 0:
                    segments.grow(chance.randint(2, 6))
                driver.cuMemcpyHtoDAsync_v2(device_tokens, tokens_buffer, 4 * packet.tokens, compute)
                self._launch(self.arguments.kernels, 1.0, packet.tokens, compute)
            with self.stage("pack_hidden"):
                self._launch(3, 0.2, packet.tokens, compute)
                self._read_lengths(side)
                if i % TRIM_EVERY == TRIM_EVERY - 1:
                    with self.stage("trim_cache"):
                        segments.trim()
            with self.stage("copy_to_cpu"):
                driver.cuStreamWaitEvent(compute, packet.emptied, 0)
                driver.cuMemcpyDtoHAsync_v2(packet.buffer, device_states,
                                            packet.tokens * STATE_BYTES, compute)
                if self.arguments.copy == "sync":
                    driver.cuStreamSynchronize(compute)
                else:
                    driver.cuEventRecord(packet.filled, compute)
            with self.stage("queue_put"):
                (self.hidden if self.arguments.copy == "sync" else self.copied).put(packet)

    def post_process_loop(self):
        self.driver.cuCtxSetCurrent(self.context)
        self._wait_for_begin()
        for packet in iter(self.copied.get, None):
            with self.stage("post_process"):
                self.driver.cuEventSynchronize(packet.filled)
                self.hidden.put(packet)

    def drafter_loop(self, index):
        driver = self.driver
        driver.cuCtxSetCurrent(self.context)
        stream = driver.stream()
        device_states = driver.make("cuMemAlloc_v2", PACKET_BYTES)
        gradients = driver.make("cuMemAlloc_v2", PACKET_BYTES)
        loss = driver.make("cuMemHostAlloc", 4, 0)
        launches = max(self.arguments.kernels // 4, 1)

        self._wait_for_begin()
        while True:
            with self.stage("drafter_wait"):
                packet = self.hidden.get()
            if packet is None:
                return
            tokens = packet.tokens
            with self.stage("drafter_forward"):
                driver.cuMemcpyHtoDAsync_v2(device_states, packet.buffer, tokens * STATE_BYTES, stream)
                driver.cuEventRecord(packet.emptied, stream)
                packet.home.put(packet)
                self._launch(launches, 0.5, tokens, stream)
            with self.stage("drafter_backward"):
                driver.cuMemsetD8Async(gradients, 0, PACKET_BYTES, stream)
                self._launch(2 * launches, 0.5, tokens, stream)
            with self.stage("optimizer_step"):
                self._launch(8, 0.2, MEAN_TOKENS, stream)
                driver.cuMemcpyDtoHAsync_v2(loss, gradients, 4, stream)
                driver.cuStreamSynchronize(stream)

    # The steps of the loops.

    def _goes_on(self, iteration):
        if self.arguments.duration:
            return time.monotonic() < self.begin_time + self.arguments.duration
        return iteration < self.arguments.iterations

    def _pace(self, iteration):
        if self.arguments.rate:
            due = self.begin_time + iteration / self.arguments.rate
            time.sleep(max(0, due - time.monotonic()))

    def _load_batch(self, chance, to):
        """Waits for a batch of a data loader and fills in its tokens; returns how many."""
        time.sleep(LOADING_S)
        tokens = chance.choice(TOKEN_COUNTS)
        words = (ctypes.c_uint32 * tokens).from_address(to)
        words[:] = [chance.getrandbits(15) for _ in range(tokens)]
        return tokens

    def _launch(self, count, share, tokens, stream):
        """Launches kernels that take this share of the target's kernels' time."""
        launch, kernel = self.driver.cuLaunchKernel, self.kernel
        self.driver.set_kernel_ns(int(self.kernel_ns * share * tokens / MEAN_TOKENS))
        for _ in range(count):
            launch(kernel, 108, 1, 1, 256, 1, 1, 0, stream, None, None)

    def _read_lengths(self, side):
        """Computes the packed lengths on a stream of their own, and waits for them with the GIL held."""
        self.driver.set_kernel_ns(LENGTHS_NS)
        self.driver.cuLaunchKernel(self.kernel, 1, 1, 1, 32, 1, 1, 0, side, None, None)
        self.driver.holding_gil.cuStreamSynchronize(side)


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)


def write_text(path, text):
    """Beside and renamed: who waits for the file finds it whole. A device is written to."""
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "w") as out:
            out.write(text)
        return
    with open(path + ".partial", "w") as out:
        out.write(text)
    os.replace(path + ".partial", path)


def main():
    arguments = parse_arguments()
    print("pid", os.getpid(), flush=True)
    driver = Driver(arguments.driver)
    stages = Stages(driver)
    pipeline = Pipeline(driver, arguments, stages)
    pipeline.start()
    print("ready", flush=True)
    if arguments.announce_pid:
        write_text(arguments.announce_pid, "%d\n" % os.getpid())
    if arguments.ready_file:
        wait_for(arguments.ready_file)

    driver.reset_truth()
    stageprof.reset()
    begin = time.perf_counter()
    pipeline.begin()
    pipeline.join()
    elapsed = time.perf_counter() - begin
    if arguments.truth_json:
        driver.write_truth(os.fsencode(arguments.truth_json))

    rows = stages.rows()
    if arguments.stats_json:
        write_text(arguments.stats_json, json.dumps(
            {"pid": os.getpid(), "elapsed_s": elapsed, "stages": rows}))
    steps = sum(row["spans"] for row in rows if row["stage_path"] == "optimizer_step")
    print("--copy %s: %d drafter steps in %.3f s, %.1f per second"
          % (arguments.copy, steps, elapsed, steps / elapsed), flush=True)
    if arguments.exit_file:
        wait_for(arguments.exit_file)


if __name__ == "__main__":
    main()
