#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A loop that works PyTorch's CUDA allocator on a small device.

Each step, in stages of the marker library's: grow allocates tensors, pressure
asks for more than there is and catches the error, drop frees the tensors, trim
empties the cache. Prints "ready" after warming up, waits for the ready file,
runs, writes what the allocator's own statistics counted meanwhile, and leaves.
"""
import argparse
import json
import os
import time

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("steps", type=int)
parser.add_argument("--ready-file", required=True)
parser.add_argument("--stats", required=True, help="write the statistics to this file")
parser.add_argument("--expandable", action="store_true", help="with expandable segments")
args = parser.parse_args()

# Both are read when the device is first used.
os.environ["SIMCUDA_MEMORY"] = str(1 << 30)
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = f"expandable_segments:{args.expandable}"

import torch  # noqa: E402
from stageprof import stage  # noqa: E402

MIB = 1 << 20


def empty(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def step():
    with stage("grow"):
        tensors = [empty(size * MIB + 100) for size in (48, 3, 96, 24)]
    with stage("pressure"):
        try:
            tensors.append(empty(2048 * MIB))
            raise SystemExit("there is more memory than expected")
        except torch.cuda.OutOfMemoryError:
            pass
    with stage("drop"):
        tensors.clear()
    with stage("trim"):
        torch.cuda.empty_cache()


def counts():
    stats = torch.cuda.memory_stats()
    return {
        "allocated": stats["allocation.all.allocated"],
        "freed": stats["allocation.all.freed"],
        "allocated_bytes": stats["requested_bytes.all.allocated"],
        "freed_bytes": stats["requested_bytes.all.freed"],
    }


def main():
    step()
    print("ready", flush=True)
    while not os.path.exists(args.ready_file):
        time.sleep(0.01)
    before = counts()
    for _ in range(args.steps):
        step()
    after = counts()
    with open(args.stats, "w", encoding="utf-8") as file:
        json.dump({name: after[name] - before[name] for name in after}, file)
    # Driver calls at the interpreter's end belong to no step.
    os._exit(0)


if __name__ == "__main__":
    main()
