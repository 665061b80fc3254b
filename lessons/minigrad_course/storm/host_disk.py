"""How one host's processes reach the file system that all hosts share, and what a loss of power leaves of it.

Lecture section: parallelism at scale, what fails.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

from backends.checkpoint.disk import Disk
from backends.comm.mailboxes import Wait

from ..crashes.recorded_disk import Operation, RecordedDisk, after_power_loss, replayed
from .unreliable_cluster import THREAD, UnreliableComm

OPERATION, WRITING = 0.02, 0.15  # seconds of an operation on names, and of writing half of a file


class SharedStorage:
    """The file system in memory; here nothing happens to it, and nobody takes note of what is written."""

    disk: RecordedDisk

    def advance(self, now: float) -> None:
        """Let happen what is due."""

    def is_full(self, now: float) -> bool:
        return False

    def note_checkpoint(self, now: float, rank: int, name: str) -> None:
        """A checkpoint has got its name."""

    def note_sync(self, folder: Path) -> None:
        """The names in a folder are safe."""


class HostDisk(Disk):
    """The shared file system, as the process of one rank uses it; every operation takes time on its clock.

    A process may be killed between any two operations, and within the writing of a file.
    """

    def __init__(self, storage: SharedStorage, comm: UnreliableComm, random: Random):
        self.storage, self.comm, self.random = storage, comm, random

    def operate(self, seconds: float, *, writes: bool = False) -> RecordedDisk:
        """Let the next operation of this thread happen, ``seconds`` later; raises OSError on a full disk."""
        world, number = self.comm.world, self.number
        with world.lock:
            world.check(number)
            world.clocks[number] += world.cluster.with_jitter(seconds)
            world.wait_for(number, Wait("for the disk", lambda: True))
            now = world.clocks[number]
        self.storage.advance(now)
        if writes and self.storage.is_full(now):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.storage.disk

    @property
    def number(self) -> int:
        own = THREAD.get()
        return self.comm.world_rank if own is None else own

    def make_folder(self, folder: Path) -> None:
        self.operate(OPERATION, writes=not self.storage.disk.is_there(folder)).make_folder(folder)

    def write(self, file: Path, content: bytes) -> None:
        self.operate(WRITING, writes=True).fill(file, content[: len(content) // 2])
        self.operate(WRITING, writes=True).fill(file, content)
        self.operate(OPERATION).fsync(file)

    def reserve(self, file: Path) -> Callable[[], object]:
        """Nothing: a process that is killed here keeps no file open."""
        return lambda: None

    def rename(self, old: Path, new: Path) -> None:
        self.operate(OPERATION).rename(old, new)
        if new.name.startswith("step-"):
            self.storage.note_checkpoint(self.now(), self.comm.rank, new.name)

    def sync_folder(self, folder: Path) -> None:
        self.operate(OPERATION).sync_folder(folder)
        self.storage.note_sync(folder)

    def remove(self, file: Path) -> None:
        self.operate(OPERATION).remove(file)

    def remove_folder(self, folder: Path) -> None:
        self.operate(OPERATION).remove_folder(folder)

    def names(self, folder: Path) -> list[str]:
        return self.operate(OPERATION).names(folder)

    def read(self, file: Path) -> bytes:
        return self.operate(OPERATION).read(file)

    def now(self) -> float:
        return self.comm.world.clocks[self.number]

    def sleep(self, seconds: float) -> None:
        self.operate(seconds)

    def start(self, job: Callable[[], None], meanwhile: Callable[[], object]) -> Callable[[], None]:
        """Run ``job`` on a thread of the simulated clock, on which ``meanwhile`` need not be called."""
        return self.comm.start_thread(job)

    def random_bits(self, count: int) -> int:
        return self.random.getrandbits(count)


def power_loss(disk: RecordedDisk, random: Random) -> RecordedDisk:
    """One of the states that a loss of power may leave of ``disk`` now, drawn by ``random``."""
    share = random.choice((0.0, 0.5, 1.0))  # of the operations that are not safe, which are kept
    remaining: list[Operation] = []
    for place in range(len(disk.operations)):
        whole, *others = after_power_loss(disk.operations, place)
        remaining += random.choice(others) if others and random.random() >= share else whole
    return RecordedDisk(replayed(disk.safe, remaining))
