"""A backend says who owns which part of the model and the batch, and what becomes of a final gradient.

``Serial`` is the backend that changes nothing; every other one is proved to train like it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .data import Batch
from .device import to_host
from .module import Module
from .tape import OnGrad, Tape
from .tensor import Tensor

Loss = Callable[[Tensor, Any], Tensor]


class Backend:
    """One training step of any strategy; a strategy overrides only what it changes.

    ``place`` is called once per model, ``step`` once per batch. Losses are means over what they saw,
    so a part of the batch is weighted by its share when backward starts; communication only sums.
    """

    rank, size = 0, 1

    def place(self, model: Module) -> Module:
        """This rank's part of ``model``."""
        return model

    def shard(self, batch: Batch) -> Batch:
        """This rank's part of ``batch``."""
        return batch

    def run(self, model: Module, batch: Batch, loss_fn: Loss, weight: float, on_grad: OnGrad | None) -> float:
        """Forward and backward over ``batch``; the loss times ``weight``, the share of the whole batch."""
        if not len(batch):
            return 0.0
        with Tape() as tape:
            loss = loss_fn(model(Tensor(batch.x)), batch.y)
        tape.backward(loss, weight, on_grad)
        return weight * loss.item()

    def on_grad(self, parameter: Tensor) -> None:
        """Told of each gradient of this rank when it is final, while backward goes on."""

    def finish(self, model: Module, loss: float) -> float:
        """Called after backward: all gradients are the whole batch's when it returns the batch's loss."""
        return loss

    def step(self, model: Module, batch: Batch, loss_fn: Loss) -> float:
        """Leave in every parameter's ``grad`` that of the mean loss over ``batch``; return the loss."""
        if not len(batch):
            raise ValueError("the batch is empty; a mean over no samples has no gradient")
        mine = self.shard(batch)
        loss = self.run(model, mine, loss_fn, len(mine) / len(batch), self.on_grad)
        return self.finish(model, loss)

    def full_parameters(self, model: Module) -> dict[str, np.ndarray]:
        """What the serial run would hold, by name."""
        return {name: to_host(p.data) for name, p in model.named_parameters().items()}

    def full_gradients(self, model: Module) -> dict[str, np.ndarray | None]:
        """The gradients the serial run would hold, by name; None where the loss does not reach."""
        found = model.named_parameters().items()
        return {name: None if p.grad is None else to_host(p.grad) for name, p in found}


class Serial(Backend):
    """One machine, the whole model, the whole batch."""
