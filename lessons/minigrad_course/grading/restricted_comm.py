"""The communicator as a submission sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .assignment import Wrong
from .worker.restricted_object import RestrictedObject

__all__ = ["POINT_TO_POINT", "RestrictedComm", "RestrictedObject"]

POINT_TO_POINT = ("send", "start_send", "recv", "start_recv")


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
