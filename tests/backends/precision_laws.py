"""Laws of backends/precision_laws.py: layouts whose ranks train in sixteen bits as the laws there say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from backends.comm import run_ranks
from backends.data_parallel import Bucketed, DataParallel, NaiveDataParallel, Sharded
from backends.grid import Grid
from backends.model_parallel import ModelParallel
from backends.pipeline import Pipeline
from backends.precision_laws import trains_in_sixteen_bits
from backends.sequence_parallel.parts_of_rows import PartsOfRows
from backends.stack import Stack
from minigrad import nn, ops
from minigrad.bfloat16 import bfloat16
from minigrad.data import Batch
from minigrad.loss_scale import DynamicScale
from minigrad.mean_check import MeanCheck
from minigrad.strategy import Strategy
from minigrad.tensor import Tensor
from minigrad.weighted_mean import WeightedMean

Make = Callable[[Any], Strategy]


def build(rng: np.random.Generator) -> nn.Sequential:
    """6-7-5-4 with ReLU and tanh."""
    return nn.Sequential(
        nn.Linear(6, 7, rng=rng), nn.ReLU(), nn.Linear(7, 5, rng=rng), nn.Tanh(), nn.Linear(5, 4, rng=rng)
    )


def samples(n: int, size: float = 1.0) -> Batch:
    """Normal numbers of this size in four classes, as float16 numbers."""
    rng = np.random.default_rng(0)
    return Batch((size * rng.normal(size=(n, 6))).astype(np.float16), rng.integers(0, 4, n))


def losses_are_checked_without_rounding() -> None:
    """In bfloat16 a mean over samples, and a sum over tokens, are still known as such."""
    rng = np.random.default_rng(0)
    out, y = Tensor(rng.normal(size=(7, 6, 3)).astype(np.float32)), rng.normal(size=(7, 6, 3))
    tokens = WeightedMean(lambda out, y: ((out - y) ** 2).sum(), lambda y: y.size)
    with bfloat16():
        MeanCheck().loss_of_parts(ops.mse, y.astype(np.float32), several=True)(out, y.astype(np.float32))
        PartsOfRows(tokens).checked_total(out, y.astype(np.float32))


def grid(comm: Any, **axes: int) -> Strategy:
    """Data, pipelines of two micro-batches, and split layers, as far as the ``axes`` have several ranks."""
    ranks = Grid(comm, **axes)
    makes: dict[str, Make] = {
        "data": DataParallel,
        "pipe": lambda part: Pipeline(part, bounds=(0, 2, 5), micro_batches=2),
        "model": lambda part: ModelParallel(part, {"0": "column", "2": "row"}),
    }
    return Stack(*(makes[axis](getattr(ranks, axis)) for axis in makes if axes.get(axis, 1) > 1))


LAYOUTS: Mapping[str, tuple[int, Make]] = {
    "data": (2, DataParallel),
    "naive": (3, NaiveDataParallel),
    "buckets": (3, lambda comm: Bucketed(comm, bucket_bytes=64)),
    "ZeRO 1": (3, lambda comm: Sharded(comm, stage=1)),
    "ZeRO 2": (2, lambda comm: Sharded(comm, stage=2)),
    "ZeRO 3": (3, lambda comm: Sharded(comm, stage=3)),
    "pipe": (2, lambda comm: Pipeline(comm, bounds=(0, 2, 5), micro_batches=2)),
    "model": (2, lambda comm: ModelParallel(comm, {"0": "column", "2": "row"})),
    "data x pipe": (4, lambda comm: grid(comm, data=2, pipe=2)),
    "pipe x model": (4, lambda comm: grid(comm, pipe=2, model=2)),
    "data x pipe x model": (8, lambda comm: grid(comm, data=2, pipe=2, model=2)),
}


def trains(
    layout: str, n: int = 5, steps: Sequence[bool] = (False, True, False), size: float = 1.0, **settings: Any
) -> None:
    """The layout trains a small net in sixteen bits as one serial machine, with steps that overflow."""
    ranks, strategy = LAYOUTS[layout]
    settings = {"scale": lambda: DynamicScale(2.0**12), **settings}
    settings |= {"micros": 2} if "pipe" in layout else {}
    run_ranks(
        ranks,
        lambda comm: trains_in_sixteen_bits(
            strategy, comm, build, nn.CrossEntropyLoss(), samples(n, size), steps=steps, **settings
        ),
    )
