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
from minigrad.half import rounded, widened
from minigrad.nn import CrossEntropyLoss, Linear, Unembedding
from minigrad.ops.cross_entropy import checked_labels
from minigrad.pullback import OpResult
from minigrad.tensor import Tensor
from minigrad.weighted_mean import PartOfMean, divided
from minigrad.work import Loss

from ...comm.collectives import allreduce
from ...comm.communicator import Communicator
from ...comm.typed_tape import typed_op
from .linear import ColumnLinear
from .sharding import Shard, ShardedTensor


@typed_op
def sharded_cross_entropy(
    logits: Array, labels: Array, *, shard: Shard, ignore_index: int | None = None, reduction: str = "mean"
) -> OpResult:
    """``ops.cross_entropy`` of logits (N, classes) that are split along the classes by ``shard``.

    Labels (N,) are integers, the same on all ranks; those that are ``ignore_index`` have no loss, and the
    mean is over all N. The other ``reduction`` is "sum". Forward is three all-reduces of N numbers; backward
    sends nothing, and neither does a batch without samples. A rank may have no classes. These numbers and the
    loss of float16 logits have float32. Raises what ``ops.cross_entropy`` raises.
    """
    xp, comm, shape, dtype = array_module(logits), shard.comm, logits.shape, logits.dtype
    logits = widened(logits)
    if len(shape) != 2:
        raise ValueError(
            f"classes that are split over ranks need logits (N, classes), got {shape}; for tokens take "
            "nn.CrossEntropyLoss(class_axis=-1), or leave the last layer out of the plan"
        )
    n = len(logits)
    labels = xp.asarray(labels)
    counted = labels == labels if ignore_index is None else labels != ignore_index
    labels = checked_labels(labels * counted, (n, shard.length)).astype(xp.intp)
    if not n:
        return xp.zeros((), logits.dtype), (lambda g: xp.zeros(shape, dtype), None)
    largest = logits.max(axis=1) if shape[1] else xp.full(n, -xp.inf, logits.dtype)
    largest = allreduce(comm, largest, xp.maximum)
    p = logits - largest[:, None]
    here = (labels >= shard.local_slice.start) & (labels < shard.local_slice.stop)
    mine = xp.flatnonzero(here & counted)
    place = (mine, labels[mine] - shard.local_slice.start)
    own = xp.zeros(n, logits.dtype)
    own[mine] = p[place]
    own = allreduce(comm, own)
    xp.exp(p, out=p)
    total = allreduce(comm, p.sum(axis=1))
    p *= (counted / total)[:, None]
    divisor = n if reduction == "mean" else 1

    def to_logits(g: Array) -> Array:
        d = p * (g / divisor)
        d[place] -= g / divisor
        return d if d.dtype == dtype else rounded(d, dtype)

    return (counted * (xp.log(total) - own)).sum() / divisor, (to_logits, None)


class ClassLinear(ColumnLinear):
    """The last layer, of which each rank has some classes; its loss is ``class_parallel_loss``.

    In training mode its output is this rank's part of the logits, which only the loss may use; in eval mode
    it is all of them.
    """

    def __init__(self, layer: Linear | Unembedding, comm: Communicator, in_sharding: Shard | None = None):
        super().__init__(layer, comm)
        self.out_sharding = None
        self.training = layer.training

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        logits = super().sharded_forward(a)
        return ShardedTensor(logits.local) if self.training else logits.gather()


def class_parallel_loss(loss_fn: Loss, shard: Shard) -> Loss:
    """``loss_fn`` for logits split along the classes, the last axis; all but cross-entropy gather them.

    Cross-entropy with weights of classes or with smoothed labels gathers them too.
    """
    part = loss_fn if isinstance(loss_fn, PartOfMean) else None
    entropy = loss_fn if part is None else part.loss

    def loss(logits: Tensor, y: Any) -> Tensor:
        if loss_fn is ops.cross_entropy:
            return sharded_cross_entropy(logits, y, shard=shard)
        if (
            isinstance(entropy, CrossEntropyLoss)
            and entropy.op is ops.cross_entropy  # which NLLLoss, a subclass, is not
            and entropy.weight is None
            and not entropy.settings["label_smoothing"]
            and (entropy.class_axis == -1 or logits.ndim == 2)
            and Tensor(y).dtype.kind != "f"  # of probabilities of classes a rank needs all
        ):
            rows, labels = entropy.rows(logits, y)
            settings = {"shard": shard, "ignore_index": entropy.ignore_index, "reduction": "sum"}
            total = sharded_cross_entropy(rows, labels, **settings)
            return divided(total, len(labels) if part is None else part.divisor(y))
        return loss_fn(ShardedTensor(logits, (shard.on_axis(-1),)).gather().local, y)

    return loss
