"""Each rank has some of the classes: the loss comes from three numbers per sample, not from all logits.

Lecture section: model parallelism by neurons. Lesson: 11_model_parallel. An all-gather of the logits would
move as many numbers per sample as there are classes; the largest, the sum of exponentials and the label's own
logit are three (as in Megatron-LM, Shoeybi et al. 2019).
"""

from __future__ import annotations

from typing import Any

from minigrad import ops
from minigrad.backend import Loss
from minigrad.device import Array, array_module
from minigrad.nn import Linear
from minigrad.op import OpResult, op
from minigrad.ops.loss import checked_labels
from minigrad.tensor import Tensor

from ..comm.collectives import allreduce
from ..comm.protocol import Comm
from .activation import Activation, Cut
from .neurons import ColumnLinear


@op
def sharded_cross_entropy(logits: Array, labels: Array, *, cut: Cut) -> OpResult:
    """``ops.cross_entropy`` of this rank's part of logits (N, classes), which are ``cut`` along the classes.

    Labels (N,) are integers, the same on all ranks. Three all-reduces of N numbers forward, none backward; no
    message for a batch of no samples. A rank may have no classes. Raises what ``ops.cross_entropy`` raises.
    """
    xp, comm, shape = array_module(logits), cut.comm, logits.shape
    n = len(logits)
    labels = checked_labels(xp.asarray(labels), (n, cut.whole)).astype(xp.intp)
    if not n:
        return xp.zeros((), logits.dtype), (lambda g: xp.zeros(shape, g.dtype), None)
    largest = logits.max(axis=1) if shape[1] else xp.full(n, -xp.inf, logits.dtype)
    largest = allreduce(comm, largest, xp.maximum)
    p = logits - largest[:, None]
    mine = xp.flatnonzero((labels >= cut.mine.start) & (labels < cut.mine.stop))
    place = (mine, labels[mine] - cut.mine.start)
    own = xp.zeros(n, logits.dtype)
    own[mine] = p[place]
    own = allreduce(comm, own)
    xp.exp(p, out=p)
    total = allreduce(comm, p.sum(axis=1))
    p /= total[:, None]

    def to_logits(g: Array) -> Array:
        d = p * (g / n)
        d[place] -= g / n
        return d

    return (xp.log(total) - own).sum() / n, (to_logits, None)


class ClassLinear(ColumnLinear):
    """The last layer, a part of whose classes each rank has, and which ``over_classes`` is the loss for.

    In training mode its output is this rank's part of the logits, which only the loss may use; in eval mode
    it is all of them.
    """

    def __init__(self, layer: Linear, comm: Comm, into: Cut | None = None):
        super().__init__(layer, comm)
        self.out = None
        self.training = layer.training

    def split_forward(self, a: Activation) -> Activation:
        logits = super().split_forward(a)
        return Activation(logits.x) if self.training else logits.gathered()


def over_classes(loss_fn: Loss, cut: Cut) -> Loss:
    """``loss_fn`` for logits that are cut along the classes; all but cross-entropy gather them."""

    def loss(logits: Tensor, y: Any) -> Tensor:
        if loss_fn is ops.cross_entropy:
            return sharded_cross_entropy(logits, y, cut=cut)
        return loss_fn(Activation(logits, (cut,)).gathered().x, y)

    return loss
