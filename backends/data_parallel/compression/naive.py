"""Gradient compression as on the slide: send the largest elements, keep the rest for the next step (top-k).

Stich, Cordonnier and Jaggi 2018, "Sparsified SGD with memory".
Lecture section: gradient compression. Lesson: 10_gradient_compression. ``compressed.py`` takes any
compressor.
"""

from __future__ import annotations

import numpy as np

from minigrad.module import Module
from minigrad.tensor import Parameter
from minigrad.traits import Traits

from ...comm.collectives import allgather, allreduce
from ...comm.communicator import Communicator
from ..naive import NaiveDataParallel


class NaiveTopK(NaiveDataParallel):
    """Each rank sends the share ``ratio`` of each gradient's elements that are largest with what it has kept.

    What is not sent is added to the gradient of the next step (error feedback). A ``ratio`` of 1 trains like
    ``Serial``.
    """

    def __init__(self, comm: Communicator, *, ratio: float = 0.1):
        super().__init__(comm)
        self.ratio, self.traits = ratio, Traits(equals_serial=ratio == 1)
        self.memory: dict[Parameter, np.ndarray] = {}

    def finish(self, model: Module, loss: float) -> float:
        """Exchange places and values of the largest elements, and add up those of all ranks."""
        for parameter in model.parameters():
            if parameter.requires_grad:
                rest = self.memory.pop(parameter, np.zeros_like(parameter.data)).reshape(-1)
                if parameter.grad is not None:
                    rest = rest + parameter.grad.reshape(-1)
                places = np.argsort(-np.abs(rest), kind="stable")[: max(1, round(self.ratio * rest.size))]
                all_places, all_values = allgather(self.comm, places), allgather(self.comm, rest[places])
                rest[places] = 0
                self.memory[parameter] = rest.reshape(parameter.shape)
                total = np.zeros_like(rest)
                for of_rank, values in zip(all_places, all_values, strict=True):
                    total[of_rank] += values  # no place twice
                parameter.grad = total.reshape(parameter.shape)
        return float(allreduce(self.comm, np.array(loss)))
