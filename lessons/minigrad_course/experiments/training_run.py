"""A training whose steps are taken a few at a time, so that several trainings can take turns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from time import perf_counter
from typing import Any

import numpy as np

from backends.comm.collectives import barrier
from backends.comm.communicator import Communicator
from backends.registry import find_strategy
from minigrad.data import Batch, minibatches
from minigrad.mnist import Dataset
from minigrad.models import Net
from minigrad.optim import SGD
from minigrad.serial import Serial
from minigrad.strategy import Strategy
from minigrad.train import accuracy

MICRO_BATCHES = 4  # of a pipeline
STRATEGIES = ("data parallel", "data parallel, shared memory", "model parallel", "pipeline")


def backend_of(net: Net, strategy: str, comm: Communicator, batch_size: int) -> Strategy:
    """One of ``STRATEGIES`` for a net on the ranks of ``comm``, or "serial"."""
    sample: dict[str, Any] = {"sample": net.sample, "batch_size": batch_size}
    match strategy:
        case "serial":
            return Serial()
        case "data parallel":
            return find_strategy("replicated")(comm)
        case "data parallel, shared memory":
            return find_strategy("one-node")(comm)
        case "model parallel":
            return find_strategy("model-parallel", axis="model")(comm, **sample)
        case _:
            how: dict[str, Any] = {"schedule": "1f1b", "micro_batches": MICRO_BATCHES, "bounds": "time"}
            return find_strategy("pipeline", axis="pipe")(comm, **how, **sample)


class TrainingRun:
    """Plain SGD with the net's momentum; the batches depend on the seed alone, not on the strategy.

    ``seconds`` are spent in steps, without evaluation. With ``alone`` only rank 0 computes.
    """

    def __init__(
        self,
        net: Net,
        data: Dataset,
        backend: Strategy,
        *,
        batch_size: int,
        dtype: str,
        lr: float | None = None,
        alone: bool = False,
    ):
        self.train, self.test = net.prepare(data.train, dtype), net.prepare(data.test, dtype)
        self.loss, self.backend, self.batch_size, self.alone = net.loss, backend, batch_size, alone
        self.model = backend.place(net.build(np.random.default_rng(0)).to(dtype=dtype))
        self.optimizer = SGD(self.model.parameters(), lr or net.lr, momentum=net.momentum)
        self.batches = self.endless()
        self.losses: list[float] = []
        self.samples, self.seconds = 0, 0.0

    def endless(self) -> Iterator[Batch]:
        """The batches; all samples at once come as they are, as nothing is gained by another order."""
        epoch = 0
        while True:
            if self.batch_size >= len(self.train):
                yield self.train
                continue
            yield from minibatches(self.train, self.batch_size, seed=0, epoch=epoch)
            epoch += 1

    @property
    def epochs(self) -> float:
        """Samples of all batches so far, also of an epoch's smaller last one, by the training samples."""
        return self.samples / len(self.train)

    def advance(self, comm: Communicator, steps: int) -> float:
        """Take some steps on all ranks, or on rank 0 alone; returns their seconds."""
        barrier(comm)
        start = perf_counter()
        if comm.rank == 0 or not self.alone:
            for batch in islice(self.batches, steps):
                self.optimizer.zero_grad()
                self.losses.append(self.backend.step(self.model, batch, self.loss))
                self.backend.update(self.model, self.optimizer)
                self.samples += len(batch)
        seconds = perf_counter() - start
        barrier(comm)
        self.seconds += seconds
        return seconds

    def accuracy(self, comm: Communicator, data: Batch | None = None) -> float:
        """The accuracy on ``data``, by default the test images; of rank 0 if it trains alone."""
        return accuracy(self.model, data or self.test) if comm.rank == 0 or not self.alone else 0.0

    def difference(self, serial: TrainingRun) -> float:
        """The largest difference of a loss from that of the same step of ``serial``, as a fraction of it."""
        pairs = list(zip(self.losses, serial.losses, strict=False))
        return max(abs(loss - expected) / abs(expected) for loss, expected in pairs)

    def close(self) -> None:
        if not self.alone:
            self.backend.finalize(self.model)
            self.backend.close()
