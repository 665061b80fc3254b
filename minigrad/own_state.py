"""What an object must remember from step to step, for a checkpoint to hold it.

Lecture section: gradient compression. Lesson: 10_gradient_compression, by ``compressor.py``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    from .module import Module


class OwnState:
    """Names in ``own_state`` the attributes that change from step to step and that nothing else tells.

    They are arrays, numbers, lists of either, or None.
    """

    own_state: ClassVar[tuple[str, ...]] = ()

    def own_values(self) -> dict[str, Any]:
        """These attributes by name."""
        return {name: vars(self)[name] for name in self.own_state}

    def set_own_values(self, values: dict[str, Any]) -> None:
        """Go on from what ``own_values`` gave."""
        for name in self.own_state:
            vars(self)[name] = values[name]


def generators_of(model: Module) -> dict[str, np.random.Generator]:
    """The random generators that are attributes of the model's layers, by name."""
    return {
        f"{name}.{attribute}": value
        for name, module in [("model", model), *model.named_modules()]
        for attribute, value in vars(module).items()
        if isinstance(value, np.random.Generator)
    }


def generator_states(model: Module) -> dict[str, Any]:
    """The state of each of them, as integers of any length."""
    return {
        name: json.loads(json.dumps(rng.bit_generator.state, default=np.ndarray.tolist))
        for name, rng in generators_of(model).items()
    }


def set_generator_states(model: Module, states: dict[str, Any]) -> None:
    """Let each of them go on from its state."""
    for name, rng in generators_of(model).items():
        rng.bit_generator.state = states[name]
