"""Dropout on split layers: every rank draws the mask of the whole and takes its own part.

Lecture section: model parallelism by neurons. Lesson: 11_model_parallel. So the ranks drop what one machine
would, and on whole activations, which all ranks hold, all drop the same.
"""

from __future__ import annotations

import json
from typing import Any, cast

import numpy as np

from minigrad.nn import Dropout

from ..comm.collectives import broadcast
from ..comm.protocol import Comm
from .activation import Activation, Cut
from .layer import Elementwise


class SplitDropout(Elementwise):
    """The serial layer's mask, of which each rank uses the part that its activations are.

    The random numbers of all ranks must be in the same state (``share_state``), and then stay so.
    """

    def __init__(self, layer: Dropout, comm: Comm | None = None, into: Cut | None = None):
        super().__init__(layer, comm, into)
        self.p, self.rng = layer.p, layer.rng

    def split_forward(self, a: Activation) -> Activation:
        draws = cast(np.random.Generator, PartOfDraws(self.rng, a.cuts))
        return Activation(Dropout(self.p, rng=draws).train(self.layer.training)(a.x), a.cuts)


class PartOfDraws:
    """Random numbers for this rank's part of an array, from the stream of the whole."""

    def __init__(self, rng: np.random.Generator, cuts: tuple[Cut, ...]):
        self.rng, self.cuts = rng, cuts

    def random(self, shape: tuple[int, ...]) -> np.ndarray:
        whole = list(shape)
        for cut in self.cuts:
            whole[cut.axis] = cut.whole
        drawn = self.rng.random(whole)
        for cut in self.cuts:
            drawn = cut.part_of(drawn)
        return drawn


def share_state(comm: Comm, rng: np.random.Generator) -> None:
    """Put ``rng`` into the state of rank 0's; in place, so that layers which share it still do.

    The state travels as text, integers of any length and lists of them. Raises ValueError where rank 0 has
    another kind of generator.
    """
    bits = rng.bit_generator
    text = json.dumps(bits.state, default=np.ndarray.tolist).encode()
    first = json.loads(broadcast(comm, np.frombuffer(text, np.uint8)).tobytes())
    try:
        bits.state = like(bits.state, first)
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(
            f"a dropout layer draws its random numbers from {type(bits).__name__} on this rank, from "
            f"{first['bit_generator']} on rank 0; build the same model on every rank"
        ) from error


def like(state: Any, first: Any) -> Any:
    """``first``, with arrays where ``state``, of the same kind of generator, has them."""
    if isinstance(state, dict):
        return {name: like(value, first[name]) for name, value in state.items()}
    return np.array(first, state.dtype) if isinstance(state, np.ndarray) else first
