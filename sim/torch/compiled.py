#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Launches of compiled kernels: compiled.py LAUNCHES --ready-file FILE.

The stage "triton" launches a kernel of Triton's, "compiled" one that torch.compile made, "eager"
one of PyTorch's own, as often as it says. Compiles first, printing the stages' names, then prints
"ready", waits for FILE and launches. What it compiles lies in a folder that it removes.
"""
import argparse
import os
import tempfile
import time

folder = tempfile.TemporaryDirectory()
os.environ.update(TRITON_CACHE_DIR=folder.name + "/triton", TORCHINDUCTOR_CACHE_DIR=folder.name + "/inductor")
# In this process: workers of their own would compile beside it, and go on for a while.
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"

import torch  # noqa: E402

print("imported", flush=True)

import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from stageprof import stage  # noqa: E402


@triton.jit
def negate(data, size, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(data + at, -tl.load(data + at, mask=at < size), mask=at < size)


@torch.compile
def compiled(data):
    return torch.tanh(data) * 2 + 1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("launches", type=int)
    parser.add_argument("--ready-file", required=True)
    args = parser.parse_args()

    data = torch.zeros(1024, device="cuda")
    kinds = {
        "triton": lambda: negate[(4,)](data, data.numel(), block=256),
        "compiled": lambda: compiled(data),
        "eager": data.neg_,
    }
    for name, launch in kinds.items():
        for _ in range(3):
            launch()
        print(name, flush=True)
    print("ready", flush=True)
    while not os.path.exists(args.ready_file):
        time.sleep(0.01)
    for name, launch in kinds.items():
        for _ in range(args.launches):
            with stage(name):
                launch()
    folder.cleanup()
    # Driver calls at the interpreter's end belong to no stage.
    os._exit(0)


if __name__ == "__main__":
    main()
