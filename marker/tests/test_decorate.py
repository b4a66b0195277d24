# SPDX-License-Identifier: Apache-2.0
"""Stages as decorators, on each kind of function."""

import asyncio
import inspect

from tests import support
from tests.support import Case, open_stages
from stageprof import stage


class Plain(Case):
    def test_each_call_is_a_span(self):
        @stage("work")
        def work(a, *, b=2):
            """Adds."""
            return a + b

        self.assertEqual(work(1), 3)
        self.assertEqual(work(1, b=5), 6)
        self.assertEqual(self.counts(), {"work": 2})
        self.assertEqual((work.__name__, work.__doc__), ("work", "Adds."))

    def test_exception(self):
        @stage("work")
        def work():
            raise ValueError("out")

        with self.assertRaisesRegex(ValueError, "out"):
            work()
        self.assertEqual(self.counts(), {"work": 1})

    def test_methods(self):
        class Thing:
            @stage("method")
            def method(self):
                return self

            @stage("static")
            @staticmethod
            def static(value):
                return value

            @stage("class")
            @classmethod
            def make(cls):
                return cls

        thing = Thing()
        self.assertIs(thing.method(), thing)
        self.assertEqual(Thing.static(3), 3)
        self.assertIs(Thing.make(), Thing)
        self.assertEqual(self.counts(), {"method": 1, "static": 1, "class": 1})

    def test_recursion(self):
        @stage("fib")
        def fib(n):
            return n if n < 2 else fib(n - 1) + fib(n - 2)

        self.assertEqual(fib(10), 55)
        self.assertEqual(self.counts(), {"fib": 177})

    def test_only_functions(self):
        for other in (3, "text", None, type("C", (), {})):
            with self.assertRaises(TypeError):
                stage("work")(other)
        with self.assertRaises(TypeError):
            stage("work")()


class Generators(Case):
    def test_each_step_is_a_span(self):
        @stage("load")
        def load():
            for i in range(3):
                yield i

        steps = load()
        self.assertEqual(self.counts(), {})
        self.assertEqual(list(steps), [0, 1, 2])
        # Three steps to a yield, and one to the end.
        self.assertEqual(self.counts(), {"load": 4})

    @support.needs_markers
    def test_stage_is_closed_while_suspended(self):
        inside = []

        @stage("load")
        def load():
            inside.append(open_stages())
            yield
            inside.append(open_stages())

        for _ in load():
            self.assertEqual(open_stages(), [])
            with stage("step"):
                self.assertEqual(open_stages(), ["step"])
        self.assertEqual(inside, [["load"], ["load"]])

    def test_send_throw_close_and_result(self):
        events = []

        @stage("talk")
        def talk():
            try:
                events.append((yield 1))
                yield 2
            except KeyError as error:
                events.append(error.args[0])
                yield 3
            finally:
                events.append("finally")
            return "result"

        steps = talk()
        self.assertTrue(inspect.isgeneratorfunction(talk))
        self.assertEqual(next(steps), 1)
        self.assertEqual(steps.send("sent"), 2)
        self.assertEqual(steps.throw(KeyError("thrown")), 3)
        with self.assertRaises(StopIteration) as stop:
            next(steps)
        self.assertEqual(stop.exception.value, "result")
        self.assertEqual(events, ["sent", "thrown", "finally"])
        self.assertEqual(self.counts(), {"talk": 4})

        steps = talk()
        next(steps)
        steps.close()
        self.assertEqual(events[3:], ["finally"])
        self.assertEqual(self.counts(), {"talk": 6})


class Coroutines(Case):
    def test_each_step_is_a_span(self):
        @stage("fetch")
        async def fetch(value):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return value

        self.assertTrue(inspect.iscoroutinefunction(fetch))
        self.assertEqual(asyncio.run(fetch(7)), 7)
        self.assertEqual(self.counts(), {"fetch": 3})

    @support.needs_markers
    def test_tasks_that_take_turns_do_not_nest(self):
        seen = []

        def task(name):
            @stage(name)
            async def run():
                for _ in range(3):
                    seen.append(open_stages())
                    await asyncio.sleep(0)

            return run()

        async def main():
            await asyncio.gather(task("a"), task("b"))

        asyncio.run(main())
        self.assertEqual(seen, [["a"], ["b"]] * 3)
        self.assertEqual(self.counts(), {"a": 4, "b": 4})

    def test_awaiting_another_stage_nests(self):
        @stage("inner")
        async def inner():
            await asyncio.sleep(0)

        @stage("outer")
        async def outer():
            await inner()

        asyncio.run(outer())
        self.assertEqual(self.counts(), {"outer": 2, "inner": 2})

    def test_exception_and_cancellation(self):
        @stage("fail")
        async def fail():
            await asyncio.sleep(0)
            raise ValueError("out")

        @stage("wait")
        async def wait():
            await asyncio.sleep(3600)

        async def main():
            with self.assertRaisesRegex(ValueError, "out"):
                await fail()
            task = asyncio.ensure_future(wait())
            await asyncio.sleep(0)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        self.assertEqual(self.counts(), {"fail": 2, "wait": 2})


class AsyncGenerators(Case):
    def test_each_step_is_a_span(self):
        closed = []

        @stage("stream")
        async def stream():
            try:
                for i in range(3):
                    yield i
            finally:
                closed.append(True)

        async def collect():
            return [value async for value in stream()]

        self.assertTrue(inspect.isasyncgenfunction(stream))
        self.assertEqual(asyncio.run(collect()), [0, 1, 2])
        self.assertEqual(closed, [True])
        # Four steps, and the one that makes sure it is closed.
        self.assertEqual(self.counts(), {"stream": 5})

    def test_asend_athrow_aclose(self):
        events = []

        @stage("stream")
        async def stream():
            try:
                events.append((yield 1))
                yield 2
            except KeyError:
                events.append("caught")
                yield 3
            finally:
                events.append("finally")

        async def main():
            steps = stream()
            self.assertEqual(await steps.asend(None), 1)
            self.assertEqual(await steps.asend("sent"), 2)
            self.assertEqual(await steps.athrow(KeyError()), 3)
            await steps.aclose()
            with self.assertRaises(StopAsyncIteration):
                await steps.asend(None)

        asyncio.run(main())
        self.assertEqual(events, ["sent", "caught", "finally"])

    @support.needs_markers
    def test_stage_is_closed_while_suspended(self):
        @stage("stream")
        async def stream():
            self.assertEqual(open_stages(), ["stream"])
            await asyncio.sleep(0)
            yield

        async def main():
            async for _ in stream():
                self.assertEqual(open_stages(), [])

        asyncio.run(main())
