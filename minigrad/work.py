"""A part of a training step: samples that go forward and backward through a model.

Lecture section: synchronous data parallelism. Lesson: 06_data_parallel, by ``backend.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from .data import Batch, shares
from .forward_pass import ForwardPass, current_pass
from .module import Module
from .tape import OnGrad, Tape
from .tensor import Tensor

Loss = Callable[[Tensor, Any], Tensor]


class Work(NamedTuple):
    """Samples to take forward and backward through a model.

    ``loss_weight`` is the factor of their mean loss in the loss of the whole batch. ``on_grad`` is called
    with each parameter whose gradient is final. With ``keep_empty`` parts without samples take a pass too.
    ``step`` is the number of the training step; None outside of training. Gradients are those of
    ``loss_scale`` times the loss, which is reported without it.
    """

    model: Module
    batch: Batch
    loss_fn: Loss
    loss_weight: float = 1.0
    on_grad: OnGrad | None = None
    keep_empty: bool = False
    step: int | None = None
    loss_scale: float = 1.0

    @property
    def seed(self) -> float:
        """What backward starts from: the factor of these samples' mean loss in the scaled loss."""
        return self.loss_weight * self.loss_scale

    def split(self, n: int) -> dict[int, Work]:
        """Up to ``n`` micro-batches, by number. Their gradients add up, and the last one announces them."""
        if n == 1 and len(self.batch):
            return {0: self}
        parts = {}
        for i, share in enumerate(shares(len(self.batch), n)):
            batch = self.batch[share]
            if len(batch) or self.keep_empty:
                weight = self.loss_weight * (len(batch) / len(self.batch)) if len(batch) else 0.0
                parts[i] = self._replace(batch=batch, loss_weight=weight, on_grad=None)
        if parts:
            last = max(parts)
            parts[last] = parts[last]._replace(on_grad=self.on_grad)
        return parts

    def forward_pass(self) -> AbstractContextManager[ForwardPass]:
        """Inside it layers draw the masks of these samples in this step; without one, of the pass around."""
        around, batch = current_pass.get(), self.batch
        if self.step is None and around is not None:
            return nullcontext(around)
        return ForwardPass(self.step, batch.places, batch.is_part, tokens=batch.tokens, weight=self.seed)

    def loss(self, out: Tensor) -> Tensor:
        """The mean loss of the model's output; without samples, which have no mean, the output itself.

        Raises TypeError or ValueError, with the way out, where the loss function returns no loss of it.
        """
        if not len(self.batch):
            return out
        loss: Any = self.loss_fn(out, self.batch.y)
        if not isinstance(loss, Tensor):
            raise TypeError(
                f"the loss function returned {type(loss).__name__}, which has no gradient; compute a tensor "
                "from the model's output, without .data and .numpy()"
            )
        if loss.size != 1:
            raise ValueError(
                f"the loss function returned a tensor of shape {loss.shape}; a loss is one number: take "
                ".mean()"
            )
        if loss.tape is None and isinstance(out, Tensor) and out.tape is not None:
            raise ValueError(
                "the loss does not depend on the model's output, so it has no gradient; compute it from the "
                "output itself, without .data, .numpy() and .detach()"
            )
        return loss

    def weighted(self, forward_pass: ForwardPass, loss: Tensor | None) -> float:
        """The term of the batch's loss from these samples: ``loss``, where it is, and a pass's penalties."""
        if not len(self.batch):
            return 0.0
        return self.loss_weight * ((0.0 if loss is None else loss.item()) + forward_pass.penalty())


ForwardBackward = Callable[[Work], float]


def forward_backward_pass(
    work: Work, span: Callable[[str], AbstractContextManager[Any]] = nullcontext
) -> float:
    """One forward and one backward over all samples; returns the weighted loss, with layers' penalties.

    Each of the two runs inside ``with span(name):``.
    """
    return work.weighted(*mean_loss(work, span))


def mean_loss(
    work: Work, span: Callable[[str], AbstractContextManager[Any]] = nullcontext
) -> tuple[ForwardPass, Tensor]:
    """One forward and one backward over all samples.

    Returns the pass, with the layers' penalties, and the mean loss, neither of them yet read from a GPU.
    """
    with span("forward"), work.forward_pass() as forward_pass, Tape() as tape:
        loss = work.loss(work.model(Tensor(work.batch.x)))
    with span("backward"):
        tape.backward(loss, work.seed, work.on_grad)
    return forward_pass, loss
