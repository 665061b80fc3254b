"""``fit`` is the only training loop: whatever the strategy, it asks the backend for a step.

Lecture section: gradient descent. Lesson: 01_gradient_descent.

>>> from minigrad import nn, ops, optim
>>> model, data = nn.Linear(1, 1, rng=0), Batch(np.ones((8, 1)), np.zeros((8, 1)))
>>> history = fit(model, optim.SGD(model.parameters(), 0.1), ops.mse, data, epochs=2, batch_size=4)
>>> len(history.losses)
4
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from .data import Batch, minibatches
from .device import on_gpu
from .keyword_settings import settings_by_name
from .lookup import at_least_one
from .lr_schedules import Schedule
from .module import Module, evaluation_mode
from .optim import Optimizer
from .serial import Serial
from .strategy import Strategy
from .tensor import Tensor
from .weighted_mean import WeightedMean
from .work import Loss, forward_backward_pass


@dataclass
class History:
    """What a training run measured: the loss of every step, and the seconds spent training (not testing).

    ``epochs`` have ended: ``on_epoch`` was called for them, or is being called for the last of them.
    """

    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0
    samples: int = 0
    epochs: int = 0

    def epochs_ended(self, steps: int) -> int:
        """The number of epochs, of so many steps each, that have ended.

        In a history of which only the losses are known, the last epoch has not, as nobody has seen its end.
        Raises ValueError where ``epochs`` have more steps than there are losses.
        """
        if self.epochs * steps > len(self.losses):
            raise ValueError(
                f"the history has {len(self.losses)} steps, and its {self.epochs} epochs of {steps} steps "
                f"have {self.epochs * steps}; go on with the data and the batch_size with which it began"
            )
        return max(self.epochs, (len(self.losses) - 1) // steps)

    @property
    def samples_per_second(self) -> float:
        return self.samples / self.seconds if self.seconds else 0.0


@settings_by_name
def fit(
    model: Module,
    optimizer: Optimizer,
    loss_fn: Loss,
    data: Batch,
    *,
    backend: Strategy | None = None,
    epochs: int = 1,
    batch_size: int | None = None,
    seed: int = 0,
    schedule: Schedule | None = None,
    start: History | None = None,
    on_step: Callable[[int, float], object] | None = None,
    on_epoch: Callable[[int, History], object] | None = None,
    span: Callable[[str], AbstractContextManager[Any]] = nullcontext,
    clock: Callable[[], float] = time.perf_counter,
) -> History:
    """Train ``model``, which ``backend.place`` returned, for ``epochs`` epochs.

    A model in eval mode is put into training mode; in a model that is in training mode, layers that were put
    into eval mode (frozen statistics) stay so.
    ``batch_size`` None takes all samples at once. Every rank calls it with the same data and seed; the
    backend picks its part. ``schedule(step)`` gives each step's learning rate; steps that the optimizer left
    out for its loss scale do not count. ``start`` is the history of steps that were taken before, as by the
    run that wrote a checkpoint: training goes on after them, in the middle of an epoch too. ``on_step(step,
    loss)`` and ``on_epoch(epoch, history)`` report progress, outside the measured time. ``on_epoch`` is
    called once for each epoch: not again where the history that it saved is the ``start`` of another call.
    Where all epochs have ended before, no step is taken.
    Forwards, backwards and updates run inside ``with span(name):``, such as ``computing`` of a traced
    communicator. ``clock()`` is the time in seconds, by which the training is measured.
    Raises ValueError for a ``batch_size`` below 1, and for a ``start`` whose epochs had more steps;
    FloatingPointError, naming the step, when the loss is not finite.
    """
    if batch_size is not None:
        at_least_one("batch_size", batch_size)
    backend = backend or Serial()
    check_strategy(backend)
    if not model.training:
        model.train()
    warn_of_doubles(model, data)
    history = start or History()
    backend.begin_training(model, optimizer, history)
    per_epoch = 1 if batch_size is None else -(-len(data) // batch_size)
    forward_backward = partial(forward_backward_pass, span=span)
    first = history.epochs_ended(per_epoch)
    if first >= epochs:
        backend.finalize(model)
    for epoch in range(first, epochs):
        batches = [data] if batch_size is None else minibatches(data, batch_size, seed=seed, epoch=epoch)
        began = clock()
        for batch in islice(batches, len(history.losses) - epoch * per_epoch, None):
            optimizer.zero_grad()
            step = len(history.losses)
            if schedule is not None:
                optimizer.lr = schedule(step - optimizer.skipped_steps)
            with np.errstate(over="ignore", invalid="ignore"):  # the error below names the step
                scale = optimizer.loss_scale
                loss = backend.step(model, batch, loss_fn, forward_backward, loss_scale=scale)
            if not math.isfinite(loss):
                raise FloatingPointError(
                    f"the loss is {loss} at step {step} (epoch {epoch}); training stopped, "
                    + remedy(loss_fn, batch.y)
                )
            with span("update"):
                backend.update(model, optimizer)
            history.losses.append(loss)
            history.samples += len(batch)
            if on_step is not None:
                history.seconds += clock() - began
                on_step(step, loss)
                began = clock()
        if epoch == epochs - 1:
            backend.finalize(model)
        history.seconds += clock() - began
        history.epochs = epoch + 1
        if on_epoch is not None:
            on_epoch(epoch, history)
    return history


def warn_of_doubles(model: Module, data: Batch) -> None:
    """Warn where samples in float64 let a model of fewer bits compute in float64, in twice the time."""
    dtypes = {p.dtype for p in model.parameters()}
    if data.x.dtype == np.float64 and dtypes and np.dtype(np.float64) not in dtypes:
        warnings.warn(
            f"the samples are float64 and the model is {min(map(str, dtypes))}, so it computes in float64; "
            "pass data.to(dtype=np.float32), or train in float64 by model.to(dtype=np.float64)",
            stacklevel=4,  # whoever calls fit
        )


def remedy(loss_fn: Loss, targets: Any) -> str:
    """What may help where the loss of a batch with these targets is not finite."""
    if isinstance(loss_fn, WeightedMean) and not float(loss_fn.divisor(targets)):
        return "for none of the batch's targets counts; leave such a batch out"
    return "try a smaller --lr" + (", or look for labels that name no class" if on_gpu(targets) else "")


@settings_by_name
def accuracy(model: Module, data: Batch, *, batch_size: int = 500) -> float:
    """The share of samples whose largest output is at their label's place; labels are integers or one-hot.

    The model is evaluated in eval mode, and is then in the mode that it was in. Raises ValueError unless its
    outputs are (N, classes), as where each sample has many labels.
    """
    at_least_one("batch_size", batch_size)
    hits = 0
    with evaluation_mode(model):
        for start in range(0, len(data), batch_size):
            part = data[start : start + batch_size]
            labels = part.y if part.y.ndim == 1 else part.y.argmax(axis=1)
            with part.evaluation_pass():
                scores = model(Tensor(part.x)).data
            if scores.ndim != 2:
                raise ValueError(f"accuracy takes scores (N, classes), got {scores.shape}; see mean_loss")
            hits += int((scores.argmax(axis=1) == labels).sum())
    return hits / max(len(data), 1)


@settings_by_name
def mean_loss(model: Module, loss_fn: WeightedMean, data: Batch, *, batch_size: int = 100) -> float:
    """The loss of all ``data`` in eval mode, which are computed in parts; 0 where no target counts."""
    at_least_one("batch_size", batch_size)
    total = divisor = 0.0
    with evaluation_mode(model):
        for start in range(0, len(data), batch_size):
            part = data[start : start + batch_size]
            with part.evaluation_pass():
                total += loss_fn.total(model(Tensor(part.x)), part.y).item()
            divisor += float(loss_fn.divisor(part.y))
    return total / (divisor or 1.0)


def check_strategy(backend: Any) -> None:
    """Raise TypeError for a backend that has the hooks alone, and not what training and proofs ask for."""
    if not isinstance(backend, Strategy):
        raise TypeError(
            f"{type(backend).__name__} is no Strategy; derive it from minigrad.strategy.Strategy, a Backend "
            "with the checks and the state that training and proofs need"
        )
