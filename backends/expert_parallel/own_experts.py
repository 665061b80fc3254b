"""The experts of a model that this rank keeps, and what tells them from other parameters.

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
    ranks, and ``is_stack`` says of the rows of their square norms which are of stacks.
    """

    def __init__(
        self,
        model: Module,
        comm: Communicator,
        exchange: Any,
        *,
        inner: tuple[PlacedState, ...] = (),
        capacity_per: str = "sample",
    ):
        mixtures = mixtures_of(model)
        refuse_uses_elsewhere(model, mixtures)
        lead: Exchange = partial(exchange, comm=comm)
        for mixture in mixtures:
            own = shares(mixture.gate.shape[0], comm.size)[comm.rank]
            mixture.share(own, lead, capacity_per if capacity_per == "batch" else mixture.capacity_per)
        self.parameters: set[Parameter] = {p for mixture in mixtures for p in mixture.stacks}
        flags: Values = {name: np.array(float(p in self.parameters)) for name, p in model.named_parameters()}
        rows = np.array([[p in self.parameters] * 2 for p in model.parameters()], float).reshape(-1, 2)
        for state in reversed(inner):
            flags, rows = state.unshard_values(model, flags), state.global_square_norms(model, rows)
        self.names = [name for name, flag in flags.items() if flag]
        self.is_stack = rows > 0
