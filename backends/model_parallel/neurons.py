"""Each rank has some of a linear layer's neurons (columns), or some of the inputs of all of them (rows).

Lecture section: model parallelism by neurons. Lesson: 11_model_parallel. In the first, naive form every layer
gathers its outputs; a column layer and a row layer behind it need only one all-reduce each way (Shoeybi et al.
2019, Megatron-LM).
"""

from __future__ import annotations

from minigrad import ops
from minigrad.nn import Linear

from ..comm import adjoint
from .activation import Activation, Cut
from .layer import SplitLayer


class ColumnLinear(SplitLayer):
    """A part of the neurons: x whole, y = x w.T + b cut along the features.

    Forward no message, backward one all-reduce of x's gradient, where x needs one.
    """

    def __init__(self, layer: Linear, cut: Cut):
        super().__init__()
        self.out = Cut(1, cut.comm, cut.bounds)
        self.hold("weight", layer.weight, Cut(0, cut.comm, cut.bounds))
        self.hold("bias", layer.bias, Cut(0, cut.comm, cut.bounds))

    def split_forward(self, a: Activation) -> Activation:
        x = adjoint.fan_out(a.gathered().x, comm=self.out.comm)
        return Activation(ops.linear(x, self.weight, self.bias), (self.out,))


class GatheredLinear(ColumnLinear):
    """The naive form: a part of the neurons, whose outputs all ranks gather at once."""

    def split_forward(self, a: Activation) -> Activation:
        return super().split_forward(a).gathered()


class RowLinear(SplitLayer):
    """A part of the inputs of all neurons: x cut along the features, y whole after one all-reduce.

    The bias is whole on every rank and added once, after the sum. Backward sends nothing.
    """

    def __init__(self, layer: Linear, cut: Cut):
        super().__init__()
        self.into = Cut(1, cut.comm, cut.bounds, cut.order)
        self.hold("weight", layer.weight, self.into)
        self.hold("bias", layer.bias)

    def split_forward(self, a: Activation) -> Activation:
        if a.along(1) is None:
            a = a.gathered().split(self.into)
        y = adjoint.fan_in(ops.linear(a.x, self.weight), comm=self.into.comm)
        return Activation(y if self.bias is None else y + self.bias)
