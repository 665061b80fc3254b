"""The whole state of a training in messages: what a rank that joins needs to go on like the others.

Lecture section: what a cluster would do. Lesson: 15_scale, by ``elastic.py``.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from minigrad.module import Module
from minigrad.optim import Optimizer
from minigrad.own_state import generator_states, set_generator_states
from minigrad.strategy import Strategy
from minigrad.train import History

from ..comm.communicator import Communicator

FACTS, ARRAY = 30201, 30202  # tags
MODEL, OPTIMIZER = "model", "optimizer"


def send_state(comm: Communicator, to: int, model: Module, optimizer: Optimizer, history: History) -> None:
    """Send parameters, statistics, optimizer state by name, generators' states and the history to a rank."""
    arrays = {(MODEL, "", name): array for name, array in model.state_dict().items()}
    for key in sorted({key for state in optimizer.state for key in state}):
        for name, value in Strategy().state.optimizer_values(model, optimizer, key).items():
            if value is not None:
                arrays[OPTIMIZER, key, name] = value
    facts = {
        "arrays": [list(name) for name in arrays],
        "generators": generator_states(model),
        "history": vars(history),
        "loss_scale": None if (w := optimizer.master_weights) is None else w.scale.own_values(),
    }
    comm.send(np.frombuffer(json.dumps(facts).encode(), np.uint8), to, FACTS)
    for array in arrays.values():
        comm.send(array, to, ARRAY)


def recv_state(
    comm: Communicator, source: int, model: Module, optimizer: Optimizer, history: History
) -> None:
    """Take over the state that rank ``source`` sends, once all of it has come."""
    facts = json.loads(bytes(comm.recv(source, FACTS)))
    values: dict[str, dict[str, dict[str, Any]]] = {MODEL: {"": {}}, OPTIMIZER: {}}
    for part, key, name in facts["arrays"]:
        values[part].setdefault(key, {})[name] = comm.recv(source, ARRAY)
    model.load_state_dict(values[MODEL][""])
    Strategy().state.set_optimizer_values(model, optimizer, values[OPTIMIZER])
    set_generator_states(model, facts["generators"])
    vars(history).update(facts["history"])
    if optimizer.master_weights is not None:
        optimizer.master_weights.scale.set_own_values(facts["loss_scale"])
