"""Each rank has some of the classes: the loss needs three numbers per sample from the others, not all logits.

Lecture section: model parallelism by neurons. Lesson: 11_model_parallel, by ``model_parallel.py``. An
all-gather of the logits would move as many numbers per sample as there are classes. The largest logit, the
sum of exponentials and the label's own logit are three numbers (Megatron-LM's vocabulary-parallel
cross-entropy, Shoeybi et al. 2019).
"""

from __future__ import annotations

from typing import Any

from minigrad import ops
from minigrad.device import Array, array_module
from minigrad.nn import Linear
from minigrad.op import op
from minigrad.ops.cross_entropy import checked_labels
from minigrad.pullback import OpResult
from minigrad.tensor import Tensor
from minigrad.work import Loss

from ...comm.collectives import allreduce
from ...comm.communicator import Communicator
from .linear import ColumnLinear
from .sharding import Shard, ShardedTensor


@op
def sharded_cross_entropy(logits: Array, labels: Array, *, shard: Shard) -> OpResult:
    """``ops.cross_entropy`` of logits (N, classes) that are split along the classes by ``shard``.

    Labels (N,) are integers, the same on all ranks. Forward is three all-reduces of N numbers; backward sends
    nothing, and neither does a batch without samples. A rank may have no classes. Raises what
    ``ops.cross_entropy`` raises.
    """
    xp, comm, shape = array_module(logits), shard.comm, logits.shape
    if len(shape) != 2:
        raise ValueError(
            f"classes that are split over ranks need logits (N, classes), got {shape}; flatten them, "
            'or split the last layer by "gathered"'
        )
    n = len(logits)
    labels = checked_labels(xp.asarray(labels), (n, shard.length)).astype(xp.intp)
    if not n:
        return xp.zeros((), logits.dtype), (lambda g: xp.zeros(shape, g.dtype), None)
    largest = logits.max(axis=1) if shape[1] else xp.full(n, -xp.inf, logits.dtype)
    largest = allreduce(comm, largest, xp.maximum)
    p = logits - largest[:, None]
    mine = xp.flatnonzero((labels >= shard.local_slice.start) & (labels < shard.local_slice.stop))
    place = (mine, labels[mine] - shard.local_slice.start)
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
    """The last layer, of which each rank has some classes; its loss is ``class_parallel_loss``.

    In training mode its output is this rank's part of the logits, which only the loss may use; in eval mode
    it is all of them.
    """

    def __init__(self, layer: Linear, comm: Communicator, in_sharding: Shard | None = None):
        super().__init__(layer, comm)
        self.out_sharding = None
        self.training = layer.training

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        logits = super().sharded_forward(a)
        return ShardedTensor(logits.local) if self.training else logits.gather()


def class_parallel_loss(loss_fn: Loss, shard: Shard) -> Loss:
    """``loss_fn`` for logits split along the classes, the last axis; all but cross-entropy gather them."""

    def loss(logits: Tensor, y: Any) -> Tensor:
        if loss_fn is ops.cross_entropy:
            return sharded_cross_entropy(logits, y, shard=shard)
        return loss_fn(ShardedTensor(logits, (shard.on_axis(-1),)).gather().local, y)

    return loss
