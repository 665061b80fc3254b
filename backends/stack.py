"""Several strategies as one, each on an axis of the grid: data by model, data by layers by neurons.

Lecture section: data and model parallelism together. Lesson: 14_hybrid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import combinations
from typing import Any

from minigrad.data import Batch
from minigrad.module import Module
from minigrad.optim import Optimizer
from minigrad.placed_state import PlacedState
from minigrad.strategy import Strategy
from minigrad.tensor import Tensor
from minigrad.traits import Traits
from minigrad.work import ForwardBackward, Loss, Work, forward_backward_pass


class StackState(PlacedState):
    """The outermost strategy's, which goes through those inside it, and the own state of each."""

    backend: Stack

    @property
    def states(self) -> Sequence[PlacedState]:
        return [member.state for member in self.backend.members]

    @contextmanager
    def accumulate(self, model: Module) -> Iterator[None]:
        """Set aside the earlier gradients of every member."""
        with ExitStack() as stack:
            for state in self.states:
                stack.enter_context(state.accumulate(model))
            yield

    def own_values(self) -> dict[str, Any]:
        return {f"{i} {name}": v for i, s in enumerate(self.states) for name, v in s.own_values().items()}

    def set_own_values(self, values: dict[str, Any]) -> None:
        for i, state in enumerate(self.states):
            own = {name: v for name, v in values.items() if name.startswith(f"{i} ")}
            state.set_own_values({name.removeprefix(f"{i} "): v for name, v in own.items()})

    def drain(self, model: Module) -> None:
        for state in self.states:
            state.drain(model)


class Stack(Strategy):
    """``Stack(DataParallel(grid.data), ModelParallel(grid.model))`` shares the batch, then the model.

    Members are named from the outermost, which shares the batch, to the innermost, nearest to the layers.
    Each runs its micro-batches through the next; gradients are reduced innermost first. A stack trains like
    ``Serial`` if all members do. Only the outermost may change how parameters are updated. Raises ValueError
    for members that cannot be stacked in this order.
    """

    state_class = StackState

    def __init__(self, *members: Strategy):
        check_members(members)
        self.members = members
        self.size = math.prod(member.size for member in members)
        self.rank = 0
        for member in members:
            self.rank = self.rank * member.size + member.rank
        self.micro_batches = math.prod(member.micro_batches for member in members)
        self.traits = Traits.of_all(member.traits for member in members)
        self.waiting: list[list[Tensor]] = [[] for _ in members]  # each member reduces these in ``finish``
        for i, member in enumerate(members):
            member.enclose(members[i + 1 :])

    def place(self, model: Module) -> Module:
        for member in reversed(self.members):
            model = member.place(model)
        return self.hold(model)

    def begin_step(self, model: Module) -> bool:
        return all([member.begin_step(model) for member in self.members])

    def check_batch(self, batch: Batch) -> None:
        for member in self.members:
            member.check_batch(batch)

    def shard(self, batch: Batch) -> Batch:
        for member in self.members:
            batch = member.shard(batch)
        return batch

    def loss_weight(self, mine: Batch, batch: Batch) -> float:
        weight = 1.0
        for member in self.members:
            part = member.shard(batch)
            weight *= member.loss_weight(part, batch) if len(batch) else 0.0
            batch = part
        return weight

    def loss_by_parts(self, loss_fn: Loss) -> Loss:
        for member in self.members:
            loss_fn = member.loss_by_parts(loss_fn)
        return loss_fn

    def loss_for(self, model: Module, loss_fn: Loss) -> Loss:
        """Innermost first: who splits the classes of the logits must know which loss it is."""
        for member in reversed(self.members):
            loss_fn = member.loss_for(model, loss_fn)
        return loss_fn

    def forward_backward(self, work: Work, inner: ForwardBackward = forward_backward_pass) -> float:
        """Each member runs its micro-batches through the members inside it."""
        for member in reversed(self.members):
            inner = partial(member.forward_backward, inner=inner)
        return inner(work)

    def on_grad(self, parameter: Tensor) -> bool:
        return self.announce(parameter, len(self.members))

    def announce(self, parameter: Tensor, outer: int) -> bool:
        """Call the first ``outer`` members, innermost first, until one that reduces the gradient later."""
        for i in reversed(range(outer)):
            if not self.members[i].on_grad(parameter):
                self.waiting[i].append(parameter)
                return False
        return True

    def finish(self, model: Module, loss: float) -> float:
        """Finish each member, innermost first; announce to outer members the gradients it reduced."""
        for i in reversed(range(len(self.members))):
            loss = self.members[i].finish(model, loss)
            reduced, self.waiting[i] = self.waiting[i], []
            for parameter in reduced:
                self.announce(parameter, i)
        return loss

    def update(self, model: Module, optimizer: Optimizer) -> None:
        self.check_update(model, optimizer)
        self.members[0].update(model, optimizer)

    def finalize(self, model: Module) -> None:
        for member in self.members:
            member.finalize(model)

    def close(self) -> None:
        """Close the members, innermost first."""
        super().close()
        for member in reversed(self.members):
            member.close()


def check_members(members: tuple[Strategy, ...]) -> None:
    """Raise ValueError unless every member can stand inside those before it."""
    if not members:
        raise ValueError("a stack needs at least one strategy; name some from the outermost to the innermost")
    if any(isinstance(member, Stack) for member in members):
        raise ValueError("a stack inside a stack is one stack; name all strategies in it")
    for outer, inner in combinations(members, 2):
        if inner.traits.outermost_only:
            raise ValueError(
                f"{type(inner).__name__} updates parameters in its own way, which only the outermost "
                "strategy can; put it first"
            )
        if outer.traits.depends_on_timing and inner.size > 1:
            raise ValueError(
                f"{type(outer).__name__} goes by how fast each rank is, so ranks that share a model would "
                "not agree on the samples; choose another strategy for the data axis"
            )
        if reason := outer.refusal(inner):
            raise ValueError(reason)
