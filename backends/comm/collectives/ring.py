"""Rings: every rank sends to the next and receives from the one before, a p-th of the data at a time.

In step t of the reduction rank k sends chunk (k - t) mod p, so chunk c starts on rank c, collects
ranks c, c + 1, ..., and is complete on rank c - 1, which then starts it round again. Every rank
sends in every step, and 2n (p-1)/p bytes in all: no all-reduce can do with fewer per rank.

Sources: Patarasuk and Yuan 2009; Thakur, Rabenseifner and Gropp 2005. Lecture section: synchronous
data parallelism. Lesson: 05_messages.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minigrad.data import shares
from minigrad.device import Array

from .blocks import check_parts, chunks, whole
from .send_recv import Communicator, Operator, Tag, combine, copy_of, send_recv
from .tree import tree_scatter


def ring_allreduce(comm: Communicator, x: Array, operator: Operator = np.add) -> Array:
    """The sum of ``x`` over all ranks: reduce-scatter around the ring, then all-gather around it.

    2 (p - 1) messages per rank, 2n - |chunk k+1| - |chunk k+2| bytes from rank k, 2 (p - 1) n in all:
    2 (p-1) alpha + 2n (p-1)/p beta + n (p-1)/p gamma. Chunk c is added in the order c, c + 1, ..., so
    ``operator`` must commute and act element by element; all ranks get the same bits.
    """
    pieces = chunks(x, comm.size)
    own = (comm.rank + 1) % comm.size
    pieces[own] = reduce_around(comm, pieces, own, operator)
    return whole(pass_around(comm, pieces, own), like=x)


def reduce_scatter(comm: Communicator, parts: Sequence[Array], operator: Operator = np.add) -> Array:
    """The sum over all ranks of their ``parts[k]``, on rank k; parts k have one shape on all ranks.

    p - 1 messages per rank, all bytes but those of its own part: (p-1) alpha + n (p-1)/p (beta + gamma).
    Part k is added in the order k + 1, ..., k: ``operator`` must commute.
    """
    parts = list(check_parts(parts, comm.size, "a reduce-scatter"))
    return copy_of(parts[0]) if comm.size == 1 else reduce_around(comm, parts, comm.rank, operator)


def allgather(comm: Communicator, x: Array) -> list[Array]:
    """Every rank's ``x``, of any shape, by rank, on every rank; its own is ``x`` itself.

    p - 1 messages per rank, all bytes but those of the next rank's: (p-1) alpha + n (p-1)/p beta.
    """
    return pass_around(comm, [x] * comm.size, comm.rank)


def scatter_allgather_broadcast(comm: Communicator, x: Array, root: int = 0) -> Array:
    """Rank ``root``'s ``x`` on every rank, a p-th to each and then around the ring: for large arrays.

    ``x`` has the same shape on every rank. p - 1 messages down the tree, p (p - 1) around the ring:
    (L + p - 1) alpha + 2n (p-1)/p beta. Source: van de Geijn, in Thakur, Rabenseifner and Gropp 2005.
    """
    sizes = [share.stop - share.start for share in shares(x.size, comm.size)]
    piece = tree_scatter(comm, chunks(x, comm.size), root, sizes)
    pieces = allgather(comm, piece)
    return x if comm.rank == root else whole(pieces, like=x)


def reduce_around(comm: Communicator, pieces: Sequence[Array], own: int, operator: Operator) -> Array:
    """Piece ``own`` of the sum, where rank k + 1 owns the piece after rank k's."""
    p = comm.size
    after, before = (comm.rank + 1) % p, (comm.rank - 1) % p
    total = pieces[(own - 1) % p]
    for t in range(p - 1):
        mine = pieces[(own - 2 - t) % p]
        received = send_recv(comm, total, after, before, Tag.RING_REDUCE, expect=mine)
        total = combine(comm, operator, received, mine)
    return total


def pass_around(comm: Communicator, pieces: Sequence[Array], own: int) -> list[Array]:
    """All pieces, where each rank has its own only; whatever else stands in the list is replaced."""
    p = comm.size
    after, before = (comm.rank + 1) % p, (comm.rank - 1) % p
    pieces = list(pieces)
    for t in range(p - 1):
        sent = pieces[(own - t) % p]
        pieces[(own - t - 1) % p] = send_recv(comm, sent, after, before, Tag.RING_GATHER)
    return pieces
