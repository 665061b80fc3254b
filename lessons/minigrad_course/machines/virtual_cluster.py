"""Ranks on a virtual clock: what a cluster would do, message by message, without the cluster.

The machine is the alpha-beta-gamma model with one port each way: a message of n bytes takes
``latency + n / bandwidth``, a rank sends one message at a time and receives one at a time, and reducing
n bytes takes ``n * reduction``. Nothing sleeps: one rank runs at a time, the one whose clock is
earliest, so the same seed gives the same timeline bit for bit. A rank's background has a clock of its
own: its next job starts when it was posted or when the job before is done, whichever is later, and what
it computes (the reductions) takes none of the rank's time.
Lecture section: what a cluster would do. Lesson: 15_scale.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from backends.comm.collectives.link import Link
from backends.comm.communicator import Result
from backends.comm.mailboxes import World
from backends.comm.thread_ranks import run_world
from backends.comm.threads import ThreadComm
from minigrad.lookup import at_least_one


class Transfer(NamedTuple):
    """A message on the timeline: it occupied both ports from ``start`` to ``stop`` (seconds)."""

    source: int
    destination: int
    nbytes: int
    tag: int
    start: float
    stop: float


@dataclass
class VirtualCluster:
    """``size`` ranks on a virtual clock; ``clocks`` holds the seconds at which each rank was done.

    ``links`` gives the (source, destination) pairs that differ from ``link``; ``slowness`` the ranks whose
    computing takes that many times as long (stragglers). A message or computation takes longer by a random
    share of at most ``jitter``, drawn from ``seed``; reducing a byte takes ``reduction`` seconds. ``nodes``
    gives the number of each rank's machine, by default all different: the ranks of one machine share the
    port to the others, its network card.
    """

    size: int
    link: Link = Link(1e-6, 1e9)
    reduction: float = 0.0
    links: Mapping[tuple[int, int], Link] = field(default_factory=dict)
    slowness: Mapping[int, float] = field(default_factory=dict)
    jitter: float = 0.0
    seed: int = 0
    nodes: Sequence[int] = ()
    clocks: list[float] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)

    def run(self, fn: Callable[[VirtualComm], Result]) -> list[Result]:
        """Run ``fn(comm)`` on every rank from time 0, with the results and errors of ``run_ranks``."""
        self.begin()
        return self.run_in(VirtualWorld(self), VirtualComm, fn)

    def begin(self, start: float = 0.0) -> None:
        """Set all clocks, and free all ports."""
        n = at_least_one("the number of ranks", self.size)
        self.clocks, self.transfers = [start] * n, []
        self._out: dict[object, float] = {}  # when each port is free
        self._in: dict[object, float] = {}
        self._draw = random.Random(self.seed)

    def run_in(
        self, world: VirtualWorld, kind: type[VirtualComm], fn: Callable[[Any], Result]
    ) -> list[Result]:
        """Run ``fn(comm)`` on every rank of ``world``, with communicators of a ``kind``."""
        try:
            return run_world(world, fn, kind)
        finally:
            del self.clocks[self.size :]  # those of backgrounds, whose jobs are done

    @property
    def seconds(self) -> float:
        """When the last rank was done."""
        return max(self.clocks)

    def transfer(self, source: int, destination: int, nbytes: int, tag: int, now: float) -> float:
        """Occupy both ports as soon as both are free; returns the time of arrival."""
        start = stop = now
        if source != destination:  # what a rank sends itself needs no port
            out, into = self.port(source, destination), self.port(destination, source)
            start = max(start, self._out.get(out, 0.0), self._in.get(into, 0.0))
            link = self.links.get((source, destination), self.link)
            stop = start + self.with_jitter(link.seconds(nbytes))
            self._out[out] = self._in[into] = stop
        self.transfers.append(Transfer(source, destination, nbytes, tag, start, stop))
        return stop

    def node(self, rank: int) -> int:
        return self.nodes[rank] if self.nodes else rank

    def port(self, rank: int, peer: int) -> tuple[str, int]:
        """What messages between ``rank`` and ``peer`` occupy: the rank's own port, or its machine's card."""
        node = self.node(rank)
        return ("rank", rank) if node == self.node(peer) else ("card", node)

    def with_jitter(self, seconds: float) -> float:
        return seconds * (1 + self.jitter * self._draw.random()) if self.jitter else seconds


class VirtualWorld(World):
    """The state of a cluster's run; the rank that can continue earliest runs next."""

    def __init__(self, cluster: VirtualCluster):
        self.cluster, self.clocks = cluster, cluster.clocks
        super().__init__(cluster.size, turns=lambda _, ready: min(ready, key=lambda r: (self.ready_at(r), r)))

    def ready_at(self, rank: int) -> float:
        """When ``rank``, which can continue, does so."""
        return max(self.clocks[rank], self.waits[rank].at())


class VirtualComm(ThreadComm):
    """A rank's end of a communicator on the virtual clock."""

    world: VirtualWorld

    def share(self, nbytes: int) -> None:
        """Returns None: a cluster of several machines is imagined."""

    @cached_property
    def nodes(self) -> list[int]:
        return [self.world.cluster.node(self.world.owners[member]) for member in self.members]

    def time(self) -> float:
        """This rank's clock, in seconds since the start; in a background's job the background's."""
        return self.world.clocks[self.world_rank]

    def compute(self, seconds: float) -> None:
        """Advance this rank's clock by ``seconds`` of computing, times its slowness."""
        if seconds < 0:
            raise ValueError(f"computing takes at least 0 seconds, got {seconds}")
        cluster, rank = self.world.cluster, self.world_rank
        slowness = cluster.slowness.get(self.world.owners[rank], 1.0)
        cluster.clocks[rank] += cluster.with_jitter(seconds * slowness)
        self.wait_for(self.turn())

    def reduction_seconds(self, nbytes: int) -> float:
        return nbytes * self.world.cluster.reduction

    def arrival_time(self, nbytes: int, to: int, tag: int) -> float:
        # A background uses the ports of its rank.
        source, destination = self.world.owners[self.world_rank], self.world.owners[to]
        return self.world.cluster.transfer(source, destination, nbytes, tag, self.time())

    def advance_clock(self, to: float) -> None:
        clocks = self.world.clocks
        clocks[self.world_rank] = max(clocks[self.world_rank], to)

    def add_clock(self) -> None:
        self.world.clocks.append(self.time())
