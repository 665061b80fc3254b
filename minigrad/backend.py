"""A training step as on the slides: who owns which part of the batch, and what becomes of a final gradient.

Lecture section: synchronous data parallelism. Lesson: 06_data_parallel, by ``strategy.py``.
"""

from __future__ import annotations

from .data import Batch
from .module import Module
from .optim import Optimizer
from .tensor import Tensor
from .traits import Traits
from .work import ForwardBackward, Loss, Work, forward_backward_pass


class Backend:
    """One training step of any strategy; a strategy overrides only what it changes.

    ``place`` is called once per model, then ``step`` and ``update`` once per batch. Losses are means over
    samples, so a part of the batch is weighted by its share when backward starts; communication only sums.
    By default it trains on one machine. Strategies derive from ``Strategy``, which adds the checks and the
    state that programs rely on.
    """

    rank, size = 0, 1
    micro_batches = 1  # the number of backwards in a step
    traits = Traits()

    def place(self, model: Module) -> Module:
        """This rank's part of ``model``."""
        return model

    def shard(self, batch: Batch) -> Batch:
        """This rank's part of ``batch``."""
        return batch

    def work(self, model: Module, batch: Batch, loss_fn: Loss, loss_scale: float = 1.0) -> Work:
        """This rank's samples of ``batch``, weighted by their share of it."""
        mine = self.shard(batch)
        keep_empty = self.traits.communicates_in_forward
        weight = len(mine) / len(batch)
        return Work(model, mine, loss_fn, weight, self.on_grad, keep_empty, loss_scale=loss_scale)

    def forward_backward(self, work: Work, inner: ForwardBackward = forward_backward_pass) -> float:
        """Take ``work`` through ``inner``, which takes one micro-batch; returns the weighted loss."""
        return sum((inner(part) for part in work.split(self.micro_batches).values()), 0.0)

    def on_grad(self, parameter: Tensor) -> bool | None:
        """Called with each parameter whose gradient on this rank is final, while backward goes on.

        Returns whether the gradient is that of all ranks already; otherwise it is after ``finish``.
        """

    def finish(self, model: Module, loss: float) -> float:
        """Called after backward: all gradients are the whole batch's when it returns the batch's loss."""
        return loss

    def step(
        self,
        model: Module,
        batch: Batch,
        loss_fn: Loss,
        inner: ForwardBackward = forward_backward_pass,
        *,
        loss_scale: float = 1.0,
    ) -> float:
        """Add to every parameter's ``grad`` that of ``loss_scale`` times the mean loss; return this loss."""
        return self.finish(model, self.forward_backward(self.work(model, batch, loss_fn, loss_scale), inner))

    def update(self, model: Module, optimizer: Optimizer) -> None:
        """Let the optimizer, of some or all parameters, use the gradients that ``step`` left."""
        optimizer.step()
