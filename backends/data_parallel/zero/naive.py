"""ZeRO as on the slide, stage 1: each rank updates a part of every parameter, and all gather the parts.

Rajbhandari et al. 2020, "ZeRO: Memory optimizations toward training trillion parameter models".
Lecture section: data lifetimes. Lesson: 06_data_parallel. ``sharded.py`` has all three stages.
"""

from __future__ import annotations

import numpy as np

from minigrad.data import shares
from minigrad.module import Module
from minigrad.optim import Optimizer, Part
from minigrad.traits import Traits

from ...comm.collectives import allgather, allreduce
from ..naive import NaiveDataParallel


class NaiveSharded(NaiveDataParallel):
    """Rank r keeps the optimizer's state of the r-th part of each parameter only; it trains like ``Serial``.

    The state of a checkpoint would be that of these parts: ``Sharded`` gathers it.
    """

    traits = Traits(outermost_only=True)

    def update(self, model: Module, optimizer: Optimizer) -> None:
        """Update this rank's elements of each parameter, then gather those of the other ranks."""
        parts = []
        for n, parameter in enumerate(optimizer.parameters):
            mine = shares(parameter.size, self.size)[self.rank]
            g = None if parameter.grad is None else parameter.grad.reshape(-1)[mine]
            parts.append(Part(n, parameter.data.reshape(-1)[mine], g if parameter.requires_grad else None))
        optimizer.step(parts, lambda squares: allreduce(self.comm, squares))
        for parameter, part in zip(optimizer.parameters, parts, strict=True):
            parameter.data[...] = np.concatenate(allgather(self.comm, part.w)).reshape(parameter.shape)
