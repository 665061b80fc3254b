"""Each rank has some of a convolution's filters, or some of the channels that all filters look at.

Lecture section: model parallelism by channels. Lesson: 11_model_parallel. Filters and channels are to a
convolution what columns and rows are to a linear layer: a convolution split by filters, layers that act on
each channel alone, and a convolution split by channels need one all-reduce in each direction. Groups of
channels do not look at one another, so a split by groups needs no message.
"""

from __future__ import annotations

from minigrad import ops
from minigrad.data import shares
from minigrad.nn import Conv2d
from minigrad.tensor import Parameter

from ...comm import differentiable
from ...comm.communicator import Communicator
from ...comm.differentiable import in_channels_last
from .layer import ShardedLayer
from .linear import ColumnLinear, RowLinear, reduce_then_add_bias
from .sharding import Shard, ShardedTensor, even_shard, matching_shard


class FilterConv2d(ColumnLinear):
    """Some of the filters: x is replicated, y is split along its channels.

    Forward sends no message. Backward all-reduces the gradient of x, if x needs one. Raises ValueError for a
    convolution of several groups.
    """

    token_wise = False

    def __init__(self, layer: Conv2d, comm: Communicator, in_sharding: Shard | None = None):
        refuse_groups(layer)
        super().__init__(layer, comm)
        self.shard = self.out_sharding = self.shard.on_axis(1)
        self.settings = layer.settings

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        x = in_channels_last(differentiable.fan_out, a.gather().local, comm=self.shard.comm)
        return ShardedTensor(ops.conv2d(x, *self.own_parameters, **self.settings), (self.shard,))


class GatheredConv2d(FilterConv2d):
    """The naive form: some of the filters, whose outputs are gathered at once."""

    def __init__(self, layer: Conv2d, comm: Communicator, in_sharding: Shard | None = None):
        super().__init__(layer, comm)
        self.out_sharding = None

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        return super().sharded_forward(a).gather()


class ChannelConv2d(RowLinear):
    """Some of the channels that all filters look at: x is split along them, y is replicated.

    Forward is one all-reduce, after which the bias is added once. Backward sends no message, if x came split.
    Raises ValueError for a convolution of several groups.
    """

    token_wise = False

    def __init__(self, layer: Conv2d, comm: Communicator, in_sharding: Shard | None = None):
        refuse_groups(layer)
        super().__init__(layer, comm, in_sharding)
        self.shard = self.shard.on_axis(1)
        self.settings = layer.settings

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        y = ops.conv2d(a.redistribute(self.shard).local, self.weight, **self.settings)
        return ShardedTensor(in_channels_last(reduce_then_add_bias, y, comm=self.shard.comm, bias=self.bias))


class GroupedConv2d(ShardedLayer):
    """Some of a convolution's groups: x is split by their channels, y by their filters; no message if x fits.

    Raises ValueError for a convolution of one group, and where x comes split inside a group.
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(self, layer: Conv2d, comm: Communicator, in_sharding: Shard | None = None):
        super().__init__()
        groups = layer.settings["groups"]
        if groups == 1:
            raise ValueError(
                f"{layer!r} has one group, which cannot be split by groups; use filters or channels"
            )
        n_in, n_out = layer.weight.shape[1], layer.weight.shape[0] // groups  # of a group
        groups_shard = even_shard(1, comm, groups)
        self.shard = groups_shard.repeat(n_in)
        if in_sharding is not None:
            self.shard = matching_shard(in_sharding, comm, groups * n_in, 1)
            check_group_borders(self.shard, n_in, groups)
            groups_shard = Shard(1, comm, tuple(bound // n_in for bound in self.shard.bounds))
        self.filters = self.out_sharding = groups_shard.repeat(n_out)
        self.shard_parameter("weight", layer.weight, self.filters.on_axis(0))
        self.shard_parameter("bias", layer.bias, self.filters.on_axis(0))
        self.settings = {**layer.settings, "groups": max(groups_shard.local_size, 1)}

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        weight, *bias = self.own_parameters
        kernels = weight if len(weight) else weight[:, :0]  # a rank without groups has no channels
        y = ops.conv2d(a.redistribute(self.shard).local, kernels, *bias, **self.settings)
        return ShardedTensor(y, (self.filters,))

    def describe(self) -> str:
        shards = (self.shard, self.filters)
        return ", ".join(f"{shard.local_size} of {shard.length}" for shard in shards)


def refuse_groups(layer: Conv2d) -> None:
    if layer.settings["groups"] > 1:
        raise ValueError(
            f"{layer!r} has {layer.settings['groups']} groups, whose filters look at different channels; "
            "split it by groups"
        )


def check_group_borders(shard: Shard, size: int, groups: int) -> None:
    """Raise ValueError, with the numbers of ranks that fit, if a part of the channels ends in a group."""
    if not any(bound % size for bound in shard.bounds):
        return
    ends = {n: [share.stop for share in shares(groups * size, n)] for n in range(1, groups + 1)}
    legal = [str(n) for n in ends if not any(end % size for end in ends[n])]
    raise ValueError(
        f"the {shard.length} channels come split at {', '.join(map(str, shard.bounds[1:-1]))}, inside a "
        f"group of {size} channels; use {' or '.join(legal)} ranks, or do not split the layer before it"
    )
