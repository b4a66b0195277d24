# SPDX-License-Identifier: Apache-2.0
"""Imports stageprof in the implementation that STAGEPROF_TEST names.

The tests run once with each: native, ctypes, statistics.
"""

import ctypes
import os
import subprocess
import sys
import threading
import unittest
import warnings

KIND = os.environ.get("STAGEPROF_TEST", "native")

# An entry of None makes the import fail as if there were no such file.
if KIND != "native":
    sys.modules["stageprof._native"] = None

with warnings.catch_warnings(record=True) as import_warnings:
    warnings.simplefilter("always")
    if KIND == "statistics":
        _load, ctypes.PyDLL = ctypes.PyDLL, None
        ctypes.PyDLL = lambda path: (_ for _ in ()).throw(OSError(path))
        import stageprof

        ctypes.PyDLL = _load
    else:
        import stageprof

needs_markers = unittest.skipIf(KIND == "statistics", "this implementation has no markers")


class _Open(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("begin_ns", ctypes.c_uint64)]


class _Thread(ctypes.Structure):
    _fields_ = [("tid", ctypes.c_uint32), ("depth", ctypes.c_uint32), ("open", _Open * 64)]


class _Registry(ctypes.Structure):
    _fields_ = [
        ("magic", ctypes.c_char * 8),
        ("abi", ctypes.c_uint32),
        ("thread_size", ctypes.c_uint32),
        ("thread_count", ctypes.c_uint32),
        ("threads_used", ctypes.c_uint32),
        ("names_overflow", ctypes.c_uint64),
        ("threads_overflow", ctypes.c_uint64),
        ("threads", ctypes.POINTER(_Thread)),
        ("process", _Thread),
    ]


def library_path() -> str:
    """The file that holds the markers in use."""
    if KIND == "native":
        return sys.modules["stageprof._native"].__file__
    return os.environ["STAGEPROF_LIBRARY"]


def registry() -> _Registry:
    return _Registry.in_dll(ctypes.CDLL(library_path()), "stageprof_registry")


def _names(thread):
    return [thread.open[i].name.decode() for i in range(min(thread.depth, 64))]


def open_stages():
    """What an observer would find open on the calling thread, outermost first."""
    found = registry()
    tid = threading.get_native_id()
    for i in range(found.threads_used):
        if found.threads[i].tid == tid:
            return _names(found.threads[i])
    return []


def open_process_stages():
    return _names(registry().process)


def run_python(code: str, **env: str) -> str:
    """Runs code in a new interpreter; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=dict(os.environ, **env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        timeout=120,
    )
    if done.returncode != 0:
        raise AssertionError("exit code %d:\n%s" % (done.returncode, done.stdout))
    return done.stdout


def in_thread(function):
    """Runs function in a thread of its own and returns its result."""
    results, errors = [], []

    def run():
        try:
            results.append(function())
        except BaseException as error:  # handed to the caller
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


class Case(unittest.TestCase):
    """Begins with nothing open and nothing counted."""

    def setUp(self):
        stageprof.reset()

    def tearDown(self):
        for _ in range(100):
            stageprof.end()

    def counts(self):
        return {row.stage: row.count for row in stageprof.stats(by_thread=False)}

    def row(self, stage):
        rows = [row for row in stageprof.stats(by_thread=False) if row.stage == stage]
        self.assertEqual(len(rows), 1, stage)
        return rows[0]
