"""The time of an all-reduce by the alpha-beta model: the slowest port of each round, summed over the rounds.

A message of n bytes takes alpha + n beta seconds. A rank sends one message at a time and receives one; the
ranks of one machine share its network card. Where all links are alike and p is a power of two, these are the
closed forms of the algorithms' docstrings. Combining arrays takes no time here.
Sources: Hockney 1994; Thakur, Rabenseifner and Gropp 2005. Lecture section: what a cluster would do.
Lesson: 15_scale.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from minigrad.lookup import check_choice

from .link import Link


class Message(NamedTuple):
    """``nbytes`` from one rank to another."""

    source: int
    to: int
    nbytes: float


Round = tuple[int, list[Message]]
"""How many times the messages of a round are sent, one round after the other."""


@dataclass(frozen=True)
class Machine:
    """The number of each rank's machine in ``nodes``, and the links ``inside`` and ``between`` machines."""

    nodes: Sequence[int]
    inside: Link
    between: Link

    def seconds(self, messages: Sequence[Message], itemsize: int = 0) -> float:
        """What a round takes: the messages of one port follow each other, the ports work side by side.

        With an ``itemsize`` the bytes of a message are rounded up to a multiple of it.
        """
        ports: defaultdict[tuple[str, int, bool], float] = defaultdict(float)
        for source, to, nbytes in messages:
            one, other = self.nodes[source], self.nodes[to]
            link = self.inside if one == other else self.between
            for end, node, out in ((source, one, True), (to, other, False)):
                port = ("rank", end, out) if one == other else ("card", node, out)
                whole = -(-nbytes // itemsize) * itemsize if itemsize else nbytes
                ports[port] += link.seconds(whole)
        return max(ports.values(), default=0.0)


def allreduce_seconds(name: str, nbytes: float, machine: Machine, itemsize: int = 0) -> float:
    """The seconds of the all-reduce called ``name``, of ``ROUNDS``, of ``nbytes`` on each rank.

    With an ``itemsize``, the bytes of a number, the longest message of a round has whole numbers.
    """
    check_choice("all-reduce with a known cost", name, ROUNDS)
    rounds = ROUNDS[name](nbytes, machine.nodes)
    return sum(times * machine.seconds(messages, itemsize) for times, messages in rounds)


def fastest_allreduce(nbytes: float, machine: Machine, itemsize: int = 0) -> str:
    """The all-reduce that takes least; of several such the one that stands first in ``ROUNDS``."""
    return min(ROUNDS, key=lambda name: allreduce_seconds(name, nbytes, machine, itemsize))


def tree(nbytes: float, nodes: Sequence[int]) -> Iterator[Round]:
    """Up one binomial tree and down another."""
    return ((2, messages) for messages in up(nbytes, range(len(nodes))))


def up(nbytes: float, ranks: Sequence[int]) -> Iterator[list[Message]]:
    """The messages of each round to the first of the ranks."""
    distance = 1
    while distance < len(ranks):
        children = range(distance, len(ranks), 2 * distance)
        yield [Message(ranks[child], ranks[child - distance], nbytes) for child in children]
        distance *= 2


def ring(nbytes: float, nodes: Sequence[int], ranks: Sequence[int] | None = None) -> Iterator[Round]:
    """Twice around, a p-th at a time."""
    ranks = range(len(nodes)) if ranks is None else ranks
    p = len(ranks)
    yield 2 * (p - 1), [Message(ranks[k], ranks[(k + 1) % p], nbytes / p) for k in range(p)]


def doubling(nbytes: float, nodes: Sequence[int]) -> Iterator[Round]:
    """Swaps of whole arrays."""
    return swaps(nbytes, len(nodes), lambda distance: (1, nbytes))


def halving(nbytes: float, nodes: Sequence[int]) -> Iterator[Round]:
    """Swaps of halves, of quarters, ..., and the same backwards."""
    return swaps(nbytes, len(nodes), lambda distance: (2, nbytes / (2 * distance)))


def hierarchical(nbytes: float, nodes: Sequence[int]) -> Iterator[Round]:
    """Up and down a tree in each node, and a ring between the first ranks of the nodes."""
    groups: dict[int, list[int]] = {}
    for rank, node in enumerate(nodes):
        groups.setdefault(node, []).append(rank)
    for rounds in zip_longest(*(up(nbytes, group) for group in groups.values()), fillvalue=()):
        yield 2, [message for messages in rounds for message in messages]
    yield from ring(nbytes, nodes, [group[0] for group in groups.values()])


def swaps(nbytes: float, p: int, round_at: Callable[[int], tuple[int, float]]) -> Iterator[Round]:
    """Rounds at the distances 1, 2, 4, ... between a power of two ranks, whose numbers differ in that bit.

    ``round_at`` has the times and the bytes of a round by its distance. Before them the other ranks give
    their ``nbytes`` to a neighbor, and after them they get the sum.
    """
    size = 1 << (p.bit_length() - 1)
    extra = p - size
    speakers = [*range(1, 2 * extra, 2), *range(2 * extra, p)]
    yield 2, [Message(2 * i, 2 * i + 1, nbytes) for i in range(extra)]
    distance = 1
    while distance < size:
        times, part = round_at(distance)
        yield times, [Message(rank, speakers[i ^ distance], part) for i, rank in enumerate(speakers)]
        distance *= 2


ROUNDS: Mapping[str, Callable[[float, Sequence[int]], Iterator[Round]]] = {
    "halving": halving,
    "ring": ring,
    "doubling": doubling,
    "tree": tree,
    "hierarchical": hierarchical,
}
"""The rounds of messages of each all-reduce that can be the fastest, for bytes and the nodes of the ranks.

The naive ones, where everyone sends to everyone or to rank 0, never take less than doubling.
"""
