"""Collectives in their simplest form: everyone talks to whom it concerns. The reference of the others.

Lecture section: synchronous data parallelism. Lesson: 05_messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as fold

import numpy as np

from minigrad.device import Array

from .blocks import check_parts
from .send_recv import Communicator, Operator, Tag, check_peer, combine, copy_of


def naive_allreduce(comm: Communicator, x: Array, operator: Operator = np.add) -> Array:
    """The sum of ``x`` over all ranks: everyone sends to everyone and adds in rank order.

    p - 1 messages of the whole array per rank; all ranks get the same bits, those of the serial sum.
    """
    others = [rank for rank in range(comm.size) if rank != comm.rank]
    sending = [comm.start_send(x, to, Tag.NAIVE) for to in others]
    parts = [
        x if source == comm.rank else comm.recv(source, Tag.NAIVE, expect=x) for source in range(comm.size)
    ]
    for finish in sending:
        finish()
    return copy_of(x) if not others else fold(lambda a, b: combine(comm, operator, a, b), parts)


def naive_broadcast(comm: Communicator, x: Array, root: int = 0) -> Array:
    """Rank ``root``'s ``x`` on every rank: the root sends p - 1 messages, one after the other."""
    check_peer(comm, root)
    if comm.rank != root:
        return comm.recv(root, Tag.BROADCAST)
    for to in range(comm.size):
        if to != root:
            comm.send(x, to, Tag.BROADCAST)
    return x


def scatter(comm: Communicator, parts: Sequence[Array] | None, root: int = 0) -> Array:
    """Rank ``root``'s ``parts[k]`` on rank k; arrays of any shapes, None elsewhere than on the root.

    The root sends p - 1 messages, all bytes but those of its own part, which it gets as it is.
    """
    check_peer(comm, root)
    if comm.rank != root:
        return comm.recv(root, Tag.SCATTER)
    parts = check_parts(parts, comm.size, "a scatter")
    for to in range(comm.size):
        if to != root:
            comm.send(parts[to], to, Tag.SCATTER)
    return parts[root]


def gather(comm: Communicator, x: Array, root: int = 0) -> list[Array]:
    """Every rank's ``x``, of any shape, by rank, on rank ``root``; an empty list elsewhere.

    Every rank but the root sends one message, its own array.
    """
    check_peer(comm, root)
    if comm.rank != root:
        comm.send(x, root, Tag.GATHER)
        return []
    return [x if source == root else comm.recv(source, Tag.GATHER) for source in range(comm.size)]


def gather_broadcast_allreduce(comm: Communicator, x: Array, operator: Operator = np.add) -> Array:
    """The sum of ``x`` over all ranks: rank 0 collects everything, adds in rank order and tells everyone.

    2 (p - 1) messages and 2 (p - 1) n bytes, half of them into rank 0 and half out of it: its link is
    the bottleneck, 2 (p - 1)(alpha + n beta). The bits are those of the serial sum. A parameter
    server on rank 0 moves the same.
    """
    if comm.size == 1:
        return copy_of(x)
    if comm.rank != 0:
        comm.send(x, 0, Tag.GATHER)
        return naive_broadcast(comm, x)
    parts = [x, *(comm.recv(source, Tag.GATHER, expect=x) for source in range(1, comm.size))]
    return naive_broadcast(comm, fold(lambda a, b: combine(comm, operator, a, b), parts))
