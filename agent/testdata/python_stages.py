# SPDX-License-Identifier: Apache-2.0
"""Calls the driver from Python functions of which some are stages, and tags each call in the driver's
truth with the stage that it belongs to, by Python's own account of its stack.

    python_stages.py DRIVER ROUNDS MARKERS SITES

MARKERS is the marker library, SITES "functions" or "deep". Stages are the functions that have
"stage" in their qualified names.
"""
import asyncio
import contextlib
import ctypes
import os
import sys
import threading
import time

DEEPEST = 128  # frames that are looked at
LONGEST = 127  # bytes of a name

path, rounds, markers_file, what = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
driver, markers = ctypes.CDLL(path), ctypes.CDLL(markers_file)
held = ctypes.PyDLL(path)
number = ctypes.byref(ctypes.c_int())
local = threading.local()


def marked():
    """The thread's open stages: name, and the frame of the function that each has begun in."""
    if not hasattr(local, "marked"):
        local.marked = []
    return local.marked


def name_of(frame):
    """Its qualified name, as far as it is looked at: what is no character is replaced."""
    code = frame.f_code
    name = getattr(code, "co_qualname", code.co_name)
    name = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in name)
    return name.encode()[:LONGEST].decode("utf-8", "ignore")


def innermost(frame):
    """The innermost frame of a function that is a stage, None if there is none among those looked at."""
    for _ in range(DEEPEST):
        if frame is None or "stage" in name_of(frame):
            return frame
        frame = frame.f_back
    return None


def call(function, *arguments):
    names = [name for name, _ in marked()]
    frame = innermost(sys._getframe(0))  # this one is one of those that are looked at
    if frame is not None and not (marked() and marked()[-1][1] is frame):
        names.append(name_of(frame) + "()")
    driver.simcuda_tag("/".join(names).encode())
    function(*arguments)


def query():
    call(held.cuStreamQuery, None)


def version():
    call(driver.cuDriverGetVersion, number)


def begin(name):
    marked().append((name, innermost(sys._getframe(0))))
    markers.stageprof_begin(name.encode())


def end():
    marked().pop()
    markers.stageprof_end()


@contextlib.contextmanager
def mark(name):
    begin(name)
    try:
        yield
    finally:
        end()


def plain():
    query()


def stage_plain():
    query()
    plain()
    version()


def stage_nested():
    version()
    stage_plain()
    plain()
    version()


def stage_recursion(depth):
    query()
    if depth:
        stage_recursion(depth - 1)
    version()


def recursion(depth):
    if depth:
        recursion(depth - 1)
    version()


def stage_above():
    for depth in (1, 30, 100):
        recursion(depth)


def stage_too_far():
    recursion(150)


def stage_generator():
    for _ in range(3):
        query()
        yield version()


def generators():
    for _ in stage_generator():
        version()
    a, b = stage_generator(), stage_generator()
    for _ in zip(a, b):
        query()


async def stage_coroutine():
    version()
    await asyncio.sleep(0)
    query()


async def other_coroutine():
    query()
    await asyncio.sleep(0)
    version()


async def tasks():
    await asyncio.gather(stage_coroutine(), other_coroutine(), stage_coroutine())


def asynchronous():
    asyncio.run(tasks())


class Stages:
    def stage_method(self):
        version()
        self.method()

    def method(self):
        query()

    @property
    def stage_property(self):
        return query()

    def __del__(self):
        query()


def methods():
    stages = Stages()
    stages.stage_method()
    stages.method()
    stages.stage_property
    del stages


def lambdas():
    (lambda: query())()
    stage = lambda: version()
    stage()
    [version() for _ in range(2)]


def renamed(name, function=plain):
    """The same function under another name, which may be none that the language allows."""
    changes = {"co_name": name}
    if hasattr(function.__code__, "co_qualname"):
        changes["co_qualname"] = name
    return type(function)(function.__code__.replace(**changes), globals())


NAMES = [renamed(name) for name in (
    "größe_stage", "stage_文件", "\U0001F680stage", "stage_\udc80", "x" * 122 + "_stage", "stage" * 40,
    "ä" * 62 + "stage", "ä" * 58 + "_stage", "stage_" + "文" * 60, "keine_größe", "文件", "a stage/b",
)]


def texts():
    for function in NAMES:
        function()


def remade():
    """Functions come and go at the same places in memory, stages and others."""
    for i in range(60):
        name = ("stage_%d" if i % 2 else "other_%d") % (i % 5)
        source = "def %s():\n    query()\n" % name
        namespace = {"query": query}
        exec(source, namespace)
        namespace[name]()


def stage_around_marked():
    version()
    with mark("marked"):
        query()
        stage_plain()
        plain()
        with mark("inner"):
            version()
            stage_nested()
    version()


def mixed():
    with mark("outer"):
        version()
        stage_plain()
        stage_around_marked()
        generators()
    begin("begun")
    stage_recursion(2)
    version()
    end()


def functions():
    for _ in range(rounds):
        for site in (plain, stage_plain, stage_nested, lambda: stage_recursion(5), stage_above, generators,
                     asynchronous, methods, lambdas, texts, remade, mixed):
            site()


def deep():
    for _ in range(rounds):
        stage_too_far()


def await_ready():
    while not os.path.exists(os.environ["STAGEPROF_READY"]):
        time.sleep(0.001)


driver.cuInit(0)
print("up", flush=True)
await_ready()
driver.simcuda_reset_truth()
others = [threading.Thread(target=globals()[what]) for _ in range(2)]
for other in others:
    other.start()
globals()[what]()
for other in others:
    other.join()
print("done", flush=True)
sys.stdin.read()
