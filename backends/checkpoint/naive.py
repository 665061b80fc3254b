"""A checkpoint as on the slide: each rank writes its part, and one name makes the parts valid together.

Lecture section: parallelism at scale, what fails. Lesson: 16_failures. ``checkpoints.py`` writes while the
training goes on, and checks every byte that it reads.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from ..comm.collectives import barrier
from ..comm.communicator import Communicator
from .disk import REAL, Disk


def save(folder: Path, comm: Communicator, step: int, arrays: dict[str, Any], disk: Disk = REAL) -> None:
    """Write this rank's arrays of a step, which is later than those in the folder; all ranks call.

    A crash or a loss of power leaves all parts of the step or none: a folder gets its name when they are
    written. Raises OSError where the disk is full.
    """
    part = folder / f".step-{step}"
    if comm.rank == 0:
        disk.make_folder(part)
    barrier(comm)
    content = io.BytesIO()
    np.savez(content, **arrays)
    disk.write(part / f"rank-{comm.rank}.npz", content.getvalue())
    barrier(comm)
    if comm.rank == 0:
        disk.sync_folder(part)
        disk.rename(part, folder / f"step-{step}")
        for above in (folder, *folder.parents):
            disk.sync_folder(above)
    barrier(comm)


def newest_step(folder: Path, disk: Disk = REAL) -> int | None:
    """The last step that was saved; None where there is none."""
    return max((int(name[5:]) for name in disk.names(folder) if name.startswith("step-")), default=None)


def load(folder: Path, comm: Communicator, step: int, disk: Disk = REAL) -> dict[str, np.ndarray]:
    """The arrays that this rank saved at a step."""
    content = disk.read(folder / f"step-{step}" / f"rank-{comm.rank}.npz")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return dict(arrays)
