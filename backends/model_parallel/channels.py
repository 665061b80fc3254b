"""Each rank has some of a convolution's filters, or some of the channels that all of them look at.

Lecture section: model parallelism by channels. Lesson: 11_model_parallel. What columns and rows are to a
linear layer, filters and channels are to a convolution: filters, whatever acts on each channel alone, and
channels behind it need one all-reduce each way. Groups of channels do not look at one another: no message.
"""

from __future__ import annotations

import math

from minigrad import ops
from minigrad.data import shares
from minigrad.nn import Conv2d
from minigrad.tensor import Parameter

from ..comm import differentiable
from ..comm.protocol import Comm
from .activation import Activation, Cut, as_it_lies, even_cut, matching
from .layer import Elementwise, SplitLayer
from .neurons import summed


class FilterConv2d(SplitLayer):
    """A part of the filters: x whole, y cut along its channels.

    Forward no message, backward one all-reduce of x's gradient, where x needs one. Raises ValueError for a
    convolution of several groups.
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(self, layer: Conv2d, comm: Comm, into: Cut | None = None):
        super().__init__()
        refuse_groups(layer)
        filters = even_cut(0, comm, layer.weight.shape[0])
        self.hold("weight", layer.weight, filters)
        self.hold("bias", layer.bias, filters)
        self.cut = self.out = filters.on(1)
        self.settings = layer.settings

    def split_forward(self, a: Activation) -> Activation:
        x = as_it_lies(differentiable.fan_out, a.gathered().x, comm=self.cut.comm)
        return Activation(ops.conv2d(x, *self.held, **self.settings), (self.cut,))

    def describe(self) -> str:
        return f"{self.weight.shape[1]}, {self.weight.shape[0]} of {self.cut.whole}"


class GatheredConv2d(FilterConv2d):
    """The naive form: a part of the filters, whose outputs all ranks gather at once."""

    def __init__(self, layer: Conv2d, comm: Comm, into: Cut | None = None):
        super().__init__(layer, comm)
        self.out = None

    def split_forward(self, a: Activation) -> Activation:
        return super().split_forward(a).gathered()


class ChannelConv2d(SplitLayer):
    """A part of the channels that every filter looks at: x cut along them, y whole after one all-reduce.

    The bias is whole on every rank and added once, after the sum. Backward sends nothing, where x came cut.
    Raises ValueError for a convolution of several groups.
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(self, layer: Conv2d, comm: Comm, into: Cut | None = None):
        super().__init__()
        refuse_groups(layer)
        self.cut = matching(into, comm, layer.weight.shape[1])
        self.hold("weight", layer.weight, self.cut)
        self.hold("bias", layer.bias)
        self.settings = layer.settings

    def split_forward(self, a: Activation) -> Activation:
        y = ops.conv2d(a.cut_as(self.cut).x, self.weight, **self.settings)
        return Activation(as_it_lies(summed, y, comm=self.cut.comm, bias=self.bias))

    def describe(self) -> str:
        return f"{self.weight.shape[1]} of {self.cut.whole}, {self.weight.shape[0]}"


class GroupedConv2d(SplitLayer):
    """Some of a convolution's groups: their channels in, their filters out, no message where x comes cut so.

    Raises ValueError for a convolution of one group, and where x comes cut inside a group.
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(self, layer: Conv2d, comm: Comm, into: Cut | None = None):
        super().__init__()
        groups = layer.settings["groups"]
        if groups == 1:
            raise ValueError(
                f"{layer!r} has one group, which cannot be split by groups; use filters or channels"
            )
        n_in, n_out = layer.weight.shape[1], layer.weight.shape[0] // groups  # of a group
        by_group = even_cut(1, comm, groups)
        self.cut = by_group.times(n_in)
        if into is not None:
            self.cut = matching(into, comm, groups * n_in)
            check_group_borders(self.cut, n_in, groups)
            by_group = Cut(1, comm, tuple(bound // n_in for bound in self.cut.bounds))
        self.filters = self.out = by_group.times(n_out)
        self.hold("weight", layer.weight, self.filters.on(0))
        self.hold("bias", layer.bias, self.filters.on(0))
        self.settings = {**layer.settings, "groups": max(by_group.sizes[comm.rank], 1)}

    def split_forward(self, a: Activation) -> Activation:
        weight, *bias = self.held
        seen = weight if len(weight) else weight[:, :0]  # a rank without groups sees no channels
        y = ops.conv2d(a.cut_as(self.cut).x, seen, *bias, **self.settings)
        return Activation(y, (self.filters,))

    def describe(self) -> str:
        channels, filters = (f"{cut.sizes[cut.comm.rank]} of {cut.whole}" for cut in (self.cut, self.filters))
        return f"{channels}, {filters}"


class PerChannel(Elementwise):
    """A layer that acts on each channel alone (pooling), so that it does not care how channels are cut."""

    def split_forward(self, a: Activation) -> Activation:
        a = a.gathered((2, 3))
        return Activation(self.layer(a.x), a.cuts)


class SplitFlatten(Elementwise):
    """(N, C, H, W) to (N, features): the features of a channel follow one another, so a cut stays one."""

    def split_forward(self, a: Activation) -> Activation:
        a = a.gathered((2, 3))
        pixels = math.prod(a.x.shape[2:])
        return Activation(self.layer(a.x), tuple(cut.times(pixels) for cut in a.cuts))


def refuse_groups(layer: Conv2d) -> None:
    if layer.settings["groups"] > 1:
        raise ValueError(
            f"{layer!r} has {layer.settings['groups']} groups, whose filters look at different channels; "
            "split it by groups"
        )


def check_group_borders(cut: Cut, size: int, groups: int) -> None:
    """Raise ValueError, naming how many ranks could do it, where a part of the channels ends in a group."""
    if not any(bound % size for bound in cut.bounds):
        return
    ends = {n: [share.stop for share in shares(groups * size, n)] for n in range(1, groups + 1)}
    legal = [str(n) for n in ends if not any(end % size for end in ends[n])]
    raise ValueError(
        f"the {cut.whole} channels come cut at {', '.join(map(str, cut.bounds[1:-1]))}, inside a group of "
        f"{size} channels; use {' or '.join(legal)} ranks, or leave the layer that gives the channels whole"
    )
