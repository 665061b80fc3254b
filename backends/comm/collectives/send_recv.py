"""The steps that collectives are made of: send and receive at once, combine two arrays; and their tags.

Empty arrays are sent too, as messages of 0 bytes: then the number of messages is the closed form for
every size, also with fewer elements than ranks.
Lecture section: synchronous data parallelism. Lesson: 05_messages, by ``doubling.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from minigrad.device import Array, array_module

if TYPE_CHECKING:
    from ..communicator import Communicator as Communicator
else:
    Communicator = Any  # the collectives' name of the type: its file, which imports them, comes after them

Operator = Callable[[Array, Array], Array]
"""Combines two arrays of one shape and dtype into a third such and changes neither; associative."""


class Tag(IntEnum):
    """Each collective has its own tag, so that it does not receive a program's messages."""

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
    SHIFT = 31015
    KEYS = 31016
    KEYS_GRADIENT = 31017


def send_recv(
    comm: Communicator, x: Array, to: int, source: int, tag: int, expect: Array | None = None
) -> Array:
    """Send ``x`` to one rank while receiving from another, as MPI_Sendrecv does, so no rank blocks another.

    Raises ValueError, naming both sides, if the array that comes has not the shape and dtype of ``expect``.
    """
    finish = comm.start_send(x, to, tag)
    received = comm.recv(source, tag, expect)
    finish()
    return received


def combine(comm: Communicator, operator: Operator, first: Array, second: Array) -> Array:
    """``operator(first, second)`` as an array; a virtual clock charges this rank for the work."""
    comm.charge_reduction(second.nbytes)
    return array_module(first).asarray(operator(first, second))


def copy_of(x: Array) -> Array:
    """A copy of ``x`` in its own memory order."""
    return array_module(x).array(x)


def check_peer(comm: Communicator, peer: int) -> None:
    """Raise ValueError unless ``peer`` is one of the communicator's ranks."""
    if not 0 <= peer < comm.size:
        raise ValueError(f"rank {peer} does not exist; this communicator has ranks 0 to {comm.size - 1}")
