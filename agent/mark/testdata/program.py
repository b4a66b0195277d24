# SPDX-License-Identifier: Apache-2.0
"""Obeys the lines on stdin, one JSON answer each.

    call N    calls every function N times; answers what the marker package counted
    block     the main thread waits in a native call for a byte on descriptor 3
    names     answers which names are wrapped
    replace   gives work.step another meaning
"""
import asyncio
import json
import os
import queue
import sys
import threading

import work
from work import step as imported


def names():
    trainer = vars(work.Trainer)
    found = {
        "step": work.step,
        "imported": imported,
        "generate": work.generate,
        "fetch": work.fetch,
        "stream": work.stream,
        "method": trainer["method"],
        "static": trainer["static"].__func__,
        "of_class": trainer["of_class"].__func__,
        "inner": work.Trainer.Inner.method,
    }
    return {name: hasattr(function, "__wrapped__") for name, function in found.items()}


async def await_all(value):
    assert await work.fetch(value) == value
    assert [v async for v in work.stream(value)] == [value]


def call(count):
    trainer = work.Trainer()
    for value in range(count):
        assert work.step(value) == imported(value) == value
        assert list(work.generate(value)) == [value, value]
        assert trainer.method(value) == work.Trainer.static(value) == trainer.static(value) == value
        assert trainer.of_class(value) == (work.Trainer, value)
        assert work.Trainer.Inner().method(value) == value
        asyncio.run(await_all(value))
    package = sys.modules.get("stageprof")
    if package is None:
        return {}
    counts = {row.stage: row.count for row in package.stats(by_thread=False)}
    package.reset()
    return counts


def replace():
    work.step = lambda value: value
    return {}


def block():
    os.read(3, 1)
    return {}


def read(lines):
    for line in sys.stdin:
        lines.put(line.split())
    lines.put(None)


lines = queue.SimpleQueue()
threading.Thread(target=read, args=(lines,), daemon=True).start()
print(json.dumps({"pid": os.getpid()}), flush=True)
while True:
    try:
        line = lines.get(timeout=0.001)
    except queue.Empty:
        continue
    if line is None:
        break
    if line[0] == "block":
        print(json.dumps({}), flush=True)
        block()
        continue
    answer = call(int(line[1])) if line[0] == "call" else {"names": names, "replace": replace}[line[0]]()
    print(json.dumps(answer), flush=True)
