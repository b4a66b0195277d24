#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training pipeline in stock PyTorch, shaped like the one that stageprof was made for.

Target loops run a frozen model on device 0 and hand its hidden states, through pinned host
memory and a bounded queue, to drafter loops that train on device 1 (on device 0 if it is the
only one). Everything runs in threads of this one process:

    target-N    target_wait -> target_forward -> pack_hidden [/trim_cache] -> copy_to_cpu -> queue_put
    postproc    post_process                                  (only with --copy async)
    drafter-N   drafter_wait -> drafter_forward -> drafter_backward -> optimizer_step

With --copy sync the target loop itself waits for its copy to the host: the hidden bottleneck.
With --copy async a post-process thread waits instead, and the loop goes on.

It is meant for the simulated driver (sim/torch/run.sh VERSION sim/torch_pipeline.py ...); on real
devices it just trains.

The driver's truth is tagged with the stage path of each call, and counts from the moment at which
the loops begin. Flags, files and output are those of pipeline.py, which needs no PyTorch.

Output: "pid N" first, "ready" once every thread has warmed up, then a line of totals.
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

HIDDEN = 256  # width of the hidden states
LAYERS = 6  # of the target
PACKED_LAYERS = (1, 3, 5)  # whose hidden states the drafter learns from
VOCABULARY = 4096
TOKEN_COUNTS = (256, 512, 768, 1024)  # a batch has one of these
QUEUE_DEPTH = 4  # packets under way per target
LOG_EVERY = 10  # drafter steps between two readings of the loss

# Read by PyTorch when it is imported and by the simulated driver when it is loaded, both later;
# what the environment says already, stays.
ENVIRONMENT = {
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    # What the driver's calls cost.
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
    parser.add_argument("--iterations", type=int, default=100, metavar="N",
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
    parser.add_argument("--kernel-us", type=float, default=60, metavar="T",
                        help="duration of a kernel on its stream (default: %(default)s)")
    parser.add_argument("--sched", choices=("spin", "yield", "block"), default="block",
                        help="how the driver waits (default: %(default)s)")
    parser.add_argument("--trim-every", type=int, default=16, metavar="N",
                        help="target iterations between two torch.cuda.empty_cache(), which unmaps "
                        "the allocator's free segments; 0: never (default: %(default)s)")
    parser.add_argument("--ready-file", metavar="F", help="wait until F exists before the loops")
    parser.add_argument("--exit-file", metavar="F", help="wait until F exists before leaving")
    parser.add_argument("--announce-pid", metavar="F",
                        help="write the process id to F once every thread has warmed up")
    parser.add_argument("--stats-json", metavar="F",
                        help="write each stage's own perf_counter times to F")
    parser.add_argument("--truth-json", metavar="F",
                        help="write the simulated driver's truth of the loops to F")
    arguments = parser.parse_args(argv)
    if min(arguments.targets, arguments.drafters) < 1 or arguments.iterations < 0:
        parser.error("--targets and --drafters must be at least 1, --iterations at least 0")
    if min(arguments.duration, arguments.rate, arguments.kernel_us, arguments.trim_every) < 0:
        parser.error("--duration, --rate, --kernel-us and --trim-every must not be negative")
    return arguments


def prepare_environment(arguments):
    chosen = {"SIMCUDA_KERNEL_NS": str(round(arguments.kernel_us * 1000)),
              "SIMCUDA_SCHED": arguments.sched}
    for name, value in {**ENVIRONMENT, **chosen}.items():
        os.environ.setdefault(name, value)


class Truth:
    """The simulated driver's own count of calls; does nothing on a real driver."""

    def __init__(self):
        driver = ctypes.CDLL("libcuda.so.1")
        self._tag = getattr(driver, "simcuda_tag", None)
        self._reset = getattr(driver, "simcuda_reset_truth", None)
        self._write = getattr(driver, "simcuda_write_truth", None)

    def tag(self, text):
        """Marks this thread's calls from now on."""
        if self._tag:
            self._tag(text.encode())

    def reset(self):
        if self._reset:
            self._reset()

    def write(self, path):
        if not self._write:
            raise SystemExit("--truth-json needs the simulated driver")
        self._write(os.fsencode(path))


class Stages:
    """Opens stages: marks them for stageprof, tags the truth, and keeps each span's own time."""

    def __init__(self, marker, truth):
        self._marker = marker
        self._truth = truth
        self._open = threading.local()
        self._lock = threading.Lock()
        self._spans = collections.defaultdict(list)

    @contextlib.contextmanager
    def __call__(self, name):
        outer = getattr(self._open, "path", "")
        path = f"{outer}/{name}" if outer else name
        begin = time.perf_counter_ns()
        self._open.path = path
        self._truth.tag(path)
        try:
            with self._marker(name):
                yield
        finally:
            self._truth.tag(outer)
            self._open.path = outer
            self._add(path, time.perf_counter_ns() - begin)

    def _add(self, path, elapsed):
        thread = threading.current_thread()
        with self._lock:
            self._spans[thread.native_id, thread.name, path].append(elapsed)

    def reset(self):
        with self._lock:
            self._spans.clear()

    def rows(self):
        """One row per thread and stage path; times in nanoseconds, of whole spans."""
        with self._lock:
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
        with open(f"/proc/self/task/{self.native_id}/comm", "w") as comm:
            comm.write(self.name)
        try:
            self._run_pipeline()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)


def build_models(torch):
    """The classes need torch, which is imported only after the pid was announced."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(HIDDEN, 2 * HIDDEN)
            self.down = nn.Linear(2 * HIDDEN, HIDDEN)
            self.norm = nn.LayerNorm(HIDDEN)

        def forward(self, x):
            return self.norm(x + self.down(nn.functional.gelu(self.up(x))))

    class Target(nn.Module):
        """Token ids -> the hidden states behind each layer."""

        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
            self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

        def forward(self, tokens):
            x = self.embedding(tokens)
            states = []
            for block in self.blocks:
                x = block(x)
                states.append(x)
            return states

    class Drafter(nn.Module):
        """Packed hidden states -> the loss of predicting each position's last one from the one before."""

        def __init__(self):
            super().__init__()
            self.fuse = nn.Linear(HIDDEN * len(PACKED_LAYERS), HIDDEN)
            self.block = Block()

        def forward(self, packed):
            predicted = self.block(self.fuse(packed[:-1]))
            return nn.functional.smooth_l1_loss(predicted, packed[1:, -HIDDEN:])

    return Target, Drafter


class Packet:
    """A pinned buffer that carries one batch's hidden states from a target to a drafter."""

    def __init__(self, torch, home):
        self.home = home  # the queue it returns to when it is empty
        self.buffer = torch.empty(max(TOKEN_COUNTS), HIDDEN * len(PACKED_LAYERS),
                                  dtype=torch.bfloat16, pin_memory=True)
        self.tokens = 0
        self.filled = torch.cuda.Event()  # the copy into it has ended
        self.emptied = torch.cuda.Event()  # the copy out of it has ended

    def states(self):
        return self.buffer[:self.tokens]


class Pipeline:
    def __init__(self, torch, arguments, stages):
        self.torch = torch
        self.arguments = arguments
        self.stage = stages
        self.target_device = torch.device("cuda", 0)
        self.drafter_device = torch.device("cuda", 1 if torch.cuda.device_count() > 1 else 0)
        self.target_class, self.drafter_class = build_models(torch)
        self.hidden = queue.Queue(QUEUE_DEPTH)
        self.copied = queue.Queue()  # to the post-process thread; bounded by the packets
        self.losses = []
        self.warm = threading.Semaphore(0)
        self.started = threading.Event()
        self.begin_time = None

        self.targets = self._workers("target", self.target_loop, arguments.targets)
        self.drafters = self._workers("drafter", self.drafter_loop, arguments.drafters)
        self.post = [Worker("postproc", self.post_process_loop)] if arguments.copy == "async" else []

    @staticmethod
    def _workers(kind, loop, count):
        return [Worker(f"{kind}-{i}", lambda i=i: loop(i)) for i in range(count)]

    # Life of the whole.

    def warm_up(self):
        """Starts the threads; each does all its first-time work and then waits for begin()."""
        workers = self.targets + self.drafters + self.post
        for worker in workers:
            worker.start()
        for _ in workers:
            self.warm.acquire()

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
        self.warm.release()
        self.started.wait()

    # The loops.

    def target_loop(self, index):
        torch = self.torch
        torch.cuda.set_device(self.target_device)
        torch.manual_seed(self.arguments.seed + index)
        lengths = random.Random(self.arguments.seed + index)
        model = self.target_class().to(self.target_device).eval()
        prompts = torch.randint(VOCABULARY, (max(TOKEN_COUNTS),)).pin_memory()
        free = queue.Queue()
        for _ in range(QUEUE_DEPTH):
            free.put(Packet(torch, free))
        compute, copy = torch.cuda.Stream(), torch.cuda.Stream()

        with torch.no_grad(), torch.cuda.stream(compute):
            for tokens in TOKEN_COUNTS:
                self._fill(self._pack(model(self._to_device(prompts, tokens))), free.queue[0], copy)
            copy.synchronize()
            self._wait_for_begin()
            for i in itertools.takewhile(self._goes_on, itertools.count()):
                with self.stage("target_wait"):
                    self._pace(i)
                    packet = free.get()
                    tokens = lengths.choice(TOKEN_COUNTS)
                with self.stage("target_forward"):
                    states = model(self._to_device(prompts, tokens))
                with self.stage("pack_hidden"):
                    packed = self._pack(states)
                    del states
                    if self.arguments.trim_every and (i + 1) % self.arguments.trim_every == 0:
                        with self.stage("trim_cache"):
                            torch.cuda.empty_cache()
                with self.stage("copy_to_cpu"):
                    self._fill(packed, packet, copy)
                    if self.arguments.copy == "sync":
                        copy.synchronize()
                with self.stage("queue_put"):
                    (self.hidden if self.arguments.copy == "sync" else self.copied).put(packet)

    def post_process_loop(self):
        self.torch.cuda.set_device(self.target_device)
        self._wait_for_begin()
        while True:
            packet = self.copied.get()
            if packet is None:
                return
            with self.stage("post_process"):
                packet.filled.synchronize()
                self.hidden.put(packet)

    def drafter_loop(self, index):
        torch = self.torch
        torch.cuda.set_device(self.drafter_device)
        torch.manual_seed(self.arguments.seed - 1 - index)
        model = self.drafter_class().to(self.drafter_device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

        def forward(states):
            return model(states.to(self.drafter_device, non_blocking=True).float())

        def step():
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        with torch.cuda.stream(torch.cuda.Stream()):
            for tokens in TOKEN_COUNTS:
                forward(torch.zeros(tokens, HIDDEN * len(PACKED_LAYERS), dtype=torch.bfloat16,
                                    pin_memory=True)).backward()
                step()
            torch.cuda.synchronize()
            self._wait_for_begin()
            steps = 0
            while True:
                with self.stage("drafter_wait"):
                    packet = self.hidden.get()
                if packet is None:
                    return
                with self.stage("drafter_forward"):
                    loss = forward(packet.states())
                    packet.emptied.record()
                    packet.home.put(packet)
                with self.stage("drafter_backward"):
                    loss.backward()
                with self.stage("optimizer_step"):
                    step()
                    steps += 1
                    if steps % LOG_EVERY == 0:
                        self.losses.append(loss.item())

    # The steps of the loops.

    def _goes_on(self, iteration):
        if self.arguments.duration:
            return time.monotonic() < self.begin_time + self.arguments.duration
        return iteration < self.arguments.iterations

    def _pace(self, iteration):
        if self.arguments.rate:
            due = self.begin_time + iteration / self.arguments.rate
            time.sleep(max(0, due - time.monotonic()))

    def _to_device(self, prompts, tokens):
        return prompts[:tokens].to(self.target_device, non_blocking=True)

    def _pack(self, states):
        return self.torch.cat([states[i] for i in PACKED_LAYERS], dim=-1).bfloat16()

    def _fill(self, packed, packet, copy):
        """Copies hidden states into a packet on the copy stream, behind the drafter's last use of it."""
        torch = self.torch
        packet.tokens = len(packed)
        copy.wait_stream(torch.cuda.current_stream())
        copy.wait_event(packet.emptied)
        with torch.cuda.stream(copy):
            packet.states().copy_(packed, non_blocking=True)
            packet.filled.record()
        packed.record_stream(copy)


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


def say(line):
    """In one write, also unbuffered as under torchrun: ranks have their output in common."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main():
    arguments = parse_arguments()
    say(f"pid {os.getpid()}")
    prepare_environment(arguments)

    import torch
    from stageprof import stage

    truth = Truth()
    stages = Stages(stage, truth)
    pipeline = Pipeline(torch, arguments, stages)
    pipeline.warm_up()
    say("ready")
    if arguments.announce_pid:
        write_text(arguments.announce_pid, f"{os.getpid()}\n")
    if arguments.ready_file:
        wait_for(arguments.ready_file)

    truth.reset()
    stages.reset()
    begin = time.perf_counter()
    pipeline.begin()
    pipeline.join()
    elapsed = time.perf_counter() - begin
    if arguments.truth_json:
        truth.write(arguments.truth_json)

    rows = stages.rows()
    if arguments.stats_json:
        write_text(arguments.stats_json, json.dumps(
            {"pid": os.getpid(), "elapsed_s": elapsed, "stages": rows}))
    steps = sum(row["spans"] for row in rows if row["stage_path"] == "optimizer_step")
    print(f"torch {torch.__version__}, --copy {arguments.copy}: {steps} drafter steps in "
          f"{elapsed:.3f} s, {steps / elapsed:.1f} per second", flush=True)
    if arguments.exit_file:
        wait_for(arguments.exit_file)
    # Past the interpreter's teardown, which calls the driver once more and in which PyTorch 2.15
    # sometimes aborts.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
