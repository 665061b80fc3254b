"""Two micro-batches on a rank, one after the other or side by side: computing beside an all-to-all.

Lecture section: pipelining. Lesson: 18_experts. DeepSeek-AI 2024 (DualPipe): the messages of one
micro-batch go while the rank computes for another.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from backends.comm.collectives import alltoall

from .virtual_cluster import VirtualComm


class Compute(NamedTuple):
    """A rank computes for some seconds."""

    seconds: float


class AllToAll(NamedTuple):
    """A rank sends so many bytes to each of the others."""

    nbytes: int


Step = Compute | AllToAll


class Busy(NamedTuple):
    """What a rank does for micro-batch ``micro`` from ``start`` to ``stop``, in seconds of its clock."""

    micro: int
    step: Step
    start: float
    stop: float


def carry_out(comm: VirtualComm, micro: int, step: Step) -> Busy:
    start = comm.time()
    if isinstance(step, Compute):
        comm.compute(step.seconds)
    else:
        alltoall(comm, [np.zeros(step.nbytes, np.int8)] * comm.size)
    return Busy(micro, step, start, comm.time())


def in_sequence(comm: VirtualComm, micros: Sequence[Sequence[Step]]) -> list[Busy]:
    """All steps of a micro-batch, then those of the next: while messages go, the rank waits."""
    return [carry_out(comm, micro, step) for micro, steps in enumerate(micros) for step in steps]


def in_turns(comm: VirtualComm, micros: Sequence[Sequence[Step | None]]) -> list[Busy]:
    """A step of each micro-batch in turn, where messages go in the background of what is computed.

    In a turn all-to-alls start first; then the rank computes, for a micro-batch whose last one has arrived.
    A step None is a turn in which a micro-batch does nothing.
    """
    background, done, arrived = comm.background(), [], {}

    def wait_for(micro: int) -> None:
        if micro in arrived:
            done.append(arrived.pop(micro)())

    for turn in zip_longest(*micros):
        for micro, step in enumerate(turn):
            if isinstance(step, AllToAll):
                wait_for(micro)
                arrived[micro] = background.start(
                    lambda comm, micro=micro, step=step: carry_out(comm, micro, step), "all-to-all"
                )
        for micro, step in enumerate(turn):
            if isinstance(step, Compute):
                wait_for(micro)
                done.append(carry_out(comm, micro, step))
    for micro in [*arrived]:
        wait_for(micro)
    background.close()
    return sorted(done, key=lambda busy: busy.start)
