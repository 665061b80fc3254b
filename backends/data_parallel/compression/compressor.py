"""A compressor makes a short message of a vector, and the other ranks a vector of the message.

Lecture section: gradient compression. Lesson: 10_gradient_compression, by ``compressed.py``. The base of all
compressors; each family has a file, and entry points declare them by name.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from minigrad.device import Array, array_module
from minigrad.own_state import OwnState
from minigrad.settings_repr import settings_repr
from minigrad.tensor import Parameter

from ...comm.collectives import Allreduce, allgather
from ...comm.communicator import Communicator
from ..flat import FlatLayout
from .bit_packing import pack_bytes, unpack_bytes


class ExchangeResult(NamedTuple):
    """The sum of the C(v) of all ranks, this rank's C(v), both dense, and the sum of the figures."""

    total: Array
    own: Array
    figures: Array


class Compressor(OwnState):
    """C in v = e + g, c = C(v), e = v - c; ``Compressed`` stores the residual e.

    Before ``start`` its attributes are its settings, which must be the same on all ranks.
    """

    __repr__ = settings_repr
    lossless = False  # the result is the exact sum, but for rounding
    feedback = True  # whether the residual is added to the next gradient by default
    momentum = 0.0  # above 0: it applies momentum itself, so the optimizer must not

    def __init__(self) -> None:
        """No settings."""

    def start(self, layout: FlatLayout, rank: int, size: int) -> None:
        """Called when a model is placed: vectors have this layout. Resets all state."""
        self.layout, self.rank, self.size = layout, rank, size

    def uncompressed_parameters(self) -> list[Parameter]:
        """The parameters that it sends uncompressed, for a warning."""
        return []

    def apply_feedback(self, error: Array | None, g: Array) -> Array:
        """v = e + g, a new array unless ``error`` is None; ``g`` is this rank's part of the gradient."""
        return g if error is None else error + g

    def exchange(self, comm: Communicator, v: Array, figures: Array, allreduce: Allreduce) -> ExchangeResult:
        """Sum C(v), and ``figures``, a few numbers that are summed exactly. Collective."""
        raise NotImplementedError(f"{type(self).__name__} needs an exchange method")

    def commit(self) -> None:
        """Called when the gradients of all ranks are known to be finite: update the state."""


class DrawingCompressor(Compressor):
    """Draws random numbers that depend on a seed, a rank and the number of the draw alone: one a step."""

    own_state = ("draws",)

    def start(self, layout: FlatLayout, rank: int, size: int) -> None:
        super().start(layout, rank, size)
        self.draws = 0

    def generator(self, seed: int, rank: int, xp: Any = np) -> Any:
        """The generator of the next draw, of the array module ``xp``."""
        self.draws += 1
        if xp is np:
            key, counter = np.array([seed, rank], np.uint64), np.array([0, 0, self.draws, 0], np.uint64)
            return np.random.Generator(np.random.Philox(key=key, counter=counter))
        number = np.random.SeedSequence([seed, rank, self.draws]).generate_state(1)[0]
        return xp.random.Generator(xp.random.Philox4x3210(int(number)))


class AllGatherCompressor(Compressor):
    """One all-gather of the C(v) of all ranks, which each rank adds up in the order of the ranks.

    p - 1 messages per rank, all bytes but the next rank's. A subclass defines the bytes.
    """

    def compress(self, v: Array) -> Array:
        """C(v) as a vector of bytes; ``v`` is not changed."""
        raise NotImplementedError(f"{type(self).__name__} needs a compress method")

    def add(self, payload: Array, total: Array) -> None:
        """Decompress ``payload`` and add it to ``total``, in place."""
        raise NotImplementedError(f"{type(self).__name__} needs an add method")

    def exchange(self, comm: Communicator, v: Array, figures: Array, allreduce: Allreduce) -> ExchangeResult:
        messages = allgather(comm, pack_bytes(figures, self.compress(v)))
        xp, start = array_module(v), figures.nbytes
        figures_sum, total, own = xp.zeros_like(figures), xp.zeros_like(v), xp.zeros_like(v)
        for message in messages:
            figures_sum += unpack_bytes(message, (figures.dtype, figures.size))[0]
            self.add(message[start:], total)
            comm.charge_reduction(message.nbytes)
        self.add(messages[comm.rank][start:], own)
        return ExchangeResult(total, own, figures_sum)


class Identity(AllGatherCompressor):
    """All of v: the residual stays 0; only the order of summation differs from that of an all-reduce."""

    lossless = True

    def compress(self, v: Array) -> Array:
        return pack_bytes(v)

    def add(self, payload: Array, total: Array) -> None:
        total += payload.view(total.dtype)
