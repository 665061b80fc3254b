"""Layers that normalise: over the batch, over groups of its samples, or over the features of each.

Lecture section: synchronous data parallelism. Lesson: 06_data_parallel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import ops
from .data import shares
from .device import Array
from .module import Module
from .ops.norm import Gather, Observe
from .tape import current_tape
from .tensor import Parameter, Tensor


class BatchNorm(Module):
    """Normalises each channel of (N, C) or (N, C, H, W) over the batch, then scales and shifts it.

    Under an open tape it uses the batch's statistics and moves the running ones towards them
    (``running += momentum * (batch - running)``, variance unbiased as in PyTorch); with no tape open
    it uses the running ones. Where ranks share the batch, ``gather`` brings the arrays of all of them
    (see ``ops.batch_norm``); without it each normalises what it has.
    """

    def __init__(
        self,
        channels: int,
        *,
        momentum: float = 0.1,
        eps: float = 1e-5,
        gather: Gather | None = None,
        dtype: Any = np.float32,
    ):
        self.weight = Parameter(np.ones(channels, dtype))
        self.bias = Parameter(np.zeros(channels, dtype))
        self.running_mean: Array = np.zeros(channels, dtype)
        self.running_var: Array = np.ones(channels, dtype)
        self.momentum, self.eps, self.gather = momentum, eps, gather

    def forward(self, x: Any) -> Tensor:
        if current_tape.get() is None:
            statistics = (self.running_mean, self.running_var)
            return ops.batch_norm(x, self.weight, self.bias, statistics=statistics, eps=self.eps)
        return self.normalised(x, self.observe)

    def normalised(self, x: Any, observe: Observe) -> Tensor:
        """``x`` by its own statistics, which are told to ``observe``."""
        return ops.batch_norm(x, self.weight, self.bias, eps=self.eps, observe=observe, gather=self.gather)

    def observe(self, mean: Array, var: Array, count: float) -> None:
        """Move the running statistics towards those of a batch of ``count`` values per channel."""
        if count:
            self.move(mean, unbiased(var, count))

    def move(self, mean: Array, var: Array) -> None:
        self.running_mean += self.momentum * (mean - self.running_mean)
        self.running_var += self.momentum * (var - self.running_var)

    def describe(self) -> str:
        return str(self.weight.shape[0])


class GhostBatchNorm(BatchNorm):
    """Batch-norm over groups: each of ``groups`` consecutive shares of the batch is normalised by itself.

    What so many ranks do that each normalise what they have (Goyal et al. 2017), on one machine; Hoffer,
    Hubara and Soudry 2017 use it to train on large batches. The running statistics move once, towards
    the groups' mean, weighted by their samples.
    """

    def __init__(self, channels: int, groups: int, **settings: Any):
        super().__init__(channels, **settings)
        self.groups = groups

    def normalised(self, x: Any, observe: Observe) -> Tensor:
        starts = [share.start for share in shares(x.shape[0], self.groups)]
        seen: list[tuple[Array, Array, float]] = []
        parts = []
        for part in ops.split(x, sections=starts[1:]):
            parts.append(super().normalised(part, lambda *found: seen.append(found)))
        if n := sum(count for *_, count in seen):
            self.move(
                sum(mean * (count / n) for mean, _, count in seen),
                sum(unbiased(var, count) * (count / n) for _, var, count in seen),
            )
        return ops.concatenate(*parts, axis=0)


def unbiased(var: Array, count: float) -> Array:
    """The estimate of a variance that ``count`` values gave when divided by ``count``."""
    return var * (count / max(count - 1, 1))


class LayerNorm(Module):
    """Normalises the last axis of each sample, then scales and shifts it."""

    def __init__(self, features: int, *, eps: float = 1e-5, dtype: Any = np.float32):
        self.weight = Parameter(np.ones(features, dtype))
        self.bias = Parameter(np.zeros(features, dtype))
        self.eps = eps

    def forward(self, x: Any) -> Tensor:
        return ops.layer_norm(x, self.weight, self.bias, eps=self.eps)

    def describe(self) -> str:
        return str(self.weight.shape[0])
