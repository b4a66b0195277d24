# SPDX-License-Identifier: Apache-2.0
"""Stages: what is open when, and what counts as a span."""

import contextlib
import copy
import os
import pickle
import signal
import sys
import threading
import unittest

from tests import support
from tests.support import Case, in_thread, open_process_stages, open_stages, stageprof
from stageprof import add_time, begin, end, process_stage, stage


@support.needs_markers
class Markers(Case):
    def test_nested_stages_are_open_inside_their_blocks(self):
        self.assertEqual(open_stages(), [])
        with stage("step"):
            self.assertEqual(open_stages(), ["step"])
            with stage("forward"):
                self.assertEqual(open_stages(), ["step", "forward"])
            self.assertEqual(open_stages(), ["step"])
        self.assertEqual(open_stages(), [])

    def test_begin_and_end(self):
        begin("a")
        begin("b")
        self.assertEqual(open_stages(), ["a", "b"])
        end()
        self.assertEqual(open_stages(), ["a"])
        end()
        end()
        self.assertEqual(open_stages(), [])

    def test_threads_have_their_own(self):
        with stage("main"):

            def work():
                with stage("work"):
                    return open_stages()

            self.assertEqual(in_thread(work), ["work"])
            self.assertEqual(open_stages(), ["main"])

    def test_stage_left_open_by_a_thread_is_gone(self):
        in_thread(lambda: begin("forgotten"))
        self.assertEqual(in_thread(open_stages), [])

    def test_names(self):
        cases = {
            "größer": "größer",
            "x" * 127: "x" * 127,
            "": "(empty)",
            "tab\t": "tab\\x09#",
            "nul\0": "nul\\x00#",
            "\udc80": "\\xed\\xb2\\x80#",
        }
        for name, want in cases.items():
            with self.subTest(name), stage(name):
                text = open_stages()[0]
                self.assertEqual(text[: len(want)], want)
                self.assertEqual(stage(name).name, text)

    def test_long_names_stay_apart(self):
        with stage("x" * 200 + "1"), stage("x" * 200 + "2"):
            first, second = open_stages()
            self.assertNotEqual(first, second)
            self.assertIn("…#", first)

    def test_deep_recursion(self):
        def recurse(depth):
            with stage("recurse"):
                if depth > 1:
                    recurse(depth - 1)

        recurse(200)
        self.assertEqual(open_stages(), [])
        self.assertEqual(self.counts(), {"recurse": 200})

    def test_process_stage(self):
        with process_stage("epoch"):
            with process_stage("eval"):
                self.assertEqual(open_process_stages(), ["epoch", "eval"])
                self.assertEqual(open_stages(), [])
            self.assertEqual(open_process_stages(), ["epoch"])
        self.assertEqual(open_process_stages(), [])

    def test_process_stage_ends_with_an_exception(self):
        with self.assertRaises(KeyError), process_stage("epoch"):
            raise KeyError
        self.assertEqual(open_process_stages(), [])

    def test_fork_keeps_the_callers_stages(self):
        other_ready, leave = threading.Event(), threading.Event()

        def other():
            with stage("other"):
                other_ready.set()
                leave.wait()

        thread = threading.Thread(target=other)
        thread.start()
        other_ready.wait()
        with stage("before"):
            pid = os.fork()
            if pid == 0:
                code = 1
                with contextlib.suppress(BaseException):
                    right = open_stages() == ["before"] and stageprof.stats() == []
                    with stage("child"):
                        right = right and open_stages() == ["before", "child"]
                    right = right and self.counts() == {"child": 1}
                    right = right and in_thread(open_stages) == []
                    code = 0 if right else 1
                os._exit(code)
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
        leave.set()
        thread.join()
        self.assertEqual(self.counts(), {"before": 1, "other": 1})


class Spans(Case):
    def test_each_block_is_a_span(self):
        for _ in range(3):
            with stage("step"):
                with stage("forward"):
                    pass
        self.assertEqual(self.counts(), {"step": 3, "forward": 3})

    def test_exception_ends_the_stage(self):
        for error in (ValueError, KeyboardInterrupt, StopIteration, GeneratorExit):
            with self.subTest(error), self.assertRaises(error):
                with stage("step"):
                    raise error
        self.assertEqual(self.counts(), {"step": 4})
        end()
        self.assertEqual(self.counts(), {"step": 4})

    def test_leaving_a_stage_ends_what_was_forgotten_inside(self):
        with stage("step"):
            begin("forgotten")
        self.assertEqual(self.counts(), {"step": 1, "forgotten": 1})

    def test_stage_ended_before_its_block_is_not_counted_twice(self):
        with stage("outer"):
            with stage("inner"):
                end()
        self.assertEqual(self.counts(), {"outer": 1, "inner": 1})

    def test_end_without_begin_is_ignored(self):
        end()
        self.assertEqual(self.counts(), {})

    def test_one_stage_object_is_reentrant(self):
        kept = stage("kept")
        with kept:
            with kept:
                with stage("other"), kept:
                    pass
        self.assertEqual(self.counts(), {"kept": 3, "other": 1})

    def test_one_stage_object_in_many_threads(self):
        kept = stage("kept")
        start = threading.Barrier(8)

        def work():
            start.wait()
            for _ in range(1000):
                with kept:
                    pass

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.counts(), {"kept": 8000})

    def test_blocks_that_overlap_heal(self):
        def generate():
            with stage("generator"):
                yield

        steps = generate()
        with stage("consumer"):
            next(steps)
        # Leaving "consumer" ended what was begun inside it.
        self.assertEqual(self.counts(), {"consumer": 1, "generator": 1})
        steps.close()
        self.assertEqual(self.counts(), {"consumer": 1, "generator": 1})

    def test_exit_stack(self):
        with contextlib.ExitStack() as stack:
            stack.enter_context(stage("a"))
            stack.enter_context(stage("b"))
        self.assertEqual(self.counts(), {"a": 1, "b": 1})

    def test_signal_handler_inside_a_stage(self):
        def handler(*_):
            with stage("handler"):
                pass

        before = signal.signal(signal.SIGUSR1, handler)
        try:
            with stage("step"):
                os.kill(os.getpid(), signal.SIGUSR1)
                while "handler" not in self.counts():
                    pass
        finally:
            signal.signal(signal.SIGUSR1, before)
        self.assertEqual(self.counts(), {"step": 1, "handler": 1})

    def test_first_stage_of_a_thread_begins_under_any_lock(self):
        # As in a signal handler that interrupts threading's own code.
        with threading._active_limbo_lock:
            with stage("step"):
                pass
        finished = threading.Event()

        def work():
            with threading._active_limbo_lock, stage("work"):
                finished.set()

        threading.Thread(target=work, daemon=True).start()
        self.assertTrue(finished.wait(60))


class Names(Case):
    def test_only_str(self):
        for name in (None, 7, b"bytes"):
            for function in (stage, begin, lambda n: add_time(n, 1)):
                with self.assertRaisesRegex(TypeError, "name is a str"):
                    function(name)
        self.assertEqual(self.counts(), {})

    def test_empty_names_are_one_stage(self):
        with stage(""), stage("(empty)"):
            pass
        self.assertEqual(self.counts(), {"(empty)": 2})

    def test_further_names_are_summed_up(self):
        out = support.run_python(
            "from tests.support import stageprof\n"
            "for i in range(5000):\n"
            "    with stageprof.stage('name %d' % i): pass\n"
            "rows = stageprof.stats(by_thread=False)\n"
            "print(len(rows), sum(r.count for r in rows))\n"
            "print([r.count for r in rows if r.stage == '(too many names)'])\n"
            "print(stageprof.stage('another').name, stageprof.stage('name 5').name)\n"
        )
        self.assertEqual(out, "4097 5000\n[904]\n(too many names) name 5\n")


class StageObject(Case):
    def test_name_and_repr(self):
        self.assertEqual(stage("forward").name, "forward")
        self.assertEqual(repr(stage("forward")), "stage('forward')")
        with self.assertRaises(AttributeError):
            support.stageprof.Stage("a").missing

    def test_copies_are_the_stage(self):
        kept = stageprof.Stage("forward")
        for other in (copy.copy(kept), copy.deepcopy(kept), pickle.loads(pickle.dumps(kept))):
            with other:
                pass
        self.assertEqual(self.counts(), {"forward": 3})

    def test_no_leak(self):
        kept = stage("leak")
        with kept:
            pass
        before = sys.getrefcount(kept)
        for _ in range(1000):
            with stage("leak"):
                begin("leak")
                end()
        self.assertEqual(sys.getrefcount(kept), before)


if __name__ == "__main__":
    unittest.main()
