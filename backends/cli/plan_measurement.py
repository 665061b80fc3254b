"""Steps of layouts on threads of this process, to compare with what a plan says of this machine."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import numpy as np

from minigrad.data import Batch
from minigrad.models import Net
from minigrad.optim import SGD, AdamW

from ..comm import run_ranks
from ..comm.collectives import barrier
from ..comm.collectives.link import Link, measure_ring
from ..comm.communicator import Communicator
from ..launch.launch import blas_threads
from ..planner.hardware import Hardware
from .parallel import ParallelConfig

SIDE, SECONDS = 256, 0.1  # of the product whose speed counts, and how long it is repeated
REPETITIONS = 5  # of this measurement, of which the best counts: other programs take cores for a while
STEPS = 3  # of which the first one warms up


@dataclass(frozen=True)
class PlanMeasurement:
    """Training steps of ``batch`` drawn samples on ``ranks`` threads, which share the cores."""

    net: Net
    ranks: int
    batch: int

    def hardware(self, memory: float) -> Hardware:
        """What each rank computes and sends while all others do: products of 256 x 256, and a ring."""

        def work(comm: Communicator) -> tuple[list[float], Link | None]:
            x, y, rates = np.ones((SIDE, SIDE), np.float32), np.ones((SIDE, SIDE), np.float32), []
            for _ in range(REPETITIONS):
                barrier(comm)
                start, count = perf_counter(), 0
                while (seconds := perf_counter() - start) < SECONDS:
                    np.matmul(x, x, out=y)
                    count += 1
                rates.append(2 * SIDE**3 * max(count, 1) / seconds)
            barrier(comm)
            return rates, measure_ring(comm)

        with blas_threads(self.ranks):
            results = run_ranks(self.ranks, work)
        slowest = map(min, zip(*(rates for rates, _ in results), strict=True))
        return Hardware(max(slowest), results[0][1] or Link(0.0), memory)

    def samples(self) -> Batch:
        rng = np.random.default_rng(0)
        if self.net.sizes:
            x, y = (
                rng.integers(0, self.net.sizes["symbols"], (self.batch, *self.net.sample)) for _ in range(2)
            )
            return Batch(x, y)
        x = rng.normal(size=(self.batch, *self.net.sample))
        return self.net.prepare(Batch(x, rng.integers(0, 10, self.batch)), np.float32)

    def seconds(self, config: ParallelConfig) -> float:
        """The shortest step after the first, of the slowest rank."""
        batch = self.samples()

        def work(comm: Communicator) -> float:
            backend = config.backend_on(comm, self.batch, self.net.sample)
            model = backend.place(self.net.build(np.random.default_rng(0)))
            kind = AdamW if self.net.optimizer == "adamw" else SGD
            optimizer, times = kind(model.parameters(), 1e-3), []
            for _ in range(STEPS):
                barrier(comm)
                start = perf_counter()
                optimizer.zero_grad()
                backend.step(model, batch, self.net.loss)
                backend.update(model, optimizer)
                times.append(perf_counter() - start)
            return min(times[1:])

        with blas_threads(self.ranks):
            return max(run_ranks(self.ranks, work))
