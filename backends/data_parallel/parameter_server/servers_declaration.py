"""What a command line may ask of a parameter server, and what a run reports of it.

Lecture section: asynchronous parameter server. Lesson: 08_parameter_server, by ``parameter_server.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from minigrad.declaration import Declaration, Flag

from ...stale_rates import find_stale_rate
from .consistency import consistency_model

if TYPE_CHECKING:
    from .parameter_server import ParameterServer


class ServersDeclaration(Declaration):
    """The declaration of ``ParameterServer``."""

    def check_options(self, ranks: int, options: Mapping[str, Any]) -> None:
        servers = options.get("servers", 1)
        check_servers(servers, ranks)
        if ranks < 2:
            raise ValueError(
                "--strategy server needs a server and a worker, got 1 rank; pass --data 2 or more"
            )
        consistency_model(ranks - servers, options.get("staleness"), options.get("softsync"))
        find_stale_rate(options.get("stale_rate", "naive"))

    def survives(self, options: Mapping[str, Any]) -> bool:
        return bool(options.get("survive"))

    def writes_report(self, backend: ParameterServer) -> bool:
        """Whether this rank is the first of those that remain after ``finalize``."""
        return backend.rank == min(set(range(backend.workers)) - backend.lost.keys(), default=backend.workers)

    def figures(self, backend: ParameterServer) -> dict[str, Any]:
        """The gradients by staleness, and the workers that left."""
        staleness = {str(updates): n for updates, n in sorted(backend.staleness_counts.items())}
        lost = {str(rank): one._asdict() for rank, one in backend.lost.items()}
        return {"staleness": staleness, "lost": lost}

    def rows(self, backend: ParameterServer) -> dict[str, str]:
        rows = {}
        if counts := sorted(backend.staleness_counts.items()):
            mean = sum(updates * n for updates, n in counts) / sum(n for _, n in counts)
            text = ", ".join(f"{updates}: {n}" for updates, n in counts)
            rows["gradients by staleness"] = f"{text} (mean {mean:.2f})"
        for rank, one in backend.lost.items():
            rows[f"worker {rank} left"] = f"after {one.steps} steps: {one.reason}"
        return rows


SERVERS = ServersDeclaration(
    {
        "servers": Flag(int, "ranks that hold the parameters (default: 1)", "S"),
        "staleness": Flag(
            int,
            "steps that a worker may be ahead of the slowest; 0 is synchronous (default: no limit, each "
            "gradient is applied when it arrives)",
            "STEPS",
        ),
    }
)


def check_servers(servers: int, ranks: int) -> None:
    """Raise ValueError unless that many ranks can be servers; a single rank may be its own server."""
    if not 1 <= servers < max(ranks, 2):
        raise ValueError(
            f"of {ranks} ranks 1 to {max(ranks - 1, 1)} can be servers, got {servers}; "
            "take fewer servers or start more ranks"
        )
