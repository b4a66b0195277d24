# SPDX-License-Identifier: Apache-2.0
"""What a begin/end pair costs: the minimum over many short runs, less the empty loop."""

import platform
import time
import timeit

import stageprof

CASES = (
    ("with stage(NAME)", "with stage('target_forward'): pass"),
    ("with a kept stage", "with kept: pass"),
    ("begin(NAME); end()", "begin('target_forward'); end()"),
    ("time.monotonic_ns()", "clock()"),  # to compare machines: a pair reads the clock twice
)


def best_ns(statement: str) -> float:
    loops = 5000
    names = {
        "stage": stageprof.stage,
        "begin": stageprof.begin,
        "end": stageprof.end,
        "kept": stageprof.stage("kept"),
        "clock": time.monotonic_ns,
    }
    return min(timeit.Timer(statement, globals=names).repeat(300, loops)) / loops * 1e9


def main() -> None:
    print("CPython %s, %s" % (platform.python_version(), stageprof.implementation))
    loop = best_ns("pass")
    for title, statement in CASES:
        print("%-20s %6.1f ns" % (title, best_ns(statement) - loop))


if __name__ == "__main__":
    main()
