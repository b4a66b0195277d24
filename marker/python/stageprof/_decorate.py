# SPDX-License-Identifier: Apache-2.0
"""Stages as decorators.

A stage is wall time on one thread. A generator or coroutine does not occupy its
thread between its steps: other code runs there meanwhile, often with stages of
its own. So its stage is open while it runs and closed while it is suspended,
and each step, from a resume to the next ``yield`` or suspending ``await``, is a
span of its own.
"""

import functools
import inspect
from typing import Any, Callable


def decorate(stage: Any, function: Any) -> Any:
    """Returns function with each of its runs inside stage."""
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(decorate(stage, function.__func__))
    if inspect.isclass(function) or not callable(function):
        raise TypeError("a stage decorates functions, not %r" % (function,))
    if inspect.isasyncgenfunction(function):
        return _async_generator(stage, function)
    if inspect.iscoroutinefunction(function):
        return _coroutine(stage, function)
    if inspect.isgeneratorfunction(function):
        return _generator(stage, function)
    return _plain(stage, function)


def _plain(stage: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def in_stage(*args: Any, **kwargs: Any) -> Any:
        with stage:
            return function(*args, **kwargs)

    return in_stage


class _Steps:
    """Runs each step of a generator, coroutine or the like inside a stage."""

    __slots__ = ("_stage", "_steps")

    def __init__(self, stage: Any, steps: Any) -> None:
        self._stage = stage
        self._steps = steps

    def __iter__(self) -> "_Steps":
        return self

    __await__ = __iter__

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        with self._stage:
            return self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        with self._stage:
            return self._steps.throw(*error)

    def close(self) -> None:
        with self._stage:
            self._steps.close()


def _generator(stage: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def in_stage(*args: Any, **kwargs: Any) -> Any:
        return (yield from _Steps(stage, function(*args, **kwargs)))

    return in_stage


def _coroutine(stage: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def in_stage(*args: Any, **kwargs: Any) -> Any:
        return await _Steps(stage, function(*args, **kwargs))

    return in_stage


def _async_generator(stage: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def in_stage(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        step = generator.__anext__()
        try:
            while True:
                try:
                    value = await _Steps(stage, step)
                except StopAsyncIteration:
                    return
                try:
                    sent = yield value
                except GeneratorExit:
                    raise
                except BaseException as error:
                    step = generator.athrow(error)
                else:
                    step = generator.asend(sent)
        finally:
            await _Steps(stage, generator.aclose())

    return in_stage
