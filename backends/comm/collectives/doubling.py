"""Recursive doubling: each round swaps with a rank twice as far away, so l = log2 q rounds do.

It needs a power of two. With p = q + r ranks each even one of the first 2r hands its array to the
odd one after it, which speaks for both, and gets the result back (MPICH's fold).

Source: Thakur, Rabenseifner and Gropp 2005; MPICH, allreduce_intra_recursive_doubling.
Lecture section: synchronous data parallelism. Lesson: 05_messages.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minigrad.device import Array, array_module

from .blocks import lengths, pack, unpack
from .send_recv import Communicator, Operator, Tag, combine, copy_of, send_recv


class Fold:
    """``comm``'s ranks as a power of two: of two that are ``paired`` the even one is ``spoken_for``.

    ``peers`` are the ranks that this rank swaps with, at distance 1, 2, 4, ... among those that speak.
    """

    def __init__(self, comm: Communicator):
        size = 1 << (comm.size.bit_length() - 1)
        extra = comm.size - size
        self.paired = comm.rank < 2 * extra
        self.spoken_for = self.paired and comm.rank % 2 == 0
        number = comm.rank // 2 if self.paired else comm.rank - extra
        numbers = [number ^ 1 << i for i in range(size.bit_length() - 1)]
        self.peers = [2 * n + 1 if n < extra else n + extra for n in numbers]


def doubling_allreduce(comm: Communicator, x: Array, operator: Operator = np.add) -> Array:
    """The sum of ``x`` over all ranks by swapping whole arrays: few messages, for small arrays.

    l messages of n bytes per rank where p = 2^l, l (alpha + n beta + n gamma); else 2r + q l messages in
    all: a rank spoken for sends 1, its speaker l + 1, the others l. The lower ranks' array is always the
    first operand, on both sides: rank order is kept (``operator`` need not commute, nor act element by
    element) and all ranks get the same bits.
    """
    fold = Fold(comm)
    if fold.spoken_for:
        comm.send(x, comm.rank + 1, Tag.FOLD)
        return comm.recv(comm.rank + 1, Tag.FOLD, expect=x)
    total = x
    if fold.paired:
        total = combine(comm, operator, comm.recv(comm.rank - 1, Tag.FOLD, expect=x), total)
    for peer in fold.peers:
        received = send_recv(comm, total, peer, peer, Tag.DOUBLING, expect=x)
        first, second = (received, total) if peer < comm.rank else (total, received)
        total = combine(comm, operator, first, second)
    if fold.paired:
        comm.send(total, comm.rank - 1, Tag.FOLD)
    return copy_of(x) if total is x else total


def doubling_allgather(comm: Communicator, x: Array, sizes: Sequence[int] | None = None) -> list[Array]:
    """Every rank's ``x``, by rank, on every rank, by swapping all that was collected so far.

    ``sizes``, the same on every rank, are the arrays' lengths along their first axis; None where they
    are all alike. l messages of 1, 2, 4, ... blocks per rank where p = 2^l: l alpha + n (p-1)/p beta.
    Else 2r + q l messages, (q - 1) n bytes, and for each pair the spoken-for's own block and n.
    """
    fold, everyone = Fold(comm), range(comm.size)
    mine = pack([x], lengths(sizes, [comm.rank]))
    if fold.spoken_for:
        comm.send(mine, comm.rank + 1, Tag.FOLD)
        return unpack(comm.recv(comm.rank + 1, Tag.FOLD), lengths(sizes, everyone))
    xp = array_module(x)
    if fold.paired:
        mine = xp.concatenate([comm.recv(comm.rank - 1, Tag.FOLD), mine])
    for peer in fold.peers:
        received = send_recv(comm, mine, peer, peer, Tag.DOUBLING)
        mine = xp.concatenate([received, mine] if peer < comm.rank else [mine, received])
    if fold.paired:
        comm.send(mine, comm.rank - 1, Tag.FOLD)
    return unpack(mine, lengths(sizes, everyone))
