"""Laws of lessons/minigrad_course/machines/prefetch.py: the seconds are those of stage 3 of ZeRO."""

from collections.abc import Sequence

import numpy as np
from minigrad_course.machines.prefetch import (
    least_seconds,
    most_held,
    one_ahead_seconds,
    passes_of,
    sequential_seconds,
    step_seconds,
)
from minigrad_course.machines.virtual_cluster import VirtualCluster
from minigrad_course.shared.timed_weights import TimedWeights

from backends.comm.collectives import allreduce
from backends.comm.collectives.link import Link
from backends.comm.trace import Traced
from backends.data_parallel import Sharded
from minigrad import nn, ops
from minigrad.data import Batch

Layers = Sequence[tuple[int, int]]
"""Each layer's seconds to gather, and seconds of forward."""


def closed_forms_are_steps(layers: Layers) -> None:
    """Without prefetch and one pass ahead; with any prefetch a step lies between the two bounds."""
    passes = passes_of(layers)
    for prefetch, formula in ((0, sequential_seconds(passes)), (1, one_ahead_seconds(passes))):
        seconds = step_seconds(passes, prefetch)
        assert seconds == formula, f"prefetch {prefetch}: {seconds} s, by the formula {formula} s"
    for prefetch in range(len(passes) + 1):
        seconds, least, most = step_seconds(passes, prefetch), least_seconds(passes), step_seconds(passes, 0)
        assert least <= seconds <= most, f"prefetch {prefetch}: {seconds} s, bounds {least} and {most} s"


class Watched(Sharded):
    """Notes the most numbers of weights that were whole or on their way at once."""

    most_numbers = 0

    def start(self, job, what, nbytes):
        if what.startswith("allgather"):
            held = (f.layout.size * (f.is_whole + bool(f.pending_all_gather)) for f in self.flats)
            self.most_numbers = max(self.most_numbers, sum(held) + nbytes // 4 * self.size)
        return super().start(job, what, nbytes)


def stage_3_takes_as_long(layers: Layers, prefetch: int, ranks: int) -> None:
    """The second step of real ranks, less the last sum of losses; a number of each rank takes a second."""
    cluster = VirtualCluster(ranks, Link(0.0, 4.0 * (ranks - 1)))
    batch = Batch(np.ones((ranks, 1), np.float32), np.ones((ranks, 1), np.float32))

    def train(comm):
        backend = Watched(Traced(comm), stage=3, overlap=True, prefetch=prefetch)
        timed = [TimedWeights(ranks * gather, backend.comm, seconds) for gather, seconds in layers]
        model = backend.place(nn.Sequential(*timed))
        backend.step(model, batch, ops.mse)
        start, backend.most_numbers = comm.time(), 0
        backend.step(model, batch, ops.mse)
        return comm.time() - start, backend.most_numbers, len(backend.summary)

    expected = step_seconds(passes_of(layers), prefetch)
    sizes = [ranks * gather for gather, _ in layers]
    for seconds, held, summary in cluster.run(train):
        seconds -= summary_seconds(summary, ranks)
        assert abs(seconds - expected) < 1e-6, f"a step takes {seconds:.3f} s, by the formula {expected} s"
        most = most_held(passes_of(layers), sizes, prefetch)
        assert held == most, f"a rank holds {held} numbers, by the formula {most}"


def summary_seconds(numbers: int, ranks: int) -> float:
    """What the sum of losses and flags takes, which is the last of a step."""
    cluster = VirtualCluster(ranks, Link(0.0, 4.0 * (ranks - 1)))
    cluster.run(lambda comm: allreduce(comm, np.zeros(numbers, np.float32)))
    return cluster.seconds
