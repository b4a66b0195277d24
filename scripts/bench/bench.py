#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what a probed driver call costs: unprobed, under stageprof with
everything on, and under bpftrace with the usual two-probe script. Then what a
stage costs, and a context switch, of the target and of a bystander; and what a run
of each program takes by the kernel's own account.

usage: bench.py [--budget | --debt | --timeline] DRIVER LOOP MARKERS, all shared libraries; run by `make bench`.
The figures of a table come from the same process, one after the other. At last
the agent's own cost is measured at 100 000 calls a second, and what Python
stacks cost.

With --debt, instead: what sync debt adds to a launch that succeeds, with it and
without it in turn; with --timeline, what a timeline adds. With --budget: what a
recording under a budget of 1 % takes of a loop's speed, beside what it says.
"""

import argparse
import contextlib
import gzip
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
RATE = 100_000  # calls per second, for the agent's cost
FRAMES = 20  # of Python
BUDGET = "1%"
PATIENCE = 60  # seconds for anything to become ready

BPFTRACE = """
uprobe:{driver}:cuLaunchKernel {{ @begin[tid] = nsecs; }}
uretprobe:{driver}:cuLaunchKernel /@begin[tid]/ {{
    @calls = count();
    @total = sum(nsecs - @begin[tid]);
    delete(@begin[tid]);
}}
"""


class Target:
    """The process that makes the calls."""

    def __init__(self, *libraries):
        env = dict(os.environ, PYTHONPATH=str(TOP / "build/python"))
        self.process = subprocess.Popen(
            [sys.executable, str(TOP / "scripts/bench/target.py"), *libraries],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit("bench: the target ended")
        return line

    def ask(self, kind, first, second):
        print(kind, first, second, file=self.process.stdin, flush=True)
        return float(self.answer())

    def best(self, calls, batches=200):
        """Many short batches find a quiet moment on a busy machine too."""
        return self.ask("best", calls, batches)

    def stages(self):
        return self.ask("pair", 200, 500)

    def switches(self):
        return self.ask("switch", 50, 1_000)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


@contextlib.contextmanager
def interrupted_at_end(command, **options):
    process = subprocess.Popen(command, **options)
    try:
        yield process
    finally:
        interrupt(process)
    # bpftrace may die of the interrupt; we must end well on it.
    if process.returncode not in (0, -signal.SIGINT if command[0] == "bpftrace" else 0):
        sys.exit(f"bench: {command[0]} ended with status {process.returncode}")


def interrupt(process):
    """bpftrace sometimes does not hear the first interrupt."""
    for _ in range(5):
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=PATIENCE / 5)
            return
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    process.wait()


def wait_until(condition, process, what):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"bench: {what} did not become ready")
        time.sleep(0.05)


@contextlib.contextmanager
def stageprof(target, folder, *options):
    """Records the target; afterwards the yielded dictionary is the Recording."""
    ready = folder / "ready"
    ready.unlink(missing_ok=True)
    saved = folder / "recording"
    command = [str(TOP / "bin/stageprof"), "record", "--pid", str(target.process.pid), "--quiet", "--no-gpu",
               "--probes", "all", "--output", str(folder / "profile"), "--save", str(saved), "--ready-file", str(ready),
               *options]
    recording = {}
    with interrupted_at_end(command, stdout=subprocess.DEVNULL) as agent:
        wait_until(ready.exists, agent, "stageprof")
        recording["agent"] = agent
        yield recording
    with gzip.open(saved, "rt", encoding="utf-8") as f:
        recording.update(json.load(f))


@contextlib.contextmanager
def bpftrace(target, driver, unprobed):
    command = ["bpftrace", "-p", str(target.process.pid), "-e", BPFTRACE.format(driver=driver)]
    # On stderr it complains of limits and files that it can do without.
    with interrupted_at_end(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as tracer:
        # It does not say when its probes are live; the calls do, first of one probe.
        wait_until(lambda: target.best(100) > 5 * unprobed, tracer, "bpftrace")
        time.sleep(1)
        yield


def python_stacks(target, folder):
    """What reading Python stacks adds, in batches with enough calls to hold samples."""
    rows = []
    for mode, calls in (("off", 20_000), ("sampled", 20_000), ("all", 1_000)):
        (folder / mode).mkdir()
        with stageprof(target, folder / mode, "--python-stacks", mode) as recording:
            cost = target.ask("deep", calls, FRAMES)
        samples = recording["overhead"].get("samples", 0)
        each = recording["overhead"].get("samples_ns", 0) / max(samples, 1)
        rows.append((mode, cost, f"{samples} samples of {each:.0f} ns" if samples else ""))
    return rows


@contextlib.contextmanager
def kernel_account():
    """The kernel keeps account of what BPF programs take, at a small cost of its own."""
    switch = pathlib.Path("/proc/sys/kernel/bpf_stats_enabled")
    before = switch.read_text()
    switch.write_text("1")
    try:
        yield
    finally:
        switch.write_text(before)


def programs(target, bystander, folder):
    """What our programs take by that account, where little else runs them: rows of a table."""
    def mean(work, *names):
        with stageprof(target, folder) as recording:
            work()
        p = next(p for p in recording["overhead"]["programs"] if p["name"] in names)
        return p["wall_ns"] / p["runs"]

    with kernel_account():
        return [
            ("driver_entry", mean(lambda: target.best(1_000), "driver_entry")),
            ("driver_return", mean(lambda: target.best(1_000), "driver_return")),
            ("marker_announced, or marker_hit", mean(target.stages, "marker_announced", "marker_hit")),
            ("on_switch, between threads of the target", mean(target.switches, "on_switch")),
            ("on_switch, between other threads", mean(bystander.switches, "on_switch")),
            ("on_wakeup, of other threads: one comparison", mean(bystander.switches, "on_wakeup")),
        ]


def overhead(recording):
    o = recording["overhead"]
    seconds = recording["window"]["duration_ns"] / 1e9
    return (f"agent at {RATE} calls/s: {o['agent_cpu_ns'] / 1e7 / seconds:.2f} % of one core, "
            f"{o['agent_rss'] / 2**20:.0f} MiB; {o['probed_sites']} probed functions, "
            f"attach {o['attach_ns'] / 1e6:.0f} ms, detach {o['detach_ns'] / 1e6:.0f} ms")


@contextlib.contextmanager
def stopped(process):
    """Nobody empties the ring buffer of spans meanwhile."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def table(title, rows):
    """rows: name, nanoseconds; each is compared with the last one that is indented less."""
    print(f"{title:44}{'ns':>10}{'added':>10}{'to before':>12}")
    for name, cost in rows:
        if not name.startswith(" "):
            before = cost
            print(f"{name:44}{cost:10.1f}")
        else:
            print(f"{name:44}{cost:10.1f}{cost - before:10.1f}{cost / before:11.1f}x")


def in_turn(target, what, without, option, rounds=12):
    """What an option adds to a launch: the quietest figures of recordings in turn."""
    target.ask("kernel", 0, 0)
    figures = {"unprobed": [target.best(20_000)], without: [], option: []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for name in (without, option):
                options = [name] if name.startswith("--") else []
                with stageprof(target, pathlib.Path(folder), *options):
                    figures[name].append(target.best(1_000))
    least = {name: min(values) for name, values in figures.items()}
    print(f"{'a launch that succeeds':26}{'ns per call':>12}{'added':>10}")
    for name, cost in least.items():
        print(f"{name:26}{cost:12.1f}{cost - least['unprobed']:10.1f}")
    print(f"{what} adds {least[option] - least[without]:.0f} ns, "
          f"{100 * (least[option] / least[without] - 1):.0f} % of a probed launch")


def work_for(target, rate):
    """How much work between two calls makes them so many per second of CPU."""
    few, many = 0, 20_000
    fast, slow = (1 / target.ask("worked", work, 1) for work in (few, many))
    return max(0, round((1 / rate - fast) * many / (slow - fast)))


def under_budget(target, seconds=25, rounds=2):
    """The speed of loops without a recording, with one under a budget, and without one again, in turn."""
    print(f"--budget {BUDGET}, {seconds} s{'without':>15}{'with':>12}{'slower by':>11}{'reckoned':>10}{'covered':>9}{'windows':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for rate in (25_000, 400_000):
            work = work_for(target, rate)
            for _ in range(rounds):
                before = target.ask("worked", work, seconds / 3)
                with stageprof(target, pathlib.Path(folder), "--budget", BUDGET, "--duration", f"{seconds}s") as recording:
                    speed = target.ask("worked", work, seconds)
                    recording["agent"].wait(PATIENCE)
                without = (before + target.ask("worked", work, seconds / 3)) / 2
                budget = recording["budget"]
                used = sum(budget["cost"].values()) / budget["elapsed_ns"]
                covered = recording["window"]["duration_ns"] / budget["elapsed_ns"]
                print(f"{rate:>9} calls/s{without:17.0f}{speed:12.0f}{100 * (1 - speed / without):9.2f} %"
                      f"{100 * used:8.2f} %{100 * covered:7.1f} %{len(budget['windows']):9}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", action="store_true")
    parser.add_argument("--debt", action="store_true")
    parser.add_argument("--timeline", action="store_true")
    for library in ("driver", "loop", "markers"):
        parser.add_argument(library)
    args = parser.parse_args()
    libraries = (args.driver, args.loop, args.markers)

    if args.budget or args.debt or args.timeline:
        target = Target(*libraries)
        if args.budget:
            under_budget(target)
        elif args.debt:
            in_turn(target, "sync debt", "--sync-debt=false", "--sync-debt")
        else:
            in_turn(target, "a timeline", "no timeline", "--timeline")
        target.close()
        return
    target, bystander = Target(*libraries), Target(*libraries)
    print(f"cuLaunchKernel before cuInit, {os.path.relpath(os.path.realpath(args.driver), TOP)}, "
          f"Linux {os.uname().release}, {os.cpu_count()} CPUs", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        unprobed = target.best(20_000)
        stage, switch, elsewhere = target.stages(), target.switches(), bystander.switches()
        with stageprof(target, folder) as recording:
            ours = target.best(1_000)
            our_stage, our_switch, our_elsewhere = target.stages(), target.switches(), bystander.switches()
            with stopped(recording["agent"]):
                target.ask("pair", 100_000, 1)  # fills the ring buffer
                full = target.stages()
        with bpftrace(target, args.driver, unprobed):
            theirs = target.best(200)
        with stageprof(target, folder) as recording:
            target.ask("paced", RATE, 10)
        ours_inside = programs(target, bystander, folder)
        stacks = python_stacks(target, folder)
    target.close()
    bystander.close()

    table("a driver call", [("unprobed", unprobed), ("  stageprof, everything on", ours), ("  bpftrace, two probes", theirs)])
    print(f"bpftrace adds {(theirs - unprobed) / (ours - unprobed):.1f} times what stageprof adds")
    table("a stage: begin and end", [("nobody attached", stage), ("  stageprof", our_stage), ("  stageprof, ring buffer full", full)])
    table("a context switch, with the pipe that makes it", [
        ("nobody attached, target", switch), ("  stageprof, target", our_switch),
        ("nobody attached, another process", elsewhere), ("  stageprof, another process", our_elsewhere)])
    print(f"{'a run of our programs, as the kernel counts':44}{'ns':>10}")
    for name, cost in ours_inside:
        print(f"{'  ' + name:44}{cost:10.1f}")
    print(overhead(recording))
    print(f"{f'a driver call with Python stacks, {FRAMES} frames':44}{'ns':>10}")
    for mode, cost, samples in stacks:
        print(f"{'  --python-stacks=' + mode:44}{cost:10.1f}  {samples}".rstrip())


if __name__ == "__main__":
    main()
