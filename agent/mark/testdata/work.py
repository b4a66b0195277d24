# SPDX-License-Identifier: Apache-2.0
"""Functions of every kind, each of which returns what it was given."""


def step(value):
    return value


def generate(value):
    yield value
    yield value


async def fetch(value):
    return value


async def stream(value):
    yield value


class Base:
    def inherited(self, value):
        return value


class Trainer(Base):
    def method(self, value):
        return value

    @staticmethod
    def static(value):
        return value

    @classmethod
    def of_class(cls, value):
        return cls, value

    @property
    def attribute(self):
        return 1

    class Inner:
        def method(self, value):
            return value


size = len
