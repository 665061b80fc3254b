"""Data sets, batches of samples, and the seeded order in which an epoch visits them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .device import Array, to_device


@dataclass(frozen=True, repr=False)
class Batch:
    """Samples ``x`` (N, ...) and their targets ``y`` (N, ...).

    >>> Batch(np.zeros((64, 1, 28, 28), np.float32), np.zeros(64, np.int64))
    Batch(x=float32(64, 1, 28, 28), y=int64(64,))
    """

    x: Array
    y: Array

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(
                f"a batch needs as many targets as samples, got {len(self.x)} x and {len(self.y)} y"
            )

    def __repr__(self) -> str:
        return f"Batch(x={self.x.dtype}{self.x.shape}, y={self.y.dtype}{self.y.shape})"

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: slice | np.ndarray) -> Batch:
        return Batch(self.x[rows], self.y[rows])

    def to(self, device: str) -> Batch:
        """The batch on ``device`` ("numpy" or "cupy")."""
        return Batch(to_device(self.x, device), to_device(self.y, device))


@dataclass(frozen=True)
class Dataset:
    """The samples to learn from and those to test on."""

    name: str
    train: Batch
    test: Batch


def shares(n: int, parts: int) -> list[slice]:
    """``n`` samples in ``parts`` consecutive slices whose sizes differ by at most one; some may be empty."""
    if parts < 1:
        raise ValueError(f"samples can be shared among at least 1 part, got {parts}")
    cuts = [n * i // parts for i in range(parts + 1)]
    return [slice(a, b) for a, b in zip(cuts, cuts[1:], strict=False)]


def minibatches(data: Batch, size: int, *, seed: int, epoch: int) -> Iterator[Batch]:
    """One epoch: every sample once, in an order drawn from (seed, epoch) alone, so the same on every rank.

    The last batch is smaller where ``size`` does not divide the number of samples.
    """
    if size < 1:
        raise ValueError(f"the batch size must be at least 1, got {size}")
    order = np.random.default_rng([seed, epoch]).permutation(len(data))
    return (data[order[start : start + size]] for start in range(0, len(data), size))
