"""The state of a model of whose experts each rank holds some.

Lecture section: data and model parallelism together. Lesson: 18_experts, by ``expert_parallel.py``.
"""

from __future__ import annotations

import numpy as np

from minigrad.data import shares
from minigrad.module import Module
from minigrad.placed_state import PlacedState, Values

from ..comm.collectives import allgather, allreduce


class ExpertsOfRanks(PlacedState):
    """Whole stacks of experts from those of all ranks, and norms in which each expert counts once.

    ``backend.experts`` is this rank's ``OwnExperts``, and ``backend.comm`` are the ranks.
    """

    def unshard_values(self, model: Module, values: Values) -> Values:
        """The serial run's arrays; numbers, such as counts of steps, and None are as they are."""
        names = [n for n in self.backend.experts.names if (v := values.get(n)) is not None and v.ndim]
        return values | {n: np.concatenate(allgather(self.backend.comm, values[n])) for n in names}

    def shard_values(self, model: Module, values: Values) -> Values:
        names = [n for n in self.backend.experts.names if (v := values.get(n)) is not None and v.ndim]
        size, rank = self.backend.size, self.backend.rank
        return values | {n: values[n][shares(len(values[n]), size)[rank]] for n in names}

    def global_square_norms(self, model: Module, squares: np.ndarray) -> np.ndarray:
        """Sums over the ranks, in which what all of them hold counts once."""
        once = np.where(self.backend.experts.is_stack, 1.0, float(self.backend.rank == 0))
        return allreduce(self.backend.comm, squares * once)
