"""One slow rank makes all ranks wait, unless each gets a share of the batch in proportion to its speed.

Lecture section: synchronous data parallelism (stragglers). Lesson: 06_data_parallel. A step takes as long as
its slowest rank. Proportional shares help where some machines are always slower; ``backup_workers`` where
the slow machine changes from step to step.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from minigrad.data import Batch
from minigrad.lookup import at_least_one
from minigrad.module import Module
from minigrad.traits import Traits
from minigrad.work import ForwardBackward, Work, forward_backward_pass

from ..comm.collectives import Allreduce, allgather, allreduce
from ..comm.communicator import Communicator
from ..comm.gpu import synchronize
from .data_parallel import DataParallel


def proportional_shares(n: int, speeds: Sequence[float]) -> list[slice]:
    """``n`` samples in consecutive slices, one for each speed and in proportion to it.

    Each size is the quota n speed / sum of speeds, rounded down or up: all are rounded down, then the slices
    with the largest remainders get one sample more, the first of equals first. Raises ValueError unless
    speeds are finite, not negative and not all 0.
    """
    quotas = np.array(speeds, dtype=np.float64)
    if not (np.isfinite(quotas).all() and quotas.min(initial=0) >= 0 and quotas.max(initial=0) > 0):
        raise ValueError(f"speeds must be finite, at least 0 and not all 0, got {list(speeds)}")
    quotas /= quotas.max()
    quotas *= n / quotas.sum()
    sizes = np.floor(quotas).astype(int)
    rest = n - int(sizes.sum())
    sizes[np.argsort(sizes - quotas, kind="stable")[:rest]] += 1
    return [slice(a, b) for a, b in pairwise(accumulate(sizes.tolist(), initial=0))]


class ProportionalDataParallel(DataParallel):
    """Data parallelism whose shares are proportional to the speeds of the ranks; trains like ``Serial``.

    The speed of a rank is the samples per second of its forward and backward. The ranks exchange speeds in a
    small all-gather every ``every`` steps; before the first one the shares are even. A rank that had no
    samples reports twice its last speed, or counts with the mean of the others if it has none, so that it
    gets samples again. With ``batch_norm`` "synchronized" ranks wait for one another in forward, so all seem
    equally fast. A checkpoint holds the speeds, and the same ranks go on with them; others begin evenly.
    """

    traits = Traits(depends_on_timing=True)
    own_state = ("speeds", "steps", "samples", "seconds")

    def __init__(
        self,
        comm: Communicator,
        allreduce: Allreduce = allreduce,
        *,
        every: int = 10,
        micro_batches: int = 1,
        batch_norm: str = "ranks",
    ):
        super().__init__(comm, allreduce, micro_batches=micro_batches, batch_norm=batch_norm)
        self.every, self.clock = at_least_one("every", every), comm.time
        self.speeds = [0.0] * comm.size  # 0: unknown
        self.steps, self.samples, self.seconds = 0, 0, 0.0

    def shard(self, batch: Batch) -> Batch:
        """This rank's share, in proportion to its speed."""
        known = [speed for speed in self.speeds if speed] or [1.0]
        mean = sum(known) / len(known)
        return batch[proportional_shares(len(batch), [speed or mean for speed in self.speeds])[self.rank]]

    def forward_backward(self, work: Work, inner: ForwardBackward = forward_backward_pass) -> float:
        synchronize()  # what a GPU still has to do is not of this pass; to read the loss waits for its end
        start = self.clock()
        loss = super().forward_backward(work, inner)
        self.seconds += self.clock() - start
        self.samples += len(work.batch)
        return loss

    def finish(self, model: Module, loss: float) -> float:
        """Sum the gradients; in every ``every``-th step exchange the speeds."""
        loss = super().finish(model, loss)
        self.steps += 1
        if self.steps % self.every == 0:
            is_known = self.samples and self.seconds > 0
            speed = self.samples / self.seconds if is_known else 2 * self.speeds[self.rank]
            self.speeds = [float(s[0]) for s in allgather(self.comm, np.array([speed]))]
            self.samples, self.seconds = 0, 0.0
        return loss
