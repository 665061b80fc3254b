"""A seeded bug: one piece of the source, what stands there instead, and the law that must catch it."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from time import perf_counter
from typing import NamedTuple

from tests.bugs.definition import Definition, definition
from tests.bugs.world import World, world_without_bugs

Law = Callable[[], None]
"""Returns where all is right, and raises where it is not; at the top of one of this folder's modules."""


@dataclass(frozen=True)
class Bug:
    """In definition ``where`` the text ``right`` became ``wrong``; ``law`` fails, and ``says`` matches how.

    ``where`` is the name of a function, a method, a class or a variable, such as "Bucket.fill", wherever it
    is, and begins with a part of its module's name where several are called so.
    """

    name: str
    where: str
    right: str
    wrong: str
    law: Law
    says: str
    thorough: bool = False
    """Whether only ``pytest --thorough`` hunts it: its law takes long, and catches another in each run."""

    @property
    def definition(self) -> Definition:
        return definition(self.where)


class Caught(NamedTuple):
    """What a law said of a bug, in one line, and the seconds that it took."""

    words: str
    seconds: float


class Escaped(AssertionError):
    """A law that must catch a bug did not, or said something else; or it was red without the bug."""


def hunt(bug: Bug) -> Caught:
    """Run the bug's law in a world without it, where it must be green, and in one with it, where it is red.

    Raises Escaped, with the bug's name, where this is not so; LookupError where the source has moved on.
    """
    green(bug.law)
    try:
        where = bug.definition
        world = World({where.module: [(where, bug.right, bug.wrong)]})
    except LookupError as error:
        raise LookupError(f"{bug.name!r}: {error}") from None
    start = perf_counter()
    try:
        world.again(bug.law)()
    except Exception as error:
        words = words_of(error)
    else:
        met = "although it met it" if where.module in world.modules else f"as it does not use {where.module}"
        raise Escaped(f"{bug.law.__name__} is green with the bug {bug.name!r}, {met}")
    seconds = perf_counter() - start
    if not re.search(bug.says, words):
        raise Escaped(f"{bug.law.__name__} says of the bug {bug.name!r}: {words}; wanted was {bug.says!r}")
    return Caught(words, seconds)


@cache
def green(law: Law) -> float:
    """Run a law in the world without bugs, once; the seconds that it took. Raises Escaped where it is red."""
    start = perf_counter()
    try:
        world_without_bugs().again(law)()
    except Exception as error:
        raise Escaped(f"{law.__name__} is red without any bug: {words_of(error)}") from error
    return perf_counter() - start


def words_of(error: BaseException) -> str:
    """What an error says, in one line; where that is next to nothing, with the line that raised it."""
    said = " ".join(str(error).split())
    if len(said) < 20:
        line = traceback.extract_tb(error.__traceback__)[-1].line or ""
        said = f"{said}: {line}" if said else line
    return f"{type(error).__name__}: {said}"
