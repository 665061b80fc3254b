"""One step between ranks: send and receive at once, combine two arrays; and the tags of the collectives.

Empty arrays are sent too, as messages of 0 bytes: then the number of messages is the closed form for
every size, also with fewer elements than ranks.
Lecture section: synchronous data parallelism. Lesson: 05_messages.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from minigrad.device import Array, array_module

from ..protocol import Comm

Operator = Callable[[Array, Array], Array]
"""Combines two arrays of one shape and dtype into a third such and changes neither; associative."""


class Tag(IntEnum):
    """Each collective has a tag of its own, so that it does not take a program's messages."""

    NAIVE = 31001
    BROADCAST = 31002
    SCATTER = 31003
    GATHER = 31004
    REDUCE = 31005
    RING_REDUCE = 31006
    RING_GATHER = 31007
    FOLD = 31008
    DOUBLING = 31009
    HALVING = 31010
    ALL_TO_ALL = 31011
    BARRIER = 31012
    FORWARD = 31013
    GRADIENT = 31014


def exchange(comm: Comm, x: Array, to: int, source: int, tag: int, like: Array | None = None) -> Array:
    """Send ``x`` to one rank while receiving from another: nobody waits for its own message to be taken.

    ValueError, naming both sides, where what comes has not the shape and dtype of ``like``.
    """
    finish = comm.start_send(x, to, tag)
    received = comm.recv(source, tag, like)
    finish()
    return received


def combined(comm: Comm, operator: Operator, first: Array, second: Array) -> Array:
    """``operator(first, second)``, always an array; the work is charged to this rank."""
    charge(comm, second.nbytes)
    return array_module(first).asarray(operator(first, second))


def charge(comm: Comm, nbytes: int) -> None:
    """Tell a communicator with a virtual clock that ``nbytes`` were reduced: the cost model's gamma."""
    reduced = getattr(comm, "reduced", None)
    if reduced is not None:
        reduced(nbytes)


def copied(x: Array) -> Array:
    """A copy of ``x`` in its own memory order."""
    return array_module(x).array(x)
