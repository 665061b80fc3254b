"""Rabenseifner's all-reduce: swap halves, then halves of the halves, and put them together again.

         rank 0 1 2 3            each has all four quarters of its own array
    halve     ab ab cd cd  ...   swap halves with the neighbour and add: half an array, of two ranks
    halve     a  ...             swap quarters at distance 2 and add: a quarter, of four ranks
    double    ab, then abcd      the same swaps backwards, without adding

Sources: Rabenseifner 2004; Thakur, Rabenseifner and Gropp 2005; MPICH,
allreduce_intra_reduce_scatter_allgather. Lecture section: synchronous data parallelism. Lesson: 05_messages.
"""

from __future__ import annotations

import numpy as np

from minigrad.device import Array, array_module

from .blocks import whole
from .doubling import Fold
from .send_recv import Communicator, Operator, Tag, combine, send_recv


def rabenseifner_allreduce(comm: Communicator, x: Array, operator: Operator = np.add) -> Array:
    """The sum of ``x`` over all ranks, with the ring's bytes in the tree's number of rounds.

    2 l messages and 2n (p-1)/p bytes per rank where p = 2^l: 2 l alpha + 2n (p-1)/p beta + n (p-1)/p gamma.
    Else, by MPICH's fold, 2r + 2 q l messages in all: a rank spoken for sends 1, its speaker 2 l + 1, the
    others 2 l. 2 (p - 1) n bytes in all for every p. Rank order is kept; ``operator`` acts element by
    element; all ranks get the same bits.
    """
    fold = Fold(comm)
    flat = array_module(x).ascontiguousarray(x).reshape(-1)
    if fold.spoken_for:
        comm.send(flat, comm.rank + 1, Tag.FOLD)
        return whole([comm.recv(comm.rank + 1, Tag.FOLD, expect=flat)], like=x)
    if fold.paired:
        flat = combine(comm, operator, comm.recv(comm.rank - 1, Tag.FOLD, expect=flat), flat)
    total = halve(comm, fold.peers, flat, operator)
    if fold.paired:
        comm.send(total, comm.rank - 1, Tag.FOLD)
    return whole([total], like=x)


def halve(comm: Communicator, peers: list[int], x: Array, operator: Operator) -> Array:
    """The sum of ``x`` over this rank and all that it reaches through ``peers``."""
    if not peers:
        return x
    peer, further = peers[0], peers[1:]
    halves = x[: x.size // 2], x[x.size // 2 :]
    upper = int(peer < comm.rank)  # the higher of the two keeps the upper half
    mine, theirs = halves[upper], halves[1 - upper]
    received = send_recv(comm, theirs, peer, peer, Tag.HALVING, expect=mine)
    first, second = (received, mine) if upper else (mine, received)
    mine = halve(comm, further, combine(comm, operator, first, second), operator)
    other = send_recv(comm, mine, peer, peer, Tag.HALVING, expect=theirs)
    return array_module(x).concatenate([other, mine] if upper else [mine, other])
