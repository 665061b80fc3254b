"""Batch-norm on split channels: each channel has statistics of its own, so there is no message.

Lecture section: model parallelism by channels. Lesson: 11_model_parallel.
"""

from __future__ import annotations

from copy import copy

from minigrad.nn import BatchNorm
from minigrad.tensor import Parameter

from ..comm.communicator import Communicator
from .replicated import Replicated
from .sharding import Shard, ShardedTensor, matching_shard


class ChannelBatchNorm(Replicated):
    """The batch-norm of this rank's channels; weight, bias and running statistics are split as x is.

    On replicated channels every rank computes the whole layer.
    """

    def __init__(self, layer: BatchNorm, comm: Communicator, in_sharding: Shard | None = None):
        super().__init__(copy(layer))
        if in_sharding is None:
            return
        self.out_sharding = matching_shard(in_sharding, comm, layer.weight.shape[0])
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
