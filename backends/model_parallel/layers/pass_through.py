"""Layers that the plan does not name: they take a split input as it comes, or gather it.

Lecture section: model parallelism. Lesson: 11_model_parallel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from minigrad import nn, ops
from minigrad.module import Module
from minigrad.random_mask import Mask
from minigrad.tensor import Parameter, Tensor

from ...comm.communicator import Communicator
from .layer import ShardedLayer
from .sharding import Shard, ShardedTensor, matching_shard


class Replicated(ShardedLayer):
    """A layer that every rank computes whole, on the whole input."""

    token_wise = True

    def __init__(self, layer: Module, comm: Communicator | None = None, in_sharding: Shard | None = None):
        super().__init__()
        self.layer = layer

    def named_arrays(self, prefix: str = "") -> Iterator[tuple[str, Module, str]]:
        return self.layer.named_arrays(prefix)  # the serial names

    def forward(self, *inputs: Any, **keywords: Any) -> Tensor:
        """The output of the layer for any number of whole inputs, and keywords."""
        if keywords or len(inputs) != 1:
            return self.layer(*inputs, **keywords)
        return super().forward(*inputs)

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        return ShardedTensor(self.layer(a.gather().local))


class Elementwise(Replicated):
    """A layer that acts on each element alone, and therefore on a split input as on a whole one."""

    def __init__(self, layer: Module, comm: Communicator | None = None, in_sharding: Shard | None = None):
        super().__init__(layer)
        self.out_sharding = in_sharding

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        return ShardedTensor(self.layer(a.local), a.shards)


class PerChannel(Elementwise):
    """A layer that acts on each channel alone (pooling, upsampling), however the channels are split."""

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        return super().sharded_forward(a.gather((2, 3)))


class ShardedFlatten(Elementwise):
    """(N, C, H, W) to (N, features): a channel becomes consecutive features, so a split stays one."""

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        a = a.gather((2, 3))
        pixels = math.prod(a.local.shape[2:])
        return ShardedTensor(self.layer(a.local), tuple(s.repeat(pixels) if s.axis else s for s in a.shards))


class ChannelBatchNorm(Replicated):
    """Batch-norm whose weight, bias and running statistics are split as the channels of x, if they are."""

    def __init__(self, layer: nn.BatchNorm, comm: Communicator, in_sharding: Shard | None = None):
        super().__init__(copy(layer))
        if in_sharding is None:
            return
        self.out_sharding = matching_shard(in_sharding, comm, layer.weight.shape[0], 1)
        channels = self.out_sharding.on_axis(0)
        for name, _, attribute in layer.named_arrays():
            whole = getattr(layer, attribute)
            if isinstance(whole, Parameter):
                part = Parameter(channels.local_part(whole.data), whole.requires_grad)
            else:
                part = channels.local_part(whole).copy()
            setattr(self.layer, attribute, part)
            self.shards[name] = channels

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        a = a.gather() if self.out_sharding is None else a.redistribute(self.out_sharding)
        return ShardedTensor(self.layer(a.local), a.shards)


class ShardedDropout(Elementwise):
    """Dropout by each rank's part of the whole mask, so that the ranks drop what one machine would drop."""

    layer: nn.Dropout

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        if not self.layer.drops:
            return a
        mask = ShardedMask(self.layer.next_mask(), a)
        return ShardedTensor(ops.dropout(a.local, p=self.layer.p, rng=mask), a.shards)


class ShardedMask(NamedTuple):
    """This rank's part of the mask of a tensor."""

    whole: Mask
    tensor: ShardedTensor

    def keep(self, shape: tuple[int, ...], p: float) -> np.ndarray:
        """``RandomMask.keep`` for this rank's part of the tensor, which has ``shape``."""
        keep = self.whole.keep(self.tensor.shape, p)
        return reduce(lambda keep, shard: shard.local_part(keep), self.tensor.shards, keep)


ShardedLayerClass = Callable[[Any, Any, Shard | None], ShardedLayer]
"""Makes a sharded layer of a serial one, the ranks (in a grid, for "grid"), and the split of its features."""

ELEMENTWISE = (
    nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Hardswish, nn.Softplus,
    nn.Sigmoid, nn.LogSigmoid, nn.Tanh, nn.Identity,
)  # fmt: skip

PASS_THROUGH: Mapping[type[Module], ShardedLayerClass] = {
    **dict.fromkeys(ELEMENTWISE, Elementwise),
    nn.Dropout: ShardedDropout,
    nn.Flatten: ShardedFlatten,
    nn.MaxPool2d: PerChannel,
    nn.AvgPool2d: PerChannel,
    nn.AdaptiveAvgPool2d: PerChannel,
    nn.AdaptiveMaxPool2d: PerChannel,
    nn.Upsample: PerChannel,
    nn.BatchNorm: ChannelBatchNorm,
}
"""Layers that take a split input when the plan does not name them; all others become ``Replicated``."""


def lookup(table: Mapping[type[Module], Any], layer: Module, otherwise: Any) -> Any:
    """The table's entry for the class of the layer; a subclass with another forward has none."""
    return next((value for kind, value in table.items() if layer.computes_as(kind)), otherwise)
