"""More workers compute than an update needs: the first gradients that come are taken, late ones dropped.

Lecture section: synchronous data parallelism (stragglers). Lesson: 06_data_parallel. No gradient that is used
is stale, unlike with an asynchronous parameter server; the price is the work of those who come late.
Source: Chen, Pan, Monga, Bengio and Jozefowicz 2016.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minigrad.data import Batch, shares
from minigrad.device import Array, array_module
from minigrad.module import Module

from ..comm.communicator import Communicator
from .replicated import DataParallel

COLLECTOR = 0
PUSH, ANSWER = 30101, 30102  # tags
VERSION, SHARE, LOSS = range(3)  # what a push begins with


@dataclass
class Update:
    """One update: the ``version`` of the parameters it changed, and whose gradients for it were averaged.

    ``version`` is the number of updates before it. ``dropped`` are the ranks whose gradients came when the
    update had been made.
    """

    version: int
    contributors: list[int]
    dropped: list[int] = field(default_factory=list)


class BackupWorkers(DataParallel):
    """Rank 0 collects, the other N + b ranks compute; an update is the mean of the first N gradients.

    b is ``backups``: with 0 it trains like ``Serial``. Each gradient weighs by its samples, and says with
    which version of the parameters it was computed. The collector drops late ones, and answers every
    push with the mean gradients of all updates that the worker has not made: so every rank makes the
    same updates in the same order, and all have the same parameters and optimizer state. A late worker
    makes the updates it missed in its next steps, without computing, and joins at the newest version.

    Where fewer than N workers have samples, all of these are waited for. One rank alone trains by itself.
    ``updates``, on rank 0, tells who contributed. Per worker and step one message each way, of the
    parameters' size and a little more; the collector keeps the means its latest worker has not had.
    All ranks call ``step`` equally often, and ``finalize`` at the end.
    """

    flags = {}  # no all-reduce

    def __init__(self, comm: Communicator, *, backups: int = 0, micro_batches: int = 1):
        super().__init__(comm, micro_batches=micro_batches)
        self.workers = list(range(1, comm.size)) or [COLLECTOR]
        if not 0 <= backups < len(self.workers):
            raise ValueError(
                f"of {len(self.workers)} workers on {comm.size} ranks (rank 0 only collects), 0 to "
                f"{len(self.workers) - 1} can be backups, got {backups}; take fewer or start more ranks"
            )
        self.backups, self.needed = backups, len(self.workers) - backups
        self.equals_serial, self.depends_on_timing = backups == 0, backups > 0
        self.version = self.wanted = 0
        self.updates: list[Update] = []
        self.means: dict[int, Array] = {}  # by version: what a worker has still to use, the collector to send
        # On the collector: how many updates each worker has been told of.
        self.made = dict.fromkeys(range(1, comm.size) if comm.rank == COLLECTOR else (), 0)

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "backups": self.backups}

    def shard(self, batch: Batch) -> Batch:
        """This worker's share; nothing on the collector, and where the update has been made without it."""
        self.wanted = min(self.needed, len(batch))
        if self.rank not in self.workers or self.version in self.means:
            return batch[:0]
        return batch[shares(len(batch), len(self.workers))[self.workers.index(self.rank)]]

    def finish(self, model: Module, loss: float) -> float:
        """Leave in ``grad`` the mean of the first gradients of this version; the loss of their samples."""
        if self.size == 1:
            return super().finish(model, loss)
        if self.rank == COLLECTOR:
            mean = self.collect()
        else:
            if self.version not in self.means:
                self.comm.send(self.push(loss), COLLECTOR, PUSH)
                self.means.update(enumerate(self.comm.recv(COLLECTOR, ANSWER), self.version))
            mean = self.means.pop(self.version)
        self.batch_fraction, self.n_backwards = 0.0, 0
        self.version += 1
        return self.use(mean)

    def finalize(self, model: Module) -> None:
        """The collector answers those who are late until all have made all updates."""
        while any(made < self.version for made in self.made.values()):
            self.refuse(*self.comm.recv_any(PUSH))

    def push(self, loss: float) -> Array:
        """What this rank brings to an update, as one array whose sum over the contributors has a meaning."""
        parameters = self.summary.parameters
        xp, dtype = array_module(parameters[0].data), parameters[0].dtype
        reached = [float(p.grad is not None) for p in parameters]
        figures = xp.asarray([self.version, self.batch_fraction, loss, *reached], dtype)
        grads = (xp.zeros(p.size, dtype) if p.grad is None else p.grad.reshape(-1) for p in parameters)
        return xp.concatenate(
            [figures, *(self.batch_fraction * s.reshape(-1) for s in self.summary.statistics()), *grads]
        )

    def collect(self) -> Array:
        """Wait for the gradients of this version; their mean, which all workers that wait are told."""
        taken: dict[int, Array] = {}
        idle = []
        while len(taken) < self.wanted:
            worker, push = self.comm.recv_any(PUSH)
            if push[VERSION] != self.version:
                self.refuse(worker, push)
            elif push[SHARE]:
                taken[worker] = push
            else:
                idle.append(worker)
        mean, *others = (taken[worker] for worker in sorted(taken))  # the same bits whoever was first
        for push in others:
            mean += push
            self.comm.charge_reduction(push.nbytes)
        mean /= float(mean[SHARE])
        self.means[self.version] = mean
        self.updates.append(Update(self.version, list(taken)))
        for worker in [*taken, *idle]:
            self.answer(worker, self.version)
        # What is still to be sent is not this rank's to change, as clipping would.
        return mean.copy() if self.version in self.means else mean

    def refuse(self, worker: int, push: Array) -> None:
        """Drop a gradient whose update has been made, and tell its worker all updates since."""
        version = int(push[VERSION])
        if push[SHARE]:
            self.updates[version].dropped.append(worker)
        self.answer(worker, version)

    def answer(self, worker: int, version: int) -> None:
        """Send ``worker`` the means from ``version`` on; forget those that all workers have had."""
        news = [mean for made, mean in self.means.items() if made >= version]
        rows = news[0][None] if len(news) == 1 else array_module(news[0]).stack(news)
        self.comm.send(rows, worker, ANSWER)
        self.made[worker] = version + len(news)
        for old in range(min(self.means), min(self.made.values())):
            del self.means[old]

    def use(self, mean: Array) -> float:
        """Take over gradients and running statistics from ``mean``; the loss."""
        parameters = self.summary.parameters
        start = LOSS + 1 + len(parameters)
        loss, *reached = mean[LOSS:start].tolist()
        for s in self.summary.statistics():
            s[...] = mean[start : start + s.size].reshape(s.shape)
            start += s.size
        for parameter, found in zip(parameters, reached, strict=True):
            parameter.grad = mean[start : start + parameter.size].reshape(parameter.shape) if found else None
            start += parameter.size
        return loss


def step_seconds(draws: np.ndarray, needed: int) -> np.ndarray:
    """The time of each step that waits for ``needed`` workers: (steps,) of draws (steps, workers).

    For exponential times of mean 1 the mean is H(N + b) - H(b), where H(n) = 1 + 1/2 + ... + 1/n: with 96 + 4
    workers 3.10 instead of 5.15. For times uniform in 0 to 1 it is N / (N + b + 1).
    """
    if not 1 <= needed <= draws.shape[1]:
        raise ValueError(f"of {draws.shape[1]} workers 1 to {draws.shape[1]} can be waited for, got {needed}")
    return np.partition(draws, needed - 1, axis=1)[:, needed - 1]
