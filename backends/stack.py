"""Several strategies as one, each on an axis of the grid: data by model, data by layers by neurons.

Lecture section: data and model parallelism together. Lesson: 14_hybrid.
"""

from __future__ import annotations

import math
import weakref
from itertools import pairwise

import numpy as np

from minigrad.backend import Backend, Gradients, Loss, Values
from minigrad.data import Batch
from minigrad.module import Module
from minigrad.optimizer import Optimizer
from minigrad.tape import OnGrad
from minigrad.tensor import Tensor

from .comm.collectives import allgather
from .data_parallel.compression import Compressed
from .model_parallel.model_parallel import ModelParallel
from .pipeline.asynchronous import AsynchronousPipeline
from .pipeline.pipeline import Pipeline


class Stack(Backend):
    """``Stack(DataParallel(grid.data), ModelParallel(grid.model))`` shares the batch, then the model.

    Members stand from the outermost, which shares the batch, to the innermost, nearest to the layers. Each
    runs its passes, micro-batches and all, over those of the next; gradients become final from the inside
    out. It trains like ``Serial`` if all members do. The outermost alone may change how parameters are
    updated. Raises ValueError for members that cannot be stacked so.
    """

    def __init__(self, *members: Backend):
        check_members(members)
        self.members = members
        self.size = math.prod(member.size for member in members)
        self.rank = 0
        for member in members:
            self.rank = self.rank * member.size + member.rank
        self.micro_batches = math.prod(member.micro_batches for member in members)
        self.equals_serial = all(member.equals_serial for member in members)
        self.waiting: list[list[Tensor]] = [[] for _ in members]  # final once that member has finished
        self.totals = [member.total for member in reversed(members)]
        for outer, inner in pairwise(members):
            outer.passes, outer.loss = inner.run, inner.loss
        stack = weakref.proxy(
            self
        )  # a cycle of references would hold what the members give back when dropped
        members[0].total = lambda model, squares: stack.total(model, squares)
        self.joins = [member.joined for member in reversed(members)]
        members[0].joined = lambda model, values: values  # its own comes last

    def place(self, model: Module) -> Module:
        for member in reversed(self.members):
            model = member.place(model)
        meets = np.array([any(member.meets_in_forward for member in self.members)])
        for comm in (getattr(member, "comm", None) for member in self.members[1:]):
            meets = meets if comm is None else np.array([any(allgather(comm, meets))])
        for backend in (self, *self.members):  # if one rank must go through a pass, all it talks to must
            backend.meets_in_forward = bool(meets[0])
        return model

    def shard(self, batch: Batch) -> Batch:
        for member in self.members:
            batch = member.shard(batch)
        return batch

    def weight(self, mine: Batch, batch: Batch) -> float:
        weight = 1.0
        for member in self.members:
            part = member.shard(batch)
            weight *= member.weight(part, batch) if len(batch) else 0.0
            batch = part
        return weight

    def run(self, model: Module, batch: Batch, loss_fn: Loss, weight: float, on_grad: OnGrad | None) -> float:
        return self.members[0].run(model, batch, loss_fn, weight, on_grad)

    def set_aside(self, model: Module) -> Gradients:
        """Whatever any member would sum again."""
        earlier: Gradients = {}
        for member in self.members:
            earlier |= member.set_aside(model)
        return earlier

    def add(self, earlier: Gradients) -> None:
        self.members[0].add(earlier)

    def on_grad(self, parameter: Tensor) -> None:
        self.announce(parameter, len(self.members))

    def announce(self, parameter: Tensor, outer: int) -> None:
        """Tell the first ``outer`` members, from the inside out, up to one that has yet to make it final."""
        for i in reversed(range(outer)):
            self.members[i].on_grad(parameter)
            if not self.members[i].is_final(parameter):
                self.waiting[i].append(parameter)
                return

    def is_final(self, parameter: Tensor) -> bool:
        return all(member.is_final(parameter) for member in self.members)

    def finish(self, model: Module, loss: float) -> float:
        """Each member finishes, the innermost first; what waited for it is announced to those around it."""
        for i in reversed(range(len(self.members))):
            loss = self.members[i].finish(model, loss)
            waited, self.waiting[i] = self.waiting[i], []
            for parameter in waited:
                self.announce(parameter, i)
        return loss

    def update(self, model: Module, optimizer: Optimizer) -> None:
        self.members[0].update(model, optimizer)

    def total(self, model: Module, squares: np.ndarray) -> np.ndarray:
        for total in self.totals:
            squares = total(model, squares)
        return squares

    def conclude(self, model: Module) -> None:
        for member in self.members:
            member.conclude(model)

    def close(self) -> None:
        """Close the members, from the inside out."""
        for member in reversed(self.members):
            member.close()

    def joined(self, model: Module, values: Values) -> Values:
        """From the inside out."""
        for join in self.joins:
            values = join(model, values)
        return values

    def full_parameters(self, model: Module) -> dict[str, np.ndarray]:
        return self.joined(model, self.members[0].full_parameters(model))

    def full_state(self, model: Module) -> dict[str, np.ndarray]:
        return self.joined(model, self.members[0].full_state(model))

    def full_gradients(self, model: Module) -> dict[str, np.ndarray | None]:
        return self.joined(model, self.members[0].full_gradients(model))


def check_members(members: tuple[Backend, ...]) -> None:
    """Raise ValueError unless every member can do its part inside those before it."""
    if not members:
        raise ValueError("a stack needs at least one strategy; name some from the outermost to the innermost")
    for member in members:
        if isinstance(member, Stack):
            raise ValueError("a stack inside a stack is one stack; name all strategies in it")
    for member in members[1:]:
        if type(member).update is not Backend.update:
            raise ValueError(
                f"{type(member).__name__} updates parameters in its own way, which only the outermost "
                "strategy can; put it first"
            )
        if members[0].lends_weights and isinstance(member, ModelParallel):
            raise ValueError(
                f"{type(members[0]).__name__} lends whole weights to modules, and split layers compute "
                "without asking for them; let every rank keep its weights (of the sharded stages, 1 or 2)"
            )
        lossy = isinstance(members[0], Compressed) and not members[0].equals_serial
        if lossy and isinstance(member, ModelParallel) and member.size > 1:
            raise ValueError(
                "Compressed leaves out something else on each of the ranks that share layers, so what all of "
                "these hold would not stay the same; choose another strategy for the data axis, or a pipeline"
            )
    for outer, member in pairwise(members):
        if isinstance(outer, AsynchronousPipeline):
            raise ValueError(
                "an AsynchronousPipeline applies gradients as its stages find them, which a strategy inside "
                "of it may have to finish; let it stand alone, or stack LayerWise or Pipeline instead"
            )
        if isinstance(outer, ModelParallel):
            raise ValueError(
                "ModelParallel splits layers, so nothing can stand inside of it; put it innermost"
            )
        if isinstance(outer, Pipeline) and (type(member).run is not Backend.run or member.micro_batches > 1):
            raise ValueError(
                f"a Pipeline takes micro-batches through its stages itself, so {type(member).__name__} "
                "inside of it would run no passes of its own; put it outside, with its micro_batches"
            )
    inner = math.prod(member.size for member in members[1:])
    if members[0].timed and inner > 1:
        raise ValueError(
            f"{type(members[0]).__name__} goes by how fast each rank is, so ranks that share a model would "
            "not agree on the samples; choose another strategy for the data axis"
        )
