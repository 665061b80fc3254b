"""A compressor says how little of a vector is sent, and what the others make of it.

Lecture section: gradient compression. Lesson: 10_gradient_compression. What all compressors share; each
family has a file of its own, and the table of them by name is in ``compressed``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from minigrad.device import Array, array_module
from minigrad.tensor import Parameter

from ...comm.collectives import allgather
from ...comm.communicator import Communicator
from ..flat import FlatLayout
from .wire import packed, unpacked


class Exchanged(NamedTuple):
    """The sum of what all ranks sent, what this rank sent itself (both dense), and the summed figures."""

    total: Array
    own: Array
    figures: Array


class Compressor:
    """C in v = e + g, c = C(v), e = v - c; the residual e is kept outside, by ``Compressed``.

    Before ``start`` its attributes are its settings, which must be the same on all ranks.
    """

    lossless = False  # what comes out is the sum of what went in, but for rounding
    feedback = True  # whether what was not sent is added to the next gradient, unless the user says otherwise
    momentum = 0.0  # above 0: it has momentum of its own, so the optimizer must have none

    def __init__(self) -> None:
        """No settings."""

    def start(self, layout: FlatLayout, rank: int, size: int) -> None:
        """Called for each model: vectors will be of this layout. What earlier steps left is forgotten."""
        self.layout, self.rank, self.size = layout, rank, size

    def sent_whole(self) -> list[Parameter]:
        """The parameters that it cannot make smaller, once started; the user is told of them."""
        return []

    def accumulated(self, error: Array | None, g: Array) -> Array:
        """v, a new array where ``error`` is not None; ``g`` is this rank's part of the gradient."""
        return g if error is None else error + g

    def exchange(
        self, comm: Communicator, v: Array, figures: Array, allreduce: Callable[[Communicator, Array], Array]
    ) -> Exchanged:
        """Send C(v), and with it ``figures``, a few numbers that are summed exactly; all ranks call."""
        raise NotImplementedError(f"{type(self).__name__} needs an exchange method")

    def accepted(self) -> None:
        """Called once it is known that the numbers of all ranks were finite: the step counts."""


class Gathered(Compressor):
    """Each rank's C(v) goes around a ring in one message, and all add them up in the order of the ranks.

    p - 1 messages per rank, all bytes but the next rank's. A subclass says what the bytes are.
    """

    def compress(self, v: Array) -> Array:
        """C(v) as a vector of bytes; ``v`` is not changed."""
        raise NotImplementedError(f"{type(self).__name__} needs a compress method")

    def add(self, payload: Array, total: Array) -> None:
        """Add to ``total``, in place, what a rank compressed to ``payload``."""
        raise NotImplementedError(f"{type(self).__name__} needs an add method")

    def exchange(
        self, comm: Communicator, v: Array, figures: Array, allreduce: Callable[[Communicator, Array], Array]
    ) -> Exchanged:
        messages = allgather(comm, packed(figures, self.compress(v)))
        xp, start = array_module(v), figures.nbytes
        summed, total, own = xp.zeros_like(figures), xp.zeros_like(v), xp.zeros_like(v)
        for message in messages:
            summed += unpacked(message, (figures.dtype, figures.size))[0]
            self.add(message[start:], total)
            comm.charge_reduction(message.nbytes)
        self.add(messages[comm.rank][start:], own)
        return Exchanged(total, own, summed)


class Identity(Gathered):
    """All of v: the residual stays 0, and only the order of summation differs from an all-reduce's."""

    lossless = True

    def compress(self, v: Array) -> Array:
        return packed(v)

    def add(self, payload: Array, total: Array) -> None:
        total += payload.view(total.dtype)
