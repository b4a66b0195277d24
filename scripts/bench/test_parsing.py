# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks make of other programs' output."""

import collections
import json
import pathlib
import tempfile
import unittest

import counts
import pyspy

PROGRAM = '''\
class Loop:
    def run(self):
        with self.stage("step"):
            self.load()
            with self.stage("forward"):
                self.launch()
            self.wait()
        with self.other("step"):
            self.load()
        with self.stage("end"), self.stage("after"):
            self.launch()
'''

RAW = '''\
run (program.py:4);load (/usr/lib/other.py:6) 1
main (program.py:99);run (program.py:6);launch (ctypes.c:9);cuLaunchKernel (libcuda.so.1);0x7f01 (libcuda.so.1) 20
run (program.py:7);simcuda_dispatch (libcuda.so.1);sim_cuMemcpyHtoDAsync (copy.c:61);memcpy (libc.so.6) 300
run (program.py:9);0x7f02 (libcuda.so.1) 4000
run (other_program.py:6) 50000
'''


class PySpy(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.program = pathlib.Path(folder.name) / "program.py"
        self.program.write_text(PROGRAM, encoding="utf-8")

    def test_stage_blocks(self):
        self.assertEqual(pyspy.stage_blocks(self.program), [(3, 7, "step"), (5, 6, "forward"), (10, 11, "end")])

    def test_tally(self):
        stages, inside, functions = pyspy.tally(RAW, self.program, "libcuda.so.1", {"cuLaunchKernel", "cuMemcpyHtoDAsync_v2"})
        self.assertEqual(stages, {"step": 301, "forward": 20})
        self.assertEqual(inside, {"forward": 20, "step": 300, "": 4000})
        self.assertEqual(functions, {"cuLaunchKernel": 20, "cuMemcpyHtoDAsync_v2": 300, "": 4000})

    def test_nothing(self):
        self.assertEqual(pyspy.tally("", self.program, "libcuda.so.1", set()), (collections.Counter(),) * 3)


class Counts(unittest.TestCase):
    def test_compared(self):
        for got, wanted, missing, want in (
                ({"a": 5, "b": 2}, {"a": 5, "b": 2}, 0, "equal"),
                ({"a": 5, "more": 2}, {"a": 5}, 0, "equal"),
                ({"a": 4, "b": 2}, {"a": 5, "b": 2}, 1, "equal, 1 lost"),
                ({"a": 4, "b": 2}, {"a": 5, "b": 2}, 0, "-1"),
                ({"a": 6, "b": 1}, {"a": 5, "b": 2}, 0, "+0, 2 in other functions"),
                ({}, {"a": 2000}, 0, "-2,000")):
            with self.subTest(got=got, wanted=wanted, missing=missing):
                self.assertEqual(counts.compared(got, wanted, missing), want)

    def test_truth(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "truth"
            row = {"symbol": "cuInit", "calls": 3, "unfinished": 1, "inner": 5, "wall_ns": 70}
            path.write_text(json.dumps({"rows": [row, row, dict(row, symbol="cuLaunchKernel")]}), encoding="utf-8")
            self.assertEqual(counts.truth(path), {"cuInit": 8, "cuLaunchKernel": 4})
            self.assertEqual(counts.truth(path, "wall_ns"), {"cuInit": 140, "cuLaunchKernel": 70})

    def test_against_truth(self):
        recording = {"symbols": [{"name": "cuInit"}], "calls": [{"symbol": 0, "count": 2}, {"symbol": 0, "count": 1}],
                     "losses": [{"kind": "calls", "count": 1}, {"kind": "spans", "count": 9}]}
        self.assertEqual(counts.against_truth(recording, {"cuInit": 4, "cuDriverGetVersion": 7}), "equal, 1 lost")
        self.assertEqual(counts.against_truth(dict(recording, losses=None), {"cuInit": 3}), "equal")

    def test_median(self):
        self.assertEqual(counts.median([3, 1, 2]), 2)
        self.assertEqual(counts.median([4, 1, 3, 2]), 2.5)


if __name__ == "__main__":
    unittest.main()
