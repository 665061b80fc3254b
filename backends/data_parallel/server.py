"""What one parameter server does: it collects gradients, and changes its part of the parameters by them.

Lecture section: asynchronous parameter server. Lesson: 08_parameter_server. When an update is due, and when a
worker may go on, is the whole difference between asynchronous and synchronous training: see ``server_rules``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from minigrad.device import Array, array_module
from minigrad.optim import Optimizer, Part

from ..comm.communicator import Communicator, RankEnded
from ..stale_rates import Factor, naive
from .flat import Segment
from .server_rules import Rule

PUSH, ANSWER = 30201, 30202  # tags
FIGURES = 3  # what a push begins with: clock, version, samples
Watching = Callable[[Iterable[int], Mapping[int, int]], None]


class Push(NamedTuple):
    """A worker's gradient over its ``samples`` of step ``clock``, for a server's part of the parameters.

    ``version`` is that of the parameters it was computed with; ``reached`` says of each piece whether the
    loss reached its parameter.
    """

    worker: int
    clock: int
    version: int
    samples: int
    reached: list[bool]
    gradient: Array

    @staticmethod
    def packed(figures: tuple[int, int, int], reached: Iterable[bool], pieces: Sequence[Array]) -> Array:
        """Clock, version and samples, flags, and the gradient's pieces, as one message in their dtype.

        float32 holds whole numbers up to 2^24, so that many steps.
        """
        xp, dtype = array_module(pieces[0]), pieces[0].dtype
        return xp.concatenate([xp.asarray([*figures, *reached], dtype), *pieces])

    @classmethod
    def unpacked(cls, worker: int, message: Array, pieces: int) -> Push:
        """The push that ``worker`` sent; its gradient is a view of ``message``."""
        clock, version, samples, *reached = message[: FIGURES + pieces].tolist()
        found = [bool(flag) for flag in reached]
        return cls(worker, int(clock), int(version), int(samples), found, message[FIGURES + pieces :])


class Lost(NamedTuple):
    """A worker that left: after how many of its steps, why, and how many of its gradients were applied."""

    steps: int
    reason: str
    applied: int = 0


def server_lost(rank: int) -> RuntimeError:
    """The error of all ranks where a server has ended."""
    return RuntimeError(
        f"rank {rank}, a server, has ended; its part of the parameters is lost, and with it the training"
    )


@dataclass
class Server:
    """One server's state. ``answer`` is its message: the version, and its part of the parameters.

    ``pieces`` says what these are, ``n`` as the optimizer counts its parameters. ``clocks`` has the number of
    pushes of every worker that is still there, ``pushes`` what is not applied yet, ``waiting`` who has no
    answer. ``stale_rate`` says what lr is multiplied by, see ``stale_rates``. ``staleness`` counts the
    applied gradients by the updates between the version they were computed with and their own, ``applied`` by
    worker; ``lost`` are the workers that left.
    """

    answer: Array
    pieces: list[Segment]
    clocks: dict[int, int]
    rule: Rule
    stale_rate: Factor = naive
    version: int = 0
    pushes: list[Push] = field(default_factory=list)
    waiting: set[int] = field(default_factory=set)
    staleness: Counter[int] = field(default_factory=Counter)
    applied: Counter[int] = field(default_factory=Counter)
    lost: dict[int, Lost] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.answer[0] = self.version

    def serve(self, comm: Communicator, steps: int, optimizer: Optimizer, watch: Watching) -> None:
        """Take pushes, also of later steps, until every worker that is there has made ``steps``.

        ``watch`` is told whose end it is to look out for, and which push of these steps a worker owes: one
        that is ahead may be done, and sends nothing while it waits for the slowest. Raises
        RuntimeError, with what each of them said, when all workers have left.
        """
        while any(clock < steps for clock in self.clocks.values()):
            owing = {w: c for w, c in self.clocks.items() if c < steps and w not in self.waiting}
            watch(self.clocks, owing)
            try:
                worker, message = comm.recv_any(PUSH)
            except RankEnded as ended:
                self.lose(ended.rank, ended.reason)
            else:
                if worker not in self.clocks:
                    continue  # its last word came after its end was known
                if message.dtype == np.uint8:
                    self.lose(worker, bytes(message).decode())
                else:
                    comm.charge_reduction(message.nbytes)
                    self.take(Push.unpacked(worker, message, len(self.pieces)))
            while (due := self.rule.due(self)) is not None:
                self.apply(due, optimizer)
            for free in self.let_go():
                comm.send(self.answer, free, ANSWER)
        if not self.clocks:
            told = "; ".join(f"worker {rank}: {lost.reason}" for rank, lost in sorted(self.lost.items()))
            raise RuntimeError(f"all workers have left, nobody is there to train: {told}")

    def lose(self, rank: int, reason: str) -> None:
        """Go on without a worker; RuntimeError for another server, without which there is no going on."""
        if rank in self.lost:
            return
        if rank not in self.clocks:
            raise server_lost(rank)
        self.lost[rank] = Lost(self.clocks.pop(rank), reason)
        self.waiting.discard(rank)

    def take(self, push: Push) -> None:
        """Keep the gradient, unless it is of no samples; its worker now waits."""
        self.clocks[push.worker] += 1
        self.waiting.add(push.worker)
        if push.samples:
            self.pushes.append(push)

    def let_go(self) -> list[int]:
        """The workers that waited and now may go on, by rank."""
        free = sorted(w for w in self.waiting if self.rule.may_go_on(self, self.clocks[w]))
        self.waiting -= set(free)
        return free

    @property
    def weights(self) -> Array:
        """This server's part of the parameters, changed where they lie."""
        return self.answer[1:]

    def report(self) -> dict[str, Any]:
        """What was counted, for JSON."""
        lost = [(worker, lost._replace(applied=self.applied[worker])) for worker, lost in self.lost.items()]
        return {"staleness": list(self.staleness.items()), "lost": lost}

    def apply(self, pushes: list[Push], optimizer: Optimizer) -> None:
        """One update by the mean of ``pushes``, weighted by their samples; the next version.

        Weighted also by the factors f of ``stale_rate``, at lr times their mean: for plain SGD this moves the
        parameters by the mean of (f lr) g.
        """
        self.pushes = [p for p in self.pushes if not any(p is taken for taken in pushes)]
        ages = [self.version - p.version for p in pushes]
        share = self.rule.share(self, pushes)
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
        """What the optimizer is to change, and by what."""
        weights = self.weights
        return [
            Part(n, weights[place], gradient[place] if found else None)
            for (n, _, place), found in zip(self.pieces, reached, strict=True)
        ]
