"""What a submission gets of an object that stays with the judge: what its text promises, and no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .task import Wrong

POINT_TO_POINT = ("send", "start_send", "recv", "start_recv")


class Offer:
    """``fixed`` values, ``calls``, and ``live`` values that are read when they are asked for, by name."""

    def __init__(
        self,
        what: str,
        fixed: Mapping[str, int],
        calls: Mapping[str, Callable[..., Any]],
        live: Mapping[str, Callable[[], Any]] | None = None,
    ):
        self.what, self.fixed, self.calls, self.live = what, fixed, calls, live or {}

    def charge_reduction(self, nbytes: int) -> None:
        """Collectives call this for a virtual clock; there is none here."""

    def __getattr__(self, name: str) -> Any:
        if name in self.fixed:
            return self.fixed[name]
        if name in self.calls:
            return self.calls[name]
        if name in self.live:
            return self.live[name]()
        raise AttributeError(absent(self.what, name, [*self.fixed, *self.calls, *self.live]))


def absent(what: str, name: str, there: list[str]) -> str:
    return f"{what} has no {name} here, only {', '.join(there)}"


class Offered(Offer):
    """``rank``, ``size`` and some calls of a communicator: not its ledger, nor other ways to send.

    What is sent is an array, and goes to another rank.
    """

    def __init__(self, comm: Any, calls: tuple[str, ...] = POINT_TO_POINT):
        own = {name: getattr(comm, name) for name in calls}
        for name in ("send", "start_send"):
            if name in own:
                own[name] = self.careful(own[name])
        super().__init__("comm", {"rank": comm.rank, "size": comm.size}, own)

    def careful(self, send: Callable[..., Any]) -> Callable[..., Any]:
        def checked(x: Any, to: int, tag: int = 0) -> Any:
            if not isinstance(x, np.ndarray | np.generic):
                raise TypeError(f"rank {self.rank} sends a {type(x).__name__}; send arrays")
            if to == self.rank:
                raise Wrong(f"rank {self.rank} sends itself a message: it has what is in it")
            return send(x, to, tag)

        return checked
