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

from collections.abc import Sequence

import numpy as np

from minigrad.device import Array

from .blocks import check_parts, lengths, pack, unpack
from .send_recv import Communicator, Operator, Tag, check_peer, combine, copy_of


class Place:
    """A rank in the tree of ``root``: its ``parent``, and the ``ranks`` that it speaks for, itself first."""

    def __init__(self, comm: Communicator, root: int):
        check_peer(comm, root)
        number = (comm.rank - root) % comm.size  # counted from the root
        low_bit = number & -number
        end = min(number + low_bit, comm.size) if number else comm.size
        self.ranks = [(n + root) % comm.size for n in range(number, end)]
        self.parent = (number - low_bit + root) % comm.size if number else None

    def children(self) -> list[list[int]]:
        """The ranks of each subtree below this rank, the largest first; each begins with the child."""
        distances = [1 << i for i in range((len(self.ranks) - 1).bit_length())]
        return [self.ranks[distance : 2 * distance] for distance in reversed(distances)]


def broadcast(comm: Communicator, x: Array, root: int = 0) -> Array:
    """Rank ``root``'s ``x`` on every rank, down a binomial tree; what other ranks pass is not looked at.

    p - 1 messages of n bytes, at most L of them by one rank: L (alpha + n beta). The root gets ``x`` itself.
    """
    place = Place(comm, root)
    if place.parent is not None:
        x = comm.recv(place.parent, Tag.BROADCAST)
    for child, *_ in place.children():
        comm.send(x, child, Tag.BROADCAST)
    return x


def reduce(comm: Communicator, x: Array, operator: Operator = np.add, root: int = 0) -> Array | None:
    """The sum of ``x`` over all ranks on rank ``root``, up a binomial tree; None elsewhere.

    p - 1 messages of n bytes, one by each rank but the root: L (alpha + n beta + n gamma). Neighbours are
    combined in the order root, root + 1, ..., 0, ...: rank order for root 0, so there ``operator`` need
    not commute, nor act element by element.
    """
    place = Place(comm, root)
    total = x
    for child, *_ in reversed(place.children()):
        total = combine(comm, operator, total, comm.recv(child, Tag.REDUCE, expect=x))
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
    if place.parent is not None:
        blocks = unpack(comm.recv(place.parent, Tag.SCATTER), lengths(sizes, place.ranks))
        mine = dict(zip(place.ranks, blocks, strict=True))
    else:
        mine = dict(enumerate(check_parts(parts, comm.size, "a scatter")))
    for ranks in place.children():
        comm.send(pack([mine[rank] for rank in ranks], lengths(sizes, ranks)), ranks[0], Tag.SCATTER)
    return mine[comm.rank]


def tree_gather(
    comm: Communicator, x: Array, root: int = 0, sizes: Sequence[int] | None = None
) -> list[Array]:
    """Every rank's ``x``, by rank, on rank ``root``, up a binomial tree; an empty list elsewhere.

    ``sizes`` and the cost are those of ``tree_scatter``, which it undoes.
    """
    place = Place(comm, root)
    blocks = {comm.rank: x}
    for ranks in reversed(place.children()):
        message = comm.recv(ranks[0], Tag.GATHER)
        blocks.update(zip(ranks, unpack(message, lengths(sizes, ranks)), strict=True))
    if place.parent is None:
        return [blocks[rank] for rank in range(comm.size)]
    message = pack([blocks[rank] for rank in place.ranks], lengths(sizes, place.ranks))
    comm.send(message, place.parent, Tag.GATHER)
    return []
