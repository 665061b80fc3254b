"""What a strategy declares whose all-reduce may go by measured links (``--allreduce auto``).

Lecture section: synchronous data parallelism. Lesson: 06_data_parallel, by ``data_parallel.py``.
The links are measured when the model is placed. They are a setting of the run: a checkpoint holds them, so a
run that goes on chooses the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minigrad.declaration import Declaration, Flag

from ..comm.collectives import ALLREDUCE, Allreduce, AutomaticAllreduce
from ..comm.communicator import Communicator


class AllreduceChoice(Declaration):
    """The declaration of a strategy that has an ``allreduce`` over ``comm``, and perhaps more ``flags``."""

    def __init__(self, flags: Mapping[str, Flag] = {}):
        super().__init__({"allreduce": ALLREDUCE, **flags})

    def chosen(self, backend: Any) -> dict[str, Any]:
        return backend.allreduce.chosen() if is_automatic(backend) else {}

    def set_chosen(self, backend: Any, chosen: Mapping[str, Any]) -> None:
        if is_automatic(backend):
            backend.allreduce.set_chosen(backend.comm, chosen)

    def figures(self, backend: Any) -> dict[str, Any]:
        """The algorithm for each number of bytes, where it was chosen."""
        if not is_automatic(backend):
            return {}
        return {"allreduce": {str(n): name for n, name in backend.allreduce.taken.items()}}

    def rows(self, backend: Any) -> dict[str, str]:
        return {"allreduce": backend.allreduce.words()} if is_automatic(backend) else {}


def is_automatic(backend: Any) -> bool:
    return isinstance(backend.allreduce, AutomaticAllreduce)


def prepare_allreduce(allreduce: Allreduce, comm: Communicator) -> None:
    """Measure the links, where the algorithm is chosen by them; all ranks call together."""
    if isinstance(allreduce, AutomaticAllreduce):
        allreduce.prepare(comm)
