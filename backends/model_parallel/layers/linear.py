"""Each rank has some of a linear layer's neurons (columns), or some of the inputs of all of them (rows).

Lecture section: model parallelism by neurons. Lesson: 11_model_parallel. ``naive.py``, a folder up, is the
slide itself. A column layer followed by a row layer needs only one all-reduce in each direction (Shoeybi et
al. 2019, Megatron-LM). The parts need not be equal; a rank without neurons still takes part in every message.
"""

from __future__ import annotations

from minigrad import ops
from minigrad.nn import Conv2d, Linear, Unembedding
from minigrad.tensor import Parameter, Tensor

from ...comm import differentiable
from ...comm.communicator import Communicator
from .layer import ShardedLayer
from .sharding import Shard, ShardedTensor, even_shard, matching_shard


class ColumnLinear(ShardedLayer):
    """Some of the neurons: x is replicated, y = x w.T + b is split along the features, the last axis.

    ``neurons`` says which, by default as evenly as can be. Forward sends no message. Backward all-reduces the
    gradient of x, if x needs one. Of an x (N, S, features) that comes split by tokens forward gathers these,
    and backward reduces and scatters the gradient.
    """

    token_wise = True
    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        layer: Linear | Conv2d | Unembedding,
        comm: Communicator,
        in_sharding: Shard | None = None,
        *,
        neurons: Shard | None = None,
    ):
        super().__init__()
        neurons = even_shard(0, comm, layer.weight.shape[0]) if neurons is None else neurons.on_axis(0)
        self.shard_parameter("weight", layer.weight, neurons)
        self.shard_parameter("bias", getattr(layer, "bias", None), neurons)  # an unembedding has none
        self.shard = self.out_sharding = neurons.on_axis(-1)

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        x = whole_for_columns(a, self.shard.comm)
        return ShardedTensor(ops.linear(x, *self.own_parameters), (self.shard,))

    def describe(self) -> str:
        return f"{self.weight.shape[1]}, {self.weight.shape[0]} of {self.shard.length}"


class RowLinear(ShardedLayer):
    """Some of the inputs of all neurons: x is split along the features, y is replicated after an all-reduce.

    The bias is replicated and added once, after the sum. Backward sends no message, if x came split.
    """

    token_wise = True
    weight: Parameter
    bias: Parameter | None

    def __init__(self, layer: Linear | Conv2d, comm: Communicator, in_sharding: Shard | None = None):
        super().__init__()
        self.shard = matching_shard(in_sharding, comm, layer.weight.shape[1])
        self.shard_parameter("weight", layer.weight, self.shard.on_axis(1))
        self.shard_parameter("bias", layer.bias)

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        y = ops.linear(a.redistribute(self.shard).local, self.weight)
        return ShardedTensor(reduce_then_add_bias(y, comm=self.shard.comm, bias=self.bias))

    def describe(self) -> str:
        return f"{self.weight.shape[1]} of {self.shard.length}, {self.weight.shape[0]}"


def whole_for_columns(a: ShardedTensor, comm: Communicator) -> Tensor:
    """The whole of ``a``, which each rank uses for its own neurons, so that gradients add up over ranks."""
    tokens = split_tokens_of(a, comm)
    if tokens is None:
        return differentiable.fan_out(a.gather().local, comm=comm)
    return differentiable.all_gather(a.local, comm=comm, axis=tokens.axis)


def split_tokens_of(a: ShardedTensor, comm: Communicator) -> Shard | None:
    """How the tokens of ``a`` (N, S, features) are split over ``comm``; None if they are not, or more is."""
    (shard,) = a.shards if len(a.shards) == 1 else (None,)
    return shard if shard and a.local.ndim == 3 and shard.axis == 1 and shard.comm is comm else None


def reduce_then_add_bias(y: Tensor, *, comm: Communicator, bias: Parameter | None) -> Tensor:
    """The sum of the ranks' partial results, to which the bias is added once, along the last axis."""
    total = differentiable.fan_in(y, comm=comm)
    return total if bias is None else total + bias
