"""A step of stage 3 of ZeRO on a virtual clock: when a rank computes and sends, and what it holds.

Lecture section: data lifetimes. Lesson: 15_scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from backends.comm.collectives import barrier
from backends.comm.collectives.link import Link
from backends.comm.communicator import Communicator
from backends.comm.spans import Span
from backends.comm.trace import Traced
from backends.data_parallel import Sharded
from minigrad import nn, ops
from minigrad.data import Batch

from .timed_weights import TimedWeights
from .virtual_cluster import VirtualCluster, VirtualComm

KINDS = "forward", "backward", "start_allgather", "start_reduce_scatter"


class ShardedStep(NamedTuple):
    """What rank 0 did in a step from 0 seconds on, and the most numbers of weights that it held.

    Weights on their way count as held.
    """

    spans: list[Span]
    most_held: int

    @property
    def seconds(self) -> float:
        """When the last layer was computed and the last gradient was reduced."""
        return max(span.stop for span in self.spans)


class WatchedSharded(Sharded):
    """Notes the most numbers of weights that were whole or on their way when an all-gather started."""

    most_held = 0

    def start(self, job: Callable[[Communicator], Any], what: str, nbytes: int) -> Callable[[], Any]:
        if what.startswith("allgather"):
            numbers = sum(f.layout.size * (f.is_whole + bool(f.pending_all_gather)) for f in self.flats)
            self.most_held = max(self.most_held, numbers + nbytes // 4 * self.size)
        return super().start(job, what, nbytes)


def sharded_step(
    layers: Sequence[tuple[int, float]], prefetch: int, link: Link, ranks: int = 4
) -> ShardedStep:
    """The second step of layers of (float32 weights, seconds of forward); the first one learns their order.

    The sum of the losses at its end is left out.
    """
    ones = np.ones((ranks, 1), np.float32)

    def work(comm: VirtualComm) -> ShardedStep:
        traced = Traced(comm)
        backend = WatchedSharded(traced, stage=3, overlap=True, prefetch=prefetch)
        timed = [TimedWeights(numbers, traced, seconds) for numbers, seconds in layers]
        model = backend.place(nn.Sequential(*timed))
        backend.step(model, Batch(ones, ones), ops.mse)
        barrier(comm)  # the sum of the first step's losses ends later on some ranks
        start, backend.most_held = comm.time(), 0
        backend.step(model, Batch(ones, ones), ops.mse)
        spans = [
            span._replace(start=span.start - start, stop=span.stop - start)
            for span in traced.record.closed()
            if span.start >= start and span.what.startswith(KINDS)
        ]
        return ShardedStep(spans, backend.most_held)

    return VirtualCluster(ranks, link).run(work)[0]
