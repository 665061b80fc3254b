"""A pipeline without a flush: each rank takes a new batch forward, then an older one back.

Lecture section: pipelining. Lesson: 13_pipeline. The next batch goes forward before the last one is back, so
there is no bubble, and gradients are those of older weights.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from minigrad.data import Batch
from minigrad.declaration import Declaration, Flag
from minigrad.device import Array, array_module, without_memory
from minigrad.lookup import lookup
from minigrad.module import Module
from minigrad.optim import Optimizer
from minigrad.strategy import Strategy
from minigrad.tape import Tape
from minigrad.tensor import Tensor
from minigrad.traits import Traits
from minigrad.work import ForwardBackward, Work, forward_backward_pass

from ..comm.collectives.send_recv import Tag
from ..comm.communicator import Communicator
from ..consistency import check_same_on_all_ranks, refuse_half
from ..placement import LayersOfRanks
from ..stale_rates import STALE_RATES, find_stale_rate
from .engine import Input
from .layer_wise import LayerWise, Stage
from .timetable import Backward, Forward, span_name
from .weight_stash import WeightStash

LOSS_TAG = 30_000  # above those of ``p2p``


class Rule(NamedTuple):
    """The weights that a batch uses, and the time at which its gradient is applied."""

    copies: bool = True  # a forward's weights are kept for its backward
    vertical: bool = False  # a batch uses the same version on all stages
    same_step: bool = False  # all stages apply a batch's gradient at the end of the same step


RULES = {
    "stashing": Rule(),
    "vertical": Rule(vertical=True),
    "2bw": Rule(same_step=True),
    "no_stash": Rule(copies=False),
}


class AsynchronousState(LayersOfRanks):
    """The state of stages, which updates may have reached at different times."""

    backend: AsynchronousPipeline

    def global_square_norms(self, model: Module, squares: np.ndarray) -> np.ndarray:
        """All stages' sums where they apply the same batch's gradient at the same time, else this one's."""
        return super().global_square_norms(model, squares) if self.backend.rule.same_step else squares

    def own_values(self) -> dict[str, Any]:
        staleness = [list(pair) for pair in sorted(self.backend.staleness.items())]
        return {"staleness": staleness} | super().own_values()

    def set_own_values(self, values: dict[str, Any]) -> None:
        super().set_own_values(values)
        self.backend.staleness = Counter(dict(values["staleness"]))

    def drain(self, model: Module) -> None:
        self.backend.finalize(model)


class AsynchronousPipeline(LayerWise):
    """Consecutive layers on p consecutive ranks, without a flush; not equal to ``Serial`` for p > 1.

    In a step stage s takes one batch forward, and after each micro-batch of it an older one back; p - 1 - s
    micro-batches stay in flight. ``versions`` chooses their weights, where w_s^t are those of stage s after t
    updates, for t < 0 the first:

    - "stashing": batch t's gradient is that at w_0^(t-p+1), ..., w_(p-1)^t, applied to w^t. Stage s holds
      p - s versions (PipeDream, Narayanan et al. 2019).
    - "vertical": the same with w^(t-p+1) on all stages, PipeDream's vertical sync. Each holds p versions.
    - "2bw": batch t's gradient is that at w^(t-1), the sum over p ``micro_batches`` or more. Each stage holds
      2 versions, the last one 1 (PipeDream-2BW, Narayanan et al. 2021).
    - "no_stash": backward uses the stage's newest weights, not those of the forward, so the result is not
      the gradient of any function. It shows why a stash is needed.

    ``micro_batches`` is p by default for "2bw"; the others update after every batch, and take 1. An update
    has the learning rate of its step, which ``stale_rate`` multiplies where the gradient is tau updates old:
    "damped" by 1 / (1 + tau), "divided" by 1 / tau if tau is above 0, "naive" by 1. The reason is in
    ``stale_rates``; Yang et al. 2021 divide the rates of stages so. With three or more stages training still
    loses some accuracy in few epochs; ``Pipeline`` does not.

    ``staleness`` counts the gradients applied on this rank by the updates since their forward;
    ``versions_held`` is the largest number of versions in memory so far. A checkpoint is written when the
    batches in flight are back, so after it training begins anew, from its weights and optimizer's state; a
    run that is resumed equals one that writes the same checkpoints. One rank trains like ``Serial``. Raises
    ValueError for settings that do not fit.
    """

    traits = Traits(equals_serial=False, outermost_only=True)
    state_class, own_state = AsynchronousState, ("versions_held",)
    declaration = Declaration(
        {
            "versions": Flag(str, "weights that a batch uses (default: stashing)", "NAME", lambda: RULES),
            "stale_rate": Flag(
                str, "effect of staleness on the learning rate (default: damped)", "NAME", lambda: STALE_RATES
            ),
        },
        chooses=LayerWise.declaration.chooses,
    )

    def __init__(
        self,
        comm: Communicator,
        bounds: Sequence[int] | None = None,
        *,
        versions: str = "stashing",
        stale_rate: str = "damped",
        micro_batches: int | None = None,
    ):
        self.versions, self.rule = versions, lookup("versions", versions, RULES)
        self.stale_rate, self.factor = stale_rate, find_stale_rate(stale_rate)
        needed = comm.size if self.rule.same_step else 1
        super().__init__(comm, bounds, micro_batches=needed if micro_batches is None else micro_batches)
        if self.micro_batches < needed:
            raise ValueError(
                f"{versions} on {comm.size} ranks needs at least {needed} micro-batches, for a batch to be "
                f"back one step later, got {micro_batches}; pass micro_batches={needed} or more"
            )
        if self.micro_batches > 1 and not self.rule.same_step:
            raise ValueError(
                f"{versions} updates after every batch, taken as a whole, got micro_batches={micro_batches}; "
                "take smaller batches, or versions='2bw'"
            )
        last = comm.size - 1
        self.behind = last - comm.rank  # micro-batches
        self.late = -(-last // self.micro_batches)  # steps until all stages have a batch's gradient
        self.delay = self.late if self.rule.same_step else self.behind  # steps until this one applies it
        self.staleness: Counter[int] = Counter()
        self.versions_held = 1
        self.engine: AsynchronousEngine | None = None
        self.ready: Gradient | None = None
        self.optimizer: Optimizer | None = None

    def place(self, model: Module) -> Module:
        """The rank's layers; ValueError too for float16, of which versions would have no float32 copies."""
        refuse_half(model, self)
        check_same_on_all_ranks(self.comm, model, {"versions": self.versions, "stale_rate": self.stale_rate})
        return super().place(model)

    def forward_backward(self, work: Work, inner: ForwardBackward = forward_backward_pass) -> float:
        """Take the batch forward and older ones back; ``update`` then applies the gradient in ``grad``.

        Returns, on all ranks, the loss of the batch ``late`` steps ago: p - 1, for 2bw at most 1. The first
        steps return the loss of the first batch, for which all ranks wait once; no step returns those of the
        last batches. No gradients are announced. Raises RuntimeError for a second step without an update.
        """
        if self.ready is not None:
            raise RuntimeError(
                "the gradient of the step before was not applied, and stages count on an update in every "
                "step; call backend.update(model, optimizer) after each, or accumulate gradients with "
                "versions='2bw' and micro_batches="
            )
        engine = self.engine = self.engine or self.begin(work.model)
        parts = list(work.split(self.micro_batches).values())
        receives = [engine.post(part.batch) for part in parts]
        losses = []
        for part, receive in zip(parts, receives, strict=True):
            losses.append(engine.forward(part, receive))
            if len(engine.in_flight) > self.behind:
                engine.backward()
        self.ready = engine.take_back(engine.step - self.delay)
        engine.end_step(sum(losses))  # from Python 3.12 on it rounds less than +=
        loss = engine.loss(max(engine.step - 1 - self.late, 0))
        if not math.isfinite(loss):  # on all ranks in the same step
            self.end()
        return loss

    def finish(self, model: Module, loss: float) -> float:
        return loss

    def update(self, model: Module, optimizer: Optimizer) -> None:
        """Apply the gradient that is due; change nothing while there is none yet.

        Raises ValueError for clipping by the joint norm where stages apply different batches' gradients.
        """
        self.check_update(model, optimizer)
        if optimizer.limit is not None and self.size > 1 and not self.rule.same_step:
            raise ValueError(
                f"{self.versions} applies a batch's gradient stage by stage, at different times, so its "
                "joint norm is not known; train without clipping, or take versions='2bw'"
            )
        self.optimizer = optimizer
        if self.engine is None or self.ready is None:
            return
        stash = self.engine.stash
        age = stash.newest.updates - self.ready.updates
        self.staleness[age] += 1
        stash.advance()
        self.versions_held = max(self.versions_held, stash.n_versions)
        lr, optimizer.lr = optimizer.lr, optimizer.lr * self.factor(age, 1.0, optimizer.adaptive)
        with np.errstate(over="ignore", invalid="ignore"):  # the loss that shows it comes later
            super().update(model, optimizer)
        optimizer.lr = lr
        self.ready = None

    def finalize(self, model: Module) -> None:
        """Take the batches in flight back and apply their gradients, with the last update's optimizer.

        Raises FloatingPointError, on all ranks, where a loss that no step returned is not finite.
        """
        if self.engine is None:
            return
        steps = self.engine.step
        with np.errstate(over="ignore", invalid="ignore"):  # the error below names the step
            for batch in range(max(steps - self.delay, 0), steps):
                self.ready = self.engine.take_back(batch)
                if self.optimizer is not None:
                    self.update(model, self.optimizer)
        for step, loss in enumerate(self.end(), self.step_number - steps):
            if not math.isfinite(loss):
                raise FloatingPointError(f"the loss is {loss} at step {step}; try a smaller --lr")

    def close(self) -> None:
        """Drop the batches in flight, unless ``finalize`` has applied their gradients."""
        super().close()
        self.end()

    def begin(self, model: Module) -> AsynchronousEngine:
        """An engine with nothing in flight and the present weights."""
        assert isinstance(model, Stage)
        behind = self.rank if self.rule.vertical else 0
        stash = WeightStash(model.parameters(), delay=behind, copies=self.rule.copies)
        return AsynchronousEngine(self.comm, model.model, stash, self.late)

    def end(self) -> list[float]:
        """Receive all messages and drop the engine; returns the losses of all batches."""
        engine, self.engine, self.ready, self.optimizer = self.engine, None, None, None
        return [] if engine is None else engine.drain()

    def refusal(self, inner: Strategy) -> str:
        return (
            "an AsynchronousPipeline applies gradients before a strategy inside of it could finish them; "
            "let it stand alone, or stack LayerWise or Pipeline instead"
        )


class Gradient(NamedTuple):
    """The sum of a batch's gradients so far, at the weights after ``updates`` updates."""

    updates: int
    arrays: list[Array | None]


class InFlight(NamedTuple):
    """A micro-batch between forward and backward: the stage's input ``x``, and its output or loss ``y``."""

    batch: int
    micro: int
    tape: Tape
    x: Input
    y: Tensor
    weight: float
    receive: Callable[[], Array] | None  # waits for the gradient of ``y``


class AsynchronousEngine:
    """Takes micro-batches through ``part``, this rank's layers, with the versions of weights in ``stash``.

    Activations go to the next rank, gradients to the rank before, and the last rank sends the losses to all
    others. A send is finished some steps after its start, when messages from the receiver show that it has
    arrived; so a rank waits only for what it needs. After ``late`` steps a batch is back on all ranks.
    """

    def __init__(self, comm: Communicator, part: Module, stash: WeightStash, late: int):
        self.comm, self.part, self.stash, self.late = comm, part, stash, late
        self.first, self.last = comm.rank == 0, comm.rank == comm.size - 1
        self.step = self.micros = 0
        self.in_flight: deque[InFlight] = deque()
        self.gradients: dict[int, Gradient] = {}  # by batch
        self.losses: list[float] = []  # of all batches, as far as this rank knows them
        self.likes: dict[tuple[int, ...], Array] = {}  # the stage's input for samples of a shape
        self.sends: list[tuple[int, Callable[[], None]]] = []  # with the step by whose end they have arrived

    def post(self, batch: Batch) -> Callable[[], Array]:
        """Start to receive the output of the stage before for ``batch``; the first stage has its input."""
        if self.first:
            return lambda: batch.x
        return self.comm.start_recv(self.comm.rank - 1, Tag.FORWARD, self.likes.get(batch.x.shape))

    def forward(self, work: Work, receive: Callable[[], Array]) -> float:
        """Take the next micro-batch forward; returns its weighted loss on the last rank, 0 elsewhere."""
        x = Input(receive())
        x.requires_grad = not self.first
        self.likes[work.batch.x.shape] = without_memory(x.data)
        computing = self.comm.computing(span_name(Forward(self.micros)))
        with self.stash.forward(), computing, work.forward_pass() as forward_pass, Tape() as tape:
            y = self.part(x)
            if self.last:
                y = work.loss(y)
        gradient = None
        if not self.last:
            self.send(y.data, self.comm.rank + 1, Tag.FORWARD, steps=self.late)
            gradient = self.comm.start_recv(self.comm.rank + 1, Tag.GRADIENT, without_memory(y.data))
        self.in_flight.append(InFlight(self.step, self.micros, tape, x, y, work.seed, gradient))
        self.micros += 1
        if forward_pass.penalties and not self.last:
            raise ValueError(
                "an AsynchronousPipeline reports what the last rank knows of the loss, and layers before it "
                "have a penalty; choose a timetable such as 1f1b, or a penalty of 0"
            )
        return work.weighted(forward_pass, y) if self.last else 0.0

    def backward(self) -> None:
        """Take the oldest micro-batch in flight back and add its gradient to that of its batch."""
        batch, micro, tape, x, y, weight, receive = self.in_flight.popleft()
        seed = weight if receive is None else receive()
        point_gradients_at(self.stash.parameters, self.gradients.get(batch))
        with self.stash.backward() as version, self.comm.computing(span_name(Backward(micro))):
            tape.backward(y, seed)
        self.gradients[batch] = Gradient(version.updates, [p.grad for p in self.stash.parameters])
        if not self.first:
            dx = array_module(x.data).zeros_like(x.data) if x.grad is None else x.grad
            self.send(dx, self.comm.rank - 1, Tag.GRADIENT, steps=2)

    def take_back(self, batch: int) -> Gradient | None:
        """Finish a batch: the parameters have its gradient, or None for a batch before the first."""
        while self.in_flight and self.in_flight[0].batch <= batch:
            self.backward()
        gradient = self.gradients.pop(batch, None)
        point_gradients_at(self.stash.parameters, gradient)
        return gradient

    def end_step(self, loss: float) -> None:
        """End the step in which a batch went forward; the last rank sends its ``loss`` to the others."""
        if self.last:
            self.losses.append(loss)
            for rank in range(self.comm.size - 1):
                self.send(np.array([loss]), rank, LOSS_TAG, steps=self.late + 1)
        self.finish_sends(self.step)
        self.step += 1

    def loss(self, batch: int) -> float:
        """A batch's loss, which the last rank sends."""
        while len(self.losses) <= batch:
            self.losses.append(float(self.comm.recv(self.comm.size - 1, LOSS_TAG)[0]))
        return self.losses[batch]

    def drain(self) -> list[float]:
        """Take all micro-batches in flight back and receive all losses; returns those of all batches."""
        self.take_back(self.step)
        self.loss(self.step - 1)
        self.finish_sends(math.inf)
        return self.losses

    def send(self, x: Array, to: int, tag: int, *, steps: int) -> None:
        """Start to send ``x``, which nobody changes any more; it has arrived ``steps`` steps from now."""
        self.sends.append((self.step + steps, self.comm.start_send(x, to, tag)))

    def finish_sends(self, step: float) -> None:
        """Finish the sends that have arrived before the end of ``step``."""
        for arrival, finish in self.sends:
            if arrival <= step:
                finish()
        self.sends = [send for send in self.sends if send[0] > step]


def point_gradients_at(parameters: Sequence[Tensor], gradient: Gradient | None) -> None:
    """Let the parameters refer to a gradient's arrays, or to None."""
    for i, parameter in enumerate(parameters):
        parameter.grad = None if gradient is None else gradient.arrays[i]
