"""More workers compute than an update needs: it uses the first gradients that arrive, and drops late ones.

Lecture section: synchronous data parallelism (stragglers). Lesson: 06_data_parallel. Unlike with an
asynchronous parameter server, no gradient in use is stale; the price is the work of the late workers.
Source: Chen, Pan, Monga, Bengio and Jozefowicz 2016.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from minigrad.data import Batch, shares
from minigrad.declaration import Declaration
from minigrad.device import Array, array_module, unflatten
from minigrad.module import Module
from minigrad.placed_state import PlacedState

from ..comm.collectives import barrier
from ..comm.communicator import Communicator
from ..consistency import other_batch_error, refuse_half
from .data_parallel import DataParallel
from .step_summary import BACKWARDS, StepSummary

COLLECTOR = 0
PUSH, PULL = 30101, 30102  # tags


@dataclass
class Update:
    """One update of the parameters of ``version``, which is the number of earlier updates.

    ``contributors`` are the ranks whose gradients were averaged, ``dropped`` those whose gradients for it
    arrived after the update.
    """

    version: int
    contributors: list[int]
    dropped: list[int] = field(default_factory=list)


class BackupWorkersState(PlacedState):
    """The state of workers, all of which have all updates once they have drained."""

    backend: BackupWorkers

    def drain(self, model: Module) -> None:
        """Give all workers all updates before any of them computes for the next one."""
        self.backend.finalize(model)
        barrier(self.backend.comm)

    def own_values(self) -> dict[str, Any]:
        updates = [[one.version, list(one.contributors), list(one.dropped)] for one in self.backend.updates]
        return {"version": self.backend.version, "updates": updates}

    def set_own_values(self, values: dict[str, Any]) -> None:
        backend, version = self.backend, int(values["version"])
        backend.version, backend.updates[:] = version, [Update(*fields) for fields in values["updates"]]
        backend.received = dict.fromkeys(backend.received, version)


class BackupWorkers(DataParallel):
    """Rank 0 collects, the other N + b ranks compute; an update is the mean of the first N gradients.

    b is ``backups``: with 0 it trains like ``Serial``. Gradients are weighted by their samples, and carry the
    version of the parameters they were computed with. The collector drops late ones, and answers every
    push with the mean gradients of all updates that the worker has not made. So all ranks make the same
    updates in the same order. A late worker makes the updates it missed in its next steps, without computing,
    until it has the newest version.

    If fewer than N workers have samples, the update waits for all of these. One rank alone trains by itself.
    ``updates``, on rank 0, lists the contributors. Each worker sends and receives one message per step, of
    the size of the parameters and a few figures; the collector stores the means that the latest worker lacks.
    All ranks call ``step`` equally often, and ``finalize`` at the end. A checkpoint holds what a serial run's
    does, and the list of contributors.
    """

    state_class = BackupWorkersState
    declaration = Declaration()  # no all-reduce

    def __init__(self, comm: Communicator, *, backups: int = 0, micro_batches: int = 1):
        super().__init__(comm, micro_batches=micro_batches)
        others = range(1, comm.size)
        self.workers = list(others) or [COLLECTOR]
        if not 0 <= backups < len(self.workers):
            raise ValueError(
                f"of {len(self.workers)} workers on {comm.size} ranks (rank 0 only collects), 0 to "
                f"{len(self.workers) - 1} can be backups, got {backups}; take fewer or start more ranks"
            )
        self.backups, self.needed = backups, len(self.workers) - backups
        late = backups > 0
        self.traits = replace(self.traits, equals_serial=not late, depends_on_timing=late, may_lag=late)
        self.version = self.quorum = 0
        self.updates: list[Update] = []
        self.batches: dict[int, tuple[int, int]] = {}  # by version: a worker, the checksum of its batch
        # By version: the means that a worker has yet to use, the collector to send.
        self.means: dict[int, Array] = {}
        # On the collector: the number of updates that each worker has received.
        self.received: dict[int, int] = dict.fromkeys(others if comm.rank == COLLECTOR else (), 0)

    def place(self, model: Module) -> Module:
        """The whole model; ValueError too for float16, in which a message has no room for its figures."""
        refuse_half(model, self)
        return super().place(model)

    def shard(self, batch: Batch) -> Batch:
        """This worker's share; empty on the collector, and where this worker's update exists already."""
        self.quorum = min(self.needed, len(batch))
        if self.rank not in self.workers or self.version in self.means:
            return batch[:0]
        return batch[shares(len(batch), len(self.workers))[self.workers.index(self.rank)]]

    def use_ranks(self, model: Module) -> None:
        """Summarize each worker's step as that of one rank, so that a mean of summaries is one, too."""
        self.step_summary = StepSummary(model, 0, 1)

    def reduce(self) -> list[Array]:
        """The mean of the messages with the first gradients of this version; a push adds the version."""
        if self.size == 1:
            return super().reduce()
        messages = [bucket.message for bucket in self.buckets]
        if self.rank == COLLECTOR:
            mean = self.collect()
        else:
            if self.version not in self.means:
                xp = array_module(messages[0])
                version = xp.asarray([self.version], messages[0].dtype)
                self.comm.send(xp.concatenate([version, *messages]), COLLECTOR, PUSH)
                self.means.update(enumerate(self.comm.recv(COLLECTOR, PULL), self.version))
            mean = self.means.pop(self.version)
        self.version += 1
        return unflatten(mean[1:], messages)

    def allocate_message(self, size: int, dtype: np.dtype) -> Array:
        """Memory of this rank alone, for which no worker waits."""
        return array_module(self.summary.parameters[0].data).zeros(size, dtype)

    def finalize(self, model: Module) -> None:
        """The collector answers late workers until all have all updates."""
        while any(count < self.version for count in self.received.values()):
            self.refuse(*self.comm.recv_any(PUSH))

    def figures(self, push: Array) -> tuple[int, float, int]:
        """The version, the share of the batch and the batch's checksum in a ``push``."""
        _, share, count = push[-len(self.summary) :][:3].tolist()
        return int(push[0]), share, round(count) // BACKWARDS

    def collect(self) -> Array:
        """Wait for the gradients of this version; send their mean to the workers that wait, and return it."""
        pushes: dict[int, Array] = {}
        idle = []
        while len(pushes) < self.quorum:
            worker, push = self.comm.recv_any(PUSH)
            version, share, batch = self.figures(push)
            first, expected = self.batches.setdefault(version, (worker, batch)) if batch else (worker, 0)
            if batch != expected:
                raise other_batch_error(worker, first)
            if version != self.version:
                self.refuse(worker, push)
            elif share:
                pushes[worker] = push
            else:
                idle.append(worker)
        mean, *others = (pushes[worker] for worker in sorted(pushes))  # the same bits in any order of arrival
        for push in others:
            mean += push
            self.comm.charge_reduction(push.nbytes)
        mean /= self.figures(mean)[1]
        self.means[self.version] = mean
        self.updates.append(Update(self.version, list(pushes)))
        for worker in [*pushes, *idle]:
            self.answer(worker, self.version)
        # Clipping must not change a mean that is still to be sent.
        return mean.copy() if self.version in self.means else mean

    def refuse(self, worker: int, push: Array) -> None:
        """Drop a gradient that came after its update, and send its worker all updates since."""
        version, share, _ = self.figures(push)
        if share:
            self.updates[version].dropped.append(worker)
        self.answer(worker, version)

    def answer(self, worker: int, version: int) -> None:
        """Send ``worker`` the means from ``version`` on; forget those that all workers have received."""
        news = [mean for number, mean in self.means.items() if number >= version]
        rows = news[0][None] if len(news) == 1 else array_module(news[0]).stack(news)
        self.comm.send(rows, worker, PULL)
        self.received[worker] = version + len(news)
        for old in range(min(self.means), min(self.received.values())):
            del self.means[old]
