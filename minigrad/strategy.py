"""A strategy as a program uses it: a Backend that knows its model and checks its use.

Lecture section: synchronous data parallelism. Lesson: 06_data_parallel, by ``synchronous.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from .backend import Backend
from .data import Batch
from .declaration import Declaration
from .forward_pass import observed
from .mean_check import MeanCheck
from .module import Module
from .optim import Optimizer
from .placed_state import PlacedState
from .work import ForwardBackward, Loss, Work, forward_backward_pass

if TYPE_CHECKING:
    from .train import History


class Strategy(Backend):
    """A Backend that knows the model it placed, refuses wrong use, and names its declaration and its state.

    The ``declaration`` is what a command line sees of it. The ``state_class`` is the class of ``state``, what
    its ranks hold; ``own_state`` names attributes that change from step to step and that nothing else tells.
    Steps are counted, and random masks go by the ``step_number``, so ranks take all steps together, or leave
    them out together. A ``place`` that a strategy writes ends with ``return self.hold(model)``.
    """

    declaration: ClassVar[Declaration] = Declaration()
    state_class: ClassVar[type[PlacedState]] = PlacedState
    own_state: ClassVar[tuple[str, ...]] = ()
    inner: Sequence[Strategy] = ()  # the strategies inside this one, in a Stack
    step_number = 0  # of the next step
    model: Module | None = None  # the one that it trains, as ``place`` returned it; Serial trains any
    steps_of_model = 0  # that it has taken since ``place``
    loss_scale = 1.0  # of the latest step
    mean_check: MeanCheck | None = None  # of the loss that it trains with
    comm: Any = None  # the ranks that it works with; None where it is alone

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rank {self.rank} of {self.size})"

    @property
    def state(self) -> PlacedState:
        """What its ranks hold of the state of the model that it placed."""
        return self.state_class(self)

    def enclose(self, inner: Sequence[Strategy]) -> None:
        """Called by a Stack, before ``place``, with the strategies inside this one."""
        self.inner = inner

    def hold(self, model: Module) -> Module:
        """Note that this backend, which keeps the state of one model, trains ``model``; returns it."""
        self.release()
        self.model, self.steps_of_model, self.mean_check = model, 0, None
        for parameter in model.parameters():
            parameter.updated_by = type(self).__name__
        return model

    def release(self) -> None:
        """Train no model any more."""
        for parameter in [] if self.model is None else self.model.parameters():
            parameter.updated_by = None
        self.model = None

    def check_model(self, model: Module) -> None:
        """Raise RuntimeError for a model that was not placed, ValueError for another one than the latest."""
        if self.model is model or type(self).place is Backend.place:
            return
        name = type(self).__name__
        if self.model is None:
            raise RuntimeError(
                f"this {name} has no model yet; call model = backend.place(model) first (a strategy's own "
                "place ends with return self.hold(model))"
            )
        raise ValueError(
            f"this {name} trains the model that it placed last, as place returned it, and this is another "
            "one; make a backend for each model, and go on with model = backend.place(model)"
        )

    def begin_training(self, model: Module, optimizer: Optimizer, history: History) -> None:
        """Called once before the first step, with the history of the steps that were taken before.

        A rank that joins a training waits here; then ``history`` is that of the other ranks.
        """

    def begin_step(self, model: Module) -> bool:
        """Called before a step; whether this rank computes in it."""
        return True

    def check_batch(self, batch: Batch) -> None:
        """Raise ValueError, on all ranks, where those that share a batch were given different ones."""

    def loss_weight(self, mine: Batch, batch: Batch) -> float:
        """The factor of the mean loss over this rank's part in the loss of the whole batch."""
        return len(mine) / len(batch)

    def loss_by_parts(self, loss_fn: Loss) -> Loss:
        """The batch's loss function in a form that has terms for all ranks' parts of it."""
        return loss_fn

    def loss_for(self, model: Module, loss_fn: Loss) -> Loss:
        """The loss function of this rank's part of the model."""
        return loss_fn

    def check_update(self, model: Module, optimizer: Optimizer) -> None:
        """Raise as ``check_model``, and ValueError where the optimizer's master weights cannot follow."""
        self.check_model(model)
        if optimizer.master_weights is not None:
            scale = self.loss_scale if self.steps_of_model else None
            optimizer.master_weights.check_gradients(type(self).__name__, self.traits.equals_serial, scale)

    def step(
        self,
        model: Module,
        batch: Batch,
        loss_fn: Loss,
        inner: ForwardBackward = forward_backward_pass,
        *,
        loss_scale: float = 1.0,
    ) -> float:
        """Add to every parameter's ``grad`` that of ``loss_scale`` times the mean loss; return this loss.

        Gradients of several steps add up until ``optimizer.zero_grad()`` forgets them. Raises RuntimeError
        for a model that was not placed; ValueError for another one than was placed last, for no samples, for
        a loss that is neither a mean over samples (``MeanCheck``) nor a WeightedMean, and, in the second
        step, where ranks that share a batch were given different ones (``check_batch``).
        """
        self.check_model(model)
        if not len(batch):
            raise ValueError("the batch is empty; a mean over no samples has no gradient")
        batch = batch.whole()
        self.step_number += 1
        if not self.begin_step(model):
            return 0.0
        self.steps_of_model += 1
        self.loss_scale = loss_scale
        if self.steps_of_model == 2:  # one step alone sends what its strategy must send, and no more
            self.check_batch(batch)
        with self.state.accumulate(model):
            return super().step(model, batch, loss_fn, inner, loss_scale=loss_scale)

    def work(self, model: Module, batch: Batch, loss_fn: Loss, loss_scale: float = 1.0) -> Work:
        """This rank's samples of ``batch`` in this step, and the loss that is right for a part of it."""
        mine = self.shard(batch)
        weight = self.loss_weight(mine, batch)
        self.mean_check = self.mean_check or MeanCheck()
        several = weight != 1 or self.micro_batches > 1
        loss_fn = self.mean_check.loss_of_parts(self.loss_by_parts(loss_fn), batch.y, several=several)
        loss_fn, keep_empty = self.loss_for(model, loss_fn), self.traits.communicates_in_forward
        number, on_grad = self.step_number - 1, observed(self.on_grad)
        return Work(model, mine, loss_fn, weight, on_grad, keep_empty, number, loss_scale)

    def count_steps_from(self, number: int) -> None:
        """Give the next step this number, as a run that goes on after so many steps."""
        self.step_number = number

    def update(self, model: Module, optimizer: Optimizer) -> None:
        """Let the optimizer, of all or some of the model's parameters, use the gradients of ``step``."""
        if self.model is not None:  # a strategy that overrides ``step`` need not hold one
            self.check_update(model, optimizer)
        optimizer.step(total=partial(self.state.total_squares, model, optimizer))

    def finalize(self, model: Module) -> None:
        """Called once, after the last update: afterwards the model is the one that was trained."""

    def close(self) -> None:
        """Give back the memory, threads and communicators that are this backend's; all ranks call together.

        The model keeps its arrays; to train on, ``place`` it again. ``with backend:`` calls it at its
        end, unless an exception is on its way: then the other ranks may never come. What a rank only drops is
        given back when the ranks next make more of the same communicator.
        """
        self.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()

    def refusal(self, inner: Strategy) -> str | None:
        """The reason why ``inner`` cannot stand inside this strategy, for a Stack to say; None if it can."""
