"""An object of the judge as a submission sees it: the few names that its assignment's text lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class RestrictedObject:
    """An object by name: ``constants``, ``methods``, and ``properties`` that are computed at each access."""

    def __init__(
        self,
        name: str,
        constants: Mapping[str, int],
        methods: Mapping[str, Callable[..., Any]],
        properties: Mapping[str, Callable[[], Any]] | None = None,
    ):
        self.name, self.constants, self.methods = name, constants, methods
        self.properties = properties or {}

    def charge_reduction(self, nbytes: int) -> None:
        """Collectives call this for a virtual clock; there is none here."""

    def __getattr__(self, name: str) -> Any:
        if name in self.constants:
            return self.constants[name]
        if name in self.methods:
            return self.methods[name]
        if name in self.properties:
            return self.properties[name]()
        names = [*self.constants, *self.methods, *self.properties]
        raise AttributeError(f"{self.name} has no {name} here, only {', '.join(names)}")
