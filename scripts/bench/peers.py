#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What other tools cost the same training pipeline, and what they say of it.

usage: peers.py DRIVER, the simulated one; run by `make bench-peers`, which names
py-spy in PY_SPY. Each tool gets a run of the pipeline of its own, all in turn,
ROUNDS times. The pipeline does a fixed number of iterations with kernels that
take no time, so that its speed is that of its own threads. What a tool costs is
the median of its ratios to the unprobed run of the same round; what it says of all
rounds is compared with the driver's truth and the pipeline's own clock.
A tool that this machine lacks is skipped by name.
"""

import atexit
import collections
import contextlib
import ctypes
import json
import os
import pathlib
import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile

from bench import TOP, interrupt, wait_until
from counts import compared, load, median, recorded, truth
from pyspy import tally

PIPELINE = TOP / "sim/pipeline.py"
ITERATIONS = 600  # of each of two target loops
ROUNDS = 5
PRIORITY = -15  # of the pipeline and the tools alike: other work on the machine disturbs them less
RATE = 100  # py-spy's samples per second
BREAKPOINT = 0xCC
PLACE = "place_of_"  # begins the names of symbols where stageprof probes
PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}


class Run:
    """One run of the pipeline."""

    def __init__(self, folder, driver):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=folder))
        self.driver = driver
        env = dict(os.environ, PYTHONPATH=str(TOP / "build/python"))
        files = {name: str(self.folder / name) for name in ("ready", "exit", "pid", "stats", "truth")}
        self.process = subprocess.Popen(
            [sys.executable, str(PIPELINE), "--copy", "async", "--kernel-us", "0", "--iterations", str(ITERATIONS), "--driver", driver,
             "--ready-file", files["ready"], "--exit-file", files["exit"], "--announce-pid", files["pid"],
             "--stats-json", files["stats"], "--truth-json", files["truth"]], stdout=subprocess.PIPE, text=True, env=env)
        atexit.register(self.process.kill)  # if we fail
        self.pid = self.process.pid
        self.wait_until((self.folder / "pid").exists, "the pipeline")

    def wait_until(self, condition, what):
        wait_until(condition, self.process, what)

    def go(self):
        """Lets it do its iterations."""
        (self.folder / "ready").touch()
        self.wait_until((self.folder / "stats").exists, "the pipeline's end")

    def leave(self):
        (self.folder / "exit").touch()
        self.process.communicate()
        if self.process.returncode:
            sys.exit(f"peers: the pipeline ended with status {self.process.returncode}")
        stats = json.loads((self.folder / "stats").read_text(encoding="utf-8"))
        self.seconds = stats["elapsed_s"]
        self.forward = sorted(n for s in stats["stages"] if s["stage_path"] == "target_forward" for n in s["each_ns"])
        self.own = collections.Counter()  # time in each stage and in none inside it, by the pipeline's clock
        for s in stats["stages"]:
            *outer, name = s["stage_path"].split("/")
            self.own[name] += s["total_ns"]
            if outer:
                self.own[outer[-1]] -= s["total_ns"]
        self.calls, self.driver_time = truth(self.folder / "truth"), truth(self.folder / "truth", "wall_ns")
        self.staged = collections.Counter()  # time in the driver by stage
        for row in json.loads((self.folder / "truth").read_text(encoding="utf-8"))["rows"]:
            self.staged[row["tag"].split("/")[-1]] += row["wall_ns"]

    def probed(self, places):
        """Whether there is a breakpoint on each of these addresses in the driver."""
        with open(f"/proc/{self.pid}/maps", encoding="ascii") as maps:
            base = next(int(line.split("-")[0], 16) for line in maps if line.rstrip().endswith(os.path.realpath(self.driver)))
        with open(f"/proc/{self.pid}/mem", "rb") as memory:
            for place in places:
                memory.seek(base + place)
                if memory.read(1)[0] != BREAKPOINT:
                    return False
        return True


class Site:
    """A driver function: its address in the file, which in this driver is the offset, too, and where stageprof probes it."""

    def __init__(self, address, offset):
        self.address = address
        self.offset = offset


def addresses(driver):
    out = subprocess.run(["nm", "-D", driver], check=True, capture_output=True, text=True).stdout
    return {name: int(address, 16) for address, name in re.findall(r"^(\w+) [TW] (\w+)$", out, re.M)}


# Each tool is a context around the pipeline's iterations. It yields a dictionary that afterwards holds what it says: "calls"
# and "driver", nanoseconds, by function; "staged", the same by stage; "stages", nanoseconds in each stage.


@contextlib.contextmanager
def unprobed(_run, _sites):
    yield {}


@contextlib.contextmanager
def stageprof(run, _sites):
    saved, live = run.folder / "recording", run.folder / "live"
    agent = subprocess.Popen(
        [str(TOP / "bin/stageprof"), "record", "--pid", str(run.pid), "--quiet", "--no-gpu", "--output", str(run.folder / "profile"),
         "--save", str(saved), "--ready-file", str(live)], stdout=subprocess.DEVNULL)
    wait_until(live.exists, agent, "stageprof")
    said = {}
    yield said
    interrupt(agent)
    recording = load(saved)
    names = [path.get("names") or [""] for path in recording["paths"]]
    said.update(recording=recording, calls=recorded(recording), driver=collections.Counter(), staged=collections.Counter(),
                stages=collections.Counter())
    for call in recording["calls"]:
        symbol = recording["symbols"][call["symbol"]]
        wall = call["wall_ns"] - min(call["wall_ns"], call["count"] * symbol["bias_ns"])
        said["driver"][symbol["name"]] += wall
        said["staged"][names[call["path"]][-1]] += wall
    for stage in recording["stages"]:
        if recording["paths"][stage["path"]].get("names"):
            said["stages"][names[stage["path"]][-1]] += sum(stage["parts"].values())


def two_probes(sites, driver, prefix=""):
    return "".join(
        f"uprobe:{driver}:{prefix}{name} {{ @begin[tid] = nsecs; }}\n"
        f"uretprobe:{driver}:{prefix}{name} /@begin[tid]/ {{ @calls[\"{name}\"] = count(); @driver[\"{name}\"] = sum(nsecs - @begin[tid]); "
        f"delete(@begin[tid]); }}\n" for name in sites)


def two_probes_at_places(sites, driver):
    return two_probes(sites, driver, PLACE)


def bpftrace(script, place):
    @contextlib.contextmanager
    def traced(run, sites):
        out = run.folder / "bpftrace"
        # On stderr it complains of limits and files that it can do without.
        with open(out, "w", encoding="utf-8") as stdout:
            tracer = subprocess.Popen(["bpftrace", "--unsafe", "-p", str(run.pid), "-e", script(sites, run.driver)],
                                      stdout=stdout, stderr=subprocess.DEVNULL)
        # It does not say when its probes are live; the code does.
        wait_until(lambda: run.probed(site.address + place(site) for site in sites.values()), tracer, "bpftrace")
        said = {}
        yield said
        interrupt(tracer)
        for name in ("calls", "driver"):
            found = re.findall(rf"@{name}\[(\w+)\]: (\d+)", out.read_text(encoding="utf-8"))
            if found:
                said[name] = collections.Counter({function: int(n) for function, n in found})
    return traced


def perf_events(place):
    """Counting events of the kernel's uprobe source, one for each function and thread."""
    @contextlib.contextmanager
    def counted(run, sites):
        files = {name: [perf_event(run, tid, site.address + place(site)) for tid in map(int, os.listdir(f"/proc/{run.pid}/task"))]
                 for name, site in sites.items()}
        said = {}
        yield said
        said["calls"] = collections.Counter(
            {name: sum(struct.unpack("Q", os.read(fd, 8))[0] for fd in fds) for name, fds in files.items()})
        for fds in files.values():
            for fd in fds:
                os.close(fd)
    return counted


def perf_event(run, tid, offset):
    libc = ctypes.CDLL(None, use_errno=True)
    kind = int(pathlib.Path("/sys/bus/event_source/devices/uprobe/type").read_text())
    path = ctypes.create_string_buffer(os.path.realpath(run.driver).encode())
    # struct perf_event_attr: its type, its size, no configuration, no period, nothing sampled, one value to read, inherited by new
    # threads, no wake-ups; the file, and where in it.
    size, inherited = 112, 1 << 1
    attributes = struct.pack("IIQQQQQIIQQ", kind, size, 0, 0, 0, 0, inherited, 0, 0, ctypes.addressof(path), offset).ljust(size, b"\0")
    fd = libc.syscall(PERF_EVENT_OPEN[platform.machine()], attributes, tid, -1, -1, 0)
    if fd < 0:
        sys.exit(f"peers: opening a perf event: {os.strerror(ctypes.get_errno())}")
    return fd


def py_spy(*options):
    @contextlib.contextmanager
    def sampled(run, sites):
        raw, out = run.folder / "raw", run.folder / "py-spy"
        with open(out, "w", encoding="utf-8") as stdout:
            sampler = subprocess.Popen(
                [os.environ["PY_SPY"], "record", "--pid", str(run.pid), "--rate", str(RATE), "--idle", "--format", "raw", "--output", str(raw),
                 *options], stdout=stdout, stderr=subprocess.STDOUT)
        wait_until(lambda: "Sampling process" in out.read_text(encoding="utf-8"), sampler, "py-spy")
        said = {}
        yield said
        interrupt(sampler)
        stages, staged, driver = tally(raw.read_text(encoding="utf-8"), PIPELINE, os.path.basename(run.driver), sites)
        each = 1e9 / RATE
        for name, samples in (("stages", stages), ("staged", staged), ("driver", driver)):
            if samples:
                said[name] = collections.Counter({key: n * each for key, n in samples.items()})
    return sampled


def start(_site):
    return 0


def our_place(site):
    return site.offset


def available():
    """The tools by name; says which are skipped."""
    tools = {"unprobed": unprobed, "stageprof": stageprof}
    if shutil.which("bpftrace"):
        tools["bpftrace, two probes"] = bpftrace(two_probes, start)
        tools["bpftrace, two at our place"] = bpftrace(two_probes_at_places, our_place)
    else:
        print("skipped: bpftrace, which is not installed")
    if os.path.exists("/sys/bus/event_source/devices/uprobe/type") and platform.machine() in PERF_EVENT_OPEN:
        tools["perf events, entries"] = perf_events(start)
        tools["perf events, entries at our place"] = perf_events(our_place)
    else:
        print("skipped: perf events, of which the kernel has none for user probes")
    if os.environ.get("PY_SPY"):
        tools["py-spy"] = py_spy()
        tools["py-spy --nonblocking"] = py_spy("--nonblocking")
        tools["py-spy --native"] = py_spy("--native")
    else:
        print("skipped: py-spy, which is not installed")
    return tools


def points(said, true):
    """The largest error of a part's share of the whole, in points."""
    if not said:
        return "-"
    ours, whole = sum(said.values()), sum(true.values())
    return f"{100 * max(abs(said.get(name, 0) / ours - n / whole) for name, n in true.items()):.1f}"


def total(said, true):
    """The error of the sum, in per cent."""
    return f"{100 * (sum(said.values()) / sum(true.values()) - 1):+.1f} %" if said else "-"


def first_look(folder, driver):
    """The functions that the pipeline calls, and where stageprof probes them."""
    run = Run(folder, driver)
    with stageprof(run, {}) as said:
        run.go()
    run.leave()
    offsets = {symbol["name"]: symbol["probe_offset"] for symbol in said["recording"]["symbols"]}
    address = addresses(driver)
    return {name: Site(address[name], offsets[name]) for name, n in sorted(run.calls.items()) if n and name in offsets}


def with_places(driver, sites, folder):
    """A copy of the driver that has symbols where stageprof probes it: bpftrace takes no offsets, unless it was built for that."""
    copy = os.path.join(folder, os.path.basename(driver))
    sections = subprocess.run(["readelf", "-SW", driver], check=True, capture_output=True, text=True).stdout
    text = int(re.search(r" \.text +PROGBITS +(\w+)", sections)[1], 16)
    symbols = [f"--add-symbol={PLACE}{name}=.text:{site.address + site.offset - text},function" for name, site in sites.items()]
    subprocess.run(["objcopy", *symbols, driver, copy], check=True)
    give_size(copy)
    return copy


def give_size(library):
    """Makes our symbols a byte long: bpftrace takes none without a size, and objcopy makes no others."""
    data = bytearray(pathlib.Path(library).read_bytes())
    section_headers, = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, section_headers + i * size) for i in range(count)]
    for _, kind, _, _, offset, length, link, _, _, entry in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        for symbol in range(offset, offset + length, entry):
            name, = struct.unpack_from("<I", data, symbol)
            if data.startswith(PLACE.encode(), sections[link][4] + name):
                struct.pack_into("<Q", data, symbol + 16, 1)
    pathlib.Path(library).write_bytes(data)


def print_costs(runs):
    print(f"{'cost to the pipeline':36}{'iterations/s':>13}{'ratio':>7}{'forward, p50':>14}{'ratio':>7}{'p99, ms':>9}")
    for name, all_rounds in runs.items():
        slower = median([run.seconds / base.seconds for (run, _), (base, _) in zip(all_rounds, runs["unprobed"])])
        p50 = [run.forward[len(run.forward) // 2] for run, _ in all_rounds]
        longer = median([n / base.forward[len(base.forward) // 2] for n, (base, _) in zip(p50, runs["unprobed"])])
        rate = median([2 * ITERATIONS / run.seconds for run, _ in all_rounds])
        p99 = median([run.forward[(len(run.forward) - 1) * 99 // 100] for run, _ in all_rounds])
        print(f"{name:36}{rate:13.1f}{1 / slower:7.2f}{median(p50) / 1e6:11.2f} ms{longer:7.2f}{p99 / 1e6:9.2f}")


def summed(counters):
    return sum(counters, collections.Counter())


def print_reports(runs, sites):
    print(f"{'what it says, against the truth':36}{'calls':>10}{'driver time':>13}{'by function':>13}{'by stage':>10}{'stages':>8}")
    for name, all_rounds in runs.items():
        said = {what: summed(s[what] for _, s in all_rounds if what in s) for what in ("calls", "driver", "staged", "stages")}
        if not any(said.values()):
            continue
        calls, driver, staged, own = (summed(getattr(run, what) for run, _ in all_rounds) for what in ("calls", "driver_time", "staged", "own"))
        print(f"{name:36}{compared(said['calls'], {f: calls[f] for f in sites}) if said['calls'] else '-':>10}{total(said['driver'], driver):>13}"
              f"{points(said['driver'], driver):>13}{points(said['staged'], staged):>10}{points(said['stages'], own):>8}")


def main():
    driver = os.path.abspath(sys.argv[1])
    os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    tools = available()
    runs = {name: [] for name in tools}
    with tempfile.TemporaryDirectory() as folder:
        sites = first_look(folder, driver)
        driver = with_places(driver, sites, folder)
        for _ in range(ROUNDS):
            for name, tool in tools.items():
                run = Run(folder, driver)
                with tool(run, sites) as said:
                    run.go()
                run.leave()
                runs[name].append((run, said))
    base = runs["unprobed"][-1][0]
    print(f"sim/pipeline.py, 2 x {ITERATIONS} iterations, {sum(base.calls.values()):,} calls of {len(sites)} functions; "
          f"{ROUNDS} rounds, Linux {os.uname().release}, {os.cpu_count()} CPUs")
    print_costs(runs)
    print("ratio: the median of a round's ratios to its unprobed run; forward: a target loop's, of some 66 calls.")
    print_reports(runs, sites)
    print("calls: of each function. driver time: the error of its sum. By function, by stage: the largest error of a share of it.")
    print("stages: the same of the time in stages, against the pipeline's clock. All in points; -: says nothing of it.")


if __name__ == "__main__":
    main()
