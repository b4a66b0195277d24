# SPDX-License-Identifier: Apache-2.0
"""py-spy's raw output as samples by stage of a program whose stages are blocks
`with self.stage("name")`."""

import ast
import collections
import pathlib
import re


def stage_blocks(program):
    """The blocks: first line, last line, name; an inner one after the one around it."""
    blocks = []
    for node in ast.walk(ast.parse(pathlib.Path(program).read_text(encoding="utf-8"))):
        if isinstance(node, ast.With):
            call = node.items[0].context_expr
            if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "stage" and isinstance(call.args[0], ast.Constant):
                blocks.append((node.lineno, node.end_lineno, call.args[0].value))
    return sorted(blocks)


def tally(raw, program, library, functions):
    """Samples by stage; those inside the library by stage; and by its functions, of which these are known.

    A line of the raw output is frames, outermost first, joined by ";", and how often they were seen.
    """
    blocks = stage_blocks(program)
    at = re.compile(rf"\((?:\S*/)?{re.escape(pathlib.Path(program).name)}:(\d+)\)$")
    stages, inside, by_function = collections.Counter(), collections.Counter(), collections.Counter()
    for line in raw.splitlines():
        stack, n = line.rsplit(" ", 1)
        frames = stack.split(";")
        stage = stage_of([int(found[1]) for found in map(at.search, frames) if found], blocks)
        if stage:
            stages[stage] += int(n)
        within = frames_within(library, frames)
        if within:
            inside[stage] += int(n)
            by_function[function_of(within, functions)] += int(n)
    return stages, inside, by_function


def stage_of(lines, blocks):
    """The innermost block that these lines of the program are in, "" if they are in none."""
    found = ""
    for line in lines:
        for first, last, name in blocks:
            if first <= line <= last:
                found = name
    return found


def frames_within(library, frames):
    """The frames from the first one in the library on."""
    for i, frame in enumerate(frames):
        if f"({library})" in frame:
            return frames[i:]
    return []


def function_of(frames, functions):
    """The first known function among the frames. The simulated driver's exports jump to functions named sim_NAME."""
    for frame in frames:
        name = re.sub("^sim_", "", frame.split(" ")[0])
        for spelling in (name, name + "_v2"):
            if spelling in functions:
                return spelling
    return ""
