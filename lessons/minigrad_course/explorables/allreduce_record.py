"""All-reduces as our code runs them: every message, what it holds, and what follows when one is lost.

Lesson: 05_messages. The ranks run on a virtual clock, on which a message takes one second, so seconds are
rounds. Part c of rank r's array is the number 2^(p c + r): the bits of a sum say whose numbers are in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import log2
from typing import Any, NamedTuple

import numpy as np

from backends.comm.collectives import find_allreduce
from backends.comm.collectives.link import Link
from backends.comm.communicator import Communicator, Wrapper
from backends.comm.mailboxes import Deadlock
from backends.comm.trace import Traced
from minigrad.device import Array
from minigrad_course.machines.virtual_cluster import VirtualCluster, VirtualComm

SIZES = (4, 8)
ELEMENT = 8  # bytes of a float64
WAIT = re.compile(r"rank (\d+) waits [^\n]*?rank (\d+)")  # a line of a Deadlock


class Formula(NamedTuple):
    """What an all-reduce of n bytes on p ranks sends, and in how many rounds; L is log2 p."""

    messages: str
    sent: str
    rounds: str

    def values(self, p: int, n: int) -> dict[str, Any]:
        names = {"p": p, "n": n, "L": int(log2(p))}
        return {key: [text, value(text, names)] for key, text in self._asdict().items()}


FORMULAS = {
    "naive": Formula("p (p - 1)", "p (p - 1) n", "2 p - 3"),
    "gather-broadcast": Formula("2 (p - 1)", "2 (p - 1) n", "2 (p - 1)"),
    "tree": Formula("2 (p - 1)", "2 (p - 1) n", "2 L"),
    "doubling": Formula("p L", "p L n", "L"),
    "ring": Formula("2 p (p - 1)", "2 (p - 1) n", "2 (p - 1)"),
    "halving": Formula("2 p L", "2 (p - 1) n", "2 L"),
}
"""The closed forms of lesson 05, for powers of two."""


def value(text: str, names: dict[str, int]) -> int:
    """The value of a formula such as ``2 (p - 1) n``."""
    return eval(re.sub(r"(?<=[\w)]) +(?=[\w(])", " * ", text), {}, names)


class Watched(Wrapper):
    """``comm`` that keeps a copy of each message in ``contents``, and sends what ``altered`` makes of it.

    ``altered`` takes the number of the message and its array; it returns None for a message that is lost.
    """

    def __init__(
        self, comm: Communicator, contents: list[Array], altered: Callable[[int, Array], Array | None]
    ):
        super().__init__(comm)
        self.contents, self.altered = contents, altered

    def send(self, x: Array, to: int, tag: int = 0) -> None:
        self.start_send(x, to, tag)()

    def start_send(self, x: Array, to: int, tag: int = 0) -> Callable[[], None]:
        self.contents.append(x.copy())
        sent = self.altered(len(self.contents) - 1, x)
        return (lambda: None) if sent is None else self.comm.start_send(sent.copy(), to, tag)


def allreduce_data() -> dict[str, Any]:
    return {
        "sizes": list(SIZES),
        "runs": {f"{name},{p}": recorded(name, p) for name in FORMULAS for p in SIZES},
    }


def recorded(name: str, p: int) -> dict[str, Any]:
    """The messages of one run, each rank's ledger and, of 4 ranks, what follows from the loss of each."""
    contents: list[Array] = []
    cluster = VirtualCluster(p, Link(1.0))

    def work(comm: VirtualComm) -> tuple[Array, list[int]]:
        traced = Traced(Watched(comm, contents, lambda _, x: x))
        total = find_allreduce(name)(traced, own_array(comm.rank, p))
        return total, list(traced.record.ledger.sent())

    results = cluster.run(work)
    messages = [
        [t.source, t.destination, round(t.start), t.nbytes, parts_of(x, p)]
        for t, x in zip(cluster.transfers, contents, strict=True)
    ]
    return {
        "messages": messages,
        "sent": [sent for _, sent in results],
        "rounds": round(cluster.seconds),
        "sums": [masks_of(total, p) for total, _ in results],
        "formula": FORMULAS[name].values(p, p * ELEMENT),
        "losses": [loss(name, p, i) for i in range(len(messages))] if p == SIZES[0] else [],
    }


def own_array(rank: int, p: int) -> Array:
    return 2.0 ** (p * np.arange(p) + rank)


def parts_of(x: Array, p: int) -> list[list[int]]:
    """For each number that is not zero, its part, and as bits the ranks whose numbers are in the sum."""
    parts = [((number.bit_length() - 1) // p, number) for number in map(int, x.ravel().tolist()) if number]
    return [[part, number >> (p * part)] for part, number in parts]


def masks_of(total: Array, p: int) -> list[int]:
    """Whose numbers are in each part of a rank's sum, as bits."""
    by_part = {part: ranks for part, ranks in parts_of(total, p)}
    return [by_part.get(part, 0) for part in range(p)]


def loss(name: str, p: int, lost: int) -> dict[str, Any]:
    """What follows where message ``lost`` never comes, and where zeros come instead."""

    def run(instead: Callable[[Array], Array | None]) -> list[Array]:
        contents: list[Array] = []

        def work(comm: VirtualComm) -> Array:
            altered = Watched(comm, contents, lambda i, x: instead(x) if i == lost else x)
            return find_allreduce(name)(altered, own_array(comm.rank, p))

        return VirtualCluster(p, Link(1.0)).run(work)

    try:
        run(lambda _: None)
        waits = None
    except Deadlock as error:
        waits = [[int(n) for n in pair] for pair in WAIT.findall(str(error))]
    return {"waits": waits, "sums": [masks_of(total, p) for total in run(np.zeros_like)]}
