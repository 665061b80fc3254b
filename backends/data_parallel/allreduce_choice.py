"""What a strategy does whose all-reduce may choose its algorithm by measured links (``--allreduce auto``).

Lecture section: synchronous data parallelism. Lesson: 06_data_parallel, by ``data_parallel.py``.
The links are measured when the model is placed. They are a setting of the run: a checkpoint holds them, so a
run that goes on chooses the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minigrad.declaration import Declaration

from ..comm.collectives import Allreduce, AutomaticAllreduce
from ..comm.communicator import Communicator


class AllreduceChoice(Declaration):
    """A part of a strategy with an ``allreduce`` over ``comm``."""

    allreduce: Allreduce
    comm: Communicator

    def prepare_allreduce(self) -> None:
        """Measure the links, where the algorithm is chosen by them; all ranks call together."""
        if isinstance(self.allreduce, AutomaticAllreduce):
            self.allreduce.prepare(self.comm)

    def chosen(self) -> dict[str, Any]:
        if not isinstance(self.allreduce, AutomaticAllreduce):
            return super().chosen()
        return super().chosen() | self.allreduce.chosen()

    def set_chosen(self, chosen: Mapping[str, Any]) -> None:
        super().set_chosen(chosen)
        if isinstance(self.allreduce, AutomaticAllreduce):
            self.allreduce.set_chosen(self.comm, chosen)

    def figures(self) -> dict[str, Any]:
        """The algorithm for each number of bytes, where it was chosen."""
        if not isinstance(self.allreduce, AutomaticAllreduce):
            return super().figures()
        return super().figures() | {"allreduce": {str(n): name for n, name in self.allreduce.taken.items()}}

    def rows(self) -> dict[str, str]:
        rows = super().rows()
        if isinstance(self.allreduce, AutomaticAllreduce):
            rows["allreduce"] = self.allreduce.words()
        return rows
