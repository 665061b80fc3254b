"""A backend says who owns which part of the model and the batch, and what becomes of a final gradient.

``Serial`` is the backend that changes nothing; every other one is proved to train like it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Self

import numpy as np

from .data import Batch, shares
from .declaration import Declaration
from .device import Array, to_host
from .module import Module
from .optimizer import Optimizer
from .tape import OnGrad, Tape
from .tensor import Parameter, Tensor

Loss = Callable[[Tensor, Any], Tensor]
Values = dict[str, Any]
Gradients = dict[Tensor, Array]


class Backend(Declaration):
    """One training step of any strategy; a strategy overrides only what it changes.

    ``place`` is called once per model, then ``step`` and ``update`` once per batch, ``conclude`` after the
    last, ``close`` at the end. Losses are means over what they saw, so a part of the batch is weighted by its
    share when backward starts; communication only sums. ``micro_batches`` is the number of backwards in a
    step: their gradients add up, and the last one announces them.
    """

    rank, size = 0, 1
    micro_batches = 1
    equals_serial = True  # by mathematics; False, as for averaged models: there is nothing to prove
    timed = False  # what a rank does depends on how fast it is
    lends_weights = False  # a parameter is whole only while the forward of the module that holds it runs
    meets_in_forward = False  # ranks meet inside a pass, so one without samples must go through it too

    def place(self, model: Module) -> Module:
        """This rank's part of ``model``."""
        return model

    def shard(self, batch: Batch) -> Batch:
        """This rank's part of ``batch``."""
        return batch

    def weight(self, mine: Batch, batch: Batch) -> float:
        """What the mean loss over this rank's part counts in the whole batch's."""
        return len(mine) / len(batch)

    def run(self, model: Module, batch: Batch, loss_fn: Loss, weight: float, on_grad: OnGrad | None) -> float:
        """Forward and backward over ``batch``; the loss times ``weight``, the share of the whole batch."""
        parts = [batch[share] for share in shares(len(batch), self.micro_batches)]
        if not self.meets_in_forward:
            parts = [part for part in parts if len(part)]
        total = 0.0
        for i, part in enumerate(parts, 1):
            share = weight * (len(part) / len(batch)) if len(part) else 0.0
            total += self.passes(model, part, loss_fn, share, on_grad if i == len(parts) else None)
        return total

    def passes(
        self, model: Module, batch: Batch, loss_fn: Loss, weight: float, on_grad: OnGrad | None
    ) -> float:
        """One forward and one backward over one micro-batch; the loss times ``weight``."""
        with Tape() as tape:
            loss = self.loss(model, batch, loss_fn)
        tape.backward(loss, weight, on_grad)
        return weight * loss.item() if len(batch) else 0.0

    def loss(self, model: Module, batch: Batch, loss_fn: Loss) -> Tensor:
        """The mean loss over ``batch``, on the open tape."""
        out = model(Tensor(batch.x))
        return loss_fn(out, batch.y) if len(batch) else out  # no mean over no samples

    def on_grad(self, parameter: Tensor) -> None:
        """Told of each gradient of this rank when it is final, while backward goes on."""

    def is_final(self, parameter: Tensor) -> bool:
        """Whether a gradient that was announced is the whole one already, or becomes it in ``finish``."""
        return False

    def finish(self, model: Module, loss: float) -> float:
        """Called after backward: all gradients are the whole batch's when it returns the batch's loss."""
        return loss

    def step(self, model: Module, batch: Batch, loss_fn: Loss) -> float:
        """Add to every parameter's ``grad`` that of the mean loss over ``batch``; return the loss.

        Gradients of several steps add up until ``optimizer.zero_grad()`` forgets them.
        """
        if not len(batch):
            raise ValueError("the batch is empty; a mean over no samples has no gradient")
        earlier = self.set_aside(model)
        mine = self.shard(batch)
        loss = self.run(model, mine, loss_fn, self.weight(mine, batch), self.on_grad)
        loss = self.finish(model, loss)
        self.add(earlier)
        return loss

    def set_aside(self, model: Module) -> Gradients:
        """Forget the gradients of earlier steps, which are whole already, and return copies of them.

        So a strategy sums over ranks what this step computes, and nothing twice.
        """
        return taken_from(model.parameters())

    def add(self, earlier: Gradients) -> None:
        """Add what ``set_aside`` returned to the gradients of this step."""
        for parameter, g in earlier.items():
            if parameter.grad is not None:
                g += parameter.grad
            parameter.grad = g

    def update(self, model: Module, optimizer: Optimizer) -> None:
        """Let the optimizer, made from ``model.parameters()``, use the gradients that ``step`` left."""
        optimizer.step(total=partial(self.total, model))

    def total(self, model: Module, squares: np.ndarray) -> np.ndarray:
        """Sums of squares, a row for each of the model's parameters, as those of the serial run's.

        A rank that holds parts, or only some of the parameters, asks the others; rows of parameters that
        only others hold stand at the end.
        """
        return squares

    def joined(self, model: Module, values: Values) -> Values:
        """What the serial run would hold, by name, made of what all ranks hold; all ranks call."""
        return values

    def conclude(self, model: Module) -> None:
        """Called once, after the last update: afterwards the model is the one that was trained."""

    def close(self) -> None:
        """Give back the memory, threads and communicators that are this backend's; all ranks call together.

        The model stays as it is, with arrays of its own; to train on, ``place`` it again. ``with backend:``
        calls it at its end, unless an exception is on its way, since then the other ranks may never come.
        It may be called again, or never: what a rank only drops is given back too, at the latest when the
        ranks next come together to make more of the same communicator.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()

    def full_parameters(self, model: Module) -> dict[str, np.ndarray]:
        """What the serial run would hold, by name; all ranks call."""
        return self.joined(model, {name: to_host(p.data) for name, p in model.named_parameters().items()})

    def full_state(self, model: Module) -> dict[str, np.ndarray]:
        """What else the serial run would hold, by name: running statistics and the like; all ranks call."""
        values = ((name, getattr(owner, attribute)) for name, owner, attribute in model.named_arrays())
        return self.joined(model, {n: to_host(v).copy() for n, v in values if not isinstance(v, Parameter)})

    def full_gradients(self, model: Module) -> dict[str, np.ndarray | None]:
        """The gradients the serial run would hold, by name, None where the loss does not reach; all call."""
        found = model.named_parameters().items()
        return self.joined(model, {name: None if p.grad is None else to_host(p.grad) for name, p in found})


class Serial(Backend):
    """One machine, the whole model, the whole batch."""

    def __init__(self, micro_batches: int = 1):
        self.micro_batches = at_least_one("micro_batches", micro_batches)

    def set_aside(self, model: Module) -> Gradients:
        """Nothing: backward adds to what is there."""
        return {}


def taken_from(parameters: Iterable[Tensor]) -> Gradients:
    """Copies of the gradients that there are, which the ``parameters`` then have no more."""
    found = {}
    for parameter in parameters:
        if parameter.grad is not None:
            found[parameter], parameter.grad = parameter.grad.copy(), None
    return found


def at_least_one(name: str, given: int) -> int:
    """``given``; raises ValueError, with its name, for less than 1."""
    if given < 1:
        raise ValueError(f"{name} must be at least 1, got {given}")
    return given
