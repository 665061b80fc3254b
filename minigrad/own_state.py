"""What an object must remember from step to step, for a checkpoint to hold it.

Lecture section: gradient compression. Lesson: 10_gradient_compression, by ``compressor.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from .module import Module


class OwnState:
    """Names in ``own_state`` the attributes that change from step to step and that nothing else tells.

    They are arrays, numbers, lists of either, or None.
    """

    own_state: ClassVar[tuple[str, ...]] = ()

    def own_values(self) -> dict[str, Any]:
        """The attributes in ``own_state``, by name."""
        return {name: vars(self)[name] for name in self.own_state}

    def set_own_values(self, values: dict[str, Any]) -> None:
        """Go on from what ``own_values`` gave."""
        for name in self.own_state:
            vars(self)[name] = values[name]


def serial_modules(model: Module, prefix: str = "") -> Iterator[tuple[str, Module]]:
    """The modules inside a model that a backend may have placed, by the names that they have in a serial one.

    A module that overrides ``named_arrays`` stands around others, and gives their arrays the serial names.
    """
    around = type(model).named_arrays is not Module.named_arrays
    for name, child in model.children().items():
        path = prefix if around else f"{prefix}{name}."
        yield path.removesuffix("."), child
        yield from serial_modules(child, path)


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
