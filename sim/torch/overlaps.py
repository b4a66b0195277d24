#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranges of record_function that overlap instead of nesting: overlaps.py STEPS --ready-file FILE.

In each step a range ends while another one is open that began inside of it, and one is ended by
another thread, in a range of that one. Prints "ready" after warming up, waits for FILE, and leaves
after STEPS steps.
"""
import argparse
import concurrent.futures
import os
import time

import torch
from torch.profiler import record_function


def opened(name):
    return record_function(name).__enter__()


def close(opened_range):
    opened_range.__exit__(None, None, None)


def close_elsewhere(opened_range, launch):
    with record_function("elsewhere"):
        close(opened_range)
        launch()


def step(launch, other):
    with record_function("step"):
        first = opened("first")
        second = opened("second")
        launch()
        close(first)
        launch()
        close(second)
        launch()
        other.submit(close_elsewhere, opened("third"), launch).result()
        launch()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", type=int)
    parser.add_argument("--ready-file", required=True)
    args = parser.parse_args()

    data = torch.randn(64, 64, device="cuda")
    with concurrent.futures.ThreadPoolExecutor(1) as other:
        step(data.neg_, other)
        print("ready", flush=True)
        while not os.path.exists(args.ready_file):
            time.sleep(0.01)
        for _ in range(args.steps):
            step(data.neg_, other)
        # Driver calls at the interpreter's end belong to no step.
        os._exit(0)


if __name__ == "__main__":
    main()
