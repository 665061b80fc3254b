"""Binomial trees: in each round the number of ranks that have it doubles, so L = ceil(log2 p) rounds.

        0               the rank that receives in the round of distance 2^i has i trailing zero bits,
      / | \\             and speaks for the 2^i ranks from itself on
     4  2  1
    /|  |
   6 5  3               (p = 7; counted from the root)

Source: MPICH, bcast_intra_binomial, scatter_intra_binomial.
Lecture section: synchronous data parallelism. Lesson: 05_messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from minigrad.device import Array

from .blocks import check_parts, lengths, pack, unpack
from .send_recv import Communicator, Operator, Tag, check_peer, combine, copy_of


class Place:
    """Where this rank stands in the tree of ``root``; numbers count from the root, ``rank`` undoes that."""

    def __init__(self, comm: Communicator, root: int):
        check_peer(comm, root)
        self.size, self.root = comm.size, root
        self.number = (comm.rank - root) % comm.size
        low_bit = self.number & -self.number
        self.span = low_bit or 1 << (comm.size - 1).bit_length()  # it speaks for this many ranks, if there
        self.parent = None if self.number == 0 else self.rank(self.number - low_bit)

    def rank(self, number: int) -> int:
        return (number + self.root) % self.size

    def end(self, number: int, span: int) -> int:
        """One past the last rank, counted from the root, that ``number`` speaks for."""
        return min(number + span, self.size)

    def children(self) -> Iterator[tuple[int, int]]:
        """(number, span) of the ranks below this one, the largest subtree first."""
        span = self.span // 2
        while span:
            if self.number + span < self.size:
                yield self.number + span, span
            span //= 2


def broadcast(comm: Communicator, x: Array, root: int = 0) -> Array:
    """Rank ``root``'s ``x`` on every rank, down a binomial tree; what other ranks pass is not looked at.

    p - 1 messages of n bytes, at most L of them by one rank: L (alpha + n beta). The root gets ``x`` itself.
    """
    place = Place(comm, root)
    if place.parent is not None:
        x = comm.recv(place.parent, Tag.BROADCAST)
    for number, _ in place.children():
        comm.send(x, place.rank(number), Tag.BROADCAST)
    return x


def reduce(comm: Communicator, x: Array, operator: Operator = np.add, root: int = 0) -> Array | None:
    """The sum of ``x`` over all ranks on rank ``root``, up a binomial tree; None elsewhere.

    p - 1 messages of n bytes, one by each rank but the root: L (alpha + n beta + n gamma). Neighbours are
    combined in the order root, root + 1, ..., 0, ...: rank order for root 0, so there ``operator`` need
    not commute, nor act element by element.
    """
    place = Place(comm, root)
    total = x
    for number, _ in reversed(list(place.children())):
        total = combine(comm, operator, total, comm.recv(place.rank(number), Tag.REDUCE, expect=x))
    if place.parent is not None:
        comm.send(total, place.parent, Tag.REDUCE)
        return None
    return copy_of(x) if total is x else total


def reduce_broadcast_allreduce(comm: Communicator, x: Array, operator: Operator = np.add) -> Array:
    """The sum of ``x`` over all ranks: up one binomial tree and down another.

    2 (p - 1) messages, 2 (p - 1) n bytes, 2 L (alpha + n beta) + L n gamma. Rank order is kept.
    """
    total = reduce(comm, x, operator)
    return broadcast(comm, x if total is None else total)


def tree_scatter(
    comm: Communicator, parts: Sequence[Array] | None, root: int = 0, sizes: Sequence[int] | None = None
) -> Array:
    """Rank ``root``'s ``parts[k]`` on rank k, halves of them at a time down a binomial tree.

    ``sizes``, the same on every rank, are the parts' lengths along their first axis; None where the
    parts are all alike. p - 1 messages; the root sends all bytes but those of its own part, all ranks
    together (n/2) log2 p for p = 2^l: L alpha + n (p-1)/p beta.
    """
    place = Place(comm, root)
    order = [place.rank(number) for number in range(place.number, place.end(place.number, place.span))]
    if place.parent is None:
        parts = check_parts(parts, comm.size, "a scatter")
        mine = [parts[rank] for rank in order]
    else:
        message = comm.recv(place.parent, Tag.SCATTER)
        mine = unpack(message, lengths(sizes, order))
    for number, span in place.children():
        first, last = number - place.number, place.end(number, span) - place.number
        message = pack(mine[first:last], lengths(sizes, order[first:last]))
        comm.send(message, place.rank(number), Tag.SCATTER)
    return mine[0]


def tree_gather(
    comm: Communicator, x: Array, root: int = 0, sizes: Sequence[int] | None = None
) -> list[Array]:
    """Every rank's ``x``, by rank, on rank ``root``, up a binomial tree; an empty list elsewhere.

    ``sizes`` and the cost are those of ``tree_scatter``, which it undoes.
    """
    place = Place(comm, root)
    by_number = {place.number: x}
    for number, span in reversed(list(place.children())):
        numbers = range(number, place.end(number, span))
        message = comm.recv(place.rank(number), Tag.GATHER)
        blocks = unpack(message, lengths(sizes, [place.rank(n) for n in numbers]))
        by_number.update(zip(numbers, blocks, strict=True))
    if place.parent is None:
        return [by_number[(rank - root) % comm.size] for rank in range(comm.size)]
    order = [place.rank(number) for number in by_number]
    comm.send(pack(list(by_number.values()), lengths(sizes, order)), place.parent, Tag.GATHER)
    return []
