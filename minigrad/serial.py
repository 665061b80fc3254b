"""Training on one machine, which every exact strategy is proved to equal.

Lecture section: synchronous data parallelism. Lesson: 06_data_parallel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .lookup import at_least_one
from .module import Module
from .optim import Optimizer
from .placed_state import PlacedState
from .strategy import Strategy


class SerialState(PlacedState):
    """The state of a model on one machine."""

    @contextmanager
    def accumulate(self, model: Module) -> Iterator[None]:
        """Nothing to do: backward adds to ``grad``."""
        yield


class Serial(Strategy):
    """One machine, the whole model, the whole batch."""

    state_class = SerialState

    def __init__(self, micro_batches: int = 1):
        self.micro_batches = at_least_one("micro_batches", micro_batches)

    def update(self, model: Module, optimizer: Optimizer) -> None:
        if self.inner:  # in a Stack, where these have the other parts of the norms
            super().update(model, optimizer)
        else:
            optimizer.step()
