#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training loop without markers of ours: ranges.py STEPS --ready-file FILE.

Its stages are what PyTorch itself announces: record_function by the script and
by the optimizer, and an NVTX range. Two more in each step have a start and an end,
and overlap. Prints "ready" after warming up, with the numbers that these two were
given, waits for FILE, trains STEPS steps, and leaves.
"""
import argparse
import os
import time

import torch
from torch.profiler import record_function


def step(model, optimizer, data):
    loading = torch.cuda.nvtx.range_start("loading")
    with record_function("step"):
        with record_function("forward"):
            following = torch.cuda.nvtx.range_start("loading")
            torch.cuda.nvtx.range_end(loading)
            torch.cuda.nvtx.range_push("block")
            loss = torch.tanh(data * model).sum()
            torch.cuda.nvtx.range_pop()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.nvtx.range_end(following)
    return loading, following


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", type=int)
    parser.add_argument("--ready-file", required=True)
    args = parser.parse_args()

    model = torch.randn(64, 64, device="cuda", requires_grad=True)
    optimizer = torch.optim.SGD([model], lr=0.1)
    data = torch.randn(64, 64, device="cuda")
    numbers = step(model, optimizer, data)
    print("ready", *numbers, flush=True)
    while not os.path.exists(args.ready_file):
        time.sleep(0.01)
    for _ in range(args.steps):
        step(model, optimizer, data)
    # Driver calls at the interpreter's end belong to no step.
    os._exit(0)


if __name__ == "__main__":
    main()
