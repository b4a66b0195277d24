#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares every answer of cuGetProcAddress_v2 with that of a real driver.

    compare_procs.py REAL_LIBCUDA SIMULATED_LIBCUDA

asks both for every name of procs.txt, at every version at which its meaning changes and just below, up to the
real driver's own version, with each choice of default stream. No device is needed. Exits with 1 if any differs.
"""
import ctypes
import pathlib
import subprocess
import sys


class Driver:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        symbols = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True)
        names = [line.split()[-1].split("@")[0] for line in symbols.stdout.splitlines()]
        self.names = {self.address(name): name for name in names if name.startswith("cu")}

    def address(self, name):
        return ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value

    def version(self):
        version = ctypes.c_int()
        self.library.cuDriverGetVersion(ctypes.byref(version))
        return version.value

    def ask(self, name, version, flags):
        found, status = ctypes.c_void_p(), ctypes.c_int(-1)
        result = self.library.cuGetProcAddress_v2(
            name.encode(), ctypes.byref(found), version, ctypes.c_uint64(flags), ctypes.byref(status)
        )
        return result, self.names.get(found.value, found.value), status.value


def questions(newest):
    table = (pathlib.Path(__file__).parent / "procs.txt").read_text().splitlines()
    versions = {}
    for line in table:
        if not line.startswith("#"):
            name, version = line.split()[:2]
            versions.setdefault(name, {newest}).update((int(version) - 10, int(version)))
    for name, asked in sorted(versions.items()):
        for version in sorted(v for v in asked if v <= newest):
            for flags in range(3):
                yield name, version, flags


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    real, simulated = Driver(sys.argv[1]), Driver(sys.argv[2])
    asked = different = 0
    for question in questions(real.version()):
        asked += 1
        want, got = real.ask(*question), simulated.ask(*question)
        if want != got:
            different += 1
            print(*question, "real:", *want, "simulated:", *got)
    print(f"{asked} questions, {different} different answers")
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
