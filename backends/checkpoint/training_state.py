"""What a training is between two steps: the serial run's arrays, and the few numbers beside them.

Lecture section: parallelism at scale, what fails. Lesson: 15_scale. A checkpoint holds what a
serial run would hold, so any layout of ranks can go on where another one stopped.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from minigrad.backend import Backend, Values
from minigrad.module import Module
from minigrad.optim import Optimizer

from ..comm import Communicator
from ..comm.collectives import allgather

MODEL, OPTIMIZER = "model/", "optimizer/"  # before the names of arrays


def gather_state(
    comm: Communicator, backend: Backend, model: Module, optimizer: Optimizer
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """All arrays of the training, and this rank's facts; all ranks of ``comm`` call.

    Names are "model/0.weight" and "optimizer/v/0.weight". The facts hold the numbers in the optimizer's
    state, by key and parameter, and the states of this rank's random generators.
    """
    refuse_other_state(backend)
    arrays = backend.full_parameters(model) | backend.full_state(model)
    arrays = {MODEL + name: array for name, array in arrays.items()}
    numbers: dict[str, dict[str, Any]] = {}
    for key in keys_of_all(comm, optimizer):
        for name, value in backend.full_optimizer_state(model, optimizer, key).items():
            if value is not None and is_number(value, arrays[MODEL + name]):
                numbers.setdefault(key, {})[name] = value.item()
            elif value is not None:
                arrays[f"{OPTIMIZER}{key}/{name}"] = value
    return arrays, {"optimizer": numbers, "own": generator_states(model)}


def load_model_state(model: Module, arrays: dict[str, np.ndarray]) -> None:
    """Copy the arrays into a serial model, which has not been placed; errors as ``load_state_dict``."""
    state = {n.removeprefix(MODEL): array for n, array in arrays.items() if n.startswith(MODEL)}
    for first, *others in model.tied_parameters():
        state |= dict.fromkeys(others, state[first])
    model.load_state_dict(state)


def load_optimizer_state(
    backend: Backend,
    model: Module,
    optimizer: Optimizer,
    arrays: dict[str, np.ndarray],
    facts: dict[str, Any],
) -> None:
    """Give this rank's optimizer, whose model has been placed, its part of the saved state."""
    values: dict[str, Values] = {}
    for name, array in arrays.items():
        if name.startswith(OPTIMIZER):
            key, parameter = name.removeprefix(OPTIMIZER).split("/", 1)
            values.setdefault(key, {})[parameter] = array
    for key, numbers in facts["optimizer"].items():
        of_key = values.setdefault(key, {})
        of_key.update({name: np.array(number) for name, number in numbers.items()})
    backend.load_optimizer_state(model, optimizer, values)


def load_generators(model: Module, own: dict[str, Any]) -> None:
    """Set the generators of this rank to the states of ``generator_states``; raises ValueError."""
    generators = generators_of(model)
    if generators.keys() != own.keys():
        raise ValueError(
            f"the checkpoint has random generators of {', '.join(own) or 'no layer'}, this rank of "
            f"{', '.join(generators) or 'no layer'}; resume with the same ranks"
        )
    for name, rng in generators.items():
        rng.bit_generator.state = own[name]


def generator_states(model: Module) -> dict[str, Any]:
    """The state of each random generator that a layer holds, as integers of any length."""
    states = {name: rng.bit_generator.state for name, rng in generators_of(model).items()}
    return json.loads(json.dumps(states, default=np.ndarray.tolist))


def generators_of(model: Module) -> dict[str, np.random.Generator]:
    """The random generators of the model's layers, by name, as of dropout."""
    return {
        f"{name}.{attribute}": value
        for name, module in [("model", model), *model.named_modules()]
        for attribute, value in vars(module).items()
        if isinstance(value, np.random.Generator)
    }


def refuse_other_state(backend: Backend) -> None:
    """Raise ValueError for a strategy whose ranks hold more than a serial run does."""
    if not backend.keeps_serial_state:
        raise ValueError(
            f"{type(backend).__name__} holds more than a serial run does, as models or residuals of each "
            "rank, which checkpoints do not hold yet; leave --checkpoint out, or take --strategy replicated, "
            "bucketed, sharded or one-node"
        )


def keys_of_all(comm: Communicator, optimizer: Optimizer) -> list[str]:
    """The keys in the optimizer's state on any rank: "v" of SGD with momentum, "m", "s" and "t" of Adam."""
    mine = json.dumps(sorted({key for state in optimizer.state for key in state})).encode()
    texts = [mine] if comm.size == 1 else allgather(comm, np.frombuffer(mine, np.uint8))
    return sorted({key for text in texts for key in json.loads(bytes(text))})


def is_number(value: np.ndarray, like: np.ndarray) -> bool:
    """Whether a state is one number for a whole parameter, as the count of steps."""
    return value.ndim == 0 and like.ndim > 0
