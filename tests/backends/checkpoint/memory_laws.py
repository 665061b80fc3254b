"""Laws of backends/checkpoint/memory_checkpoints.py: what checkpoints in memory promise when ranks are
lost; each law takes the kind of checkpoints to test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from backends.checkpoint.memory_checkpoints import Lost, MemoryCheckpoints, PartnerCopies, XorParity
from backends.comm import Communicator, ThreadComm, Wrapper, run_ranks
from backends.comm.trace import Traced

Kind = type[MemoryCheckpoints]
KINDS = (PartnerCopies, XorParity)


class Killed(RuntimeError):
    """A rank ended, as by a signal."""


class Mortal(Wrapper):
    """``comm`` of a rank that ends before it sends message number ``messages``, counted in all its groups."""

    def __init__(self, comm: Communicator, messages: list[int]):
        super().__init__(comm)
        self.messages = messages

    def send(self, x: np.ndarray, to: int, tag: int = 0) -> None:
        self.count()
        super().send(x, to, tag)

    def start_send(self, x: np.ndarray, to: int, tag: int = 0) -> Callable[[], None]:
        self.count()
        return super().start_send(x, to, tag)

    def split(self, color: int, key: int | None = None) -> Communicator:
        return Mortal(super().split(color, key), self.messages)

    def count(self) -> None:
        if self.messages[0] == 0:
            raise Killed
        self.messages[0] -= 1


def saved(kind: Kind, pieces: list[bytes], ranks_per_host: int = 1, step: int = 1) -> list[MemoryCheckpoints]:
    """Every rank's part of a generation."""
    stores = [kind(ranks_per_host) for _ in pieces]
    save_again(stores, pieces, step)
    return stores


def save_again(stores: list[MemoryCheckpoints], pieces: list[bytes], step: int) -> None:
    run_ranks(len(stores), lambda comm: stores[comm.rank].save(comm, step, pieces[comm.rank]))


def restored(stores: list[MemoryCheckpoints]) -> tuple[int, list[bytes]]:
    """What these ranks restore: the same on each of them. Raises Lost where they all do."""

    def work(comm: ThreadComm) -> Any:
        try:
            return stores[comm.rank].restore(comm)
        except Lost as error:
            return error

    results = run_ranks(len(stores), work)
    errors = [result for result in results if isinstance(result, Lost)]
    if errors:
        texts = {str(result) for result in results}
        assert len(errors) == len(results) and len(texts) == 1, f"not all ranks say the same: {results}"
        raise errors[0]
    assert all(result == results[0] for result in results), f"ranks restore different pieces: {results}"
    return results[0]


def beyond_repair(kind: Kind, lost: Iterable[int], ranks: int, ranks_per_host: int) -> list[int]:
    """The oracle: which pieces are lost for ever."""
    lost, k = set(lost), ranks_per_host
    if kind is PartnerCopies:
        return sorted(rank for rank in lost if (rank + k) % ranks in lost)
    return sorted(rank for rank in lost if any(other % k == rank % k for other in lost - {rank}))


# Laws


def lost_pieces_come_back_or_are_named(
    kind: Kind, pieces: list[bytes], lost: set[int], ranks_per_host: int = 1, new_ranks: int = 0
) -> None:
    """All pieces come back exactly, on the ranks left and on ``new_ranks`` more, or a refusal names ranks."""
    stores = saved(kind, pieces, ranks_per_host)
    left = [store for rank, store in enumerate(stores) if rank not in lost]
    left += [kind(ranks_per_host) for _ in range(new_ranks)]
    for_ever = beyond_repair(kind, lost, len(pieces), ranks_per_host)
    said = f"{kind.__name__}, {len(pieces)} ranks, {ranks_per_host} on a host, lost {sorted(lost)}"
    if len(lost) == len(pieces):
        for_ever = []
    try:
        step, content = restored(left)
    except Lost as error:
        assert for_ever or len(lost) == len(pieces), f"{said}: nothing is lost for ever, and it says {error}"
        assert str(for_ever or "no rank holds") in str(error), f"{said}: lost are {for_ever}, it says {error}"
        return
    assert not for_ever, f"{said}: {for_ever} cannot come back, and it gives {content}"
    assert step == 1 and content == pieces, f"{said}: saved were {pieces}, restored {content} of step {step}"


def a_lost_host_is_no_loss(kind: Kind, ranks_per_host: int = 2) -> None:
    """Any host of two to five, one after the other, with a save between; on fewer ranks each time."""
    pieces = [bytes([rank + 1]) * (3 * rank) for rank in range(5 * ranks_per_host)]
    stores, step = saved(kind, pieces, ranks_per_host), 1
    for host in (4, 0, 1, 1):
        of_host = range(host * ranks_per_host, (host + 1) * ranks_per_host)
        stores = [store for rank, store in enumerate(stores) if rank not in of_host]
        newest, content = restored(stores)
        assert (newest, content) == (step, pieces), f"host {host} is lost: step {newest}, {content}"
        if len(stores) > ranks_per_host:
            pieces, step = [bytes([step]) * rank for rank in range(len(stores))], step + 1
            save_again(stores, pieces, step)


def a_loss_while_ranks_save_leaves_a_whole_generation(kind: Kind, ranks_per_host: int = 1) -> None:
    """Each rank ends before each of its messages; the others restore one generation or the other."""
    ranks = 3 * ranks_per_host
    old, new = ([bytes([step, rank]) * (rank + step) for rank in range(ranks)] for step in (1, 2))
    for victim in range(ranks):
        messages, step, ended = 0, 0, True
        while ended:
            stores, ended = saved(kind, old, ranks_per_host), False

            def work(comm: ThreadComm, stores=stores, victim=victim, messages=messages) -> None:
                count = [messages if comm.rank == victim else 1000]
                stores[comm.rank].save(Mortal(comm, count), 2, new[comm.rank])

            try:
                run_ranks(ranks, work, seed=messages)
            except Killed:
                ended = True
            step, content = restored([store for rank, store in enumerate(stores) if rank != victim])
            said = f"{kind.__name__}: rank {victim} ended before message {messages}"
            assert content == (new if step == 2 else old), f"{said}: step {step} is a mix, {content}"
            messages += 1
        assert step == 2 and messages > 1, f"{kind.__name__}: all ranks saved step 2, restored is {step}"


def a_refusal_comes_before_a_message(kind: Kind) -> None:
    """Hosts that are one, or not alike, are refused on all ranks."""
    for ranks, ranks_per_host in ((1, 1), (2, 2), (5, 2), (3, 2)):
        stores = [kind(ranks_per_host) for _ in range(ranks)]
        try:
            run_ranks(ranks, lambda comm, stores=stores: stores[comm.rank].save(comm, 1, b"x"))
        except ValueError as error:
            assert f"{ranks} ranks are not two hosts or more of {ranks_per_host}" in str(error), error
        else:
            raise AssertionError(f"{ranks} ranks, {ranks_per_host} on a host: they save")


def a_step_is_saved_again_with_the_same_pieces_only(kind: Kind) -> None:
    """After a restore, for ranks that are new; another piece could be mixed with the one before."""
    pieces = [b"0", b"11", b"222"]
    stores = saved(kind, pieces)
    stores = [*stores[:2], kind()]
    assert restored(stores) == (1, pieces)
    save_again(stores, pieces, step=1)
    assert restored(stores[1:]) == (1, pieces), f"{kind.__name__}: a new rank holds nothing"
    stores = saved(kind, pieces)
    try:
        save_again(stores, [b"0", b"x", b"222"], step=1)
    except ValueError as error:
        assert "rank 1 has saved another piece of step 1; save a later step" in str(error), error
    else:
        raise AssertionError(f"{kind.__name__}: step 1 is saved with two pieces of rank 1")


def bytes_sent_are_the_formulas(kind: Kind, sizes: list[int], ranks_per_host: int = 1) -> None:
    """Each rank sends its piece to the partner; or h - 1 parts of the longest piece, and h - 1 lengths."""
    ranks, hosts = len(sizes), len(sizes) // ranks_per_host

    def work(comm: ThreadComm) -> int:
        traced = Traced(comm)
        kind(ranks_per_host).save(traced, 1, bytes(sizes[comm.rank]))
        return traced.record.ledger.sent().bytes

    for rank, nbytes in enumerate(run_ranks(ranks, work)):
        longest = max(sizes[rank % ranks_per_host :: ranks_per_host])
        parts = (hosts - 1) * (8 + -(-(8 + longest) // (hosts - 1)))
        formula = sizes[rank] if kind is PartnerCopies else parts
        assert nbytes == formula, (
            f"{kind.__name__}: rank {rank} of {ranks} sent {nbytes} bytes, not {formula}"
        )


# Without arguments, for the seeded bugs


def any_lost_ranks_of_four_come_back_or_are_named() -> None:
    pieces = [b"", b"\x07", bytes(range(9)), b"\xff" * 4]
    for kind in KINDS:
        for ranks_per_host in (1, 2):
            for mask in range(16):
                lost = {rank for rank in range(4) if mask >> rank & 1}
                if len(lost) < 4:
                    lost_pieces_come_back_or_are_named(kind, pieces, lost, ranks_per_host)


def lost_hosts_are_no_loss() -> None:
    for kind in KINDS:
        for ranks_per_host in (1, 2):
            a_lost_host_is_no_loss(kind, ranks_per_host)


def losses_while_ranks_save_leave_whole_generations() -> None:
    for kind in KINDS:
        a_loss_while_ranks_save_leaves_a_whole_generation(kind)


def refusals_come_before_a_message() -> None:
    for kind in KINDS:
        a_refusal_comes_before_a_message(kind)


def steps_are_saved_again_with_the_same_pieces_only() -> None:
    for kind in KINDS:
        a_step_is_saved_again_with_the_same_pieces_only(kind)


def bytes_are_those_of_the_formulas() -> None:
    for kind in KINDS:
        for ranks_per_host in (1, 2):
            bytes_sent_are_the_formulas(kind, [0, 5, 100, 7, 31, 64], ranks_per_host)
