"""A backend says who owns which part of the model and the batch, and what becomes of a final gradient.

``Serial`` is the backend that changes nothing; every other one is proved to train like it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from . import ops
from .data import Batch, shares
from .declaration import Declaration
from .device import Array, array_module, on_gpu, to_host
from .forward_pass import ForwardPass
from .mean_check import MeanCheck
from .module import Module
from .optim import Optimizer
from .own_state import OwnState
from .tape import OnGrad, Tape
from .tensor import Parameter, Tensor
from .weighted_mean import WeightedMean

if TYPE_CHECKING:
    from .train import History

Loss = Callable[[Tensor, Any], Tensor]
Values = dict[str, Any]
SquareNorms = Callable[[Module, np.ndarray], np.ndarray]
Unshard = Callable[[Module, Values], Values]


class Work(NamedTuple):
    """Samples to take forward and backward through a model.

    ``loss_weight`` is the factor of their mean loss in the loss of the whole batch. ``on_grad`` is called
    with each parameter whose gradient is final. With ``keep_empty`` parts without samples take a pass too.
    ``step`` is the number of the training step; None outside of training.
    """

    model: Module
    batch: Batch
    loss_fn: Loss
    loss_weight: float = 1.0
    on_grad: OnGrad | None = None
    keep_empty: bool = False
    step: int | None = None

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

    def forward_pass(self) -> AbstractContextManager[Any]:
        """Inside it layers draw the masks of these samples in this step."""
        return (
            nullcontext()
            if self.step is None
            else ForwardPass(self.step, self.batch.places, self.batch.is_part)
        )

    def loss(self, out: Tensor) -> Tensor:
        """The mean loss of the model's output; without samples, which have no mean, the output itself.

        Raises TypeError or ValueError, with the way out, where the loss function returns no loss of it.
        """
        return checked_loss(self.loss_fn(out, self.batch.y), out) if len(self.batch) else out


def checked_loss(loss: Any, out: Any) -> Tensor:
    """``loss``, one number that depends on the model's output; raises as ``Work.loss``."""
    if not isinstance(loss, Tensor):
        raise TypeError(
            f"the loss function returned {type(loss).__name__}, which has no gradient; compute a tensor from "
            "the model's output, without .data and .numpy()"
        )
    if loss.size != 1:
        raise ValueError(
            f"the loss function returned a tensor of shape {loss.shape}; a loss is one number: take .mean()"
        )
    if loss.tape is None and isinstance(out, Tensor) and out.tape is not None:
        raise ValueError(
            "the loss does not depend on the model's output, so it has no gradient; compute it from the "
            "output itself, without .data, .numpy() and .detach()"
        )
    return loss


ForwardBackward = Callable[[Work], float]


def forward_backward_pass(
    work: Work, span: Callable[[str], AbstractContextManager[Any]] = nullcontext
) -> float:
    """One forward and one backward over all samples; returns the weighted loss.

    Each of the two runs inside ``with span(name):``.
    """
    loss = mean_loss(work, span)
    return work.loss_weight * loss.item() if len(work.batch) else 0.0


def mean_loss(work: Work, span: Callable[[str], AbstractContextManager[Any]] = nullcontext) -> Tensor:
    """The same forward and backward; returns the mean loss, which on a GPU no one has waited for."""
    with span("forward"), work.forward_pass(), Tape() as tape:
        loss = work.loss(work.model(Tensor(work.batch.x)))
    with span("backward"):
        tape.backward(loss, work.loss_weight, work.on_grad)
    return loss


class Backend(Declaration, OwnState):
    """One training step of any strategy; a strategy overrides only what it changes.

    ``place`` is called once per model, then ``step`` and ``update`` once per batch, ``finalize`` after the
    last, ``close`` at the end. Losses are means over samples, so a part of the batch is weighted by its
    share when backward starts; communication only sums. ``micro_batches`` is the number of backwards in a
    step. In a Stack, the strategies inside this one are its ``inner``. Steps are counted, and random masks go
    by the ``step_number``, so ranks take all steps together, or leave them out together.
    """

    rank, size = 0, 1
    step_number = 0  # of the next step
    model: Module | None = None  # the one that it trains, as ``place`` returned it; Serial trains any
    steps_of_model = 0  # that it has taken since ``place``
    mean_check: MeanCheck | None = None  # of the first loss that parts of a batch are weighted for
    comm: Any = None  # the ranks that it works with; None where it is alone
    micro_batches = 1
    equals_serial = True  # by mathematics; False, as for averaged models: there is nothing to prove
    depends_on_timing = False  # a rank's samples depend on how fast it is
    models_differ = False  # between steps each rank has a model and an optimizer's state of its own
    resumable = True  # False where ranks may leave: all of them write a checkpoint
    same_layout_only = False  # training cannot go on without ``own_state``, which is of these ranks
    may_lag = False  # a rank may be steps behind the others; all are at the same one when they drain
    outermost_only = False  # it updates parameters in its own way
    splits_layers = False  # ranks share the work inside layers
    communicates_in_forward = False  # so a rank without samples must take its pass too

    def enclose(self, inner: Sequence[Backend]) -> None:
        """Called by a Stack, before ``place``, with the strategies inside this one."""

    def place(self, model: Module) -> Module:
        """This rank's part of ``model``. A strategy's own ``place`` ends with ``return self.hold(model)``."""
        return model

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
        """Raise ValueError, on all ranks, where those that share a batch were given different ones.

        Called once, in the second step: one step alone sends what its strategy must send, and no more.
        """

    def shard(self, batch: Batch) -> Batch:
        """This rank's part of ``batch``."""
        return batch

    def loss_weight(self, mine: Batch, batch: Batch) -> float:
        """The factor of the mean loss over this rank's part in the loss of the whole batch."""
        return len(mine) / len(batch)

    def loss_for(self, model: Module, loss_fn: Loss) -> Loss:
        """The loss function of this rank's part of the model."""
        return loss_fn

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
        self, model: Module, batch: Batch, loss_fn: Loss, inner: ForwardBackward = forward_backward_pass
    ) -> float:
        """Add to every parameter's ``grad`` that of the mean loss over ``batch``; return the loss.

        Gradients of several steps add up until ``optimizer.zero_grad()`` forgets them. ``loss_fn`` is a mean
        over samples, or a WeightedMean; the first step in which parts of the batch are weighted raises
        ValueError for another one (``MeanCheck``). The second step raises it where ranks that share a batch
        were given different ones (``check_batch``). Raises RuntimeError for a model that was not placed, and
        ValueError for another one than was placed last, and for no samples.
        """
        self.check_model(model)
        if not len(batch):
            raise ValueError("the batch is empty; a mean over no samples has no gradient")
        batch, step = batch.whole(), self.step_number
        self.step_number += 1
        if not self.begin_step(model):
            return 0.0
        self.steps_of_model += 1
        if self.steps_of_model == 2:
            self.check_batch(batch)
        with self.accumulate(model):
            mine = self.shard(batch)
            weight = self.loss_weight(mine, batch)
            if isinstance(loss_fn, WeightedMean):
                loss_fn = loss_fn.for_parts_of(batch.y)
            elif self.must_check(loss_fn, weight):
                loss_fn = self.mean_check = MeanCheck(loss_fn)
            loss_fn = self.loss_for(model, loss_fn)
            work = Work(model, mine, loss_fn, weight, self.on_grad, self.communicates_in_forward, step)
            return self.finish(model, self.forward_backward(work, inner))

    def must_check(self, loss_fn: Loss, weight: float) -> bool:
        """Whether parts of the batch are weighted, and no loss has been shown to be a mean over samples."""
        splits = weight != 1 or self.micro_batches > 1
        return splits and loss_fn is not ops.cross_entropy and not (self.mean_check and self.mean_check.done)

    def accumulate(self, model: Module) -> AbstractContextManager[Any]:
        """Add the gradients of a ``with`` block to those of earlier steps, which the block does not see.

        So a strategy sums over ranks what this step computes, and nothing twice.
        """
        return accumulated(model.parameters())

    def count_steps_from(self, number: int) -> None:
        """Give the next step this number, as a run that goes on after so many steps."""
        self.step_number = number

    def update(self, model: Module, optimizer: Optimizer, square_norms: SquareNorms | None = None) -> None:
        """Let the optimizer, of all or some of ``model.parameters()``, use the gradients that ``step`` left.

        ``square_norms`` stands for ``global_square_norms``, where a Stack has its own.
        """
        if self.model is not None:  # a strategy with a ``step`` of its own need not hold one
            self.check_model(model)
        optimizer.step(total=self.total_squares(model, optimizer, square_norms))

    def total_squares(
        self, model: Module, optimizer: Optimizer, square_norms: SquareNorms | None = None
    ) -> Callable[[np.ndarray], np.ndarray]:
        """``global_square_norms`` of rows in the order of the optimizer, which has any of the parameters."""
        return partial(in_order_of, optimizer.parameters, model, square_norms or self.global_square_norms)

    def global_square_norms(self, model: Module, squares: np.ndarray) -> np.ndarray:
        """The serial run's sums of squares, a row for each of the model's parameters, from this rank's.

        Ranks that hold parts add theirs up; rows of parameters that only other ranks hold stand at the end.
        """
        return squares

    def unshard_values(self, model: Module, values: Values) -> Values:
        """The serial run's arrays, by name, from those of all ranks; all ranks call."""
        return values

    def shard_values(self, model: Module, values: Values) -> Values:
        """This rank's arrays, by name, of the serial run's: the inverse of ``unshard_values``."""
        return values

    def drain(self, model: Module) -> None:
        """Called between two steps, before a checkpoint: afterwards no message is on its way.

        Then this rank's part of a serial run's state and ``own_state`` are all that it holds, and training
        can go on from them, here or in other objects. All ranks call.
        """

    def finalize(self, model: Module) -> None:
        """Called once, after the last update: afterwards the model is the one that was trained."""

    def close(self) -> None:
        """Give back the memory, threads and communicators that are this backend's; all ranks call together.

        The model stays as it is, with arrays of its own; to train on, ``place`` it again. ``with backend:``
        calls it at its end, unless an exception is on its way, since then the other ranks may never come.
        It may be called again, or never: what a rank only drops is given back too, at the latest when the
        ranks next come together to make more of the same communicator.
        """
        self.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()

    def full_parameters(self, model: Module, unshard: Unshard | None = None) -> dict[str, np.ndarray]:
        """The serial run's parameters, by name; all ranks call.

        ``unshard`` stands for ``unshard_values``, here and below, where a Stack has its own.
        """
        values = {name: to_host(p.data) for name, p in model.named_parameters().items()}
        return (unshard or self.unshard_values)(model, values)

    def full_state(self, model: Module, unshard: Unshard | None = None) -> dict[str, np.ndarray]:
        """The serial run's other arrays, by name: running statistics and the like; all ranks call."""
        arrays = ((name, getattr(owner, attribute)) for name, owner, attribute in model.named_arrays())
        values = {name: to_host(v).copy() for name, v in arrays if not isinstance(v, Parameter)}
        return (unshard or self.unshard_values)(model, values)

    def full_gradients(self, model: Module, unshard: Unshard | None = None) -> dict[str, np.ndarray | None]:
        """The serial run's gradients, by name, None where the loss does not reach; all ranks call."""
        grads = {name: p.grad for name, p in model.named_parameters().items()}
        values = {name: None if g is None else to_host(g) for name, g in grads.items()}
        return (unshard or self.unshard_values)(model, values)

    def optimizer_values(self, model: Module, optimizer: Optimizer, key: str) -> Values:
        """``key`` of the optimizer's state, by the name of the parameter: an array of its shape, or a number.

        None where there is none, as for parameters that no gradient has reached. All ranks call.
        """
        states = dict(zip(optimizer.parameters, optimizer.state, strict=True))
        return {n: host_copy(states.get(p, {}).get(key)) for n, p in model.named_parameters().items()}

    def set_optimizer_values(self, model: Module, optimizer: Optimizer, values: dict[str, Values]) -> None:
        """Replace the optimizer's state by ``values``, by key and then as ``optimizer_values`` gives it."""
        names = {parameter: name for name, parameter in model.named_parameters().items()}
        optimizer.state = [state_of(names[p], p.data, values) for p in optimizer.parameters]

    def full_optimizer_state(
        self, model: Module, optimizer: Optimizer, key: str, unshard: Unshard | None = None
    ) -> Values:
        """The serial run's ``key`` of the optimizer's state, as ``optimizer_values``; all ranks call."""
        return (unshard or self.unshard_values)(model, self.optimizer_values(model, optimizer, key))

    def load_optimizer_state(
        self, model: Module, optimizer: Optimizer, whole: dict[str, Values], shard: Unshard | None = None
    ) -> None:
        """Give this rank's optimizer its part of a serial run's state, by key and name; sends nothing."""
        parts = {key: (shard or self.shard_values)(model, values) for key, values in whole.items()}
        self.set_optimizer_values(model, optimizer, parts)

    def refusal(self, inner: Backend) -> str | None:
        """The reason why ``inner`` cannot stand inside this strategy, for a Stack to say; None if it can."""
        if inner.outermost_only:
            return (
                f"{type(inner).__name__} updates parameters in its own way, which only the outermost "
                "strategy can; put it first"
            )
        if self.depends_on_timing and inner.size > 1:
            return (
                f"{type(self).__name__} goes by how fast each rank is, so ranks that share a model would "
                "not agree on the samples; choose another strategy for the data axis"
            )
        return None


class Serial(Backend):
    """One machine, the whole model, the whole batch."""

    def __init__(self, micro_batches: int = 1):
        self.micro_batches = at_least_one("micro_batches", micro_batches)

    def accumulate(self, model: Module) -> AbstractContextManager[Any]:
        """Nothing to do: backward adds to ``grad``."""
        return nullcontext()

    def update(self, model: Module, optimizer: Optimizer, square_norms: SquareNorms | None = None) -> None:
        if square_norms is None:
            optimizer.step()
        else:  # those of the strategies inside, in a Stack
            super().update(model, optimizer, square_norms)


def in_order_of(
    parameters: Sequence[Parameter], model: Module, square_norms: SquareNorms, squares: np.ndarray
) -> np.ndarray:
    """``square_norms`` of ``squares``, which has a row for each of ``parameters``, in their order.

    Rows of the model's other parameters, and of those that only other ranks hold, stand at the end. A
    parameter that is not the model's keeps its row.
    """
    rows_of = {p: i for i, p in enumerate(model.parameters())}
    pairs = [(n, rows_of[p]) for n, p in enumerate(parameters) if p in rows_of]
    numbers, rows = [n for n, _ in pairs], [row for _, row in pairs]
    by_model = np.zeros((len(rows_of), 2))
    by_model[rows] = squares[numbers]
    totals = square_norms(model, by_model)
    squares = squares.copy()
    squares[numbers] = totals[rows]
    return np.concatenate([squares, np.delete(totals, rows, axis=0)])


@contextmanager
def accumulated(parameters: Iterable[Tensor]) -> Iterator[None]:
    """The gradients that ``parameters`` get in this block are added to those that they had before."""
    earlier: dict[Tensor, Array] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            earlier[parameter], parameter.grad = parameter.grad.copy(), None
    yield
    for parameter, g in earlier.items():
        if parameter.grad is not None:
            g += parameter.grad
        parameter.grad = g


def host_copy(value: Any) -> Any:
    """A copy of an array on the host; a number stays a number, as an array without axes; None stays None."""
    return None if value is None else np.array(to_host(value) if on_gpu(value) else value)


def state_of(name: str, like: Array, values: dict[str, Values]) -> dict[str, Any]:
    """The optimizer's state of the parameter called ``name``, whose elements on this rank are ``like``."""
    state = {key: of_key[name] for key, of_key in values.items() if of_key.get(name) is not None}
    xp = array_module(like)
    return {
        key: value.item() if is_number(value, like) else xp.array(value, order="C")
        for key, value in state.items()
    }


def is_number(value: np.ndarray, like: Array) -> bool:
    """Whether a value is a number of the optimizer's, such as a count, and not an array without axes.

    A parameter ``like`` without axes has such arrays, in its own dtype, which is not that of a count.
    """
    return value.ndim == 0 and (value.shape != like.shape or value.dtype != like.dtype)


def at_least_one(name: str, value: int) -> int:
    """``value``; raises ValueError, with its name, for less than 1."""
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return value
