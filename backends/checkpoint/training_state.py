"""What a training is between two steps: the serial run's arrays, and what each rank holds beyond them.

Lecture section: what a cluster would do. Lesson: 15_scale. A checkpoint holds what a serial run would hold,
so any layout of ranks can go on where another one stopped; only the own state of ranks, such as residuals or
averaged models, needs the same layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from minigrad.device import on_gpu, to_host
from minigrad.module import Module
from minigrad.nn import Dropout
from minigrad.optim import Optimizer
from minigrad.own_state import OwnState, generator_states, serial_modules, set_generator_states
from minigrad.placed_state import PlacedState, Values
from minigrad.strategy import Strategy
from minigrad.train import History

from ..comm import Communicator
from ..comm.allgather_json import allgather_json
from .checkpoints import Arrays

MODEL, OPTIMIZER, OWN = "model/", "optimizer/", "own/"  # before the names of arrays


def gather_state(
    comm: Communicator,
    backend: Strategy,
    model: Module,
    optimizer: Optimizer,
    schedule: OwnState | None = None,
    history: History | None = None,
) -> tuple[Arrays, dict[str, Any], Arrays]:
    """The arrays of a serial run, facts, and this rank's own arrays; all ranks of ``comm`` call.

    Names are "model/0.weight" and "optimizer/v/0.weight"; a rank's own begin with "rank-0/". The facts hold
    the number of the next step and the seeds of dropout, by which random masks go; the numbers in the
    optimizer's state, by key and parameter, those of a ``schedule`` that has a state, as ReduceLROnPlateau,
    and the loss scale of master weights, the same on all ranks; and the ``history`` of ``fit``. Before,
    ``backend`` drains what is on its way, which for pipelines without a flush, and asynchronous servers,
    changes the training. Raises ValueError for a strategy whose ranks may leave.
    """
    refuse_unresumable(backend)
    backend.state.drain(model)
    numbers: dict[str, Any] = {}
    if backend.traits.models_differ:
        arrays, own = {}, serial_state(Strategy().state, keys_of(optimizer), model, optimizer, numbers)
    else:
        keys = sorted({key for keys in allgather_json(comm, keys_of(optimizer)) for key in keys})
        arrays, own = serial_state(backend.state, keys, model, optimizer, numbers), {}
    mine: dict[str, Any] = {"generators": generator_states(model), "optimizer": numbers, "values": {}}
    mine["same layout only"] = backend.traits.same_layout_only
    mine["strategy"] = type(backend).__name__
    mine["seeds"] = {name: layer.seed for name, layer in dropouts(model)}
    for name, value in backend.state.own_values().items():
        parts = arrays_in(value)
        own |= {f"{OWN}{name}{place}": array for place, array in parts.items()}
        mine["values"][name] = len(parts) if parts else value
    facts = {"step_number": backend.step_number, "optimizer": numbers, "own": mine}
    if schedule is not None:
        facts["schedule"] = schedule.own_values()
    if optimizer.master_weights is not None:
        facts["loss_scale"] = optimizer.master_weights.scale.own_values()
    if history is not None:
        facts["history"] = dict(vars(history))
    return arrays, facts, {f"rank-{comm.rank}/{n}": a for n, a in own.items()}


def serial_state(
    state: PlacedState, keys: list[str], model: Module, optimizer: Optimizer, numbers: dict[str, Any]
) -> Arrays:
    """The arrays of model and optimizer as a serial run has them; numbers go to ``numbers``."""
    arrays = state.full_parameters(model) | state.full_state(model)
    arrays = {MODEL + name: array for name, array in arrays.items()}
    for key in keys:
        for name, value in state.full_optimizer_state(model, optimizer, key).items():
            if value is not None and value.ndim == 0 < arrays[MODEL + name].ndim:  # such as a count of steps
                numbers.setdefault(key, {})[name] = value.item()
            elif value is not None:
                arrays[f"{OPTIMIZER}{key}/{name}"] = value
    return arrays


def dropouts(model: Module) -> Iterator[tuple[str, Dropout]]:
    """The layers of dropout on this rank, by their names in the serial model."""
    return ((name, layer) for name, layer in serial_modules(model) if isinstance(layer, Dropout))


def load_seeds(model: Module, seeds: dict[str, int]) -> None:
    """Give each layer of dropout the seed that is saved under its name; ValueError where there is none."""
    for name, layer in dropouts(model):
        if name not in seeds:
            raise ValueError(
                f"the checkpoint is of a model without dropout at layer {name}; build the same model to go on"
            )
        layer.seed = seeds[name]


def load_model_state(model: Module, arrays: Arrays) -> None:
    """Copy the arrays into a serial model, which has not been placed; errors as ``load_state_dict``.

    Without arrays, as where each rank has its own model, the model stays as it is.
    """
    state = {n.removeprefix(MODEL): array for n, array in arrays.items() if n.startswith(MODEL)}
    for first, *others in model.tied_parameters() if state else ():
        state |= dict.fromkeys(others, state[first])
    if state:
        model.load_state_dict(state)


def load_state(
    comm: Communicator,
    backend: Strategy,
    model: Module,
    optimizer: Optimizer,
    arrays: Arrays,
    facts: dict[str, Any],
    *,
    same_layout: bool | None = None,
    schedule: OwnState | None = None,
    history: History | None = None,
) -> None:
    """Give this rank, whose model has been placed, everything else that was saved.

    ``same_layout`` says whether ranks, strategy and options are those that wrote the checkpoint; None takes
    it that they are where the number of ranks and the class of ``backend`` are. ``history`` becomes the saved
    one, for ``fit`` to start from.

    Masks of dropout are those of the steps to come, in any layout and whatever ``model`` was built from; with
    a checkpoint of an earlier version, which has no seeds, they go by the model's. Generators that are
    attributes of layers, and what was measured of ranks, go on in the same layout only; in another one they
    begin anew. Raises ValueError where ranks have a state of their own that it cannot use, where ``schedule``
    is None and the checkpoint has the state of one, in the opposite case, alike for master weights and their
    loss scale, and where something is missing.
    """
    masters = optimizer.master_weights
    for fact, name, part in (("schedule", "schedule", schedule), ("loss_scale", "loss scale", masters)):
        if (part is None) == (fact in facts):
            holds, takes = ("a", "without one") if part is None else ("no", "with one")
            alike = "optimizer, with or without master weights" if part is masters else name
            raise ValueError(
                f"the checkpoint holds {holds} {name}'s state, and the training goes on {takes}; give "
                f"gather_state and load_state the same {alike}, or neither of them one"
            )
    try:
        backend.count_steps_from(facts["step_number"])
        if schedule is not None:
            schedule.set_own_values(facts["schedule"])
        if masters is not None:
            masters.scale.set_own_values(facts["loss_scale"])
        ranks = facts["of each rank"]
        if all("seeds" in own for own in ranks):  # else of an earlier version: those of the model's rng
            load_seeds(model, {name: seed for own in ranks for name, seed in own["seeds"].items()})
        if same_layout is None:
            same_layout = {type(backend).__name__} == {own.get("strategy") for own in ranks}
            same_layout &= len(ranks) == comm.size
        if same_layout:
            load_own_state(comm.rank, backend, model, optimizer, arrays, facts)
        elif backend.traits.same_layout_only or any(own["same layout only"] for own in ranks):
            raise ValueError(
                "the checkpoint holds a state of each rank, as residuals or models; resume with the same "
                "ranks, strategy and options"
            )
        else:
            load_optimizer(backend.state, model, optimizer, arrays, facts["optimizer"])
        if history is not None:
            vars(history).update(vars(History(**facts["history"])))
    except (IndexError, KeyError, TypeError) as error:
        raise ValueError(
            f"the checkpoint lacks what a training needs to go on ({type(error).__name__}: {error}): "
            "gather_state has not written it, or of another model or layout"
        ) from error


def load_own_state(
    rank: int, backend: Strategy, model: Module, optimizer: Optimizer, arrays: Arrays, facts: dict[str, Any]
) -> None:
    """Give this rank the optimizer's state and the own state of the rank with its number."""
    own, prefix = facts["of each rank"][rank], f"rank-{rank}/"
    mine = {n.removeprefix(prefix): array.copy() for n, array in arrays.items() if n.startswith(prefix)}
    if backend.traits.models_differ:
        load_model_state(model, mine)
        load_optimizer(Strategy().state, model, optimizer, mine, own["optimizer"])
    else:
        load_optimizer(backend.state, model, optimizer, arrays, facts["optimizer"])
    values = {
        name: mine.get(f"{OWN}{name}", value)
        if f"{OWN}{name}/0" not in mine
        else [mine[f"{OWN}{name}/{i}"] for i in range(value)]
        for name, value in own["values"].items()
    }
    backend.state.set_own_values(values)
    set_generator_states(model, own["generators"])


def load_optimizer(
    state: PlacedState, model: Module, optimizer: Optimizer, arrays: Arrays, numbers: dict[str, Any]
) -> None:
    """Give this rank's optimizer its part of the saved state."""
    values: dict[str, Values] = {}
    for name, array in arrays.items():
        if name.startswith(OPTIMIZER):
            key, parameter = name.removeprefix(OPTIMIZER).split("/", 1)
            values.setdefault(key, {})[parameter] = array
    for key, of_key in numbers.items():
        values.setdefault(key, {}).update({name: np.array(number) for name, number in of_key.items()})
    state.load_optimizer_state(model, optimizer, values)


def arrays_in(value: Any) -> Arrays:
    """The arrays in a value of a rank's own state, by what their names end with."""
    parts = {f"/{i}": part for i, part in enumerate(value)} if isinstance(value, list) else {"": value}
    return {end: to_host(x) for end, x in parts.items() if isinstance(x, np.ndarray) or on_gpu(x)}


def refuse_unresumable(backend: Strategy) -> None:
    """Raise ValueError for a strategy that continues without lost ranks: a checkpoint needs every rank."""
    if not backend.traits.resumable:
        raise ValueError(
            f"ranks of {type(backend).__name__} may leave here, and a checkpoint is written by all ranks; "
            "leave --checkpoint out, or the options that let ranks leave"
        )


def keys_of(optimizer: Optimizer) -> list[str]:
    """The keys in the optimizer's state on this rank: "v" of SGD with momentum, "m", "s" and "t" of Adam."""
    return sorted({key for state in optimizer.state for key in state})
