"""Layers in order, between which tensors stay split.

Lecture section: model parallelism. Lesson: 11_model_parallel, by ``model_parallel.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from minigrad.forward_pass import current_observer, current_path
from minigrad.module import Sequential
from minigrad.recompute import Replay, unrecorded
from minigrad.tape import Tape, current_tape
from minigrad.tensor import Tensor

from .layer import ShardedLayer
from .sharding import Shard, ShardedTensor


class ShardedSequential(ShardedLayer, Sequential):
    """The layers of a Sequential under its names; the tensors between them stay split.

    Of layers between two ``bounds`` a tape holds only the input, this rank's part of it; they run again, and
    communicate again, in backward (``minigrad.recompute``).
    """

    token_wise = True

    def __init__(self, layers: Sequence[ShardedLayer], bounds: Sequence[int] = ()):
        super().__init__()
        self.layers, self.bounds = list(layers), tuple(bounds)
        self.out_sharding = layers[-1].out_sharding if layers else None
        self.splits_tokens = bool(layers) and layers[-1].splits_tokens

    def in_order(self) -> bool:
        return True

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        tape = current_tape.get()
        if tape is None or not self.bounds:
            return self.through(a, 0, len(self.layers))
        a = self.through(a, 0, self.bounds[0])
        for start, stop in pairwise(self.bounds):
            a = self.through_segment(tape, a, start, stop)
        return self.through(a, self.bounds[-1], len(self.layers))

    def through(self, a: ShardedTensor, start: int, stop: int) -> ShardedTensor:
        """``a`` after layers ``start`` to ``stop - 1``."""
        path = current_path()
        for i in range(start, stop):
            path.append(i)
            with named_in_errors(i):
                a = forward_on_shards(self.layers[i], a)
            path.pop()
        return a

    def through_segment(self, tape: Tape, a: ShardedTensor, start: int, stop: int) -> ShardedTensor:
        """``through``, of which ``tape`` gets one entry."""
        shards: list[Shard] = []

        def run(x: Tensor) -> Tensor:
            y = self.through(ShardedTensor(x, a.shards), start, stop)
            shards[:] = y.shards
            return y.local

        y = unrecorded(tape, run, Replay(*self.layers[start:stop]), a.local)
        return ShardedTensor(y, tuple(shards))


@contextmanager
def named_in_errors(layer: int | str) -> Iterator[None]:
    """Put the name of the layer in front of the message of an error, as a Sequential does."""
    try:
        yield
    except (ValueError, TypeError) as error:
        error.args = (f"layer {layer}, {error}",)
        raise


def forward_on_shards(layer: Any, a: ShardedTensor, **keywords: Any) -> ShardedTensor:
    """``layer.sharded_forward(a, **keywords)``, as a layer around it or an observer sees it."""
    observer = current_observer()
    if observer is None:
        return layer.sharded_forward(a, **keywords)
    return observer.call(layer, layer.sharded_forward, (a,), keywords)
