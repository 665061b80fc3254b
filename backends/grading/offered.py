"""The communicator as a submission gets it: what its text promises, and nothing behind it."""

from __future__ import annotations

from typing import Any

POINT_TO_POINT = ("send", "start_send", "recv", "start_recv")


class Offered:
    """``rank``, ``size`` and some calls of a communicator: not its ledger, nor other ways to send.

    The calls are the communicator's own, so that a deadlock is told with the submission's line.
    """

    def __init__(self, comm: Any, calls: tuple[str, ...] = POINT_TO_POINT):
        self.rank: int = comm.rank
        self.size: int = comm.size
        for name in calls:
            setattr(self, name, getattr(comm, name))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"comm has no {name} here, only {', '.join(vars(self))}")
