#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The loops of hostile and unlucky targets, without stageprof and with it.

usage: hostile.py DRIVER MARKERS, both shared libraries; run by `make
bench-hostile`. Each target is run ROUNDS times without and with, in turn; the
figures are medians. What it prints, how it ends and what it calls must be the
same both times, and the calls that are reported are compared with the driver's.
A launch takes two microseconds, as it would on a GPU.
"""

import atexit
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading

from bench import PATIENCE, TOP, interrupt, wait_until
from counts import COUNTED, against_truth, load, median, truth

TESTERS = TOP / "build/sim/testers"
ROUNDS = 5
PRIORITY = 1  # a real-time one, of targets and agents alike: other work on the machine disturbs their loops less
TIMES = re.compile(r"rounds (\d+), p50 (\d+), p99 (\d+), longest (\d+)")


class Agent:
    """stageprof, recording a process."""

    def __init__(self, pid, folder, *options):
        self.saved, live = folder / "recording", folder / "live"
        live.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [str(TOP / "bin/stageprof"), "record", "--pid", str(pid), "--quiet", "--no-gpu", "--output", str(folder / "profile"),
             "--save", str(self.saved), "--ready-file", str(live), *options], stdout=subprocess.DEVNULL)
        wait_until(live.exists, self.process, "stageprof")

    def recording(self):
        """What it has recorded, once it has ended by itself."""
        if self.process.wait(PATIENCE):
            sys.exit(f"hostile: stageprof ended with status {self.process.returncode}")
        return load(self.saved)

    def stop(self):
        interrupt(self.process)
        return self.recording()


# What happens to the agent while the loop runs: a context around it.


@contextlib.contextmanager
def left_alone(_agent):
    yield


@contextlib.contextmanager
def stopped(agent):
    agent.process.send_signal(signal.SIGSTOP)
    yield
    agent.process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def killed(agent):
    killer = threading.Timer(0.2, agent.process.kill)
    killer.start()
    yield
    killer.join()
    agent.process.wait()


class Puppet:
    """A target that does what its standard input says (sim/testers/puppet.c)."""

    def __init__(self, folder, within, libraries):
        self.folder = folder
        env = dict(os.environ, SIMCUDA_TRUTH=str(folder / "truth"), SIMCUDA_LAUNCH_NS="2000")
        env.pop("STAGEPROF_READY", None)
        driver, markers = libraries
        self.process = subprocess.Popen([*within, str(TESTERS / "puppet"), "--driver", driver], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
        self.pid = self.process.pid
        self.said = []
        self.order("main markers " + markers, "main start w")

    def order(self, *orders):
        for order in orders:
            print(order, file=self.process.stdin, flush=True)
            while True:
                line = self.process.stdout.readline()
                if not line:
                    sys.exit(f"hostile: the target ended at {order!r}, having said {self.said}")
                self.said.append(line)
                if line.startswith("ok "):
                    break

    def calls(self, counted=COUNTED):
        self.order(f"main truth {self.folder / 'so-far'}")
        return truth(self.folder / "so-far", *counted)

    def end(self):
        self.process.stdin.close()
        self.said.append(self.process.stdout.read())
        self.process.wait()


class Outcome:
    """What came of a run."""

    def __init__(self, said, status, calls, recording, others=()):
        text = "".join(said)
        times = [tuple(map(int, t)) for t in TIMES.findall(text)]
        if not times:
            sys.exit(f"hostile: the target told no times: {text}")
        self.rounds = sum(t[0] for t in times)
        self.p50, self.p99, self.longest = (max(t[i] for t in times) for i in (1, 2, 3))
        # Process ids and times differ from run to run, and so may the order of threads.
        lines = sorted(re.sub(r"\d+", "#", line) for line in text.splitlines())
        self.conduct = (lines, status, sorted(calls.items()))
        if recording:
            calls.subtract(dict(others))
            self.counted = against_truth(recording, calls)


class Loop:
    """A loop of a puppet's."""

    def __init__(self, rounds, orders, setup=(), options=(), within=(), meddle=left_alone, children=0, counted=COUNTED):
        self.rounds, self.orders, self.setup, self.options, self.within = rounds, orders, setup, options, within
        self.meddle, self.children, self.counted = meddle, children, counted

    def run(self, folder, libraries, attach):
        puppet = Puppet(folder, self.within, libraries)
        puppet.order(*self.setup)
        before = puppet.calls(self.counted)
        agent = Agent(puppet.pid, folder, *self.options) if attach else None
        with self.meddle(agent) if agent else contextlib.nullcontext():
            puppet.order(f"w loop {self.rounds} {self.orders}")
        recording = agent.stop() if agent and self.meddle is not killed else None
        calls = puppet.calls(self.counted)
        calls.subtract(before)
        puppet.end()
        # The driver takes a child's calls in the target's memory for the target's.
        return Outcome(puppet.said, puppet.process.returncode, calls, recording, [("cuLaunchKernel", self.rounds * self.children)])


class Program:
    """A test program that does one thing and says how long that took."""

    def __init__(self, name, *options, preload=False):
        self.name, self.options, self.preload = name, options, preload

    def run(self, folder, libraries, attach):
        driver, markers = libraries
        go, said = folder / "go", folder / "said"
        go.unlink(missing_ok=True)
        env = dict(os.environ, STAGEPROF_READY=str(go), SIMCUDA_TRUTH=str(folder / "truth"), SIMCUDA_LAUNCH_NS="2000")
        options = ["--driver", driver, "--times", "1"]
        if self.preload:
            env["LD_PRELOAD"] = markers
        else:
            options += ["--markers", markers]
        with open(said, "w", encoding="utf-8") as out:
            process = subprocess.Popen([str(TESTERS / self.name), *options, *self.options], stdout=out, stderr=out, env=env)
        atexit.register(process.kill)  # if we fail
        wait_until(lambda: said.read_text(encoding="utf-8").startswith("up\n"), process, self.name)
        agent = Agent(process.pid, folder) if attach else None
        go.touch()
        process.wait()
        recording = agent.recording() if agent else None
        return Outcome([said.read_text(encoding="utf-8")], process.returncode, truth(folder / "truth"), recording)


class Reattached(Loop):
    """A loop to which recordings are attached one after the other, as long as it runs."""

    def run(self, folder, libraries, attach):
        puppet = Puppet(folder, self.within, libraries)
        before = puppet.calls()
        over = threading.Event()
        attaching = threading.Thread(target=self.attach, args=(puppet.pid, folder, over))
        if attach:
            attaching.start()
        puppet.order(f"w loop {self.rounds} {self.orders}")
        over.set()
        if attach:
            attaching.join()
        calls = puppet.calls()
        calls.subtract(before)
        puppet.end()
        return Outcome(puppet.said, puppet.process.returncode, calls, None)

    @staticmethod
    def attach(pid, folder, over):
        while not over.is_set():
            Agent(pid, folder, "--duration", "100ms").recording()


STAGE = "begin step; launch 100; end"
# After a longjmp the driver takes the launches that follow, from further down the stack, for inner ones of the call that was left.
TARGETS = {
    "100 launches in a stage": Loop(2000, STAGE),
    "signals inside calls": Loop(2000, "begin step; signal 20; end"),
    "a timer's signals all the while": Loop(1000, "begin step; storm 100; end"),
    "calls inside calls": Loop(2000, "begin step; nest 50; end"),
    "longjmp out of calls": Loop(2000, "begin step; abandon; launch 50; end", counted=(*COUNTED, "inner")),
    "a new name for every stage": Loop(2000, "ranges 50", setup=[f"main nvtx {TESTERS / 'libnvtx.so'}"],
                                       options=["--stages-from", "nvtx", "--probes", "launch"]),
    "stages 60 deep": Loop(2000, "deep 60; launch 50; end-to 0"),
    "forged markers": Program("forger", "--threads", "1", "--calls", "20000", preload=True),
    "threads that come and go": Program("churn", "--threads", "4000", "--at-once", "8", "--calls", "50"),
    "forks": Loop(200, "begin step; fork 10; launch 50; end"),
    "vforks": Loop(200, "begin step; vfork 10; launch 50; end", children=10),
    "20 000 mappings, and more": Loop(2000, "begin step; mappings 5; launch 50; end", setup=["main mappings 20000"]),
    "system calls filtered": Loop(2000, STAGE, setup=["main seccomp"]),
    "namespaces of its own": Loop(2000, STAGE, within=["unshare", "--user", "--map-root-user", "--mount"]),
    "the agent stopped": Loop(2000, STAGE, meddle=stopped),
    "the agent killed": Loop(2000, STAGE, meddle=killed),
    "attached to again and again": Reattached(10_000, STAGE),
}


def microseconds(values):
    return f"{median(values) / 1000:10.1f}"


def measure(name, target, folder, libraries):
    without, recorded = [], []
    for i in range(ROUNDS):
        for outcomes, attach in ((without, False), (recorded, True)):
            place = folder / f"{i}{attach}"
            place.mkdir()
            outcomes.append(target.run(place, libraries, attach))
    same = all(o.conduct == without[0].conduct for o in without + recorded)
    counted = sorted({o.counted for o in recorded if hasattr(o, "counted")}) or ["-"]
    print(f"{name:33}{without[0].rounds:8,}" +
          "".join(microseconds([getattr(o, figure) for o in outcomes]) for figure in ("p50", "p99", "longest")
                  for outcomes in (without, recorded)) +
          f"{'yes' if same else 'NO':>6}  {'; '.join(counted)}", flush=True)
    return same


def main():
    driver, markers = map(os.path.abspath, sys.argv[1:])
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
    print(f"Linux {os.uname().release}, {os.cpu_count()} CPUs; median of {ROUNDS} runs each")
    print(f"{'a round of the loop, in µs':33}{'':8}{'p50':>10}{'':>10}{'p99':>10}{'':>10}{'longest':>10}")
    print(f"{'':33}{'rounds':>8}" + 3 * f"{'without':>10}{'with':>10}" + f"{'same':>6}  calls, against the driver's")
    same = True
    with tempfile.TemporaryDirectory() as name:
        for i, (target, what) in enumerate(TARGETS.items()):
            folder = pathlib.Path(name) / str(i)
            folder.mkdir()
            same &= measure(target, what, folder, (driver, markers))
    print("same: what the target printed, how it ended and how often it called each function, with stageprof and without.")
    if not same:
        sys.exit("hostile: a target behaved differently")


if __name__ == "__main__":
    main()
