# SPDX-License-Identifier: Apache-2.0
"""Prints the line tables of many functions, and what this Python makes of them.

One JSON object a line: first (line), table (hex), lines ([[begin, end, line], ...], addresses in
bytes, half open; null for an instruction that belongs to no line).
"""
import dis
import json
import sys
import types

MODULES = ("argparse", "ast", "asyncio.base_events", "collections", "dataclasses", "dis", "inspect", "typing")


def functions(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from functions(constant)


def lines(code):
    if hasattr(code, "co_lines"):
        return [row for row in code.co_lines() if row[0] != row[1]]
    starts = list(dis.findlinestarts(code)) + [(len(code.co_code), None)]
    return [[begin, end, line] for (begin, line), (end, _) in zip(starts, starts[1:])]


# A long function: increments that take several entries, up and down.
LONG = "def f(x):\n" + "    y = [\n" + "\n" * 300 + "        x(1),\n" * 200 + "    ]\n" + "\n" * 5000 + "    return y\n"
codes = [compile(LONG, "long", "exec")]
for name in MODULES:
    __import__(name)
    path = sys.modules[name].__file__
    with open(path, encoding="utf-8") as file:
        codes.append(compile(file.read(), path, "exec"))
for module in codes:
    for code in functions(module):
        table = code.co_linetable if hasattr(code, "co_linetable") else code.co_lnotab
        print(json.dumps({"first": code.co_firstlineno, "table": table.hex(), "lines": lines(code)}))
