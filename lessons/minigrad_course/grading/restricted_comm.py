"""The few names of the judge's objects that a submission may use, as its assignment's text lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .assignment import Wrong

POINT_TO_POINT = ("send", "start_send", "recv", "start_recv")


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


class RestrictedComm(RestrictedObject):
    """``rank``, ``size`` and some methods of a communicator; its ledger and other ways to send are absent.

    Only arrays can be sent, and only to other ranks.
    """

    def __init__(self, comm: Any, methods: tuple[str, ...] = POINT_TO_POINT):
        bound = {name: getattr(comm, name) for name in methods}
        for name in ("send", "start_send"):
            if name in bound:
                bound[name] = self.check_arguments(bound[name])
        super().__init__("comm", {"rank": comm.rank, "size": comm.size}, bound)

    def check_arguments(self, send: Callable[..., Any]) -> Callable[..., Any]:
        def checked_send(x: Any, to: int, tag: int = 0) -> Any:
            if not isinstance(x, np.ndarray | np.generic):
                raise TypeError(f"rank {self.rank} sends a {type(x).__name__}; send arrays")
            if to == self.rank:
                raise Wrong(f"rank {self.rank} sends itself a message: it has what is in it")
            return send(x, to, tag)

        return checked_send
