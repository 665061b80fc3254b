"""Several strategies as one, each on an axis of the grid: data by model, data by layers by neurons.

Lecture section: data and model parallelism together. Lesson: 14_hybrid.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, ExitStack
from functools import partial, reduce
from itertools import combinations
from typing import Any

import numpy as np

from minigrad.data import Batch
from minigrad.module import Module
from minigrad.optim import Optimizer
from minigrad.placed_state import SquareNorms, Unshard, Values
from minigrad.strategy import Strategy
from minigrad.tensor import Tensor
from minigrad.traits import Traits
from minigrad.work import ForwardBackward, Loss, Work, forward_backward_pass


class Stack(Strategy):
    """``Stack(DataParallel(grid.data), ModelParallel(grid.model))`` shares the batch, then the model.

    Members are named from the outermost, which shares the batch, to the innermost, nearest to the layers.
    Each runs its micro-batches through the next; gradients are reduced innermost first. A stack trains like
    ``Serial`` if all members do. Only the outermost may change how parameters are updated. Raises ValueError
    for members that cannot be stacked in this order.
    """

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

    def loss_for(self, model: Module, loss_fn: Loss) -> Loss:
        return reduce(lambda loss_fn, member: member.loss_for(model, loss_fn), self.members, loss_fn)

    def forward_backward(self, work: Work, inner: ForwardBackward = forward_backward_pass) -> float:
        """Each member runs its micro-batches through the members inside it."""
        for member in reversed(self.members):
            inner = partial(member.forward_backward, inner=inner)
        return inner(work)

    def accumulate(self, model: Module) -> AbstractContextManager[Any]:
        """Set aside the earlier gradients of every member."""
        stack = ExitStack()
        for member in self.members:
            stack.enter_context(member.accumulate(model))
        return stack

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

    def update(self, model: Module, optimizer: Optimizer, square_norms: SquareNorms | None = None) -> None:
        self.check_model(model)
        self.members[0].update(model, optimizer, square_norms or self.global_square_norms)

    def global_square_norms(self, model: Module, squares: np.ndarray) -> np.ndarray:
        for member in reversed(self.members):
            squares = member.global_square_norms(model, squares)
        return squares

    def unshard_values(self, model: Module, values: Values) -> Values:
        for member in reversed(self.members):
            values = member.unshard_values(model, values)
        return values

    def shard_values(self, model: Module, values: Values) -> Values:
        for member in self.members:
            values = member.shard_values(model, values)
        return values

    def full_parameters(self, model: Module, unshard: Unshard | None = None) -> dict[str, np.ndarray]:
        return self.members[0].full_parameters(model, unshard or self.unshard_values)

    def full_state(self, model: Module, unshard: Unshard | None = None) -> dict[str, np.ndarray]:
        return self.members[0].full_state(model, unshard or self.unshard_values)

    def full_gradients(self, model: Module, unshard: Unshard | None = None) -> dict[str, np.ndarray | None]:
        return self.members[0].full_gradients(model, unshard or self.unshard_values)

    def full_optimizer_state(
        self, model: Module, optimizer: Optimizer, key: str, unshard: Unshard | None = None
    ) -> Values:
        return self.members[0].full_optimizer_state(model, optimizer, key, unshard or self.unshard_values)

    def load_optimizer_state(
        self, model: Module, optimizer: Optimizer, whole: dict[str, Values], shard: Unshard | None = None
    ) -> None:
        self.members[0].load_optimizer_state(model, optimizer, whole, shard or self.shard_values)

    def own_values(self) -> dict[str, Any]:
        return {f"{i} {name}": v for i, m in enumerate(self.members) for name, v in m.own_values().items()}

    def set_own_values(self, values: dict[str, Any]) -> None:
        for i, member in enumerate(self.members):
            own = {name: v for name, v in values.items() if name.startswith(f"{i} ")}
            member.set_own_values({name.removeprefix(f"{i} "): value for name, value in own.items()})

    def drain(self, model: Module) -> None:
        for member in self.members:
            member.drain(model)

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
        if reason := outer.refusal(inner):
            raise ValueError(reason)
