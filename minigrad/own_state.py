"""What an object must remember from step to step, for a checkpoint to hold it.

Lecture section: what a cluster would do. Lesson: 15_scale, by ``training_state.py``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    from .module import Module


class OwnState:
    """Names in ``own_state`` the attributes that change from step to step and that nothing else tells.

    They are arrays, lists of arrays, numbers, None or random generators.
    """

    own_state: ClassVar[tuple[str, ...]] = ()

    def own_values(self) -> dict[str, Any]:
        """These attributes by name; a generator as its state, in integers."""
        return {name: plain(vars(self)[name]) for name in self.own_state}

    def set_own_values(self, values: dict[str, Any]) -> None:
        """Go on from what ``own_values`` gave."""
        for name in self.own_state:
            value = vars(self)[name]
            if isinstance(value, np.random.Generator):
                value.bit_generator.state = values[name]
            else:
                vars(self)[name] = values[name]


def plain(value: Any) -> Any:
    """``value``, or the state of a random generator as JSON can hold it."""
    if not isinstance(value, np.random.Generator):
        return value
    return json.loads(json.dumps(value.bit_generator.state, default=np.ndarray.tolist))


def generators_of(model: Module) -> dict[str, np.random.Generator]:
    """The random generators of the model's layers, by name, as of dropout."""
    return {
        f"{name}.{attribute}": value
        for name, module in [("model", model), *model.named_modules()]
        for attribute, value in vars(module).items()
        if isinstance(value, np.random.Generator)
    }


def generator_states(model: Module) -> dict[str, Any]:
    """The state of each of them, as integers of any length."""
    return {name: plain(rng) for name, rng in generators_of(model).items()}


def set_generator_states(model: Module, states: dict[str, Any]) -> None:
    """Let each of them go on from its state."""
    for name, rng in generators_of(model).items():
        rng.bit_generator.state = states[name]
