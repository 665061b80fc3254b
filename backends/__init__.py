"""Who owns what, over messages: the parallel strategies and what they stand on.

``from backends import run_on_ranks`` runs a function on ranks, with and without MPI.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, which takes a while to load: until then no signal ends in one line
if TYPE_CHECKING:
    from typing import Any

    from .launch.launch import run_on_ranks

__all__ = ["run_on_ranks"]


def __getattr__(name: str) -> Any:
    """``run_on_ranks``, imported at its first use: a rank imports this package before it loads NumPy."""
    if name != "run_on_ranks":
        raise AttributeError(f"module 'backends' has no attribute {name!r}")
    from .launch.launch import run_on_ranks

    return run_on_ranks
