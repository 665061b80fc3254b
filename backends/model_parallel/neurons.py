"""Each rank has some of a linear layer's neurons (columns), or some of the inputs of all of them (rows).

Lecture section: model parallelism by neurons. Lesson: 11_model_parallel. In the first, naive form every
layer gathers its outputs; a column layer and a row layer behind it need only one all-reduce each way (Shoeybi
et al. 2019, Megatron-LM). Parts need not be equal, and a rank without neurons takes part in every message.
"""

from __future__ import annotations

from minigrad import ops
from minigrad.nn import Linear
from minigrad.tensor import Parameter, Tensor

from ..comm import differentiable
from ..comm.protocol import Comm
from .activation import Activation, Cut, even_cut, matching
from .layer import SplitLayer


class ColumnLinear(SplitLayer):
    """A part of the neurons: x whole, y = x w.T + b cut along the features.

    Forward no message, backward one all-reduce of x's gradient, where x needs one.
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(self, layer: Linear, comm: Comm, into: Cut | None = None):
        super().__init__()
        neurons = even_cut(0, comm, layer.weight.shape[0])
        self.hold("weight", layer.weight, neurons)
        self.hold("bias", layer.bias, neurons)
        self.cut = self.out = neurons.on(1)

    def split_forward(self, a: Activation) -> Activation:
        x = differentiable.fan_out(a.gathered().x, comm=self.cut.comm)
        return Activation(ops.linear(x, *self.held), (self.cut,))

    def describe(self) -> str:
        return f"{self.weight.shape[1]}, {self.weight.shape[0]} of {self.cut.whole}"


class GatheredLinear(ColumnLinear):
    """The naive form: a part of the neurons, whose outputs all ranks gather at once."""

    def __init__(self, layer: Linear, comm: Comm, into: Cut | None = None):
        super().__init__(layer, comm)
        self.out = None

    def split_forward(self, a: Activation) -> Activation:
        return super().split_forward(a).gathered()


class RowLinear(SplitLayer):
    """A part of the inputs of all neurons: x cut along the features, y whole after one all-reduce.

    The bias is whole on every rank and added once, after the sum. Backward sends nothing, where x came cut.
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(self, layer: Linear, comm: Comm, into: Cut | None = None):
        super().__init__()
        self.cut = matching(into, comm, layer.weight.shape[1])
        self.hold("weight", layer.weight, self.cut)
        self.hold("bias", layer.bias)

    def split_forward(self, a: Activation) -> Activation:
        y = ops.linear(a.cut_as(self.cut).x, self.weight)
        return Activation(summed(y, comm=self.cut.comm, bias=self.bias))

    def describe(self) -> str:
        return f"{self.weight.shape[1]} of {self.cut.whole}, {self.weight.shape[0]}"


def summed(y: Tensor, *, comm: Comm, bias: Parameter | None) -> Tensor:
    """The ranks' partial results added up, and then the bias, once, along the last axis."""
    total = differentiable.fan_in(y, comm=comm)
    return total if bias is None else total + bias
