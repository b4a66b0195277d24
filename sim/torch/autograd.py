#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Threads that call backward() in stages of their own, alone or at the same time, as they are told.

Whatever thread calls backward(), PyTorch does the work on one thread per device, which goes from one
caller's pass to another's and back. Each caller here needs that thread in its own way:

    A, B    chains of 3 and 9 layers on device 0
    C       a chain of 5 layers on device 1
    D       checkpoints on device 0: inside its backward pass, parts of the forward pass run anew and
            have backward passes of their own (use_reentrant=True)
    E       two backward passes over one graph on device 1, in two stages
    F       a chain on device 0 with two losses on the CPU, so that the caller's own thread takes part;
            then a launch outside any stage

Stages are NAME.fwd and NAME.bwd, E's second pass NAME.again. The callers wait for each other before
each NAME.bwd.

Reads orders, one a line, and answers the n-th with "ok n" in six digits when it is done:

    prepare NAME...  starts these callers' threads; each does one pass and then waits
    run TRUTH        lets them do their passes; writes what the driver counted meanwhile to TRUTH
    end              lets them end

Usage: sim/torch/run.sh VERSION sim/torch/autograd.py PASSES. Prints "up" first.
"""

import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))

import torch
from stageprof import stage
from torch.utils.checkpoint import checkpoint
from torch_pipeline import Stages, Truth, Worker

SIZE = 64  # of the square matrices
DEVICES = [torch.device("cuda", i) for i in range(2)]


def matrix(device, **options):
    return torch.randn(SIZE, SIZE, device=device, **options)


def chain(x, *weights):
    for weight in weights:
        x = torch.tanh(x * weight)
    return x


class Caller:
    """A chain of layers that is trained."""

    def __init__(self, name, layers, device):
        self.name = name
        self.layers = layers
        self.device = device

    def set_up(self):
        self.input = matrix(self.device)
        self.weights = [matrix(self.device, requires_grad=True) for _ in range(self.layers)]

    def parts(self):
        """The stages of one pass, in their order."""
        return [("fwd", self.forward), ("bwd", self.backward)]

    def forward(self):
        self.loss = chain(self.input, *self.weights).sum()

    def backward(self):
        self.loss.backward()

    def clear(self):
        """Makes the next pass like this one."""
        self.loss = None
        for weight in self.weights:
            weight.grad = None


class Checkpointed(Caller):
    def forward(self):
        half = self.layers // 2
        first, second = self.weights[:half], self.weights[half:]
        x = checkpoint(chain, self.input, *first, use_reentrant=True)
        self.loss = checkpoint(chain, x, *second, use_reentrant=True).sum()


class Twice(Caller):
    def parts(self):
        return [("fwd", self.forward), ("bwd", self.keep), ("again", self.backward)]

    def keep(self):
        self.loss.backward(retain_graph=True)


class OnCPU(Caller):
    def forward(self):
        x = chain(self.input, *self.weights)
        self.loss = [x.sum().cpu().exp(), x.mean().cpu().exp()]

    def backward(self):
        torch.autograd.backward(self.loss)

    def clear(self):
        super().clear()
        self.input.neg_()


CALLERS = {
    caller.name: caller
    for caller in (
        Caller("A", 3, DEVICES[0]),
        Caller("B", 9, DEVICES[0]),
        Caller("C", 5, DEVICES[1]),
        Checkpointed("D", 4, DEVICES[0]),
        Twice("E", 4, DEVICES[1]),
        OnCPU("F", 6, DEVICES[0]),
    )
}


class Run:
    """Callers that run at the same time, each on a thread of its own."""

    def __init__(self, callers, passes, stages):
        self.passes = passes
        self.stages = stages
        self.gate = threading.Barrier(len(callers) + 1)
        self.meeting = threading.Barrier(len(callers))
        self.threads = [Worker(c.name, lambda c=c: self.live(c)) for c in callers]
        for thread in self.threads:
            thread.start()
        self.gate.wait()

    def live(self, caller):
        caller.set_up()
        self.one_pass(caller)
        self.gate.wait()  # prepared
        self.gate.wait()  # to run
        for _ in range(self.passes):
            self.one_pass(caller)
        self.gate.wait()  # done
        self.gate.wait()  # to end

    def one_pass(self, caller):
        for part, work in caller.parts():
            if part == "bwd":
                self.meeting.wait()
            with self.stages(f"{caller.name}.{part}"):
                work()
        caller.clear()

    def run(self):
        self.gate.wait()
        self.gate.wait()

    def end(self):
        self.gate.wait()
        for thread in self.threads:
            thread.join()


def main():
    passes = int(sys.argv[1])
    truth = Truth()
    stages = Stages(stage, truth)
    torch.zeros(1, device=DEVICES[0])
    print("up", flush=True)
    for number, order in enumerate(sys.stdin, start=1):
        command, *arguments = order.split()
        if command == "prepare":
            run = Run([CALLERS[name] for name in arguments], passes, stages)
        elif command == "run":
            truth.reset()
            run.run()
            truth.write(arguments[0])
        elif command == "end":
            run.end()
        else:
            raise SystemExit(f"unknown order {order!r}")
        print(f"ok {number:06}", flush=True)
    # Past the interpreter's teardown, in which PyTorch 2.15 sometimes aborts.
    os._exit(0)


if __name__ == "__main__":
    main()
