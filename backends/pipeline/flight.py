"""What is in flight on one rank of a pipeline without a flush: micro-batches gone forward and not back yet.

Lecture section: pipelining. Lesson: 13_pipeline. Activations go to the next rank, gradients to the rank
before, and the last rank tells all others the losses. Sends are started, and finished some steps later, when
what has come since shows that they were taken; so nobody waits but for what it needs.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np

from minigrad.backend import Work
from minigrad.data import Batch
from minigrad.device import Array, array_module
from minigrad.module import Module
from minigrad.tape import Tape
from minigrad.tensor import Tensor

from ..comm.collectives.send_recv import Tag
from ..comm.communicator import Communicator
from .engine import Input
from .schedule import Backward, Forward, span_name
from .weight_stash import WeightStash

LOSS_TAG = 30_000  # behind those of ``p2p``


class Gradient(NamedTuple):
    """A batch's gradient, so far, at the weights after so many ``updates``."""

    updates: int
    arrays: list[Array | None]


class InFlight(NamedTuple):
    """A micro-batch in flight: ``x`` came in, ``y`` went out, or is the loss, which counts ``weight``."""

    batch: int
    micro: int
    tape: Tape
    x: Input
    y: Tensor
    weight: float
    receive: Callable[[], Array] | None  # waits for the gradient of ``y``


class Flight:
    """Takes micro-batches through ``part``, this rank's layers, with the weights that ``stash`` says.

    ``late`` is the number of steps until a batch is back on all ranks.
    """

    def __init__(self, comm: Communicator, part: Module, stash: WeightStash, late: int):
        self.comm, self.part, self.stash, self.late = comm, part, stash, late
        self.first, self.last = comm.rank == 0, comm.rank == comm.size - 1
        self.step = self.micros = 0
        self.in_flight: deque[InFlight] = deque()
        self.gradients: dict[int, Gradient] = {}  # by batch
        self.losses: list[float] = []  # of all batches, as far as this rank was told
        self.likes: dict[tuple[int, ...], Array] = {}  # what comes for samples of a shape
        self.sent: list[tuple[int, Callable[[], None]]] = []  # the step by whose end they were taken

    def post(self, batch: Batch) -> Callable[[], Array]:
        """Start to receive what the stage before makes of ``batch``; the first stage has it."""
        if self.first:
            return lambda: batch.x
        return self.comm.start_recv(self.comm.rank - 1, Tag.FORWARD, self.likes.get(batch.x.shape))

    def forward(self, work: Work, receive: Callable[[], Array]) -> float:
        """Take the next micro-batch forward; its weighted loss, on the last rank."""
        x = Input(receive())
        x.requires_grad = not self.first
        self.likes[work.batch.x.shape] = like(x.data)
        with self.stash.forward(), self.computing(Forward(self.micros)), Tape() as tape:
            y = self.part(x)
            if self.last:
                y = work.loss(y)
        gradient = None
        if not self.last:
            self.send(y.data, self.comm.rank + 1, Tag.FORWARD, steps=self.late)
            gradient = self.comm.start_recv(self.comm.rank + 1, Tag.GRADIENT, like(y.data))
        self.in_flight.append(InFlight(self.step, self.micros, tape, x, y, work.loss_weight, gradient))
        self.micros += 1
        return work.loss_weight * y.item() if self.last else 0.0

    def backward(self) -> None:
        """Take the oldest micro-batch in flight back; its gradient is added to that of its batch."""
        batch, micro, tape, x, y, weight, receive = self.in_flight.popleft()
        seed = weight if receive is None else receive()
        point_gradients_at(self.stash.parameters, self.gradients.get(batch))
        with self.stash.backward() as version, self.computing(Backward(micro)):
            tape.backward(y, seed)
        self.gradients[batch] = Gradient(version.updates, [p.grad for p in self.stash.parameters])
        if not self.first:
            dx = array_module(x.data).zeros_like(x.data) if x.grad is None else x.grad
            self.send(dx, self.comm.rank - 1, Tag.GRADIENT, steps=2)

    def take_back(self, batch: int) -> Gradient | None:
        """Finish a batch: the parameters hold its gradient, or none for one before the first."""
        while self.in_flight and self.in_flight[0].batch <= batch:
            self.backward()
        gradient = self.gradients.pop(batch, None)
        point_gradients_at(self.stash.parameters, gradient)
        return gradient

    def end_step(self, loss: float) -> None:
        """All of a batch has gone forward, with this loss on the last rank, which tells the others."""
        if self.last:
            self.losses.append(loss)
            for rank in range(self.comm.size - 1):
                self.send(np.array([loss]), rank, LOSS_TAG, steps=self.late + 1)
        self.finish_sends(self.step)
        self.step += 1

    def loss(self, batch: int) -> float:
        """A batch's loss, as the last rank told it."""
        while len(self.losses) <= batch:
            self.losses.append(float(self.comm.recv(self.comm.size - 1, LOSS_TAG)[0]))
        return self.losses[batch]

    def drain(self) -> list[float]:
        """Take back what is in flight and receive what was sent; the losses of all batches."""
        self.take_back(self.step)
        self.loss(self.step - 1)
        self.finish_sends(math.inf)
        return self.losses

    def send(self, x: Array, to: int, tag: int, *, steps: int) -> None:
        """Start to send what nobody changes any more; so many ``steps`` from now it will have been taken."""
        self.sent.append((self.step + steps, self.comm.start_send(x, to, tag)))

    def finish_sends(self, step: float) -> None:
        """Finish what was taken before the end of ``step``."""
        taken = [finish for by, finish in self.sent if by <= step]
        self.sent = [(by, finish) for by, finish in self.sent if by > step]
        for finish in taken:
            finish()

    def computing(self, instruction: Forward | Backward) -> AbstractContextManager:
        """A span of the instruction's name, where the communicator is traced."""
        return self.comm.computing(span_name(instruction))


def point_gradients_at(parameters: Sequence[Tensor], gradient: Gradient | None) -> None:
    """Point the parameters at a gradient, or at none."""
    for i, parameter in enumerate(parameters):
        parameter.grad = None if gradient is None else gradient.arrays[i]


def like(x: Array) -> Array:
    """Something of the same shape and dtype that takes no memory."""
    xp = array_module(x)
    return xp.broadcast_to(xp.zeros((), x.dtype), x.shape)
