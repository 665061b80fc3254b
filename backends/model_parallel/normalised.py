"""Batch-norm on channels that are cut: each channel has its own statistics, so nobody need send any.

Lecture section: model parallelism by channels. Lesson: 11_model_parallel.
"""

from __future__ import annotations

from copy import copy

from minigrad.nn import BatchNorm
from minigrad.tensor import Parameter

from ..comm.protocol import Comm
from .activation import Activation, Cut, matching
from .layer import Whole


class ChannelBatchNorm(Whole):
    """The batch-norm of this rank's channels: weight, bias and running statistics are cut as x is.

    On whole channels every rank computes it whole.
    """

    def __init__(self, layer: BatchNorm, comm: Comm, into: Cut | None = None):
        super().__init__(copy(layer))
        if into is None:
            return
        self.out = matching(into, comm, layer.weight.shape[0])
        channels = self.out.on(0)
        for name, _, attribute in layer.named_arrays():
            whole = getattr(layer, attribute)
            if isinstance(whole, Parameter):
                part = Parameter(channels.part_of(whole.data), whole.requires_grad)
            else:
                part = channels.part_of(whole).copy()
            setattr(self.layer, attribute, part)
            self.cuts[name] = channels
        vars(self.layer)["cuts"] = self.cuts  # beside the arrays it is about

    def split_forward(self, a: Activation) -> Activation:
        a = a.gathered() if self.out is None else a.cut_as(self.out)
        return Activation(self.layer(a.x), a.cuts)
