# SPDX-License-Identifier: Apache-2.0
"""Statistics: counts, times, threads, text."""

import math
import os
import random
import threading
import time
import unittest

from tests import support
from tests.support import Case, in_thread, stageprof
from stageprof import add_time, format_stats, reset, stage, stats


class Times(Case):
    def test_times_lie_between_the_clocks_around_them(self):
        before = time.monotonic_ns()
        with stage("step"):
            inside = time.monotonic_ns()
            while time.monotonic_ns() < inside + 2_000_000:
                pass
        after = time.monotonic_ns()
        row = self.row("step")
        self.assertGreaterEqual(row.total, 2e-3)
        self.assertLessEqual(row.total, (after - before) / 1e9)
        self.assertEqual(row.total, row.min)
        self.assertEqual(row.total, row.max)
        self.assertEqual(row.total, row.mean)

    def test_inner_time_is_part_of_the_outer(self):
        with stage("outer"):
            with stage("inner"):
                time.sleep(0.001)
        self.assertLessEqual(self.row("inner").total, self.row("outer").total)

    def test_add_time(self):
        for seconds in (0.25, 0.5, 1.0, 0):
            add_time("queue", seconds)
        row = self.row("queue")
        self.assertEqual((row.count, row.total, row.min, row.max), (4, 1.75, 0.0, 1.0))
        self.assertEqual(row.mean, 1.75 / 4)

    def test_add_time_refuses_what_is_no_duration(self):
        for seconds in (-1, -1e-9, math.nan, math.inf, 1e10):
            with self.subTest(seconds), self.assertRaises(ValueError):
                add_time("queue", seconds)
        with self.assertRaises(TypeError):
            add_time("queue", "1")
        self.assertEqual(self.counts(), {})

    def test_quantiles_are_within_their_stated_error(self):
        generator = random.Random(7)
        for spread in (1, 100, 10**6, 10**9, 10**13):
            with self.subTest(spread):
                reset()
                values = [generator.randrange(spread) for _ in range(999)]
                for value in values:
                    add_time("value", value / 1e9)
                values.sort()
                row = self.row("value")
                for quantile, got in ((0.50, row.p50), (0.99, row.p99)):
                    want = values[math.ceil(quantile * len(values)) - 1] / 1e9
                    self.assertLessEqual(abs(got - want), want / 64 + 1e-12)

    def test_quantile_of_one_span_is_the_span(self):
        add_time("one", 0.123456789)
        row = self.row("one")
        self.assertEqual((row.p50, row.p99), (row.max, row.max))

    def test_quantiles_of_very_long_spans_stay_in_range(self):
        add_time("long", 8e9)
        row = self.row("long")
        self.assertEqual((row.p50, row.p99, row.max), (8e9, 8e9, 8e9))


class Threads(Case):
    def test_rows_are_per_stage_and_thread(self):
        def work():
            with stage("work"):
                pass
            with stage("shared"):
                return threading.get_native_id()

        thread = threading.Thread(target=work, name="worker-7")
        thread.start()
        thread.join()
        with stage("shared"):
            pass
        rows = {(row.stage, row.thread): row for row in stats()}
        self.assertEqual(
            set(rows),
            {("work", "worker-7"), ("shared", "worker-7"), ("shared", "MainThread")},
        )
        self.assertEqual(rows["shared", "MainThread"].tid, threading.get_native_id())
        merged = self.row("shared")
        self.assertEqual((merged.count, merged.thread, merged.tid), (2, None, 0))
        self.assertAlmostEqual(
            merged.total, sum(r.total for key, r in rows.items() if key[0] == "shared")
        )

    def test_threads_of_one_name_are_rows_of_their_own(self):
        for _ in range(3):
            thread = threading.Thread(target=lambda: add_time("work", 1), name="same")
            thread.start()
            thread.join()
        self.assertEqual([row.count for row in stats() if row.thread == "same"], [1, 1, 1])

    def test_renamed_thread(self):
        def work():
            add_time("work", 1)
            threading.current_thread().name = "renamed"
            return [row.thread for row in stats()]

        self.assertEqual(in_thread(work), ["renamed"])

    def test_many_ended_threads_are_summed_up(self):
        tasks = len(os.listdir("/proc/self/task"))
        for _ in range(300):
            in_thread(lambda: add_time("work", 1))
        # A joined thread has left Python, but maybe not the kernel.
        while len(os.listdir("/proc/self/task")) > tasks:
            time.sleep(0.001)
        in_thread(lambda: add_time("work", 1))
        rows = stats()
        self.assertEqual(sum(row.count for row in rows), 301)
        self.assertLessEqual(len(rows), 258)
        ended = [row for row in rows if row.thread == "(ended threads)"]
        self.assertEqual(len(ended), 1)
        self.assertGreaterEqual(ended[0].count, 301 - 257)
        reset()
        self.assertEqual(stats(), [])

    def test_threads_do_not_lose_spans_to_each_other(self):
        def work(number):
            for _ in range(500):
                add_time("work", 0.001 * number)
                stats(by_thread=False)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        row = self.row("work")
        self.assertEqual((row.count, row.min, row.max), (2000, 0.001, 0.004))
        self.assertAlmostEqual(row.total, 500 * 0.010)


class Reset(Case):
    def test_only_later_spans_count(self):
        add_time("a", 5)
        add_time("b", 5)
        reset()
        self.assertEqual(stats(), [])
        add_time("a", 1)
        row = self.row("a")
        self.assertEqual((row.count, row.max, row.p99), (1, 1.0, 1.0))
        self.assertEqual(self.counts(), {"a": 1})

    def test_open_stage_counts_whole_when_it_ends(self):
        with stage("open"):
            time.sleep(0.001)
            reset()
        self.assertGreaterEqual(self.row("open").total, 0.001)

    def test_of_other_threads(self):
        ready, go = threading.Event(), threading.Event()

        def work():
            add_time("work", 5)
            ready.set()
            go.wait()
            add_time("work", 1)

        thread = threading.Thread(target=work)
        thread.start()
        ready.wait()
        reset()
        go.set()
        thread.join()
        self.assertEqual(self.row("work").total, 1.0)


class Text(Case):
    def test_nothing(self):
        self.assertEqual(format_stats(), "(no stages)")
        self.assertEqual(format_stats(table=True), "(no stages)")

    def test_line(self):
        add_time("forward", 0.010)
        add_time("forward", 0.010)
        add_time("pack", 0.0005)
        in_thread(lambda: add_time("pack", 0.0005))
        self.assertEqual(
            format_stats(),
            "forward 2x 10.0ms (p99 10.0ms, total 20.0ms) | pack 2x 500us (p99 500us, total 1.00ms)",
        )

    def test_line_by_thread(self):
        add_time("forward", 1)
        self.assertEqual(
            format_stats(by_thread=True),
            "forward[MainThread] 1x 1.00s (p99 1.00s, total 1.00s)",
        )

    def test_table(self):
        add_time("target_forward", 2)
        add_time("pack", 0.000001)
        self.assertEqual(
            format_stats(table=True).splitlines(),
            [
                "stage           thread  count   total    mean     min     max     p50     p99",
                "target_forward  (all)       1   2.00s   2.00s   2.00s   2.00s   2.00s   2.00s",
                "pack            (all)       1  1.00us  1.00us  1.00us  1.00us  1.00us  1.00us",
            ],
        )

    def test_durations(self):
        cases = {
            0: "0ns",
            7e-9: "7ns",
            999e-9: "999ns",
            999.6e-9: "1.00us",
            1.234e-6: "1.23us",
            9.999e-3: "10.0ms",
            0.0999: "99.9ms",
            0.9999: "1.00s",
            123.4: "123s",
        }
        for seconds, text in cases.items():
            self.assertEqual(stageprof._duration(seconds), text)


class Implementation(Case):
    def test_is_the_one_asked_for(self):
        self.assertEqual(stageprof.implementation, support.KIND)

    def test_says_what_is_missing(self):
        texts = [str(w.message) for w in support.import_warnings]
        if support.KIND == "native":
            self.assertEqual(texts, [])
            return
        self.assertEqual(len(texts), 1, texts)
        self.assertIn("the C extension is not available", texts[0])
        self.assertIn("no markers" if support.KIND == "statistics" else "ctypes", texts[0])

    @unittest.skipIf(support.KIND != "native", "about the extension")
    def test_uses_the_library_that_is_loaded_already(self):
        out = support.run_python(
            "import ctypes, os\n"
            "lib = ctypes.PyDLL(os.environ['STAGEPROF_LIBRARY'])\n"
            "import stageprof\n"
            "assert stageprof.implementation == 'native'\n"
            "with stageprof.stage('a'):\n"
            "    print(lib.stageprof_depth())\n"
            "print(lib.stageprof_depth())\n"
        )
        self.assertEqual(out, "1\n0\n")

    @unittest.skipIf(support.KIND != "native", "about the extension")
    def test_library_loaded_later_is_the_extension(self):
        out = support.run_python(
            "import ctypes, stageprof\n"
            "lib = ctypes.PyDLL('libstageprof.so.1')\n"
            "with stageprof.stage('a'):\n"
            "    print(lib.stageprof_depth())\n"
        )
        self.assertEqual(out, "1\n")
