"""One parameter server: it collects gradients, updates its part of the parameters, and ends the training.

Lecture section: asynchronous parameter server. Lesson: 08_parameter_server. ``consistency`` decides when an
update is made and when a worker may proceed, which is what tells asynchronous from synchronous training.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from functools import reduce as fold
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from minigrad.device import Array, array_module
from minigrad.optim import Optimizer, Part

from ...comm.communicator import Communicator, RankEnded, wait_limit
from ...consistency import other_batch_error, weighted
from ...stale_rates import Factor, naive
from ..flat import Segment

if TYPE_CHECKING:
    from .consistency import ConsistencyModel

PUSH, PULL, LAST, RESULT, RECEIPT = range(30201, 30206)  # tags
FIGURES = 4  # the first elements of a push: clock, version, samples, checksum of the batch
Watch = Callable[[Iterable[int], Mapping[int, int]], None]
"""Takes the ranks whose end is to be reported, and the pushes that ranks owe."""
NextPush = Callable[[], tuple[int, Array]]
"""Waits for a push; returns its worker and the message."""


class Push(NamedTuple):
    """A worker's gradient over its ``samples`` of step ``clock``, for a server's part of the parameters.

    It was computed with the parameters of ``version``; ``reached`` says for each segment whether the loss
    reached its parameter. ``batch`` is the checksum of the whole batch, 0 in most steps.
    """

    worker: int
    clock: int
    version: int
    samples: int
    reached: list[bool]
    gradient: Array
    batch: int = 0

    @staticmethod
    def pack(figures: tuple[int, int, int, int], reached: Iterable[bool], gradient: Array) -> Array:
        """Clock, version, samples and checksum, flags, and the gradient, as one message in its dtype.

        float32 represents whole numbers up to 2^24, which limits the number of steps.
        """
        xp = array_module(gradient)
        return xp.concatenate([xp.asarray([*figures, *reached], gradient.dtype), gradient])

    @classmethod
    def unpack(cls, worker: int, message: Array, segments: int) -> Push:
        """The push that ``worker`` sent; its gradient is a view of ``message``."""
        clock, version, samples, batch, *flags = map(int, message[: FIGURES + segments].tolist())
        gradient = message[FIGURES + segments :]
        return cls(worker, clock, version, samples, [*map(bool, flags)], gradient, batch)


class LostWorker(NamedTuple):
    """A worker that left: after how many of its steps, why, and how many of its gradients were applied."""

    steps: int
    reason: str
    applied: int = 0


@dataclass
class Silence:
    """Since when ranks have owed the same message: where others send, no wait of this rank is long."""

    since: dict[tuple[int, int], float] = field(default_factory=dict)

    def check(self, owing: Mapping[int, int]) -> None:
        """Raise TimeoutError if a rank of ``owing`` has owed its message for ``wait_limit()`` seconds."""
        now = time.monotonic()
        self.since = {one: self.since.get(one, now) for one in owing.items()}
        for (rank, number), start in self.since.items():
            if now - start > wait_limit():
                raise TimeoutError(
                    f"rank {rank} has sent nothing for {wait_limit():g} s, not its message {number}, while "
                    "other ranks sent theirs; look whether it runs, raise MINIGRAD_TIMEOUT, or go on without "
                    "such ranks with survive=True"
                )


def lost_server_error(rank: int) -> RuntimeError:
    """The error that every rank raises if a server has ended."""
    return RuntimeError(
        f"rank {rank}, a server, has ended; its part of the parameters is lost, and with it the training"
    )


@dataclass
class Server:
    """The state of one server. ``answer`` is its message: the version, and its part of the parameters.

    ``segments`` say which parameters these are, with ``n`` counted as by the optimizer, -1 for those that it
    does not have. ``clocks`` has the number of pushes of every worker that is still there, ``pushes`` the
    gradients that are not applied yet, ``waiting`` the workers without an answer. ``stale_rate`` returns the
    factor of lr (``stale_rates``). ``staleness`` counts the applied gradients by the updates between the
    version they were computed with and their own, ``applied`` by worker; ``lost`` are the workers that left.
    """

    answer: Array
    segments: list[Segment]
    clocks: dict[int, int]
    consistency: ConsistencyModel
    stale_rate: Factor = naive
    version: int = 0
    pushes: list[Push] = field(default_factory=list)
    waiting: set[int] = field(default_factory=set)
    staleness: Counter[int] = field(default_factory=Counter)
    applied: Counter[int] = field(default_factory=Counter)
    lost: dict[int, LostWorker] = field(default_factory=dict)
    batches: dict[int, tuple[int, int]] = field(default_factory=dict)  # by clock: a worker, its checksum

    @property
    def weights(self) -> Array:
        """This server's part of the parameters, which updates change in place."""
        return self.answer[1:]

    def serve(
        self,
        comm: Communicator,
        steps: int,
        optimizer: Optimizer,
        watch: Watch,
        next_push: NextPush | None = None,
    ) -> None:
        """Receive pushes, also of later steps, until every worker that is still there has made ``steps``.

        Only a worker behind these steps owes a push: one that is ahead may have finished, and sends nothing
        while it waits for the slowest. Raises RuntimeError, with the reason of each, when all workers have
        left.
        """
        next_push = next_push or partial(comm.recv_any, PUSH)
        while any(clock < steps for clock in self.clocks.values()):
            owing = {w: c for w, c in self.clocks.items() if c < steps and w not in self.waiting}
            watch(self.clocks, owing)
            try:
                worker, message = next_push()
            except RankEnded as ended:
                self.lose(ended.rank, ended.reason)
            else:
                if worker not in self.clocks:
                    continue  # its last message came after it was known to have ended
                if message.dtype == np.uint8:
                    self.lose(worker, bytes(message).decode())
                else:
                    comm.charge_reduction(message.nbytes)
                    self.take(Push.unpack(worker, message, len(self.segments)))
            while (pushes := self.consistency.next_update(self)) is not None:
                self.apply(pushes, optimizer)
            for ready in self.ready_workers():
                comm.send(self.answer, ready, PULL)
        if not self.clocks:
            reasons = "; ".join(f"worker {rank}: {lost.reason}" for rank, lost in sorted(self.lost.items()))
            raise RuntimeError(f"all workers have left, so nobody is there to train: {reasons}")

    def lose(self, rank: int, reason: str) -> None:
        """Continue without a worker; RuntimeError for another server, whose parameters nobody else has."""
        if rank in self.lost:
            return
        if rank not in self.clocks:
            raise lost_server_error(rank)
        self.lost[rank] = LostWorker(self.clocks.pop(rank), reason)
        self.waiting.discard(rank)

    def take(self, push: Push) -> None:
        """Store a gradient, unless it is of no samples; its worker waits from now on.

        Raises ValueError for a worker that was given another batch than the first one in this step.
        """
        if push.batch:
            first, batch = self.batches.setdefault(push.clock, (push.worker, push.batch))
            if push.batch != batch:
                raise other_batch_error(push.worker, first)
        self.clocks[push.worker] += 1
        self.waiting.add(push.worker)
        if push.samples:
            self.pushes.append(push)

    def ready_workers(self) -> list[int]:
        """The waiting workers that may proceed, by rank; they no longer wait."""
        ready = sorted(w for w in self.waiting if self.consistency.may_proceed(self, self.clocks[w]))
        self.waiting -= set(ready)
        return ready

    def apply(self, pushes: list[Push], optimizer: Optimizer) -> None:
        """One update by the mean of ``pushes``, weighted by their samples; it makes the next version.

        The factors f of ``stale_rate`` are weights too, and the mean of them multiplies lr: for plain SGD
        this moves the parameters by the mean of (f lr) g.
        """
        self.pushes = [p for p in self.pushes if not any(p is other for other in pushes)]
        ages = [self.version - p.version for p in pushes]
        share = self.consistency.share(self, pushes)
        factors = [self.stale_rate(age, share, optimizer.adaptive) for age in ages]
        weights = [p.samples * factor for p, factor in zip(pushes, factors, strict=True)]
        self.version += 1
        self.answer[0] = self.version
        self.staleness.update(ages)
        self.applied.update(p.worker for p in pushes)
        if not pushes:
            return
        for push, weight in zip(pushes, weights, strict=True):
            push.gradient[...] *= weight / sum(weights)
        mean, *others = (p.gradient for p in pushes)
        for gradient in others:
            mean += gradient
        reached = [any(flags) for flags in zip(*(p.reached for p in pushes), strict=True)]
        lr, optimizer.lr = optimizer.lr, optimizer.lr * (sum(weights) / sum(p.samples for p in pushes))
        optimizer.step(self.parts(mean, reached))
        optimizer.lr = lr

    def parts(self, gradient: Array, reached: list[bool]) -> list[Part]:
        """The weights that the optimizer updates, each with its gradient."""
        return [
            Part(n, self.weights[place], gradient[place] if flag else None)
            for (n, _, place), flag in zip(self.segments, reached, strict=True)
            if n >= 0
        ]

    def own_values(self) -> dict[str, Any]:
        """The counts of gradients, for a checkpoint."""
        counters = {"staleness": self.staleness, "applied": self.applied}
        return {name: [list(pair) for pair in sorted(counts.items())] for name, counts in counters.items()}

    def set_own_values(self, values: dict[str, Any]) -> None:
        self.staleness, self.applied = (Counter(dict(values[name])) for name in ("staleness", "applied"))

    def resume(self, steps: int, version: int) -> None:
        """Begin after ``steps`` of all workers, with this ``version``."""
        self.clocks = dict.fromkeys(self.clocks, steps)
        self.version = self.answer[0] = version

    def counts(self) -> dict[str, Any]:
        """The staleness of the gradients and the workers that left, for JSON."""
        lost = [(worker, lost._replace(applied=self.applied[worker])) for worker, lost in self.lost.items()]
        return {"staleness": list(self.staleness.items()), "lost": lost}


# The end of the training: plain messages, as a collective would wait for the workers that left.


def gather_results(comm: Communicator, server: Server, workers: int, watch: Watch) -> list[Array]:
    """On the first server: gather from all ranks that are still there, and send each of them the results.

    These are the parameters, the total of the workers' ``weighted`` running statistics, and the counts, as
    JSON in bytes. Returns when all ranks have confirmed them, so no rank waits for this one afterwards.
    """
    others = set(range(comm.size)) - {comm.rank}
    last = gather_from(comm, server, others, LAST, watch)
    parts = [server.weights, *(last[rank] for rank in range(workers + 1, comm.size))]
    none = weighted(server.weights, [], 0.0)
    total = fold(np.add, [last[rank] for rank in range(workers) if rank in last] or [none])
    counts = np.frombuffer(json.dumps(server.counts()).encode(), np.uint8)
    results = [array_module(total).concatenate(parts), total, counts]
    for rank in last:
        for result in results:
            comm.send(result, rank, RESULT)
    gather_from(comm, server, last, RECEIPT, watch)
    return results


def send_results(comm: Communicator, last: Array, first: int) -> list[Array]:
    """On the other ranks: send this rank's part, ``last``, to the ``first`` server; return the results."""
    comm.send(last, first, LAST)
    try:
        results = [comm.recv(first, RESULT) for _ in range(3)]
    except RankEnded as ended:
        raise lost_server_error(ended.rank) from ended
    comm.send(np.empty(0, np.uint8), first, RECEIPT)
    return results


def gather_from(
    comm: Communicator, server: Server, ranks: Iterable[int], tag: int, watch: Watch
) -> dict[int, Array]:
    """The message of each of ``ranks``; ``server`` loses the workers that end instead."""
    messages, missing = {}, set(ranks)
    while missing:
        watch(missing, dict.fromkeys(missing, tag))
        try:
            rank, x = comm.recv_any(tag)
            messages[rank] = x
        except RankEnded as ended:
            rank = ended.rank
            server.lose(rank, ended.reason)
        missing.discard(rank)
    return messages
