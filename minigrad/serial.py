"""Training on one machine, which every exact strategy is proved to equal.

Lecture section: synchronous data parallelism. Lesson: 06_data_parallel.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from .lookup import at_least_one
from .module import Module
from .optim import Optimizer
from .strategy import Strategy


class Serial(Strategy):
    """One machine, the whole model, the whole batch."""

    def __init__(self, micro_batches: int = 1):
        self.micro_batches = at_least_one("micro_batches", micro_batches)

    def accumulate(self, model: Module) -> AbstractContextManager[Any]:
        """Nothing to do: backward adds to ``grad``."""
        return nullcontext()

    def update(self, model: Module, optimizer: Optimizer) -> None:
        if self.inner:  # in a Stack, where these have the other parts of the norms
            super().update(model, optimizer)
        else:
            optimizer.step()
