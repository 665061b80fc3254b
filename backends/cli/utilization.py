"""The share of a machine's speed that a training reaches, by one matrix product of this machine."""

from __future__ import annotations

from time import perf_counter
from typing import NamedTuple

import numpy as np

from minigrad.models import Net

from ..planner.sizes_of_net import operations_of_sample

SIDE = 512  # of the matrices: three fit into a cache of a core, and what is beside a product is little
SECONDS = 0.04
LEAST = 2  # products, of which the first one may load the library


class Utilization(NamedTuple):
    """Operations a second of a training in ``flops``, on ``ranks`` of which each could do ``peak``."""

    flops: float
    peak: float
    ranks: int

    @property
    def share(self) -> float:
        """The fraction of what all ranks could do."""
        return self.flops / (self.ranks * self.peak)

    def __str__(self) -> str:
        times = f"{self.ranks} x " if self.ranks > 1 else ""
        return (
            f"{in_gigaflops(self.flops)} GFLOP/s, {self.share:.0%} of the {times}{in_gigaflops(self.peak)} "
            "GFLOP/s that one matrix product reaches here"
        )


def in_gigaflops(flops: float) -> str:
    """Three digits."""
    return f"{flops / 1e9:.{2 if flops < 1e10 else 1 if flops < 1e11 else 0}f}"


def peak_of_product(dtype: str) -> float:
    """Operations a second of the fastest of some products of 512 x 512 matrices, which take 0.04 s in all."""
    x = np.ones((SIDE, SIDE), dtype)
    y, times, start = np.empty_like(x), list[float](), perf_counter()
    before = start
    while len(times) < LEAST or before - start < SECONDS:
        np.matmul(x, x, out=y)
        times.append((now := perf_counter()) - before)
        before = now
    return 2 * SIDE**3 / max(min(times), 1e-9)


def utilization_of(net: Net, samples_per_second: float, ranks: int, dtype: str) -> Utilization | None:
    """How well ``ranks`` used their cores; None where no operations are counted, or no steps were taken."""
    flops = operations_of_sample(net) * samples_per_second
    return Utilization(flops, peak_of_product(dtype), ranks) if flops else None
