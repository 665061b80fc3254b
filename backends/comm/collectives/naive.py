"""Collectives as free functions over send and receive, so that every transport has all of them.

Lecture section: synchronous data parallelism.
"""

from __future__ import annotations

from minigrad.device import Array

from .protocol import Comm


def naive_allreduce(comm: Comm, x: Array) -> Array:
    """The sum of ``x`` over all ranks: everyone sends to everyone and adds in rank order.

    p - 1 messages of the whole array per rank; all ranks get the same bits, those of the serial sum.
    """
    for to in range(comm.size):
        if to != comm.rank:
            comm.send(x, to)
    parts = (x if source == comm.rank else comm.recv(source) for source in range(comm.size))
    total = next(parts).copy()
    for part in parts:
        total += part
    return total


def allreduce(comm: Comm, x: Array) -> Array:
    """The sum of ``x`` over all ranks, by the transport's own all-reduce where it has one."""
    own = getattr(comm, "allreduce", None)
    return own(x) if own is not None else naive_allreduce(comm, x)


def broadcast(comm: Comm, x: Array, root: int = 0) -> Array:
    """Rank ``root``'s ``x`` on every rank."""
    if comm.rank != root:
        return comm.recv(root)
    for to in range(comm.size):
        if to != root:
            comm.send(x, to)
    return x


def gather(comm: Comm, x: Array, root: int = 0) -> list[Array]:
    """Every rank's ``x``, by rank, on rank ``root``; an empty list elsewhere."""
    if comm.rank != root:
        comm.send(x, root)
        return []
    return [x if source == root else comm.recv(source) for source in range(comm.size)]
