"""Four programs that save a generation of two ranks on a disk, and what a reader finds after a crash.

The first three are common in training scripts. The disk is recorded, so that every crash can be tried.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from minigrad_course.crashes.crash_states import crash_states, in_words
from minigrad_course.crashes.recorded_disk import RecordedDisk
from safetensors import SafetensorError
from safetensors.numpy import load, save

from backends.checkpoint import Checkpoints
from backends.comm import run_ranks
from backends.comm.collectives import barrier

RANKS = 2
OUTCOMES = "old", "new", "mix", "nothing"
FOLDER = Path("/run")


def content(step):
    """A rank's file: two weights that are the number of the generation."""
    return save({"w": np.full(2, step, np.float32)})


def over_the_old_files(disk, step):
    """Each rank opens its file, writes, and closes it. The names stay the same."""
    for rank in range(RANKS):
        disk.fill(FOLDER / f"rank-{rank}", content(step))
        disk.fsync(FOLDER / f"rank-{rank}")


def rename_without_sync(disk, step):
    """Write next to the old files, and rename. The name may be on the disk before the bytes."""
    for rank in range(RANKS):
        disk.fill(FOLDER / f"rank-{rank}.tmp", content(step))
        disk.rename(FOLDER / f"rank-{rank}.tmp", FOLDER / f"rank-{rank}")


def remove_then_rename(disk, step):
    """Write all files into a new folder, each synced; remove the old folder; give its name to the new one."""
    new, final = FOLDER / "new", FOLDER / "latest"
    disk.make_folder(new)
    for rank in range(RANKS):
        disk.write(new / f"rank-{rank}", content(step))
    disk.sync_folder(new)
    for name in disk.names(final):
        disk.remove(final / name)
    if step > 1:
        disk.remove_folder(final)
    disk.rename(new, final)
    disk.sync_folder(FOLDER)


def as_the_library(disk, step):
    """``Checkpoints`` on two ranks: a new folder with a manifest, one rename; then the old folder goes.

    Rank 1 writes its file before rank 0 begins, so that the operations come in the same order each time.
    """

    def work(comm):
        generations = Checkpoints(FOLDER, comm, keep=1, disk=disk)
        arrays = {f"w{rank}": np.full(2, step, np.float32) for rank in range(RANKS)}
        for rank in reversed(range(RANKS)):
            if comm.rank == rank:
                generations.write(step, arrays, {})
                generations.wait()
            barrier(comm)

    run_ranks(RANKS, work)


PROGRAMS = {
    "over the old files": over_the_old_files,
    "rename without sync": rename_without_sync,
    "remove, then rename": remove_then_rename,
    "Checkpoints": as_the_library,
}


def values_on(disk):
    """All weights that a reader gets; raises what the reader raises."""
    if any(name.startswith("step-") for name in disk.names(FOLDER)):
        generation, arrays, _ = run_ranks(1, lambda comm: Checkpoints(FOLDER, comm, disk=disk).newest())[0]
        if generation is None:
            raise FileNotFoundError
        return np.concatenate(list(arrays.values()))
    folder = FOLDER / "latest" if "latest" in disk.names(FOLDER) else FOLDER
    return np.concatenate([load(disk.read(folder / f"rank-{rank}"))["w"] for rank in range(RANKS)])


def outcome(disk):
    """Which generation comes back: the old one, 1, or the new one, 2; a mix of both; or nothing."""
    try:
        values = values_on(disk)
    except (OSError, SafetensorError):
        return "nothing"
    return {(1.0,): "old", (2.0,): "new"}.get(tuple(np.unique(values).tolist()), "mix")


class Crashes(NamedTuple):
    """What comes back after a crash within the second save.

    ``counts`` has one Counter of outcomes for each number of operations that were done, ``words`` says what
    they are, and ``example`` is a state for each outcome: operations done, and the disk.
    """

    counts: list[Counter]
    words: list[str]
    example: dict[str, tuple[int, RecordedDisk]]

    @property
    def total(self):
        return sum(self.counts, Counter())


def crashes_of(program):
    """Every crash within the second save; a state of the files counts once after each operation."""
    disk = RecordedDisk()
    disk.make_folder(FOLDER)
    disk.sync_folder(Path("/"))
    program(disk, 1)
    disk.sync_folder(FOLDER)
    for rank in range(RANKS):  # the first generation is safe in all programs
        if (FOLDER / f"rank-{rank}").name in disk.names(FOLDER):
            disk.fsync(FOLDER / f"rank-{rank}")
    begun = len(disk.operations)
    program(disk, 2)
    counts = [Counter() for _ in range(begun, len(disk.operations) + 1)]
    example, states = {}, set()
    for state in crash_states(disk, begun):
        files = state.length, frozenset(state.disk.files().items())
        if files not in states:
            states.add(files)
            result = outcome(state.disk)
            counts[state.length - begun][result] += 1
            example.setdefault(result, (state.length - begun, state.disk))
    return Crashes(counts, in_words(disk)[begun:], example)
