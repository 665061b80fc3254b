"""Model parallelism as on the slide: each rank computes some neurons of a layer, and all gather the outputs.

Lecture section: model parallelism by neurons. Lesson: 11_model_parallel. ``layers/linear.py`` has the layers
that leave their outputs split, and so send less.
"""

from __future__ import annotations

from minigrad import ops
from minigrad.nn import Linear
from minigrad.tensor import Parameter

from ..comm import differentiable
from ..comm.communicator import Communicator
from .layers.layer import ShardedLayer
from .layers.sharding import Shard, ShardedTensor, even_shard


class GatheredLinear(ShardedLayer):
    """Some of the neurons, whose outputs are gathered at once: x and y = x w.T + b are replicated.

    Forward is one all-gather of y, backward one all-reduce of the gradient of x, if x needs one.
    """

    token_wise = True
    weight: Parameter
    bias: Parameter | None

    def __init__(self, layer: Linear, comm: Communicator, in_sharding: Shard | None = None):
        super().__init__()
        self.comm = comm
        self.neurons = even_shard(0, comm, layer.weight.shape[0])
        self.shard_parameter("weight", layer.weight, self.neurons)
        self.shard_parameter("bias", layer.bias, self.neurons)

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        x = differentiable.fan_out(a.gather().local, comm=self.comm)  # the gradients of x add up over ranks
        y = ops.linear(x, *self.own_parameters)  # of this rank's neurons
        return ShardedTensor(differentiable.join_in(y, comm=self.comm, axis=y.ndim - 1))

    def describe(self) -> str:
        return f"{self.weight.shape[1]}, {self.weight.shape[0]} of {self.neurons.length}"
