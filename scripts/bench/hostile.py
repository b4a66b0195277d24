#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The loops of hostile and unlucky targets, without stageprof and with it.

usage: hostile.py DRIVER MARKERS, both shared libraries; run by `make
bench-hostile`. Each target is run ROUNDS times (5) without and with, in turn; the
figures are medians. TARGET=TEXT measures those that have it in their names. What it prints, how it ends and what it calls must be the
same both times, and the calls that are reported are compared with the driver's.
A launch takes two microseconds, as it would on a GPU.
"""

import atexit
import contextlib
import functools
import itertools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

from bench import PATIENCE, TOP, wait_until
from counts import COUNTED, against_truth, load, median, truth

TESTERS = TOP / "build/sim/testers"
STAGEPROF = str(TOP / "bin/stageprof")
ROUNDS = int(os.environ.get("ROUNDS", "5"))
CHOSEN = os.environ.get("TARGET", "")  # part of a name, to measure some only
PRIORITY = 1  # a real-time one, of targets and agents alike: other work on the machine disturbs their loops less
TIMES = re.compile(r"rounds (\d+), p50 (\d+), p99 (\d+), longest (\d+)")


class Agent:
    """stageprof, recording a process."""

    def __init__(self, pid, folder, *options):
        self.pid, self.folder = pid, folder
        self.saved, live = folder / "recording", folder / "live"
        self.others = []  # what other agents have recorded meanwhile
        live.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [STAGEPROF, "record", "--pid", str(pid), "--quiet", "--no-gpu", "--output", str(folder / "profile"),
             "--save", str(self.saved), "--ready-file", str(live), *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        wait_until(live.exists, self.process, "stageprof")

    def recordings(self):
        """What it has recorded, and others, once it has ended by itself."""
        self.end(0)
        return [load(self.saved), *self.others]

    def end(self, status):
        said = self.process.communicate(timeout=PATIENCE)[1]
        if self.process.returncode != status:
            sys.exit(f"hostile: stageprof ended with status {self.process.returncode}: {said}")

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        return self.recordings()


# What happens to the agent while the loop runs: a context around it, which yields what
# becomes of the agent, nothing: it has a Recording.


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
    agent.end(-signal.SIGKILL)


@contextlib.contextmanager
def joined(agent):
    place = agent.folder / "other"
    place.mkdir()
    other = Agent(agent.pid, place)
    yield
    agent.others = other.stop()


@contextlib.contextmanager
def without_room(agent):
    yield
    agent.process.send_signal(signal.SIGINT)
    agent.end(1)


WITHOUT_RECORDING = (killed, without_room)


# What happens to the target's files, with an agent or without one: a context around the
# loop and the agent.


@contextlib.contextmanager
def nothing(_folder, _driver):
    yield


@contextlib.contextmanager
def again_and_again(act):
    """Acts all the while on the numbers from 0 on."""
    over = threading.Event()

    def go_on():
        for i in itertools.count():
            if over.wait(0.002):
                return
            act(i)

    acting = threading.Thread(target=go_on)
    acting.start()
    try:
        yield
    finally:
        over.set()
        acting.join()


@contextlib.contextmanager
def replaced(folder, driver):
    """The driver's file is another one each time, or none."""
    kept = folder / "kept"
    shutil.copy(driver, kept)

    def act(i):
        if i % 2:
            driver.unlink()
        else:
            shutil.copy(kept, folder / "next")
            os.replace(folder / "next", driver)

    with again_and_again(act):
        yield


@contextlib.contextmanager
def leading_elsewhere(folder, driver):
    """The driver's path is a link to the driver, to a copy, to a pipe, to a device, to itself, to nothing."""
    kept, twin, pipe = folder / "kept", folder / "twin", folder / "pipe"
    os.rename(driver, kept)
    shutil.copy(kept, twin)
    os.mkfifo(pipe)
    places = [kept, twin, pipe, "/dev/zero", "/proc/self/exe", driver, folder / "nothing"]

    def act(i):
        os.symlink(places[i % len(places)], folder / "next")
        os.replace(folder / "next", driver)

    with again_and_again(act):
        yield


@contextlib.contextmanager
def mounted(kind, *options):
    """A file system in a folder of its own, which is not among those that are removed with all that is in them."""
    folder = tempfile.mkdtemp()
    subprocess.run(["mount", "-t", kind, *options, kind, folder], check=True)
    try:
        yield pathlib.Path(folder)
    finally:
        subprocess.run(["umount", folder], check=True)
        os.rmdir(folder)


@contextlib.contextmanager
def full_disk(folder, _driver):
    """A disk without any room, which the link full leads to."""
    with mounted("tmpfs", "-o", "size=64k") as disk:
        (folder / "full").symlink_to(disk)
        with contextlib.suppress(OSError), open(disk / "filler", "wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
        yield


@contextlib.contextmanager
def traced(_folder, driver):
    """The kernel's own tracing of two functions, as perf's is, where they begin and where they return."""
    group = "stageprof_bench"
    with mounted("tracefs") as tracing:
        def write(name, text):
            file = os.open(tracing / name, os.O_WRONLY | os.O_APPEND)  # which can't be sought in
            try:
                os.write(file, text.encode())
            finally:
                os.close(file)

        for name, address in addresses(driver, "cuLaunchKernel", "cuStreamQuery").items():
            write("uprobe_events", f"p:{group}/{name}_entry {driver}:{address:#x}")
            write("uprobe_events", f"r:{group}/{name}_return {driver}:{address:#x}")
        write(f"events/{group}/enable", "1")
        try:
            yield
        finally:
            write(f"events/{group}/enable", "0")
            write("uprobe_events", f"-:{group}/")


def addresses(driver, *functions):
    """Of functions in the simulated driver's file, where they are the offsets, too."""
    out = subprocess.run(["nm", "-D", driver], check=True, capture_output=True, text=True).stdout
    return {name: int(address, 16) for address, name in re.findall(r"^(\w+) T (\w+)$", out, re.M) if name in functions}


@functools.cache
def large_driver(folder):
    """A library with a hundred thousand functions, all of a driver's names."""
    functions = ["cuInit", "cuLaunchKernel", *(f"cuFunction{i}" for i in range(100_000))]
    source, library = folder / "large.s", folder / "liblarge.so"
    source.write_text(".text\n" + "".join(f".globl {f}\n.type {f},@function\n{f}: ret\n.size {f},1\n" for f in functions) +
                      '.section .note.GNU-stack,"",@progbits\n', encoding="ascii")
    subprocess.run(["gcc", "-shared", "-nostdlib", "-o", library, source], check=True)
    return library


class Puppet:
    """A target that does what its standard input says (sim/testers/puppet.c)."""

    def __init__(self, folder, within, libraries):
        self.folder, self.root = folder, ""
        env = dict(os.environ, SIMCUDA_TRUTH=str(folder / "truth"), SIMCUDA_LAUNCH_NS="2000")
        env.pop("STAGEPROF_READY", None)
        driver, markers = libraries
        self.process = subprocess.Popen([*within, str(TESTERS / "puppet"), "--driver", driver], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
        atexit.register(self.process.kill)  # if we fail
        self.said = []
        self.order("main markers " + str(markers), "main start w")
        self.pid = self.process.pid if "--fork" not in within else only_child(self.process.pid)

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

    def change_root(self, root):
        (root / str(self.folder).lstrip("/")).mkdir(parents=True)  # for what is written
        self.order(f"main chroot {root}")
        self.root = str(root)

    def calls(self, counted=COUNTED):
        self.order(f"main truth {self.folder / 'so-far'}")
        return truth(f"{self.root}{self.folder}/so-far", *counted)

    def end(self):
        self.process.stdin.close()
        self.said.append(self.process.stdout.read())
        self.process.wait()


def only_child(pid):
    return int(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii"))


class Outcome:
    """What came of a run."""

    def __init__(self, said, status, calls, recordings, others=()):
        text = "".join(said)
        times = [tuple(map(int, t)) for t in TIMES.findall(text)]
        if not times:
            sys.exit(f"hostile: the target told no times: {text}")
        self.rounds = sum(t[0] for t in times)
        self.p50, self.p99, self.longest = (max(t[i] for t in times) for i in (1, 2, 3))
        # Process ids and times differ from run to run, and so may the order of threads.
        lines = sorted(re.sub(r"\d+", "#", line) for line in text.splitlines())
        self.conduct = (lines, status, sorted(calls.items()))
        if recordings:
            calls.subtract(dict(others))
            self.counted = "; ".join(sorted({against_truth(r, calls) for r in recordings}))


class Loop:
    """A loop of a puppet's."""

    def __init__(self, rounds, orders, setup=(), options=(), within=(), meddle=left_alone, unrest=nothing, chroot=False,
                 children=0, counted=COUNTED):
        self.rounds, self.orders, self.setup, self.options, self.within = rounds, orders, setup, options, within
        self.meddle, self.unrest, self.chroot, self.children, self.counted = meddle, unrest, chroot, children, counted

    def run(self, folder, libraries, attach):
        driver = folder / "libcuda.so.1"  # a copy of its own
        shutil.copy(libraries[0], driver)
        puppet = Puppet(folder, self.within, (driver, libraries[1]))
        puppet.order(*self.setup)
        if self.chroot:
            puppet.change_root(folder / "root")
        before = puppet.calls(self.counted)
        with self.unrest(folder, driver):
            recordings = self.go_round(puppet, folder, attach)
        calls = puppet.calls(self.counted)
        calls.subtract(before)
        puppet.end()
        # The driver takes a child's calls in the target's memory for the target's.
        return Outcome(puppet.said, puppet.process.returncode, calls, recordings, [("cuLaunchKernel", self.rounds * self.children)])

    def go_round(self, puppet, folder, attach):
        """Runs the loop; returns what was recorded of it."""
        agent = Agent(puppet.pid, folder, *(o.format(folder=folder) for o in self.options)) if attach else None
        with self.meddle(agent) if agent else contextlib.nullcontext():
            puppet.order(f"w loop {self.rounds} {self.orders}")
        return agent.stop() if agent and self.meddle not in WITHOUT_RECORDING else []


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
        recordings = agent.recordings() if agent else []
        return Outcome([said.read_text(encoding="utf-8")], process.returncode, truth(folder / "truth"), recordings)


class Reattached(Loop):
    """A loop to which recordings are attached one after the other, as long as it runs."""

    def go_round(self, puppet, folder, attach):
        over = threading.Event()
        attaching = threading.Thread(target=self.attach, args=(puppet.pid, folder, over))
        if attach:
            attaching.start()
        puppet.order(f"w loop {self.rounds} {self.orders}")
        over.set()
        if attach:
            attaching.join()
        return []

    def attach(self, pid, folder, over):
        while not over.is_set():
            Agent(pid, folder, "--duration", "100ms").end(0)


class Starved(Reattached):
    """The same by agents that have too little of something, and fail, or too little for a part of what they do."""

    LIMITS = [f"--nofile={n}" for n in (16, 32, 64)] + [f"--as={n << 20}" for n in (700, 1024, 2048)]

    def attach(self, pid, folder, over):
        for limit in itertools.cycle(self.LIMITS):
            if over.is_set():
                return
            subprocess.run(["prlimit", limit, STAGEPROF, "record", "--pid", str(pid), "--quiet", "--no-gpu", "--duration", "100ms",
                            "--output", str(folder / "profile")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


STAGE = "begin step; launch 100; end"
NAMESPACES = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc", "--time", "--monotonic", "86400"]


def targets(folder):
    nvtx, functions = f"main nvtx {TESTERS / 'libnvtx.so'}", f"main library {TESTERS / 'libfunctions.so'}"
    return {
        "100 launches in a stage": Loop(2000, STAGE),
        "signals inside calls": Loop(2000, "begin step; signal 20; end"),
        "a timer's signals all the while": Loop(1000, "begin step; storm 100; end"),
        "calls inside calls": Loop(2000, "begin step; nest 50; end"),
        # The driver takes the launches that follow such calls, from further down the stack, for inner ones of theirs.
        "longjmp out of calls": Loop(2000, "begin step; abandon; launch 50; end", counted=(*COUNTED, "inner")),
        "exceptions out of calls": Loop(2000, "begin step; throw-back 10; launch 50; end", setup=[functions], counted=(*COUNTED, "inner")),
        "threads that end inside calls": Loop(500, "begin step; leavers 5; launch 50; end"),
        "a new name for every stage": Loop(2000, "ranges 50", setup=[nvtx], options=["--stages-from", "nvtx", "--probes", "launch"]),
        "names that act on terminals": Loop(2000, "push \x1b[2J\x1b[31mred; launch 50; pop; push =cmd|'/c calc'!A1; launch 50; pop",
                                            setup=[nvtx], options=["--stages-from", "nvtx"]),
        "stages 60 deep": Loop(2000, "deep 60; launch 50; end-to 0"),
        "forged markers": Program("forger", "--threads", "1", "--calls", "20000", preload=True),
        "threads that come and go": Program("churn", "--threads", "4000", "--at-once", "8", "--calls", "50"),
        "forks": Loop(200, "begin step; fork 10; launch 50; end"),
        "vforks": Loop(200, "begin step; vfork 10; launch 50; end", children=10),
        "children that execute a program": Loop(200, "begin step; spawn; launch 50; end"),
        "20 000 mappings, and more": Loop(2000, "begin step; mappings 5; launch 50; end", setup=["main mappings 20000"]),
        "a driver of 100 000 functions": Loop(2000, STAGE, setup=[f"main library {large_driver(folder)}"]),
        "the driver's file replaced": Loop(2000, STAGE, unrest=replaced),
        "its path leading elsewhere": Loop(2000, STAGE, unrest=leading_elsewhere),
        "system calls filtered": Loop(2000, STAGE, setup=["main seccomp"]),
        "namespaces of its own": Loop(2000, STAGE, within=NAMESPACES),
        "another root folder": Loop(2000, STAGE, chroot=True),
        "the agent stopped": Loop(2000, STAGE, meddle=stopped),
        "400 000 calls/s, agent stopped": Loop(500, "begin step; poll 4000 400000; end", meddle=stopped),
        "the agent killed": Loop(2000, STAGE, meddle=killed),
        "two agents": Loop(2000, STAGE, meddle=joined),
        "another tool's probes": Loop(2000, STAGE, unrest=traced),
        "the agent's disk full": Loop(2000, STAGE, unrest=full_disk, meddle=without_room,
                                      options=["--output", "{folder}/full/profile", "--save", "{folder}/full/recording"]),
        "attached to again and again": Reattached(10_000, STAGE),
        "by agents short of something": Starved(10_000, STAGE),
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
        for i, (target, what) in enumerate(targets(pathlib.Path(name)).items()):
            if CHOSEN not in target:
                continue
            folder = pathlib.Path(name) / str(i)
            folder.mkdir()
            same &= measure(target, what, folder, (driver, markers))
    print("same: what the target printed, how it ended and how often it called each function, with stageprof and without.")
    if not same:
        sys.exit("hostile: a target behaved differently")


if __name__ == "__main__":
    main()
