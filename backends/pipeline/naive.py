"""A pipeline as on the slide: all micro-batches go forward, then all go back (GPipe).

Lecture section: pipelining. Lesson: 13_pipeline. ``pipeline.py`` runs any schedule.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from minigrad.data import shares
from minigrad.module import Module, Sequential
from minigrad.strategy import Strategy
from minigrad.tape import Tape
from minigrad.tensor import Tensor
from minigrad.work import ForwardBackward, Work, forward_backward_pass

from ..comm.collectives import allreduce
from ..comm.communicator import Communicator
from ..consistency import broadcast_model
from ..placement import LayersOfRanks, Placeholder


class NaivePipeline(Strategy):
    """Even parts of a Sequential, each with a trained layer, on consecutive ranks; trains like ``Serial``."""

    state_class = LayersOfRanks

    def __init__(self, comm: Communicator, *, micro_batches: int = 4):
        self.comm, self.rank, self.size, self.micro_batches = comm, comm.rank, comm.size, micro_batches

    def place(self, model: Module) -> Module:
        """The model with this rank's layers, an even share, and placeholders for the others."""
        broadcast_model(self.comm, model)
        layers = cast(Sequential, model).layers
        mine = range(len(layers))[shares(len(layers), self.size)[self.rank]]
        layers[:] = [layer if i in mine else Placeholder() for i, layer in enumerate(layers)]
        return self.hold(model)

    def forward_backward(self, work: Work, inner: ForwardBackward = forward_backward_pass) -> float:
        """Take all micro-batches forward, then all back; the last rank computes losses, all penalties."""
        first, last = self.rank == 0, self.rank == self.size - 1
        total, waiting = 0.0, []
        for part in work.split(self.micro_batches).values():
            x = Tensor(part.batch.x) if first else Tensor(self.comm.recv(self.rank - 1), requires_grad=True)
            with part.forward_pass() as forward_pass, Tape() as tape:
                y = part.loss(part.model(x)) if last else part.model(x)
            total += part.weighted(forward_pass, y if last else None)
            if not last:
                self.comm.send(y.data, self.rank + 1)
            waiting.append((part, tape, x, y))
        for part, tape, x, y in waiting:
            tape.backward(y, part.seed if last else self.comm.recv(self.rank + 1), part.on_grad)
            if not first:
                self.comm.send(x.grad, self.rank - 1)
        return total

    def finish(self, model: Module, loss: float) -> float:
        return float(allreduce(self.comm, np.array([loss]))[0])
