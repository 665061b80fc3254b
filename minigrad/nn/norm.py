"""Normalisations over the batch, or over features and groups of each sample.

Lecture section: synchronous data parallelism (batch-norm). Lesson: 06_data_parallel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import ops
from ..data import shares
from ..device import Array
from ..module import Module
from ..ops.batch_norm import Gather, Observe, move
from ..tensor import Parameter, Tensor
from .activation import ReLU
from .conv import check_groups


class BatchNorm(Module):
    """Normalises each channel of (N, C), (N, C, L) or (N, C, H, W) over the batch, then scales and shifts it.

    In training mode it uses the batch's statistics and moves the running ones towards them
    (``running += momentum * (batch - running)``, variance unbiased as in PyTorch); in eval mode it uses
    the running ones and leaves them as they are. Where ranks share the batch, each normalises its own samples
    until ``synchronize``.
    """

    def __init__(self, channels: int, *, momentum: float = 0.1, eps: float = 1e-5, dtype: Any = np.float32):
        self.weight = Parameter(np.ones(channels, dtype))
        self.bias = Parameter(np.zeros(channels, dtype))
        widened = np.result_type(dtype, np.float32)  # small steps would be lost in 16 bits
        self.running_mean: Array = np.zeros(channels, widened)
        self.running_var: Array = np.ones(channels, widened)
        self.momentum, self.eps = momentum, eps
        self.gathers: dict[str, Gather] = {}

    def forward(self, x: Any) -> Tensor:
        if not self.training:
            statistics = (self.running_mean, self.running_var)
            return ops.batch_norm(x, self.weight, self.bias, statistics=statistics, eps=self.eps)
        return self.normalize(x, self.observe)

    def normalize(self, x: Any, observe: Observe) -> Tensor:
        """``x`` normalised by its own statistics, which are passed to ``observe``."""
        gather = self.gather if self.gathers else None
        return ops.batch_norm(x, self.weight, self.bias, eps=self.eps, observe=observe, gather=gather)

    def in_one_pass(self, following: Sequence[Module]) -> int:
        """A ReLU: see ``ops.batch_norm``. Subclasses may normalise otherwise, and ranks may fail halfway."""
        alone = self.unchanged_type() is BatchNorm and not self.gathers
        return int(alone and [layer.unchanged_type() for layer in following[:1]] == [ReLU])

    def forward_with(self, x: Any, following: Sequence[Module]) -> Tensor:
        own, running = {"observe": self.observe}, {"statistics": (self.running_mean, self.running_var)}
        settings: dict[str, Any] = own if self.training else running
        return ops.batch_norm(x, self.weight, self.bias, eps=self.eps, relu=True, **settings)

    def synchronize(self, axis: str, gather: Gather) -> None:
        """Use the statistics of all ranks along an axis of the grid, inner axes first.

        ``gather`` returns their arrays, see ``ops.batch_norm``; it replaces an earlier one along the axis.
        """
        self.gathers[axis] = gather

    def gather(self, x: Array) -> list[Array]:
        """``x`` of all ranks whose statistics are used."""
        arrays = [x]
        for gather in reversed(self.gathers.values()):
            arrays = [part for array in arrays for part in gather(array)]
        return arrays

    def observe(self, mean: Array, var: Array, count: float) -> None:
        """Move the running statistics towards those of a batch of ``count`` values per channel."""
        if count:
            self.move(mean, var, unbias=unbiased(1.0, count))

    def move(self, mean: Array, var: Array, unbias: float = 1.0) -> None:
        move((self.running_mean, self.running_var), mean, var, self.momentum, unbias)

    def describe(self) -> str:
        return str(self.weight.shape[0])


class GhostBatchNorm(BatchNorm):
    """Batch-norm over groups: each of ``groups`` consecutive shares of the batch is normalised by itself.

    Does on one machine what ``groups`` ranks do that each normalise their own share (Goyal et al. 2017);
    Hoffer, Hubara and Soudry 2017 use it to train on large batches. The running statistics move once, towards
    the groups' mean, weighted by their samples.
    """

    def __init__(self, channels: int, groups: int, **settings: Any):
        super().__init__(channels, **settings)
        self.groups = groups

    def normalize(self, x: Any, observe: Observe) -> Tensor:
        starts = [share.start for share in shares(x.shape[0], self.groups)]
        statistics: list[tuple[Array, Array, float]] = []
        parts = []
        for part in ops.split(x, sections=starts[1:]):
            parts.append(super().normalize(part, lambda *values: statistics.append(values)))
        if n := sum(count for *_, count in statistics):
            self.move(
                sum(mean * (count / n) for mean, _, count in statistics),
                sum(unbiased(var, count) * (count / n) for _, var, count in statistics),
            )
        return ops.concatenate(*parts, axis=0)


class LayerNorm(Module):
    """Normalises the last axis, or axes, of each sample, then scales and shifts it.

    ``features`` is the size of that axis, or the shape of these axes.

    >>> from minigrad import nn
    >>> nn.LayerNorm(2)([[1.0, 3.0]]).data.round(3).tolist()
    [[-1.0, 1.0]]
    """

    token_wise = True

    def __init__(self, features: int | tuple[int, ...], *, eps: float = 1e-5, dtype: Any = np.float32):
        self.weight = Parameter(np.ones(features, dtype))
        self.bias = Parameter(np.zeros(features, dtype))
        self.eps = eps

    def forward(self, x: Any) -> Tensor:
        return ops.layer_norm(x, self.weight, self.bias, eps=self.eps)

    def describe(self) -> str:
        return sizes_of(self.weight)


class RMSNorm(Module):
    """Divides the last axis, or axes, of each sample by its root mean square, then scales it.

    ``features`` is the size of that axis, or the shape of these axes. ``eps`` is by default the dtype's own.
    """

    token_wise = True

    def __init__(self, features: int | tuple[int, ...], *, eps: float | None = None, dtype: Any = np.float32):
        self.weight = Parameter(np.ones(features, dtype))
        self.eps = eps

    def forward(self, x: Any) -> Tensor:
        return ops.rms_norm(x, self.weight, eps=self.eps)

    def describe(self) -> str:
        return sizes_of(self.weight)


class GroupNorm(Module):
    """Normalises each of ``groups`` groups of channels of each sample (N, C, ...), then scales and shifts.

    Batches of any size, also shared among ranks, train alike. Raises ValueError where the groups do not
    divide the channels.
    """

    def __init__(self, groups: int, channels: int, *, eps: float = 1e-5, dtype: Any = np.float32):
        check_groups(groups, channels, channels)
        self.weight = Parameter(np.ones(channels, dtype))
        self.bias = Parameter(np.zeros(channels, dtype))
        self.groups, self.eps = groups, eps

    def forward(self, x: Any) -> Tensor:
        return ops.group_norm(x, self.weight, self.bias, groups=self.groups, eps=self.eps)

    def describe(self) -> str:
        return f"{self.groups}, {self.weight.shape[0]}"


class InstanceNorm(Module):
    """Normalises each channel of each sample (N, C, ...); ``affine`` also scales and shifts it.

    It has no running statistics: in eval mode it does the same.
    """

    def __init__(self, channels: int, *, eps: float = 1e-5, affine: bool = False, dtype: Any = np.float32):
        self.weight = Parameter(np.ones(channels, dtype)) if affine else None
        self.bias = Parameter(np.zeros(channels, dtype)) if affine else None
        self.channels, self.eps = channels, eps

    def forward(self, x: Any) -> Tensor:
        inputs = (x,) if self.weight is None else (x, self.weight, self.bias)
        return ops.instance_norm(*inputs, eps=self.eps)

    def describe(self) -> str:
        return f"{self.channels}{', affine=True' if self.weight is not None else ''}"


def sizes_of(weight: Tensor) -> str:
    return str(weight.shape[0] if weight.ndim == 1 else weight.shape)


def unbiased(var: Array, count: float) -> Array:
    """The estimate of a variance that ``count`` values gave when divided by ``count``."""
    return var * (count / max(count - 1, 1))
