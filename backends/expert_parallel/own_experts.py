"""The experts of a model that this rank keeps, what tells them from other parameters, and the whole state.

Lecture section: data and model parallelism together. Lesson: 18_experts, by ``expert_parallel.py``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from minigrad.data import shares
from minigrad.module import Module
from minigrad.nn import Experts
from minigrad.nn.experts import Exchange
from minigrad.placed_state import PlacedState, Values
from minigrad.tensor import Parameter

from ..comm.collectives import allgather, allreduce
from ..comm.communicator import Communicator


def mixtures_of(model: Module) -> list[Experts]:
    """The mixtures inside a model, each once."""
    return list(dict.fromkeys(module for module in model.modules() if isinstance(module, Experts)))


def refuse_shared(model: Module) -> None:
    """Raise ValueError for a model of whose experts other ranks hold some, as one that was placed before."""
    if not all(mixture.is_whole for mixture in mixtures_of(model)):
        raise ValueError(
            "the model's experts are shared among ranks already, and this rank holds only its own; build the "
            "model anew, and load backend.state.full_parameters(model) to go on"
        )


def refuse_uses_elsewhere(model: Module, mixtures: list[Experts]) -> None:
    """Raise ValueError where another module has experts of a mixture, of which a rank will have only some."""
    stacks = {id(parameter) for mixture in mixtures for parameter in mixture.stacks}
    for name, owner, attribute in model.named_arrays():
        if not isinstance(owner, Experts) and id(vars(owner)[attribute]) in stacks:
            raise ValueError(
                f"{name} is also a parameter of a mixture, of whose experts each rank has only some; give "
                f"{type(owner).__name__} a parameter of its own"
            )


class OwnExperts:
    """This rank's experts of a ``model``, which from now on are the only ones that it holds.

    Rank r of ``comm`` keeps the r-th share of each mixture's experts, perhaps none, and ``exchange`` leads
    tokens to all of them. ``parameters`` are this rank's parts of the stacks. ``inner`` are the states of
    strategies that have placed the model before: ``names`` are the serial names of the stacks of all their
    ranks, and ``is_stack`` says of the rows of their square norms which are of stacks. With
    ``in_one_row`` all tokens of a call share their places, whatever the ``capacity_per`` of the mixtures.
    """

    def __init__(
        self,
        model: Module,
        comm: Communicator,
        exchange: Any,
        *,
        inner: tuple[PlacedState, ...] = (),
        in_one_row: bool = False,
    ):
        mixtures = mixtures_of(model)
        refuse_uses_elsewhere(model, mixtures)
        lead: Exchange = partial(exchange, comm=comm)
        for mixture in mixtures:
            own = shares(mixture.gate.shape[0], comm.size)[comm.rank]
            mixture.share(own, lead, "batch" if in_one_row else mixture.capacity_per)
        self.parameters: set[Parameter] = {p for mixture in mixtures for p in mixture.stacks}
        flags: Values = {name: np.array(float(p in self.parameters)) for name, p in model.named_parameters()}
        rows = np.array([[p in self.parameters] * 2 for p in model.parameters()], float).reshape(-1, 2)
        for state in reversed(inner):
            flags, rows = state.unshard_values(model, flags), state.global_square_norms(model, rows)
        self.names = [name for name, flag in flags.items() if flag]
        self.is_stack = rows > 0


class ExpertsOfRanks(PlacedState):
    """Whole stacks of experts from those of all ranks, and norms in which each expert counts once.

    ``backend.experts`` is this rank's ``OwnExperts``, and ``backend.comm`` are the ranks.
    """

    def unshard_values(self, model: Module, values: Values) -> Values:
        """The serial run's arrays; numbers, such as counts of steps, and None are as they are."""
        names = [n for n in self.backend.experts.names if (v := values.get(n)) is not None and v.ndim]
        return values | {n: np.concatenate(allgather(self.backend.comm, values[n])) for n in names}

    def shard_values(self, model: Module, values: Values) -> Values:
        names = [n for n in self.backend.experts.names if (v := values.get(n)) is not None and v.ndim]
        size, rank = self.backend.size, self.backend.rank
        return values | {n: values[n][shares(len(values[n]), size)[rank]] for n in names}

    def global_square_norms(self, model: Module, squares: np.ndarray) -> np.ndarray:
        """Sums over the ranks, in which what all of them hold counts once."""
        once = np.where(self.backend.experts.is_stack, 1.0, float(self.backend.rank == 0))
        return allreduce(self.backend.comm, squares * once)
