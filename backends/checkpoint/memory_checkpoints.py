"""Checkpoints in the memory of other hosts, so that the loss of a host loses nothing: copies, or XOR parity.

Lecture section: parallelism at scale, what fails. Lesson: 16_failures. Source: Moody et al. 2010 (SCR).

Each rank saves a piece of n bytes, on one of h hosts. The parity is that of RAID 5.

    PartnerCopies    sends n, keeps 2 n              restores all hosts but two neighbors
    XorParity        sends n, keeps n + n / (h - 1)  restores one host

A generation is whole, or it is not used: a loss while ranks save leaves the generation before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from safetensors.numpy import load, save

from minigrad.settings_repr import settings_repr

from ..comm import Communicator
from ..comm.collectives import allgather, barrier, reduce_scatter

HEADER = 8  # bytes: the length of a piece, before it


class Lost(RuntimeError):
    """The pieces of some ranks cannot be restored; the message names these ranks."""


class Saved(NamedTuple):
    """What rank ``rank`` of ``ranks`` holds of one generation; both arrays are bytes."""

    step: int
    ranks: int
    rank: int
    piece: np.ndarray
    redundancy: np.ndarray


class MemoryCheckpoints(ABC):
    """One rank's part of the newest two generations; it outlives the communicator that it was saved with.

    Ranks k ``ranks_per_host`` to (k + 1) ``ranks_per_host`` - 1 are on host k.
    """

    __repr__ = settings_repr

    def __init__(self, ranks_per_host: int = 1):
        if ranks_per_host < 1:
            raise ValueError(f"a host has at least 1 rank, got {ranks_per_host}")
        self.ranks_per_host = ranks_per_host
        self.generations: list[Saved] = []  # the newest last

    def save(self, comm: Communicator, step: int, piece: bytes) -> None:
        """Save this rank's piece, of any length; all ranks call together.

        A step may be saved again, as after ``restore`` for new ranks, with the same pieces. Raises ValueError
        for another piece of it, and unless there are two hosts or more, all with as many ranks.
        """
        if comm.size % self.ranks_per_host or comm.size == self.ranks_per_host:
            raise ValueError(
                f"{comm.size} ranks are not two hosts or more of {self.ranks_per_host} ranks each; choose "
                "other ranks_per_host"
            )
        mine = np.frombuffer(piece, np.uint8)
        for before in self.generations:  # after a loss its pieces could not be told from the new ones
            if before[:3] == (step, comm.size, comm.rank) and not np.array_equal(before.piece, mine):
                raise ValueError(
                    f"rank {comm.rank} has saved another piece of step {step}; save a later step"
                )
        saved = Saved(step, comm.size, comm.rank, mine, self.redundancy(comm, mine))
        self.generations = [*self.generations[-1:], saved]
        barrier(comm)  # all ranks hold this generation, so the next one may take the place of the one before

    def restore(self, comm: Communicator) -> tuple[int, list[bytes]]:
        """The newest step that is whole, and the pieces of all ranks that saved it, on every rank.

        ``comm`` has the ranks that are left, and perhaps new ones, which hold nothing; all call together.
        Raises Lost where no step is whole.
        """
        rows = np.array([saved[:3] for saved in self.generations], np.int64).reshape(-1, 3)
        parts = {tuple(map(int, row)) for rows in allgather(comm, rows) for row in rows}
        problem = "no rank holds a checkpoint"
        for step, ranks in sorted({(step, ranks) for step, ranks, _ in parts}, reverse=True):
            left = {rank for of_step, of_ranks, rank in parts if (of_step, of_ranks) == (step, ranks)}
            if not (lost := self.irrecoverable(left, ranks)):
                self.generations = [saved for saved in self.generations if saved[:2] == (step, ranks)]
                pieces = self.pieces(comm, left, ranks)
                return step, [pieces[rank].tobytes() for rank in range(ranks)]
            problem = f"of step {step} the pieces of the ranks {lost} are lost, and what would restore them"
        raise Lost(f"{problem}; go on from a checkpoint on a disk")

    def gather_by_rank(self, comm: Communicator, mine: dict[str, np.ndarray]) -> dict[int, np.ndarray]:
        """The arrays that the ranks give, by number, on every rank."""
        arrays = {}
        for content in allgather(comm, np.frombuffer(save(mine), np.uint8)):
            arrays |= {int(rank): array for rank, array in load(content.tobytes()).items()}
        return arrays

    @abstractmethod
    def redundancy(self, comm: Communicator, piece: np.ndarray) -> np.ndarray:
        """What this rank holds of other ranks' pieces."""

    @abstractmethod
    def irrecoverable(self, left: set[int], ranks: int) -> list[int]:
        """The ranks, of ``ranks``, whose pieces the ranks that are ``left`` cannot restore."""

    @abstractmethod
    def pieces(self, comm: Communicator, left: set[int], ranks: int) -> dict[int, np.ndarray]:
        """All pieces by rank, from the one generation that is held."""


class PartnerCopies(MemoryCheckpoints):
    """Each rank holds a copy of the piece of one rank on the host before its own."""

    def redundancy(self, comm: Communicator, piece: np.ndarray) -> np.ndarray:
        """One message of n bytes from each rank."""
        finish = comm.start_send(piece, (comm.rank + self.ranks_per_host) % comm.size)
        copy = comm.recv((comm.rank - self.ranks_per_host) % comm.size)
        finish()
        return copy

    def irrecoverable(self, left: set[int], ranks: int) -> list[int]:
        """The lost ranks whose partner is lost, too."""
        partners = {rank: (rank + self.ranks_per_host) % ranks for rank in range(ranks)}
        return [rank for rank in partners if rank not in left and partners[rank] not in left]

    def pieces(self, comm: Communicator, left: set[int], ranks: int) -> dict[int, np.ndarray]:
        mine = {}
        for saved in self.generations:
            mine[str(saved.rank)] = saved.piece
            owner = (saved.rank - self.ranks_per_host) % ranks
            if owner not in left:
                mine[str(owner)] = saved.redundancy
        return self.gather_by_rank(comm, mine)


class XorParity(MemoryCheckpoints):
    """One rank of each host is in a group, and its piece is cut into h - 1 parts, one for each other host.

    A rank holds the exclusive or of the parts that the others cut for its host. Written as h rows, with this
    parity as the own row, the blocks of a group have an exclusive or of zero. So the exclusive or of all
    blocks but one is that one.
    """

    def redundancy(self, comm: Communicator, piece: np.ndarray) -> np.ndarray:
        """h - 1 messages of n / (h - 1) bytes from each rank, n of the longest piece, and h - 1 of 8."""
        group = comm.split(comm.rank % self.ranks_per_host)
        longest = max(int(size) for size in allgather(group, np.array(piece.size)))
        width = -(-(HEADER + longest) // (group.size - 1))
        return reduce_scatter(group, list(block(piece, group.rank, group.size, width)), np.bitwise_xor)

    def irrecoverable(self, left: set[int], ranks: int) -> list[int]:
        """The lost ranks of a group that has lost two or more."""
        groups = [self.group(rank, ranks) for rank in range(self.ranks_per_host)]
        lost = [[rank for rank in group if rank not in left] for group in groups]
        return sorted(rank for ranks in lost if len(ranks) > 1 for rank in ranks)

    def pieces(self, comm: Communicator, left: set[int], ranks: int) -> dict[int, np.ndarray]:
        mine, hosts = {}, ranks // self.ranks_per_host
        for saved in self.generations:
            host = saved.rank // self.ranks_per_host
            rows = block(saved.piece, host, hosts, saved.redundancy.size)
            rows[host] = saved.redundancy
            mine[str(saved.rank)] = rows
        blocks = self.gather_by_rank(comm, mine)
        for rank in set(range(ranks)) - left:
            blocks[rank] = np.bitwise_xor.reduce([blocks[i] for i in self.group(rank, ranks) if i != rank])
        return {rank: piece_in(rows, rank // self.ranks_per_host) for rank, rows in blocks.items()}

    def group(self, rank: int, ranks: int) -> range:
        """The ranks in the group of ``rank``, one of each host."""
        return range(rank % self.ranks_per_host, ranks, self.ranks_per_host)


def block(piece: np.ndarray, host: int, hosts: int, width: int) -> np.ndarray:
    """The piece, with its length before it, as one row for each other host; the own row is zero."""
    parts = np.zeros((hosts - 1) * width, np.uint8)
    parts[:HEADER] = np.frombuffer(np.array(piece.size, "<i8").tobytes(), np.uint8)
    parts[HEADER : HEADER + piece.size] = piece
    return np.insert(parts.reshape(hosts - 1, width), host, 0, axis=0)


def piece_in(rows: np.ndarray, host: int) -> np.ndarray:
    """The piece of which ``block`` made these rows."""
    parts = np.delete(rows, host, axis=0).ravel()
    length = int(parts[:HEADER].view("<i8")[0])
    return parts[HEADER : HEADER + length]
