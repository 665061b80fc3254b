"""What ranks that own parts hold of a serial run's state: sums, values and gradients come from the owners.

Lecture section: data lifetimes. Lesson: 06_data_parallel, by ``sharded.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from minigrad.device import to_host
from minigrad.module import Module
from minigrad.placed_state import Values

from ..sharded_optimizer import Elements, ShardedOptimizer

if TYPE_CHECKING:
    from .sharded import Sharded


class ShardedState(ShardedOptimizer):
    """The state of a model whose flat parameters are cut into equal parts, one for each rank."""

    backend: Sharded

    def owned_by(self, rank: int) -> Iterator[Elements]:
        for flat in self.backend.flats:
            for n, within, _ in flat.layout.segments(rank):
                yield flat.parameters[n], within

    def parameter_values(self, model: Module) -> Values:
        whole = {}
        for flat in self.backend.flats:
            whole.update(zip(flat.parameters, flat.values(), strict=True))
        named = model.named_parameters().items()
        return {name: whole[p] if p in whole else to_host(p.data) for name, p in named}

    def gradient_values(self, model: Module) -> Values:
        grads = {}
        for flat in self.backend.flats:
            sums = zip(flat.parameters, flat.all_gather_gradients(), strict=True)
            grads.update((p, to_host(g)) for p, g in sums if p in flat.reached)
        return {name: grads.get(p) for name, p in model.named_parameters().items()}

    @contextmanager
    def accumulate(self, model: Module) -> Iterator[None]:
        """Add the new sums to this rank's elements of the earlier ones."""
        flat_of = self.backend.flat_of
        earlier = {p: flat.owned_gradient(p).copy() for p, flat in flat_of.items() if p.grad is not None}
        for parameter in earlier:
            parameter.grad = None
        yield
        for parameter, g in earlier.items():
            flat_of[parameter].owned_gradient(parameter)[...] += g
        self.backend.mark(earlier)

    def global_square_norms(self, model: Module, squares: np.ndarray) -> np.ndarray:
        """The sum over the ranks, as each has those of its parts."""
        return self.backend.sum(squares)
