"""One slow rank makes all ranks wait: how long they do, and two ways to wait less.

Lecture section: synchronous data parallelism (stragglers). Lesson: 06_data_parallel. A step takes as long as
its slowest rank. Shares in proportion to speed help where some machines are always slower; backup
workers (in ``backup_workers``) where now this one is slow, now that one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from minigrad.backend import ForwardBackward, Work, at_least_one, forward_backward_pass
from minigrad.data import Batch
from minigrad.device import Array
from minigrad.module import Module

from ..comm.collectives import allgather, allreduce, barrier
from ..comm.communicator import Communicator
from .backup_workers import BackupWorkers, Update, step_seconds
from .replicated import DataParallel

__all__ = [
    "BackupWorkers",
    "Imbalance",
    "Proportional",
    "TimedAllreduce",
    "Update",
    "imbalance",
    "proportional_shares",
    "step_seconds",
]


class Imbalance(NamedTuple):
    """Seconds that each rank computed before all could go on, by rank."""

    seconds: tuple[float, ...]

    @property
    def idle(self) -> tuple[float, ...]:
        """Seconds that each rank waited for the slowest, by rank."""
        return tuple(max(self.seconds) - s for s in self.seconds)

    @property
    def cost(self) -> float:
        """(max - mean) / max: the share of all ranks' time that was spent waiting."""
        slowest = max(self.seconds)
        return 1 - sum(self.seconds) / len(self.seconds) / slowest if slowest else 0.0


def imbalance(comm: Communicator, seconds: float) -> Imbalance:
    """All ranks' seconds of computing, on every rank: one number around the ring."""
    return Imbalance(tuple(float(s[0]) for s in allgather(comm, np.array([seconds]))))


class TimedAllreduce:
    """An all-reduce that first waits until all ranks have come, and keeps how long that was.

    ``DataParallel(comm, TimedAllreduce(comm))``. Before each reduction ``computed`` gets the seconds since
    the last one, ``waited`` those in a barrier (ceil(log2 ranks) empty messages). Where ``comm`` is traced,
    each wait is a span called "idle".
    """

    def __init__(self, comm: Communicator, allreduce: Callable[[Communicator, Array], Array] = allreduce):
        self.clock, self.allreduce = comm.time, allreduce
        self.computed: list[float] = []
        self.waited: list[float] = []
        self.left = self.clock()

    def __call__(self, comm: Communicator, x: Array) -> Array:
        come = self.clock()
        with comm.computing("idle"):
            barrier(comm)
        gone = self.clock()
        self.computed.append(come - self.left)
        self.waited.append(gone - come)
        total = self.allreduce(comm, x)
        self.left = self.clock()
        return total


def proportional_shares(n: int, speeds: Sequence[float]) -> list[slice]:
    """``n`` samples in consecutive slices, one for each speed and in proportion to it.

    Each size is the quota n speed / sum of speeds, rounded down or up: what is left after rounding down
    goes to the largest remainders, the first of equals first. Raises ValueError unless speeds are
    finite, not negative and not all 0.
    """
    quotas = np.array(speeds, dtype=np.float64)
    if not (np.isfinite(quotas).all() and quotas.min(initial=0) >= 0 and quotas.max(initial=0) > 0):
        raise ValueError(f"speeds must be finite, at least 0 and not all 0, got {list(speeds)}")
    quotas /= quotas.max()
    quotas *= n / quotas.sum()
    sizes = np.floor(quotas).astype(int)
    left = n - int(sizes.sum())
    sizes[np.argsort(sizes - quotas, kind="stable")[:left]] += 1
    return [slice(a, b) for a, b in pairwise(accumulate(sizes.tolist(), initial=0))]


class Proportional(DataParallel):
    """Data parallelism whose shares follow the ranks' speeds; trains like ``Serial`` whatever they are.

    A rank's speed is the samples per second of its own forward and backward since the last exchange,
    one small all-gather every ``every`` steps; the shares are even until the first. A rank that had
    no samples counts with twice its last speed, and with the others' mean where it has none, so that
    it is soon measured again. With ``batch_norm`` "synchronised" ranks wait for one another in
    forward, and all seem equally fast.
    """

    depends_on_timing = True

    def __init__(
        self,
        comm: Communicator,
        allreduce: Callable[[Communicator, Array], Array] = allreduce,
        *,
        every: int = 10,
        micro_batches: int = 1,
        batch_norm: str = "ranks",
    ):
        super().__init__(comm, allreduce, micro_batches=micro_batches, batch_norm=batch_norm)
        self.every, self.clock = at_least_one("every", every), comm.time
        self.speeds = [0.0] * comm.size  # 0: not known
        self.steps, self.samples, self.seconds = 0, 0, 0.0

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "every": self.every}

    def shard(self, batch: Batch) -> Batch:
        """This rank's share, in proportion to its speed."""
        known = [speed for speed in self.speeds if speed] or [1.0]
        mean = sum(known) / len(known)
        return batch[proportional_shares(len(batch), [speed or mean for speed in self.speeds])[self.rank]]

    def forward_backward(self, work: Work, inner: ForwardBackward = forward_backward_pass) -> float:
        start = self.clock()
        loss = super().forward_backward(work, inner)
        self.seconds += self.clock() - start
        self.samples += len(work.batch)
        return loss

    def finish(self, model: Module, loss: float) -> float:
        """Sum the gradients; every ``every``-th time tell one another the speeds."""
        loss = super().finish(model, loss)
        self.steps += 1
        if self.steps % self.every == 0:
            self.speeds = [float(s[0]) for s in allgather(self.comm, np.array([self.measured()]))]
            self.samples, self.seconds = 0, 0.0
        return loss

    def measured(self) -> float:
        """This rank's samples per second since the last exchange; 0 where nothing is known."""
        if self.samples and self.seconds > 0:
            return self.samples / self.seconds
        return 2 * self.speeds[self.rank]
