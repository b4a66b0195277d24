#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What recording costs the agent as its target grows: in threads, in stage paths,
and in time; and its CPU at 100 000 calls a second.

usage: scale.py DRIVER LOOP MARKERS, all shared libraries; run by `make
bench-scale`. Each row is one recording of a test program's whole work, of which
the calls are compared with the driver's truth.

Time is accelerated: the program does nothing but what a training loop does in so
many minutes (ten iterations a second of eight stages, some fifty calls), as fast
as it can.
"""

import atexit
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from bench import PATIENCE, RATE, TOP, Target, overhead, stageprof, wait_until
from counts import against_truth, load, truth

TESTERS = TOP / "build/sim/testers"
OPERATIONS = 400_000  # of a target, whatever its threads and stages
ITERATIONS = 10  # a second
STAGES = 8
MIB = 1 << 20


def memory(pid):
    """Resident MiB of a process: all, what no file backs, and the most that it had. None once it has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            fields = dict(line.split(":", 1) for line in f)
        return tuple(int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon", "VmHWM"))
    except (OSError, KeyError):
        return None


class Usage:
    """A process's memory while it runs, and what it has used in the end."""

    def __init__(self, process, until):
        """until: what ends the part of the run that `resident` and `own` are of."""
        self.resident = self.own = self.peak = 0
        while True:
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            now = memory(process.pid)
            if now and not until():
                self.resident, self.own = max(self.resident, now[0]), max(self.own, now[1])
            if now:
                self.peak = now[2]
            time.sleep(0.02)
        process.returncode = status  # 0 or not
        self.cpu = used.ru_utime + used.ru_stime


def record(folder, command, probes):
    """The Recording of a test program's whole work, and what making it has used."""
    go, live, saved, said = (folder / name for name in ("go", "live", "recording", "said"))
    for path in (go, live):
        path.unlink(missing_ok=True)
    env = dict(os.environ, STAGEPROF_READY=str(go), SIMCUDA_TRUTH=str(folder / "truth"))
    with open(said, "w", encoding="utf-8") as stdout:
        target = subprocess.Popen(command, env=env, stdout=stdout)
    atexit.register(target.kill)  # if we fail
    wait_until(lambda: said.read_text(encoding="utf-8").startswith("up\n"), target, command[0])
    agent = subprocess.Popen(
        [str(TOP / "bin/stageprof"), "record", "--pid", str(target.pid), "--quiet", "--no-gpu", "--probes", probes,
         "--output", str(folder / "profile"), "--save", str(saved), "--ready-file", str(live)], stdout=subprocess.DEVNULL)
    wait_until(live.exists, agent, "stageprof")
    go.touch()
    usage = Usage(agent, until=lambda: target.poll() is not None)
    if target.wait(PATIENCE) or agent.returncode:
        sys.exit(f"scale: the target ended with status {target.returncode}, stageprof with {agent.returncode}")
    return load(saved), saved.stat().st_size, usage


def row(name, folder, tester, *options, probes="default"):
    command = [str(TESTERS / tester), *map(str, options)]
    recording, size, usage = record(folder, command, probes)
    calls = sum(call["count"] for call in recording["calls"])
    seconds = recording["window"]["duration_ns"] / 1e9
    cpu = recording["overhead"]["agent_cpu_ns"] / 1e9
    print(f"{name:18}{calls:12,}{against_truth(recording, truth(folder / 'truth')):>8}{seconds:8.1f}{100 * cpu / seconds:8.2f}"
          f"{1e9 * cpu / calls:9.1f}{usage.resident:10.1f}{usage.own:8.1f}{usage.peak:8.1f}{usage.cpu:9.2f}{len(recording['calls']):9,}"
          f"{len(recording['stages']):9,}{size / 1024:9,.0f}", flush=True)


def main():
    driver, loop, markers = sys.argv[1:]
    print(f"Linux {os.uname().release}, {os.cpu_count()} CPUs", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        target = Target(driver, loop, markers)
        with stageprof(target, folder) as recording:
            target.ask("paced", RATE, 10)
        target.close()
        print(overhead(recording))
        print(f"{'':18}{'':12}{'to':>8}{'window,':>8}{'agent,':>8}{'ns per':>9}{'resident':>10}{'own':>8}{'peak':>8}{'CPU in':>9}{'rows of':>9}"
              f"{'rows of':>9}{'file,':>9}")
        print(f"{'':18}{'calls':>12}{'truth':>8}{'s':>8}{'% CPU':>8}{'call':>9}{'MiB':>10}{'MiB':>8}{'MiB':>8}{'all, s':>9}{'calls':>9}"
              f"{'stages':>9}{'KiB':>9}")
        marked = ("--markers", markers)
        for threads in (1, 8, 64, 512):
            row(f"{threads} threads", folder, "calls", "--threads", threads, "--calls", OPERATIONS // threads,
                "--stages", 3, "--per-stage", 50, *marked)
        for n in (1, 10, 63):
            row(f"{n * n + n} stage paths", folder, "flood", "--outer", n, "--inner", n, "--rounds", OPERATIONS // (n * n), *marked,
                probes="launch")
        for minutes in (1, 10, 60, 360):
            steps = minutes * 60 * ITERATIONS
            row(f"{minutes} min", folder, "calls", "--stages", STAGES, "--per-stage", 4, "--calls", steps * STAGES * 4, *marked)
    print("% CPU, ns per call, resident, own (what no file backs): the agent's, while the target calls; the last two at most.")
    print("peak, CPU in all: of the whole command, with attaching and writing its files. file: the saved Recording.")


if __name__ == "__main__":
    main()
