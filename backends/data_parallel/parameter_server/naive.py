"""A parameter server as on the slide: workers push gradients, the server updates, workers pull parameters.

Li et al. 2014, "Scaling distributed machine learning with the parameter server".
Lecture section: asynchronous parameter server. Lesson: 08_parameter_server. ``parameter_server.py`` bounds
how stale a gradient may be.
"""

from __future__ import annotations

import numpy as np

from minigrad.data import Batch, shares
from minigrad.module import Module
from minigrad.optim import Optimizer
from minigrad.strategy import Strategy
from minigrad.traits import Traits

from ...comm.collectives import broadcast
from ...comm.communicator import Communicator
from ...consistency import broadcast_model

PUSH, PULL = 30301, 30302  # the tags of the two messages


class NaiveParameterServer(Strategy):
    """The last rank applies each gradient when it comes, to whatever the parameters are then."""

    traits = Traits(equals_serial=False, outermost_only=True)

    def __init__(self, comm: Communicator):
        self.comm, self.rank, self.size, self.server = comm, comm.rank, comm.size, comm.size - 1

    def place(self, model: Module) -> Module:
        broadcast_model(self.comm, model)
        return self.hold(model)

    def shard(self, batch: Batch) -> Batch:
        """A share for each worker, and none for the server."""
        return batch[:0] if self.rank == self.server else batch[shares(len(batch), self.server)[self.rank]]

    def update(self, model: Module, optimizer: Optimizer) -> None:
        """A worker pushes its gradients and pulls the parameters; the server updates for each worker."""
        parameters = model.parameters()
        if self.rank < self.server:
            for parameter in parameters:
                g = np.zeros_like(parameter.data) if parameter.grad is None else parameter.grad
                self.comm.send(g, self.server, PUSH)
            for parameter in parameters:
                parameter.data[...] = self.comm.recv(self.server, PULL)
            return
        for _ in range(self.server):
            worker, first = self.comm.recv_any(PUSH)  # of whoever comes first
            for parameter in parameters:
                g = first if parameter is parameters[0] else self.comm.recv(worker, PUSH)
                parameter.grad = g if parameter.requires_grad else None
            super().update(model, optimizer)
            for parameter in parameters:
                self.comm.send(parameter.data, worker, PULL)

    def finalize(self, model: Module) -> None:
        """All ranks get the server's parameters."""
        for parameter in model.parameters():
            parameter.data[...] = broadcast(self.comm, parameter.data, self.server)
