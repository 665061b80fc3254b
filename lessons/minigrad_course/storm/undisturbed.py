"""The training without any fault: what each rank and each checkpoint holds after each step.

Lecture section: parallelism at scale, what fails.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

import numpy as np

from backends.checkpoint.checkpoints import Damaged, generations
from minigrad.train import History

from ..crashes.recorded_disk import RecordedDisk
from .host_disk import HostDisk, SharedStorage
from .job import FOLDER, Job, RankState
from .unreliable_cluster import UnreliableCluster, UnreliableComm

Contents = tuple[dict[str, bytes], dict[str, Any]]  # the bytes of arrays, and facts other than the history


@dataclass
class Undisturbed(SharedStorage):
    """``states[rank][step]`` and ``losses[rank]`` of the run; ``contents[step]`` of its checkpoints."""

    states: list[list[RankState]]
    losses: list[list[float]] = field(default_factory=list)
    contents: dict[int, Contents] = field(default_factory=dict)
    disk: RecordedDisk = field(default_factory=RecordedDisk)

    def final(self, rank: int) -> RankState:
        """The state at the end of the run, which may be another than after the last step."""
        return self.states[rank][-1]

    # What the run calls

    def on_start(self, comm: UnreliableComm, history: History, state: RankState) -> None:
        self.states[comm.rank].append(state)

    on_step = on_start

    def on_end(self, comm: UnreliableComm, history: History, state: RankState) -> None:
        self.losses[comm.rank] = list(history.losses)
        self.states[comm.rank].append(state)  # local SGD averages once more

    def on_message(self, comm: UnreliableComm, text: str) -> None:
        raise AssertionError(f"nothing is to be said of the undisturbed run: {text}")


@cache
def undisturbed(job: Job) -> Undisturbed:
    """The run of a job that writes a checkpoint after every step and keeps them all; it is made once."""
    ranks = job.ranks
    run = Undisturbed([[] for _ in range(ranks)], [[] for _ in range(ranks)])
    UnreliableCluster(ranks).attempt(
        0.0, {}, lambda comm: job.run(comm, HostDisk(run, comm, Random(comm.rank)), run, resume=False)
    )
    for generation in generations(FOLDER, run.disk):
        if isinstance(generation, Damaged):
            raise generation
        run.contents[generation.step] = contents_of(generation.arrays(), generation.facts)
    return run


def contents_of(arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> Contents:
    """What two checkpoints of the same step have in common."""
    rest = {name: value for name, value in facts.items() if name != "history"}
    return {name: array.dtype.str.encode() + array.tobytes() for name, array in arrays.items()}, rest
